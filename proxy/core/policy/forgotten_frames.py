"""Finds frames that a model pushed and answered the user in, without ending them, and pops that were deferred.
`follow_path` records their ends; items of the client's plan that wait in `deferred_pops` follow in `frame_inference`.

Such a frame would take in all that the user asks from then on. It ends with the user's next message: with the results
of a pop that was refused beside calls of the client, if the answer came right behind it, and otherwise, where the
message is a new request, with the answer as its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import msgspec

from proxy.core.context import entries_owned_by
from proxy.core.frames import DeferredPop, Frame, PathEntry, PathState, Status, path_to, results_from_texts
from proxy.core.ledger import Entry, Message
from proxy.core.observers import continues_by_topic, continues_by_wording, ends_with_user_message
from proxy.core.policy.frame_inference import MAX_SHORT_RESULTS_LENGTH
from proxy.core.policy.loop_detection import find_repeated_failure
from proxy.core.text import cut_for_display


class FrameEnd(msgspec.Struct, frozen=True):
    frame: str
    status: Status
    results: str
    compacted: str


def forgotten_frames(
    path_state: PathState, new_entries: Sequence[Entry], *, follows_requests: bool
) -> tuple[FrameEnd, ...]:
    """The frames that end with `new_entries`, the client's newest messages, innermost first. `path_state` is the path
    up to the entry before the last of them. `follows_requests`: a new request of the user ends frames too."""
    tree = path_state.tree
    if not tree.active:
        return ()
    inner = takewhile(lambda f: f.parent and (f.opening or f.is_inferred), reversed(path_to(tree, tree.active)))
    pushed = [frame for frame in inner if frame.opening and frame.status is Status.IN_PROGRESS]
    messages = [entry.message for entry in new_entries if entry.message]
    asked = "\n".join(m.text for m in messages if m.role == "user" and m.text.strip())
    spoken = _closing_answer(path_state.entries)
    if not pushed or not asked or spoken is None or not ends_with_user_message(messages):
        return ()
    answer, turn_before = spoken
    deferred = {f.id: pop for f in pushed if (pop := tree.deferred_pops.get(f.id)) and pop.turn == turn_before}
    if follows_requests and _is_new_request(path_state, pushed, answer.text, asked):
        ending = pushed
    else:
        outermost = max((at for at, frame in enumerate(pushed) if frame.id in deferred), default=-1)
        ending = pushed[: outermost + 1]
    failing = tree.active if find_repeated_failure(tree) else ""
    answered = (Status.BLOCKED if frame.id == failing else Status.COMPLETED for frame in ending)
    return tuple(
        _end(frame, deferred.get(frame.id), answer.text, status) for frame, status in zip(ending, answered, strict=True)
    )


def _closing_answer(path_entries: Sequence[PathEntry]) -> tuple[Message, str] | None:
    """The text with which the model ended its last turn, and the entry of the turn before it; None where the turn did
    not end in text. Its hidden rounds are no turn before it."""
    said = [(p.entry.id, m) for p in path_entries if (m := p.message) and (m.role == "assistant" or m.answers)]
    if not said or said[-1][1].role != "assistant" or said[-1][1].calls or not said[-1][1].text.strip():
        return None
    before = (entry for entry, message in reversed(said[:-1]) if message.role == "assistant" and entry != said[-1][0])
    return said[-1][1], next(before, "")


def _is_new_request(path_state: PathState, pushed: Sequence[Frame], answer: str, asked: str) -> bool:
    continues = continues_by_wording(answer, asked)
    if continues is not None:
        return not continues
    outermost = pushed[-1]
    frames = {frame.id for frame in path_to(path_state.tree, outermost.id)} | {frame.id for frame in pushed}
    worked = entries_owned_by(path_state, frames, path_state.entries)
    opening = "\n".join(m.text for p in worked if (m := p.message) and m.role == "user")
    return not continues_by_topic(opening, answer, asked)


def _end(frame: Frame, deferred: DeferredPop | None, answer: str, status: Status) -> FrameEnd:
    """`status` is that of a frame whose results are the answer."""
    if deferred:
        return FrameEnd(frame.id, deferred.status, deferred.results, deferred.compacted)
    results = results_from_texts([answer])
    compacted = cut_for_display(results, MAX_SHORT_RESULTS_LENGTH)
    return FrameEnd(frame.id, status, results, compacted)
