"""The laws of the core as properties of values: hundreds of conversations a second, and no HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.context.message_list import build_context, unpaired_calls
from proxy.core.frames.path_state import PathState, extend, replay
from proxy.core.ledger.ledger import EntryKind
from proxy.core.ledger.messages import Call, Message, identity_of
from proxy.core.matching import walk_history as walking
from tests.properties.depth import searched
from tests.properties.grown import SCRIBE, GrownConversation
from tests.properties.oracle import Oracle, named
from tests.properties.plays import Round, Words, played

PROJECT = Path(__file__).resolve().parents[2]


def conversation(draw: st.DataObject, view: str = "fork") -> tuple[GrownConversation, Oracle]:
    """One of up to eight turns, and the tree it must have come to."""
    grown, tree, words = GrownConversation(view), Oracle(), Words()
    for _ in range(draw.draw(st.integers(1, 8), label="turns")):
        calls = grown.said[-1].calls if grown.said else ()
        for call in calls[draw.draw(st.integers(0, 1), label="unanswered") :]:
            grown.client("tool", words.result(), call.id)
        if not calls or grown.said[-1].role == "assistant":
            grown.client("user", words.user())
            tree.user_speaks()
        play = played(draw, tree, words, most_hidden=3)
        grown.model(play.rounds)
        for done in play.rounds:
            tree.group(done.ops, alone=not done.client)
    return grown, tree


@searched(examples=150)
@given(draw=st.data())
def test_the_fold_of_any_path_is_the_tree_that_the_oracle_tells(draw: st.DataObject) -> None:
    grown, oracle = conversation(draw)
    tree = grown.story.tree
    titles = named({frame.id: frame.title for frame in tree.frames.values()})
    found = {titles[f.id]: (titles.get(f.parent, ""), str(f.status)) for f in tree.frames.values()}

    assert found == oracle.frames
    assert titles[tree.active] == oracle.active


@searched(examples=60)
@given(draw=st.data())
def test_a_path_folded_at_once_is_the_path_folded_step_by_step(draw: st.DataObject) -> None:
    grown, _ = conversation(draw)
    path = grown.ledger.path(grown.story.tip)
    stepwise = PathState()
    for entry in path:
        stepwise = extend(grown.ledger, stepwise, [entry])

    assert replay(grown.ledger, path, {}) == stepwise == grown.story


@searched(examples=150)
@given(draw=st.data(), view=st.sampled_from(("fork", "isolate", "last:1")))
def test_l1_every_line_is_paired(draw: st.DataObject, view: str) -> None:
    grown, _ = conversation(draw, view)

    assert [unpaired_calls(line.messages) for _, line in grown.lines] == [()] * len(grown.lines)
    assert unpaired_calls(build_context(grown.story, SCRIBE).messages) == ()


@searched(examples=150)
@given(draw=st.data(), view=st.sampled_from(("fork", "isolate", "last:1")))
def test_l2_the_line_of_a_frame_begins_with_its_line_before(draw: st.DataObject, view: str) -> None:
    grown, _ = conversation(draw, view)
    newest: dict[str, list[bytes]] = {}
    for owner, line in grown.lines:
        wires = [message.wire for message in line.messages]
        before = newest.get(owner, [])
        assert wires[: len(before)] == before
        newest[owner] = wires


@searched(examples=100)
@given(draw=st.data())
def test_h5_any_form_a_client_may_echo_a_history_in_is_recognised_to_its_end(draw: st.DataObject) -> None:
    grown, _ = conversation(draw)
    echoed = [echo(draw, message) for message in grown.said]
    path = walking.walk(grown.ledger, echoed)

    assert [entry.id for entry in path] == [entry.id for entry in grown.ledger.path(grown.story.tip)]


def echo(draw: st.DataObject, message: Message) -> Message:
    """A message as some client gives it back."""
    if not message.calls:
        return message
    spaces = draw.draw(st.sampled_from((None, 1, 4)), label="indent")
    extra = {"replace_all": False} if draw.draw(st.booleans(), label="defaulted field") else {}
    calls = tuple(
        Call(c.id, c.name, json.dumps({**json.loads(c.arguments), **extra}, indent=spaces)) for c in message.calls
    )
    text = "" if draw.draw(st.booleans(), label="drops text") else f" {message.text}\n"
    return replace(message, text=text, calls=calls, identity=identity_of("assistant", text, calls))


@pytest.mark.rows("X-03")
@searched(examples=60)
@given(times=st.integers(2, 6), told=st.integers(1, 6))
def test_the_same_words_said_again_are_another_message(times: int, told: int) -> None:
    """X-03: and the conversation is recognised at each of its lengths."""
    grown = GrownConversation()
    for _ in range(times):
        grown.client("user", "again")
        grown.model([Round("ok")])
    path = walking.walk(grown.ledger, grown.said[: 2 * told])

    assert len(path) == min(2 * told, 2 * times)
    assert len({entry.id for entry in path}) == len(path)
    assert [entry.kind for entry in path] == [EntryKind.MESSAGE, EntryKind.TURN] * (len(path) // 2)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_p3_the_same_conversation_has_the_same_bytes_in_every_process(seed: int) -> None:
    def told(hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.properties.grown", str(seed)]
        environment = {"PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    first, *others = (told(hash_seed) for hash_seed in ("0", "1", "4242"))
    assert len(first) == 64
    assert others == [first, first]
