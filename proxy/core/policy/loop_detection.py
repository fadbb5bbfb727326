"""Finds loops in the work of one frame, and writes the note and the refusal that the model reads.

Three patterns count: the same call with the same result (three times in succession, or five among the newest calls),
two or three steps that take turns with unchanged results, and a task that failed, was retried, and failed again. A
changed result or file breaks every pattern. Counting stops at a change of frame, new words of the user, or a call that
only waits. In doubt there is no loop: a wrong warning costs more than a late one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import takewhile
from typing import NamedTuple

import msgspec

from proxy.core.context import owner_of
from proxy.core.frames import Frame, Loop, PathEntry, PathState, Status, Tree, children
from proxy.core.ledger import Call, EntryKind, Message, Round
from proxy.core.memo import memoize
from proxy.core.observers import (
    ToolExecution,
    ToolRole,
    ToolRoles,
    command_lines_of,
    decode_json_or_text,
    is_waiting,
    may_have_side_effects,
    normalize_name,
    typed_text_of,
)
from proxy.core.text import element, escape_xml

MAX_DISPLAYED_CALL_LENGTH = 120


def describe_call(execution: ToolExecution, tool_roles: ToolRoles) -> str:
    """A call in a few words: the command, or the name with its arguments."""
    lines = command_lines_of(execution, tool_roles)
    return shorten(
        f"{execution.call.name}: {'; '.join(lines)}" if lines else f"{execution.call.name} {execution.call.arguments}"
    )


def shorten(text: str) -> str:
    line = " ".join(text[: 4 * MAX_DISPLAYED_CALL_LENGTH].split())
    return line if len(line) <= MAX_DISPLAYED_CALL_LENGTH else line[: MAX_DISPLAYED_CALL_LENGTH - 1] + "…"


REFUSED_CALL_RESULT = (
    "Error: not run. This call is part of a loop, and would give the same again. Use the results above. Change "
    "something first (edit a file, look elsewhere, check an assumption), or tell the user what is missing. Every other "
    "call is run."
)


def loop_note(loop: Loop, nonce: str) -> str:
    """The note for the model: the pattern, its count, and what to do instead. The nonce keeps tool output from forging
    it."""
    calls = ", ".join(f"`{each}`" for each in loop.shown)
    match loop.kind:
        case "failures":
            finding = f"The task {calls} has now failed {loop.count} times."
            instead = (
                "Before another attempt, say what was different each time and what the failures have in common; then "
                "choose another way, split the task, or tell the user what blocks it."
            )
        case "alternation":
            finding = f"These steps have taken turns {loop.count} times, each with the same result as before: {calls}."
            instead = (
                "Another turn will show the same. Use these results, or change something else first: look elsewhere, "
                "check an assumption, or tell the user what is missing."
            )
        case _:
            finding = f"This was called {loop.count} times and gave the same result each time: {calls}."
            instead = (
                "Calling it again will give the same again. Use that result, or change something else first: look "
                "elsewhere, check an assumption, or tell the user what is missing."
            )
    return element("stack-context", {"note": "loop", "nonce": nonce}, escape_xml(f"{finding} {instead}"))


REPETITION, ALTERNATION, FAILURES = "repetition", "alternation", "failures"
LOOP_KINDS = (REPETITION, ALTERNATION, FAILURES)
MIN_SCATTERED_CALLS = 5  # same calls among the newest ones, with others between them
MIN_ALTERNATION_ROUNDS = 2  # A, B, A, B
MIN_FAILED_ATTEMPTS = 2
REPEAT_WARNING_FACTOR = 2  # a loop that goes on is reported again at this multiple of its length
MAX_PARSED_ARGUMENTS_LENGTH = 4_000  # characters; longer arguments are compared as text
CACHED_SIGNATURES = 1_024  # signatures are asked for again at every request
MAX_COMPARED_LENGTH = 50_000  # characters; longer results are compared exactly, times and addresses included
MAX_LENGTH_DIFFERENCE = 64  # characters by which such results may differ in length


class LoopRules(msgspec.Struct, frozen=True):
    """`repeats`: same calls in succession that make a loop. `window`: how many of the newest calls are examined.
    `period`: how many steps may alternate at most; 1 disables alternation."""

    repeats: int = 3
    window: int = 20
    period: int = 3


class SignedCall(NamedTuple):
    """A call with its result. Calls that ask for the same have the same `signature`."""

    signature: str
    execution: ToolExecution


StepSignature = tuple[str, ...]  # of one step's calls, sorted


class SignedStep(NamedTuple):
    signature: StepSignature
    calls: tuple[SignedCall, ...]


def find_new_loop(path_state: PathState, tool_roles: ToolRoles, rules: LoopRules) -> Loop | None:
    """The loop that the newest step of a path closes, or a frame that failed again. None where there is none, or where
    it was already reported and has not grown much since."""
    run = current_run_of(path_state, rules.window)
    loop = _find_loop(run, path_state.tree, tool_roles, rules)
    if loop is None:
        return None
    entry_ids = _entry_ids(run)
    reported = (
        earlier
        for earlier in path_state.tree.loops
        if (earlier.kind, set(earlier.calls)) == (loop.kind, set(loop.calls))
        and (earlier.at in entry_ids or loop.kind == FAILURES)
    )
    return None if any(loop.count < REPEAT_WARNING_FACTOR * earlier.count for earlier in reported) else loop


def active_loops(path_state: PathState, window: int) -> tuple[Loop, ...]:
    """Loops that were reported in the work at the end of a path."""
    entry_ids = _entry_ids(current_run_of(path_state, window))
    return tuple(loop for loop in path_state.tree.loops if loop.at in entry_ids)


def looping_signatures(path_state: PathState, tool_roles: ToolRoles, window: int) -> frozenset[str]:
    """Signatures of the looping calls at the end of a path. A later change by another call removes them, because trying
    again is then worthwhile."""
    loops = [loop for loop in active_loops(path_state, window) if loop.kind != FAILURES]
    if not loops:
        return frozenset()
    run = current_run_of(path_state, window)
    signatures: set[str] = set()
    for loop in loops:
        closing_index = next(
            index for index, path_entry in enumerate(run) if loop.at in (path_entry.path_id, path_entry.entry.id)
        )
        later_calls = (
            signed_call for step in _signed_steps(run[closing_index + 1 :], tool_roles) for signed_call in step.calls
        )
        if not any(
            signed_call.signature not in loop.calls and may_have_side_effects(signed_call.execution, tool_roles)
            for signed_call in later_calls
        ):
            signatures.update(loop.calls)
    return frozenset(signatures)


def _entry_ids(run: Sequence[PathEntry]) -> frozenset[str]:
    return frozenset(entry for path_entry in run for entry in (path_entry.path_id, path_entry.entry.id))


def _find_loop(run: Sequence[PathEntry], tree: Tree, tool_roles: ToolRoles, rules: LoopRules) -> Loop | None:
    steps = _signed_steps(run, tool_roles)
    if steps and steps[-1].signature and _has_repeated_call(steps) and not _is_waiting_step(steps[-1], tool_roles):
        loop = (
            _find_repetition(steps, tool_roles, rules.repeats)
            or _find_alternation(steps, tool_roles, rules.period)
            or _find_scattered_repetition(steps, tool_roles)
        )
        if loop is not None:
            return loop
    return find_repeated_failure(tree)


def current_run_of(path_state: PathState, window: int) -> list[PathEntry]:
    """The newest connected work, oldest first: at most `window` calls with results since the last change of frame, new
    words of the user, or a person's clearing of the loops."""
    tree = path_state.tree
    owner = tree.active_frame.owner if tree.active else ""
    run: list[PathEntry] = []
    calls = 0
    for index in range(len(path_state.entries) - 1, -1, -1):
        path_entry = path_state.entries[index]
        if path_entry.entry.kind is EntryKind.OVERLAY:
            continue
        cleared = tree.loops_cleared_at and tree.loops_cleared_at in (path_entry.path_id, path_entry.entry.id)
        if cleared or owner_of(path_state, path_entry) != owner:
            break
        message = path_entry.message
        if message is not None and message.role == "user" and _is_new_user_text(path_state.entries, index):
            break
        calls += len(message.calls) if message else 0
        if calls > window:
            break
        run.append(path_entry)
    return run[::-1]


