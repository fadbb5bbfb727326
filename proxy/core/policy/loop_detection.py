"""Loops in the work of one frame: the same again, to and fro, the same task failed again (S3-20 to S3-23, C12).

Three patterns are known. *Repetition*: the same call gave the same result, three times in direct succession or five
times among the newest calls. *Alternation*: two or three steps take turns, and each gives what it gave before.
*Failures*: a task failed, was tried again, and failed again.

The law: **what gives something new is no loop**. A call counts as the same only with its result, so a test that fails
otherwise, a file that reads differently, an edit with other words break every pattern; between scattered calls a
change that is no part of the pattern does too. Nothing is counted across a change of frame, new words of the user, or
a call that only waits. When in doubt there is no loop: a warning that is wrong costs more than one that comes late.

What this module does not do: it refuses no call, and says nothing of calls that are no part of the pattern; what the
model is told of a loop is written by `warning`.

What is said of a loop: to the model behind the results that closed it, and as the result of a call that is refused.

The law: **a warning is kept to what was counted**. It names the pattern, how often it ran and what to do instead, and
shows the calls in a few words; a note stands in an element with the nonce, so no text of a tool can forge it.

What this module does not do: it finds no loop, and chooses no call that is refused (`loops` does both).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import takewhile
from typing import NamedTuple

import msgspec

from proxy.core.context.message_list import owner_of
from proxy.core.frames.path_state import Placed, Story
from proxy.core.frames.tree import Frame, Loop, Status, Tree, children
from proxy.core.ledger.ledger import Kind, Round
from proxy.core.ledger.messages import Call, Message
from proxy.core.memo import remembered
from proxy.core.observers.commands import command_lines
from proxy.core.observers.effects import is_waiting, may_change
from proxy.core.observers.step import Done, decoded, said_by
from proxy.core.observers.tool_roles import Names, Role, plain_name
from proxy.core.observers.turns import plain
from proxy.core.text import element, escape_xml

SHOWN = 120
"""Characters of a call as it is told."""


def shown(done: Done, names: Names) -> str:
    """A call in a few words: the command, or the name with its arguments."""
    lines = command_lines(done, names)
    return short(f"{done.call.name}: {'; '.join(lines)}" if lines else f"{done.call.name} {done.call.arguments}")


def short(text: str) -> str:
    """The beginning of a text, on one line."""
    words = " ".join(text[: 4 * SHOWN].split())
    return words if len(words) <= SHOWN else words[: SHOWN - 1] + "…"


LOOPING = (
    "Error: not run. This call is part of a loop, and would give the same again. Use the results above. Change "
    "something first (edit a file, look elsewhere, check an assumption), or tell the user what is missing. Every other "
    "call is run."
)
"""The result of a call that is refused (S3-24)."""


def note(loop: Loop, nonce: str) -> str:
    """What the model is told of it: the pattern, the count, and what to do instead. No text of a tool can forge it, for
    none knows the nonce."""
    named = ", ".join(f"`{each}`" for each in loop.shown)
    match loop.kind:
        case "failures":
            what = f"The task {named} has now failed {loop.count} times."
            instead = (
                "Before another attempt, say what was different each time and what the failures have in common; then "
                "choose another way, split the task, or tell the user what blocks it."
            )
        case "alternation":
            what = f"These steps have taken turns {loop.count} times, each with the same result as before: {named}."
            instead = (
                "Another turn will show the same. Use these results, or change something else first: look elsewhere, "
                "check an assumption, or tell the user what is missing."
            )
        case _:
            what = f"This was called {loop.count} times and gave the same result each time: {named}."
            instead = (
                "Calling it again will give the same again. Use that result, or change something else first: look "
                "elsewhere, check an assumption, or tell the user what is missing."
            )
    return element("stack-context", {"note": "loop", "nonce": nonce}, escape_xml(f"{what} {instead}"))


REPETITION, ALTERNATION, FAILURES = "repetition", "alternation", "failures"
KINDS = (REPETITION, ALTERNATION, FAILURES)
SCATTERED = 5
"""Same calls among the newest ones, others between them, that are a loop."""
ROUNDS = 2
"""Rounds of an alternation that are a loop: A, B, A, B."""
FAILED_TWICE = 2
"""Failed attempts at one task that are a loop."""
AGAIN = 2
"""A loop that goes on is told of again when it has run so many times as long."""
LONGEST_READ = 4_000
"""Characters of arguments that are read as JSON; longer ones stand for themselves."""
REMEMBERED = 1_024
"""Calls whose signature is remembered: with each request the newest ones are asked for again."""
LONGEST_COMPARED = 50_000
"""Characters of results in which times and addresses are passed over; longer ones must be equal as they are."""
NEARLY = 64
"""Characters by which the lengths of two such results may differ."""


class Rules(msgspec.Struct, frozen=True):
    """`repeats`: same calls in direct succession that are a loop. `window`: how many of the newest calls are looked at.
    `period`: how many steps may take turns at most; 1 knows no alternation."""

    repeats: int = 3
    window: int = 20
    period: int = 3


class Acted(NamedTuple):
    """A call with its result. `signature` is the same for calls that ask for the same."""

    signature: str
    done: Done


Letter = tuple[str, ...]
"""The signatures of a step, sorted: what it asked for."""


class Stepped(NamedTuple):
    """A call group with its results."""

    letter: Letter
    acted: tuple[Acted, ...]


def arisen(story: Story, names: Names, rules: Rules) -> Loop | None:
    """The loop that the newest step of a path closes, or a frame that failed again; None where there is none, or where
    it has been told of and has not grown much since."""
    run = run_of(story, rules.window)
    found = _found(run, story.tree, names, rules)
    if found is None:
        return None
    at = _entries(run)
    told = (loop for loop in story.tree.loops if _is_same(loop, found) and (loop.at in at or found.kind == FAILURES))
    return None if any(found.count < AGAIN * loop.count for loop in told) else found


def standing(story: Story, window: int) -> tuple[Loop, ...]:
    """The loops of a path that were warned of in the work that goes on at its end."""
    at = _entries(run_of(story, window))
    return tuple(loop for loop in story.tree.loops if loop.at in at)


def refused(story: Story, names: Names, window: int) -> frozenset[str]:
    """The signatures of calls that run in a loop at the end of a path: a change since then, by a call that is no part
    of the pattern, makes them worth a try again (C12)."""
    loops = [loop for loop in standing(story, window) if loop.kind != FAILURES]
    if not loops:
        return frozenset()
    run = run_of(story, window)
    found: set[str] = set()
    for loop in loops:
        closed = next(at for at, placed in enumerate(run) if loop.at in (placed.at, placed.entry.id))
        since = (acted for step in _steps(run[closed + 1 :], names) for acted in step.acted)
        if not any(acted.signature not in loop.calls and may_change(acted.done, names) for acted in since):
            found.update(loop.calls)
    return frozenset(found)


def _entries(run: Sequence[Placed]) -> frozenset[str]:
    return frozenset(entry for placed in run for entry in (placed.at, placed.entry.id))


def _found(run: Sequence[Placed], tree: Tree, names: Names, rules: Rules) -> Loop | None:
    steps = _steps(run, names)
    if steps and steps[-1].letter and _recurs(steps) and not _waits(steps[-1], names):
        found = (
            _in_succession(steps, names, rules.repeats)
            or _alternating(steps, names, rules.period)
            or _scattered(steps, names)
        )
        if found is not None:
            return found
    return failed_again(tree)


def _is_same(told: Loop, found: Loop) -> bool:
    return told.kind == found.kind and set(told.calls) == set(found.calls)


# ------------------------------------------------------------------------------------------------------------- the run
def run_of(story: Story, window: int) -> list[Placed]:
    """The newest work that belongs together, oldest first: at most `window` calls with their results, behind the last
    change of frame, the last new words of the user, and the point up to which a person cleared the loops."""
    tree = story.tree
    owner = tree.current.owner if tree.active else ""
    run: list[Placed] = []
    calls = 0
    for at in range(len(story.placed) - 1, -1, -1):
        placed = story.placed[at]
        if placed.entry.kind is Kind.OVERLAY:
            continue
        cleared = tree.loops_cleared and tree.loops_cleared in (placed.at, placed.entry.id)
        if cleared or owner_of(story, placed) != owner:
            break
        said = said_by(placed)
        if said is not None and said.role == "user" and _is_news(story.placed, at):
            break
        calls += len(said.calls) if said else 0
        if calls > window:
            break
        run.append(placed)
    return run[::-1]


def _is_news(placed: Sequence[Placed], at: int) -> bool:
    """Whether these are words of the user that were not said the time before: an agent without a person is told "go
    on" again and again."""
    said = _users_words(placed[at])
    if not said:
        return False
    before = (words for earlier in reversed(placed[:at]) if (words := _users_words(earlier)))
    return next(before, "") != said


