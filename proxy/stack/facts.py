"""What is known exactly of a span of the path: its call groups, and the facts that the observers see in them.

The law: **only what the calls and their results say is a fact**. A file counts as changed where the result of the
change is no failure; a command has the state its newest run ended with.

What this module does not do: it judges no worth and renders nothing (`trace` does).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from proxy.stack.observe import Names, observe
from proxy.stack.observe.commands import Ran, probes
from proxy.stack.observe.errors import ErrorSeen, ending
from proxy.stack.observe.step import Done, Step
from proxy.stack.story import Placed
from proxy.stack.trace import Facts
from proxy.stack.transcript import Call, Message

MARKED = frozenset({"created", "deleted"})
"""What is said of a changed file; that it was modified goes without saying."""


def said_by(placed: Placed) -> Message | None:
    """The message that stands for it on the line."""
    return placed.round.spoken.message if placed.round else placed.entry.message


def steps_of(placed: Iterable[Placed]) -> Iterator[Step]:
    """The call groups of the client's tools, in order, each with the results that followed it."""
    opened: Message | None = None
    results: dict[str, tuple[Message, str]] = {}
    for standing in placed:
        message = said_by(standing)
        if message is None:
            continue
        if message.role == "assistant":
            if opened is not None:
                yield step_of(opened, results)
            opened, results = message, {}
        elif message.answers:
            results.setdefault(message.answers, (message, standing.entry.id))
    if opened is not None:
        yield step_of(opened, results)


def step_of(message: Message, results: Mapping[str, tuple[Message, str]]) -> Step:
    """One call group; `results` are messages, and the ids of their entries, by the id of their call."""
    done = (_done(call, results.get(call.id)) for call in message.calls if not call.is_ours)
    return Step(message.text, tuple(done))


def _done(call: Call, came: tuple[Message, str] | None) -> Done:
    if came is None:
        return Done(call, "", answered=False)
    result, entry = came
    return Done(call, result.text, entry, failed=result.failed)


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