def _is_new_user_text(path_entries: Sequence[PathEntry], index: int) -> bool:
    """Whether these are user words that differ from the last ones: unattended agents receive "go on" again and
    again."""
    user_text = _user_text(path_entries[index])
    if not user_text:
        return False
    earlier_texts = (text for earlier in reversed(path_entries[:index]) if (text := _user_text(earlier)))
    return next(earlier_texts, "") != user_text


def _user_text(path_entry: PathEntry) -> str:
    message = path_entry.entry.message
    if path_entry.entry.kind is EntryKind.OVERLAY or message is None or message.role != "user" or message.answers:
        return ""
    return typed_text_of(message.text)


def _signed_steps(run: Sequence[PathEntry], tool_roles: ToolRoles) -> list[SignedStep]:
    """The call groups of a run, oldest first, hidden ones included. Calls without a result are left out."""
    results: defaultdict[str, list[Message]] = defaultdict(list)
    """By call id, newest first."""
    steps: list[SignedStep] = []
    for path_entry in reversed(run):
        if path_entry.round is not None:
            for result in reversed(_results_of_round(path_entry.round)):
                results[result.answers].append(result)
        message = path_entry.message
        if message is None:
            continue
        if message.answers:
            results[message.answers].append(message)
        elif message.calls:
            answered = [(call, results[call.id].pop()) for call in message.calls if results.get(call.id)]
            signed_calls = tuple(
                SignedCall(call_signature(c, tool_roles), ToolExecution(c, r.text, failed=r.failed))
                for c, r in answered
            )
            if signed_calls:
                steps.append(
                    SignedStep(tuple(sorted([signed_call.signature for signed_call in signed_calls])), signed_calls)
                )
            results.clear()
    return steps[::-1]


