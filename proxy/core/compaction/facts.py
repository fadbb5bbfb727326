"""What is known exactly of a span of the path: its call groups, and the facts that the observers see in them.

The law: **only what the calls and their results say is a fact**. A file counts as changed where the result of the
change is no failure; a command has the state its newest run ended with.

What was noted on frames, and what frames came to that calls of the span opened, is a fact as well: calls of ours and
their results say it, and nothing else on the line does.

What this module does not do: it judges no worth and renders nothing (`trace` does).

What the model summed up of work that goes on: which of it, and in which words.

A summary is made by `stack_frame_summarize` and speaks of what its frame did up to an entry. The law: **it is told in
the place of that work, and only there**: while the work is on the line nothing tells of its summary.

What this module does not do: it makes none (`tools.summarizing` does), and says of no moment that it is right
(`folding` and `trim` do).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from proxy.core.compaction.trace import Facts, merged
from proxy.core.context.message_list import owner_of
from proxy.core.frames.events import call_key, subagent_id
from proxy.core.frames.path_state import Placed, Story
from proxy.core.frames.results import derived_compaction
from proxy.core.frames.tree import RETURNED, Frame, Tree, descendants
from proxy.core.ledger.messages import Call
from proxy.core.observers import Names, observe
from proxy.core.observers.commands import Ran, probes
from proxy.core.observers.errors import ErrorSeen, ending
from proxy.core.observers.step import decoded, said_by, steps_of, texts_in
from proxy.core.text import Count, cut_for_display

RETURNED_TOGETHER = 1_200
"""Tokens that frames have for what they came to, all of one span together, and each of them at most and at least."""
RETURNED_MOST, RETURNED_LEAST = 350, 40
NOTING = ("stack_add_artifact", "add_artifact", "stack_add_decision", "add_decision")
"""Names by which the model may call these tools, `op` of the dispatcher among them."""
BECAUSE = " (because: "
"""Between a noted decision and its reason."""
MARKED = frozenset({"created", "deleted"})
"""What is said of a changed file; that it was modified goes without saying."""


def facts_of(placed: Iterable[Placed], names: Names) -> Facts:
    """All facts of a span, each once, with the newest that is known of it."""
    changed: dict[str, str] = {}
    read: dict[str, None] = {}
    commands: dict[str, str] = {}
    decisions: dict[str, None] = {}
    errors: dict[ErrorSeen, None] = {}
    ran: list[Ran] = []
    steps = 0
    for step in steps_of(placed):
        seen = observe(step, names)
        steps += bool(step.done)
        for file in seen.files:
            if file.how == "read":
                read.setdefault(file.path)
            elif file.sure or file.path in changed:
                changed[file.path] = _how(changed.get(file.path), file.how)
        for one in seen.commands:
            commands.pop(one.command, None)
            commands[one.command] = one.state
        ran += seen.commands
        decisions.update(dict.fromkeys(seen.decisions))
        errors.update(dict.fromkeys(seen.errors))
    ended = probes(ran)
    return Facts(
        tuple(f"{path} ({how})" if how in MARKED else path for path, how in changed.items()),
        tuple(path for path in read if path not in changed),
        tuple(f"{command}: {state}" if state != "unknown" else command for command, state in commands.items()),
        tuple(decisions),
        tuple(_with_ending(error, ending(error, ended)) for error in errors),
        steps,
    )


def _with_ending(error: ErrorSeen, told: str) -> str:
    return f"{error.line} ({told})" if told else error.line


def _how(before: str | None, now: str) -> str:
    """A file that was created here and then worked on is still one that was created here."""
    return "created" if before == "created" and now == "modified" else now


def artifacts_of(facts: Facts) -> Sequence[str]:
    """The files that a span made or changed, without what became of them; deleted ones are none."""
    return tuple(path.removesuffix(" (created)") for path in facts.changed if not path.endswith(" (deleted)"))


# ----------------------------------------------------------------------------------------------- what stands with calls
def returned_in(tree: Tree, placed: Sequence[Placed]) -> tuple[Frame, ...]:
    """The frames that calls in a span opened, subagents' among them, and that returned there, in order; not those that
    one of them opened, for these returned into it."""
    opened = opened_in(tree, placed)
    if any(frame.origin == "subagent" for frame in tree.frames.values()):
        turns = {p.entry.id: len(p.round.spoken.client_calls) for p in placed if p.round}
        delegated = {subagent_id(turn, n) for turn, calls in turns.items() for n in range(calls)}
        opened |= delegated & tree.frames.keys()
    frames = (frame for frame in tree.frames.values() if frame.id in opened and frame.parent not in opened)
    return tuple(frame for frame in frames if frame.status in RETURNED)


def opened_in(tree: Tree, placed: Iterable[Placed]) -> set[str]:
    """The frames that calls of our tools in a span opened. Where none was ever pushed, no call is looked at."""
    pushed = [(frame.id, frame.opening) for frame in tree.frames.values() if frame.opening]
    called = calls_of_ours(placed) if pushed else ()
    return {frame for frame, opening in pushed if (opening.turn, opening.call) in called}


def returned_words(frames: Sequence[Frame], count: Count) -> str:
    """What each of `frames` came to, a line or a few each."""
    limit = min(RETURNED_MOST, max(RETURNED_LEAST, RETURNED_TOGETHER // max(1, len(frames))))
    return "\n".join(
        f"{cut_for_display(f.title)} ({f.id}, {f.status}): "
        f"{derived_compaction((f.results_compacted if f.opening else '') or f.results, count, limit)}"
        for f in frames
    )


def calls_of_ours(placed: Iterable[Placed]) -> set[tuple[str, str]]:
    """The calls of our tools in a span, each by its turn and its key there."""
    return {(p.entry.id, call_key(p.round.number, c.id)) for p in placed if p.round for c in p.round.spoken.own_calls}


def with_notes(facts: Facts, tree: Tree, placed: Sequence[Placed]) -> Facts:
    """`facts` with what calls of ours in the span noted on frames, where it still stands there, and with what the
    frames that returned there made and decided, as their results tell it."""
    said = (call for p in placed if (message := said_by(p)) for call in message.calls if call.is_ours)
    words = {text.strip() for call in said for text in _noted_by(call)}
    frames = returned_in(tree, placed)
    inside = [f for frame in frames for f in (frame, *descendants(tree, frame.id))]
    told = [f for f in inside if f in frames or f.is_uncalled]
    artifacts = [a for f in tree.frames.values() for a in f.artifacts if a in words]
    decisions = [d for f in tree.frames.values() for d in f.decisions if _is_noted(d, words)]
    artifacts += [a for f in inside for a in f.artifacts]
    decisions += [d for f in told for d in f.decisions]
    kept = Facts(tuple(dict.fromkeys(map(_line, artifacts))), decisions=tuple(dict.fromkeys(map(_line, decisions))))
    return merged(kept, facts)


def _noted_by(call: Call) -> Iterator[str]:
    """The texts of a call that notes something, by the tool's own name or through the dispatcher."""
    arguments = decoded(call.arguments)
    op = arguments.get("op", call.name) if isinstance(arguments, dict) else ""
    if op in NOTING:
        yield from texts_in(arguments)


def _is_noted(decision: str, words: Container[str]) -> bool:
    bare, _, reason = decision.partition(BECAUSE)
    return decision in words or (bare in words and reason.removesuffix(")") in words)


def _line(text: str) -> str:
    return " ".join(text.split())


def summed_up(story: Story, placed: Sequence[Placed]) -> frozenset[int]:
    """The places in `placed`, some of the story, of what the newest summary of its frame speaks of."""
    interims = story.tree.interims
    if not interims:
        return frozenset()
    order = {entry: n for n, p in enumerate(story.placed) for entry in (p.entry.id, p.at)}
    until = {frame: order.get(interim.at, -1) for frame, interim in interims.items()}
    owners = ((at, p, owner_of(story, p).partition("#")[0]) for at, p in enumerate(placed))
    return frozenset(at for at, p, owner in owners if owner in until and order[p.at] <= until[owner])


def interim_words(story: Story, placed: Sequence[Placed]) -> str:
    """How the model summed up what some of `placed` is part of; empty where it did not."""
    summed = summed_up(story, placed)
    frames = dict.fromkeys(owner_of(story, placed[at]).partition("#")[0] for at in sorted(summed))
    return "\n".join(filter(None, (story.tree.interims[frame].words for frame in frames)))