def _users_words(placed: Placed) -> str:
    message = placed.entry.message
    if placed.entry.kind is Kind.OVERLAY or message is None or message.role != "user" or message.answers:
        return ""
    return plain(message.text)


# ----------------------------------------------------------------------------------------------------------- the steps
def _steps(run: Sequence[Placed], names: Names) -> list[Stepped]:
    """The call groups of a run, oldest first, hidden ones among them. A call without a result says nothing, and is
    left out."""
    results: dict[str, Message] = {}
    found: list[Stepped] = []
    for placed in reversed(run):
        if placed.round is not None:
            results |= _results_in(placed.round)
        message = said_by(placed)
        if message is None:
            continue
        if message.answers:
            results[message.answers] = message
        elif message.calls:
            acted = tuple([_acted(call, results[call.id], names) for call in message.calls if call.id in results])
            if acted:
                found.append(Stepped(tuple(sorted([each.signature for each in acted])), acted))
            results = {}
    return found[::-1]


def _results_in(hidden: Round) -> dict[str, Message]:
    """What was answered here, by call. A call that was refused did nothing."""
    refused_ids = hidden.spoken.refused
    return {result.answers: result for result in hidden.results if result.answers not in refused_ids}


def _acted(call: Call, result: Message, names: Names) -> Acted:
    return Acted(signature(call, names), Done(call, result.text, failed=result.failed))


