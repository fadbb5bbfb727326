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

from proxy.core.compaction.trace import SpanFacts, merge_facts
from proxy.core.context import owner_of
from proxy.core.frames import (
    RETURN_STATUSES,
    Frame,
    PathEntry,
    PathState,
    Tree,
    call_key,
    derive_compaction,
    descendants,
    subagent_frame_id,
)
from proxy.core.ledger import Call
from proxy.core.observers import (
    CommandRun,
    ObservedError,
    ToolRoles,
    decode_json_or_text,
    last_outcome_by_kind,
    message_of,
    observe,
    resolution_of,
    steps_of,
    texts_in,
)
from proxy.core.text import CountTokens, cut_for_display

RETURNED_FRAMES_TOKENS = 1_200
"""Tokens that frames have for what they came to, all of one span together, and each of them at most and at least."""
RETURNED_FRAME_MAX_TOKENS, RETURNED_FRAME_MIN_TOKENS = 350, 40
NOTE_TOOL_NAMES = ("stack_add_artifact", "add_artifact", "stack_add_decision", "add_decision")
"""Names by which the model may call these tools, `op` of the dispatcher among them."""
REASON_SEPARATOR = " (because: "
"""Between a noted decision and its reason."""
MARKED_CHANGES = frozenset({"created", "deleted"})
"""What is said of a changed file; that it was modified goes without saying."""


def facts_of(path_entries: Iterable[PathEntry], names: ToolRoles) -> SpanFacts:
    """All facts of a span, each once, with the newest that is known of it."""
    changed: dict[str, str] = {}
    read: dict[str, None] = {}
    commands: dict[str, str] = {}
    decisions: dict[str, None] = {}
    errors: dict[ObservedError, None] = {}
    ran: list[CommandRun] = []
    steps = 0
    for step in steps_of(path_entries):
        seen = observe(step, names)
        steps += bool(step.executions)
        for file in seen.files:
            if file.action == "read":
                read.setdefault(file.path)
            elif file.is_certain or file.path in changed:
                changed[file.path] = _merge_change_kind(changed.get(file.path), file.action)
        for one in seen.commands:
            commands.pop(one.command, None)
            commands[one.command] = one.outcome
        ran += seen.commands
        decisions.update(dict.fromkeys(seen.decisions))
        errors.update(dict.fromkeys(seen.errors))
    ended = last_outcome_by_kind(ran)
    return SpanFacts(
        tuple(f"{path} ({how})" if how in MARKED_CHANGES else path for path, how in changed.items()),
        tuple(path for path in read if path not in changed),
        tuple(f"{command}: {state}" if state != "unknown" else command for command, state in commands.items()),
        tuple(decisions),
        tuple(_error_with_ending(error, resolution_of(error, ended)) for error in errors),
        steps,
    )


def _error_with_ending(error: ObservedError, told: str) -> str:
    return f"{error.line} ({told})" if told else error.line


def _merge_change_kind(before: str | None, now: str) -> str:
    """A file that was created here and then worked on is still one that was created here."""
    return "created" if before == "created" and now == "modified" else now


def artifacts_in_facts(facts: SpanFacts) -> Sequence[str]:
    """The files that a span made or changed, without what became of them; deleted ones are none."""
    return tuple(path.removesuffix(" (created)") for path in facts.changed if not path.endswith(" (deleted)"))


# ----------------------------------------------------------------------------------------------- what stands with calls
def frames_returned_in(tree: Tree, path_entries: Sequence[PathEntry]) -> tuple[Frame, ...]:
    """The frames that calls in a span opened, subagents' among them, and that returned there, in order; not those that
    one of them opened, for these returned into it."""
    opened = frames_opened_in(tree, path_entries)
    if any(frame.origin == "subagent" for frame in tree.frames.values()):
        turns = {p.entry.id: len(p.round.spoken.client_calls) for p in path_entries if p.round}
        delegated = {subagent_frame_id(turn, n) for turn, calls in turns.items() for n in range(calls)}
        opened |= delegated & tree.frames.keys()
    frames = (frame for frame in tree.frames.values() if frame.id in opened and frame.parent not in opened)
    return tuple(frame for frame in frames if frame.status in RETURN_STATUSES)