def _results_of_round(hidden_round: Round) -> list[Message]:
    """Results inside a hidden round. Those of refused calls are left out, because they did nothing."""
    refused_ids = hidden_round.spoken.refused_call_ids
    return [result for result in hidden_round.results if result.answers not in refused_ids]


# Why a command is run: reworded each time for the same command.
_EXPLANATION_ARGUMENTS = frozenset(
    {"description", "explanation", "justification", "reason", "summary", "thought", "security_risk"}
)
# They name the call itself; normalized.
_CALL_ID_ARGUMENTS = frozenset(
    {"callid", "toolcallid", "tooluseid", "requestid", "traceid", "idempotencykey", "timestamp"}
)


def call_signature(call: Call, tool_roles: ToolRoles) -> str:
    """Name and normalized arguments of a call, hashed to 16 hex digits. Arguments that identify the call itself, and a
    model's explanation of a command, are left out."""
    if len(call.arguments) > MAX_PARSED_ARGUMENTS_LENGTH:
        return _hash_signature(call.name, call.arguments)
    return _cached_signature(call.name, call.arguments, tool_roles.role_of(call.name) is ToolRole.SHELL)


@memoize(CACHED_SIGNATURES, MAX_PARSED_ARGUMENTS_LENGTH)
def _cached_signature(name: str, arguments: str, is_command: bool) -> str:  # noqa: FBT001  the cache takes what it is called with
    value = decode_json_or_text(arguments)
    if isinstance(value, Mapping):
        ignored = _EXPLANATION_ARGUMENTS if is_command else frozenset[str]()
        value = {
            k: v for k, v in value.items() if k not in ignored and normalize_name(str(k)) not in _CALL_ID_ARGUMENTS
        }
    try:
        text = _encode(_normalize(value))
    except RecursionError:  # nested too deep to be read
        text = arguments
    return _hash_signature(name, text)