_SAID_BESIDE = frozenset(
    {"description", "explanation", "justification", "reason", "summary", "thought", "security_risk"}
)
"""Arguments in which a model says why it runs a command: other words each time, for the same command."""
_OF_THE_CALL = frozenset({"callid", "toolcallid", "tooluseid", "requestid", "traceid", "idempotencykey", "timestamp"})
"""Arguments that name the call itself, by plain name."""


def signature(call: Call, names: Names) -> str:
    """What a call asks for, as 16 hex digits: its name and its arguments, however they are spelt (S3-20). What names
    the call itself, and what a model says beside a command, does not count."""
    if len(call.arguments) > LONGEST_READ:
        return _signed(call.name, call.arguments)
    return _read(call.name, call.arguments, names.role(call.name) is Role.SHELL)


@remembered(REMEMBERED, LONGEST_READ)
def _read(name: str, arguments: str, is_command: bool) -> str:  # noqa: FBT001  the cache takes what it is called with
    value = decoded(arguments)
    if isinstance(value, Mapping):
        beside = _SAID_BESIDE if is_command else frozenset[str]()
        value = {k: v for k, v in value.items() if k not in beside and plain_name(str(k)) not in _OF_THE_CALL}
    try:
        text = _written(_tidied(value))
    except RecursionError:  # nested too deep to be read
        text = arguments
    return _signed(name, text)