def frames_opened_in(tree: Tree, path_entries: Iterable[PathEntry]) -> set[str]:
    """The frames that calls of our tools in a span opened. Where none was ever pushed, no call is looked at."""
    pushed = [(frame.id, frame.opening) for frame in tree.frames.values() if frame.opening]
    called = stack_call_keys(path_entries) if pushed else ()
    return {frame for frame, opening in pushed if (opening.turn, opening.call) in called}


def describe_returned_frames(frames: Sequence[Frame], count: CountTokens) -> str:
    """What each of `frames` came to, a line or a few each."""
    limit = min(
        RETURNED_FRAME_MAX_TOKENS, max(RETURNED_FRAME_MIN_TOKENS, RETURNED_FRAMES_TOKENS // max(1, len(frames)))
    )
    return "\n".join(
        f"{cut_for_display(f.title)} ({f.id}, {f.status}): "
        f"{derive_compaction((f.results_compacted if f.opening else '') or f.results, count, limit)}"
        for f in frames
    )


def stack_call_keys(path_entries: Iterable[PathEntry]) -> set[tuple[str, str]]:
    """The calls of our tools in a span, each by its turn and its key there."""
    return {
        (p.entry.id, call_key(p.round.number, c.id)) for p in path_entries if p.round for c in p.round.spoken.own_calls
    }


def with_noted_facts(facts: SpanFacts, tree: Tree, path_entries: Sequence[PathEntry]) -> SpanFacts:
    """`facts` with what calls of ours in the span noted on frames, where it still stands there, and with what the
    frames that returned there made and decided, as their results tell it."""
    said = (call for p in path_entries if (message := message_of(p)) for call in message.calls if call.is_stack_call)
    words = {text.strip() for call in said for text in _texts_noted_by(call)}
    frames = frames_returned_in(tree, path_entries)
    inside = [f for frame in frames for f in (frame, *descendants(tree, frame.id))]
    told = [f for f in inside if f in frames or f.has_no_opening_call]
    artifacts = [a for f in tree.frames.values() for a in f.artifacts if a in words]
    decisions = [d for f in tree.frames.values() for d in f.decisions if _is_noted(d, words)]
    artifacts += [a for f in inside for a in f.artifacts]
    decisions += [d for f in told for d in f.decisions]
    kept = SpanFacts(
        tuple(dict.fromkeys(map(_on_one_line, artifacts))), decisions=tuple(dict.fromkeys(map(_on_one_line, decisions)))
    )
    return merge_facts(kept, facts)


def _texts_noted_by(call: Call) -> Iterator[str]:
    """The texts of a call that notes something, by the tool's own name or through the dispatcher."""
    arguments = decode_json_or_text(call.arguments)
    op = arguments.get("op", call.name) if isinstance(arguments, dict) else ""
    if op in NOTE_TOOL_NAMES:
        yield from texts_in(arguments)


def _is_noted(decision: str, words: Container[str]) -> bool:
    bare, _, reason = decision.partition(REASON_SEPARATOR)
    return decision in words or (bare in words and reason.removesuffix(")") in words)


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def summarized_positions(path_state: PathState, path_entries: Sequence[PathEntry]) -> frozenset[int]:
    """The places in `path_entry`, some of the story, of what the newest summary of its frame speaks of."""
    interims = path_state.tree.interim_summaries
    if not interims:
        return frozenset()
    order = {entry: n for n, p in enumerate(path_state.entries) for entry in (p.entry.id, p.path_id)}
    until = {frame: order.get(interim.at, -1) for frame, interim in interims.items()}
    owners = ((at, p, owner_of(path_state, p).partition("#")[0]) for at, p in enumerate(path_entries))
    return frozenset(at for at, p, owner in owners if owner in until and order[p.path_id] <= until[owner])


def interim_summary_text(path_state: PathState, path_entries: Sequence[PathEntry]) -> str:
    """How the model summed up what some of `path_entry` is part of; empty where it did not."""
    summed = summarized_positions(path_state, path_entries)
    frames = dict.fromkeys(owner_of(path_state, path_entries[at]).partition("#")[0] for at in sorted(summed))
    return "\n".join(filter(None, (path_state.tree.interim_summaries[frame].model_text for frame in frames)))