def _hash_signature(name: str, text: str) -> str:
    return sha256(f"{name}\n{text.strip()}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _normalize(value: object) -> object:
    """A value without surrounding white space and with one spelling of whole numbers."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _normalize(inner) for key, inner in value.items()}
    return [_normalize(inner) for inner in value] if isinstance(value, list) else value


def _encode(value: object) -> str:
    try:
        return msgspec.json.encode(value, order="sorted").decode()
    except UnicodeError:
        return repr(value)[:MAX_PARSED_ARGUMENTS_LENGTH]


# Times, durations, addresses and random ids.
_VOLATILE_TEXT = re.compile(
    r"""\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?Z? | \b\d\d?:\d\d:\d\d(?:[.,]\d+)?\b
      | \b\d+(?:\.\d+)?\s?(?:ms|s|secs?|seconds|milliseconds)\b | \b0x[0-9a-f]{4,}\b
      | \b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b""",
    re.IGNORECASE | re.VERBOSE,
)


def _is_same_result(one: ToolExecution, other: ToolExecution) -> bool:
    left, right = one.result.strip(), other.result.strip()
    if left == right:
        return True
    if abs(len(left) - len(right)) > MAX_LENGTH_DIFFERENCE or max(len(left), len(right)) > MAX_COMPARED_LENGTH:
        return False
    return _VOLATILE_TEXT.sub("", left) == _VOLATILE_TEXT.sub("", right)


def _is_same_step(one: SignedStep, other: SignedStep) -> bool:
    """The same calls with the same results, in any order."""
    if one.signature != other.signature:
        return False
    pairs = zip(sorted(one.calls, key=_signature_of), sorted(other.calls, key=_signature_of), strict=True)
    return all(_is_same_result(left.execution, right.execution) for left, right in pairs)


def _signature_of(signed_call: SignedCall) -> str:
    return signed_call.signature


def _has_repeated_call(steps: Sequence[SignedStep]) -> bool:
    """Whether a call of the newest step was made before. Checked first, because nearly always none was."""
    newest = set(steps[-1].signature)
    return any(not newest.isdisjoint(step.signature) for step in steps[:-1])


def _is_waiting_step(step: SignedStep, tool_roles: ToolRoles) -> bool:
    """Whether a step only waits; polling again is no loop."""
    return any(is_waiting(each.execution, tool_roles) for each in step.calls)


def _find_repetition(steps: Sequence[SignedStep], tool_roles: ToolRoles, repeats: int) -> Loop | None:
    newest = steps[-1]
    count = sum(1 for _ in takewhile(lambda step: _is_same_step(step, newest), reversed(steps)))
    return _build_loop(REPETITION, [newest], count, tool_roles) if count >= repeats else None


def _find_alternation(steps: Sequence[SignedStep], tool_roles: ToolRoles, period: int) -> Loop | None:
    """The shortest repeating period."""
    for length in range(2, period + 1):
        pattern = steps[-length:]
        if len({step.signature for step in pattern}) < 2 or any(_is_waiting_step(step, tool_roles) for step in pattern):
            continue
        pairs = zip(reversed(steps), reversed(steps[:-length]), strict=False)
        equal = sum(1 for _ in takewhile(lambda pair: _is_same_step(*pair), pairs))
        rounds = equal // length + 1
        if rounds >= MIN_ALTERNATION_ROUNDS:
            return _build_loop(ALTERNATION, pattern, rounds, tool_roles)
    return None


def _find_scattered_repetition(steps: Sequence[SignedStep], tool_roles: ToolRoles) -> Loop | None:
    """A call of the newest step that always gave the same result, with other calls between but no change among
    these."""
    for newest in steps[-1].calls:
        count = 0
        for step in reversed(steps):
            same_calls = [each for each in step.calls if each.signature == newest.signature]
            if any(not _is_same_result(each.execution, newest.execution) for each in same_calls):
                break
            count += bool(same_calls)
            if any(
                each.signature != newest.signature and may_have_side_effects(each.execution, tool_roles)
                for each in step.calls
            ):
                break
        if count >= MIN_SCATTERED_CALLS:
            return _build_loop(REPETITION, [SignedStep((newest.signature,), (newest,))], count, tool_roles)
    return None


def _build_loop(kind: str, pattern: Sequence[SignedStep], count: int, tool_roles: ToolRoles) -> Loop:
    signed_calls = {each.signature: each for step in pattern for each in step.calls}
    return Loop(
        kind,
        tuple(signed_calls),
        tuple(describe_call(each.execution, tool_roles) for each in signed_calls.values()),
        count,
    )


def find_repeated_failure(tree: Tree) -> Loop | None:
    """The child of the active frame that ended last, if it failed and had failed before. Attempts are linked by what
    they retry, or by title."""
    ended = [f for f in children(tree, tree.active) if f.status in (Status.FAILED, Status.COMPLETED)]
    if not ended:
        return None
    newest = max(ended, key=lambda frame: (frame.updated_at, frame.order))
    if newest.status is not Status.FAILED:
        return None
    attempts = [f for f in ended if f.status is Status.FAILED and _is_attempt_at_same_task(tree, f, newest)]
    if len(attempts) < MIN_FAILED_ATTEMPTS:
        return None
    return Loop(FAILURES, (_normalized_title(newest),), (shorten(newest.title),), len(attempts))


def _is_attempt_at_same_task(tree: Tree, one: Frame, newest: Frame) -> bool:
    if one.id == newest.id or _normalized_title(one) == _normalized_title(newest):
        return True
    attempt, seen_ids = newest, {newest.id}
    while attempt.retry_of in tree.frames and attempt.retry_of not in seen_ids:
        attempt = tree.frames[attempt.retry_of]
        seen_ids.add(attempt.id)
    return one.id in seen_ids


def _normalized_title(frame: Frame) -> str:
    return " ".join(frame.title.casefold().split())