def _signed(name: str, text: str) -> str:
    return sha256(f"{name}\n{text.strip()}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _tidied(value: object) -> object:
    """White space around a text and the spelling of a whole number do not count."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _tidied(inner) for key, inner in value.items()}
    return [_tidied(inner) for inner in value] if isinstance(value, list) else value


def _written(value: object) -> str:
    try:
        return msgspec.json.encode(value, order="sorted").decode()
    except UnicodeError:
        return repr(value)[:LONGEST_READ]


_PASSING = re.compile(
    r"""\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?Z? | \b\d\d?:\d\d:\d\d(?:[.,]\d+)?\b
      | \b\d+(?:\.\d+)?\s?(?:ms|s|secs?|seconds|milliseconds)\b | \b0x[0-9a-f]{4,}\b
      | \b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Times, durations, addresses and random ids: they differ where nothing else does."""


def _same_result(one: Done, other: Done) -> bool:
    left, right = one.result.strip(), other.result.strip()
    if left == right:
        return True
    if abs(len(left) - len(right)) > NEARLY or max(len(left), len(right)) > LONGEST_COMPARED:
        return False
    return _PASSING.sub("", left) == _PASSING.sub("", right)


def _same_step(one: Stepped, other: Stepped) -> bool:
    """The same calls with the same results, whatever their order."""
    if one.letter != other.letter:
        return False
    pairs = zip(sorted(one.acted, key=_by_signature), sorted(other.acted, key=_by_signature), strict=True)
    return all(_same_result(left.done, right.done) for left, right in pairs)


def _by_signature(acted: Acted) -> str:
    return acted.signature


# -------------------------------------------------------------------------------------------------------- the patterns
def _recurs(steps: Sequence[Stepped]) -> bool:
    """Whether a call of the newest step was made before: nearly always none was, and there is nothing to look for."""
    newest = set(steps[-1].letter)
    return any(not newest.isdisjoint(step.letter) for step in steps[:-1])


def _waits(step: Stepped, names: Names) -> bool:
    """To ask again whether something has come by now is no loop."""
    return any(is_waiting(each.done, names) for each in step.acted)


def _in_succession(steps: Sequence[Stepped], names: Names, repeats: int) -> Loop | None:
    newest = steps[-1]
    count = sum(1 for _ in takewhile(lambda step: _same_step(step, newest), reversed(steps)))
    return _loop(REPETITION, [newest], count, names) if count >= repeats else None


def _alternating(steps: Sequence[Stepped], names: Names, period: int) -> Loop | None:
    """The shortest period counts."""
    for length in range(2, period + 1):
        pattern = steps[-length:]
        if len({step.letter for step in pattern}) < 2 or any(_waits(step, names) for step in pattern):
            continue
        behind = zip(reversed(steps), reversed(steps[:-length]), strict=False)
        equal = sum(1 for _ in takewhile(lambda pair: _same_step(*pair), behind))
        rounds = equal // length + 1
        if rounds >= ROUNDS:
            return _loop(ALTERNATION, pattern, rounds, names)
    return None


def _scattered(steps: Sequence[Stepped], names: Names) -> Loop | None:
    """A call of the newest step that gave the same all along, with others between and no change among these."""
    for newest in steps[-1].acted:
        count = 0
        for step in reversed(steps):
            same = [each for each in step.acted if each.signature == newest.signature]
            if any(not _same_result(each.done, newest.done) for each in same):
                break
            count += bool(same)
            if any(each.signature != newest.signature and may_change(each.done, names) for each in step.acted):
                break
        if count >= SCATTERED:
            return _loop(REPETITION, [Stepped((newest.signature,), (newest,))], count, names)
    return None


def _loop(kind: str, pattern: Sequence[Stepped], count: int, names: Names) -> Loop:
    acted = {each.signature: each for step in pattern for each in step.acted}
    return Loop(kind, tuple(acted), tuple(shown(each.done, names) for each in acted.values()), count)


def failed_again(tree: Tree) -> Loop | None:
    """The task below the active frame that ended last, where it failed and had failed before: attempts are known by
    what they retry, or by their title (S3-23)."""
    ended = [f for f in children(tree, tree.active) if f.status in (Status.FAILED, Status.COMPLETED)]
    if not ended:
        return None
    newest = max(ended, key=lambda frame: (frame.updated_at, frame.order))
    if newest.status is not Status.FAILED:
        return None
    attempts = [f for f in ended if f.status is Status.FAILED and _is_attempt(tree, f, newest)]
    if len(attempts) < FAILED_TWICE:
        return None
    return Loop(FAILURES, (_title(newest),), (short(newest.title),), len(attempts))


def _is_attempt(tree: Tree, one: Frame, newest: Frame) -> bool:
    if one.id == newest.id or _title(one) == _title(newest):
        return True
    at, seen = newest, {newest.id}
    while at.retry_of in tree.frames and at.retry_of not in seen:
        at = tree.frames[at.retry_of]
        seen.add(at.id)
    return one.id in seen


def _title(frame: Frame) -> str:
    return " ".join(frame.title.casefold().split())
