"""The input of an observer: one complete call group with its results and the assistant's text, as a value. Arguments
come from a model and are not trusted: what is not JSON counts as text."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from proxy.core.frames import PathEntry, Tree, call_key
from proxy.core.ledger import INSTRUCTION_ROLES, Call, EntryKind, Message, Round

RESULT_HEAD_LENGTH = 3_000  # characters examined at either end of a result, where a tool reports its outcome
RESULT_TAIL_LENGTH = 3_000
MAX_LINES_PER_WORD = 20  # matching lines that are examined closely
MAX_LINE_LENGTH = 240  # characters of each
TOLD_RESULT_LABEL = re.compile(
    r"""[\s\[<(*\#]*
        (?: observations? | (?:(?:tool|function|command|call|action)s?[\s_-]+){0,2}(?:results?|outputs?|responses?)
          | tool\s[\w.-]{1,64}\sreturned | \[[^\]\n]{1,120}\]\s(?:result|output) )\b
        [^\n:\]>]{0,80}[:\]>][\]>)*\s]*""",
    re.IGNORECASE | re.VERBOSE,
)
"""How clients without a role for results introduce them: "Observation:", "[Result of call_1]", "<tool_response>"."""


class ToolExecution(msgspec.Struct, frozen=True):
    """A call of a client tool and its result. `entry` is the id of the result's entry; `answered` is False without a
    result; `failed` is the client's own flag, whatever the text says."""

    call: Call
    result: str
    entry: str = ""
    answered: bool = True
    failed: bool = False


class Step(msgspec.Struct, frozen=True):
    assistant_text: str  # of the same message
    executions: tuple[ToolExecution, ...]


def decode_json_or_text(text: str) -> object:
    """JSON as values; anything else as the text itself, such as a custom tool's plain arguments."""
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text
    return value


def texts_in(value: object) -> Iterator[str]:
    """All texts inside decoded arguments, in order."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            waiting.extend(reversed(item.values()))
        elif isinstance(item, list):
            waiting.extend(reversed(item))


def lines_containing(text: str, marks: tuple[str, ...]) -> str:
    """The lines that contain one of `marks` (lowercase); for each mark the last `MAX_LINES_PER_WORD`, because the
    outcome stands at the end. This pre-check keeps slow expressions off nearly all of the text."""
    lowercase = text.lower()
    if len(lowercase) != len(text):
        text = lowercase  # a few letters change their length, and then the places are no longer the same
    line_ends: dict[int, int] = {}
    for mark in marks:
        position = lowercase.rfind(mark)
        for _ in range(MAX_LINES_PER_WORD):
            if position < 0:
                break
            start, end = lowercase.rfind("\n", 0, position) + 1, lowercase.find("\n", position)
            line_ends[start] = end if end >= 0 else len(lowercase)
            position = lowercase.rfind(mark, 0, start)
    return "\n".join(text[start:end][:MAX_LINE_LENGTH] for start, end in sorted(line_ends.items()))


def head_and_tail_of(text: str) -> str:
    return (
        text
        if len(text) <= RESULT_HEAD_LENGTH + RESULT_TAIL_LENGTH
        else f"{text[:RESULT_HEAD_LENGTH]}\n{text[-RESULT_TAIL_LENGTH:]}"
    )


_ROUND = attrgetter("round")


def is_closing_message(path_entries: Sequence[PathEntry], position: int) -> bool:
    """Whether this is the text with which an answer closed: the user spoke next, or has not spoken since. Where an
    answer broke off behind calls of ours, the text beside these is what the user read last."""
    message = path_entries[position].message
    if message is None or message.role != "assistant" or not message.text.strip():
        return False
    done = path_entries[position].round
    if message.calls and (done is None or done.spoken.client_calls):
        return False
    if message.calls:
        while (later := position + 1) < len(path_entries) and _is_silent(path_entries[later]):
            position = later
    following = message_after(path_entries, position)
    if following is None:
        return not message.calls
    return following.role == "user" and not following.answers


def _is_silent(path_entry: PathEntry) -> bool:
    """A hidden round in which the model said nothing."""
    done = path_entry.round
    return done is not None and not done.spoken.client_calls and not done.spoken.message.text.strip()


def message_after(path_entries: Sequence[PathEntry], position: int) -> Message | None:
    """The next message of the conversation, without our notes and the instructions that an application inserts."""
    later_entries = (path_entries[later] for later in range(position + 1, len(path_entries)))
    messages = (p.message for p in later_entries if p.entry.kind is not EntryKind.OVERLAY)
    return next((m for m in messages if m is not None and m.role not in INSTRUCTION_ROLES), None)


def rounds_of(path_entries: Iterable[PathEntry]) -> Iterator[Round]:
    return filter(None, map(_ROUND, path_entries))


def messages_of(tree: Tree, path_entries: Iterable[PathEntry]) -> Iterator[Message]:
    """The messages of a span with the proxy's results behind their calls, as the context shows them now."""
    for path_entry in path_entries:
        message = path_entry.message
        if message is not None:
            yield message
        if finished_round := path_entry.round:
            for result in finished_round.results:
                result_text = tree.result_texts.get(
                    (path_entry.entry.id, call_key(finished_round.number, result.answers))
                )
                yield replace(result, text=result_text) if result_text else result


def steps_of(path_entries: Iterable[PathEntry]) -> Iterator[Step]:
    """The client's call groups, in order, each with its results."""
    opened: Message | None = None
    inner: Collection[str] = ()
    results: list[tuple[Message, str]] = []
    for path_entry in path_entries:
        message = path_entry.message
        if message is None:
            continue
        if message.role == "assistant":
            if opened is not None:
                yield step_of(opened, results, inner)
            opened, results, inner = message, [], path_entry.inner_calls
        elif message.answers:
            results.append((message, path_entry.entry.id))
        elif opened is not None and not results and (result := _told_result(opened, message)):
            results.append((result, path_entry.entry.id))
    if opened is not None:
        yield step_of(opened, results, inner)


def tells_results(message: Message) -> bool:
    """Whether a user's message is how a client tells results that it has no role for. Only behind calls without
    results: a user may begin with the same words."""
    return message.role == "user" and TOLD_RESULT_LABEL.match(message.text) is not None


def _told_result(opened: Message, message: Message) -> Message | None:
    """The result of the only call of `opened` that a message tells as text. Of several calls nobody knows which part of
    the text is whose."""
    calls = [call for call in opened.calls if not call.is_stack_call]
    if len(calls) != 1 or not tells_results(message):
        return None
    return replace(message, text=TOLD_RESULT_LABEL.sub("", message.text, count=1), answers=calls[0].id)


def step_of(message: Message, results: Iterable[tuple[Message, str]], inner: Collection[str] = ()) -> Step:
    """One call group; `results` are the messages that answer it, in order, each with the id of its entry. Calls in
    `inner` belong to a frame that the group opened: without a result they are told there."""
    answers: dict[str, deque[tuple[Message, str]]] = {}
    for result in results:
        answers.setdefault(result[0].answers, deque()).append(result)
    executions = (
        _execution_of(call, waiting.popleft() if (waiting := answers.get(call.id)) else None)
        for call in message.calls
        if not call.is_stack_call and (call.id not in inner or call.id in answers)
    )
    return Step(message.text, tuple(executions))


def _execution_of(call: Call, answer: tuple[Message, str] | None) -> ToolExecution:
    if answer is None:
        return ToolExecution(call, "", answered=False)
    result, entry = answer
    return ToolExecution(call, result.text, entry, failed=result.failed)
