"""Reads recordings from files, in one of four formats that the content itself decides.

    session log  what a client wrote of its own session (`sessions/`)
    trajectory   an object with `messages` and, where they were recorded, `tools`, `model`, `ts`, `resets`, `id`
    messages     a list of messages, or an object that holds one: the same without the rest
    captured     request bodies in the order in which they came, each alone or as the `body` of a line about it

In a list of messages, request n is everything before the n-th assistant message, since the client last compacted its
history. Lists are of chat completions, which can be replayed in any API, or of the messages API. Several bodies are
captured requests where one continues another or has members that only requests have; otherwise each is a conversation.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from callstack_proxy.replay.api.base import ConversationWriter, RecordedConversation, ReplayApi
from callstack_proxy.replay.api.chat import CHAT
from callstack_proxy.replay.api.messages import MESSAGES, RecordedMessages, call_pairings
from callstack_proxy.replay.api.replay_api_list import APIS
from callstack_proxy.replay.captures import (
    UNNAMED_MODEL,
    CapturedRequest,
    captured_requests_in,
    group_by_api,
    is_messages_body,
    is_timestamp,
    recording_of_requests,
)
from callstack_proxy.replay.files import LocatedValue, json_values_in
from callstack_proxy.replay.recording import (
    ClockMode,
    Json,
    NoRecording,
    NotReplayable,
    RecordedStep,
    Recording,
    RequestTimes,
    body_start_and_end,
)
from callstack_proxy.replay.sessions import Session, SessionConverter, SessionFormat, format_of
from callstack_proxy.replay.token_counts import load_memoized_o200k
from callstack_proxy.replay.validation import check_expressible, check_messages, head_length, oddities, pairing_of
from proxy.accounting import TokenCounter

_REQUEST_ONLY_KEYS = frozenset(
    {"stream", "stream_options", "temperature", "top_p", "max_tokens", "max_completion_tokens", "tool_choice"}
    | {"parallel_tool_calls", "response_format", "stop", "seed", "n", "reasoning_effort", "store", "max_output_tokens"}
)
MAX_INTERLEAVED = 8
"""Requests of other conversations that may come between two of one conversation."""
_EXPECTED_FORMATS = (
    "wanted is an object with `messages`, a list of messages, or captured requests with a `body`, "
    "as one JSON value or one on each line"
)


def read_recordings(
    path: Path, *, model: str = "", clock: ClockMode = "recorded", dialect: str = ""
) -> list[Recording]:
    """The conversations of a file. `model` replaces the recorded one, `dialect` is the API to replay them in; empty
    keeps each one's own. Raises NotReplayable."""
    if known := format_of(path):
        return _recordings_of_log(path, known, model, clock, dialect)
    name = path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json")
    items = _split_items(json_values_in(path))
    if _are_captured_requests(items):
        captures, notes = captured_requests_in(items, path)
        for one in captures:
            check_same_api(one.api.name, dialect, one.place)
        found = _recordings_by_api(name, captures, model, clock)
        return [replace(recording, notes=(*notes, *recording.notes)) for recording in found]
    alone = len(items) == 1
    return [
        _recording_of_messages(item, name if alone else f"{name}[{number}]", model, clock, dialect)
        for number, item in enumerate(items, 1)
    ]


def _recordings_of_log(path: Path, known: SessionFormat, model: str, clock: ClockMode, dialect: str) -> list[Recording]:
    """One recording for each session of a client's log."""
    converter = SessionConverter(known, TokenCounter(load_memoized_o200k).count, model, clock, dialect)
    found = [converter.recording_of(session) for session in sessions_of_log(path, known)]
    if not found:
        raise NotReplayable(f"{path}: no answer of a model stands in this session of {known.name}")
    return found


def sessions_of_log(path: Path, known: SessionFormat) -> Iterator[Session]:
    """The sessions of a client's log, one at a time. Raises NotReplayable."""
    try:
        yield from known.read(path)
    except (OSError, ValueError, sqlite3.Error) as error:
        raise NotReplayable(f"{path}: this session of {known.name} cannot be read: {error}") from None
    except Exception as error:  # a field of another kind than this client writes, or a reader of another package
        words = "it is damaged, or of a version that is not known"
        raise NotReplayable(f"{path}: this session of {known.name} cannot be read: {words} ({error})") from None


def _recordings_by_api(name: str, captures: Sequence[CapturedRequest], model: str, clock: ClockMode) -> list[Recording]:
    parted = group_by_api(captures)
    names = [name if len(parted) == 1 else f"{name} ({group[0].api.name})" for group in parted]
    return [
        recording_of_requests(each, group, model=model, clock=clock) for each, group in zip(names, parted, strict=True)
    ]


def check_same_api(own: str, wanted: str, place: str) -> None:
    """Raises NotReplayable where requests to one API are to be replayed in another."""
    if wanted not in ("", own):
        raise NotReplayable(
            f"{place}: this was asked in {own}, and can be replayed in that alone; leave out --dialect, or give a list "
            "of messages of chat completions"
        )


def _split_items(values: Sequence[LocatedValue]) -> list[LocatedValue]:
    """One value for each conversation or request: lists are opened, and single messages on lines are gathered."""
    if len(values) > 1 and all(_is_message(v.value) for v in values):
        return [LocatedValue({"messages": [v.value for v in values]}, values[0].place)]
    items: list[LocatedValue] = []
    for value in values:
        items += _expand_lists(value)
    return items


def _expand_lists(value: LocatedValue) -> list[LocatedValue]:
    inside = value.value
    if isinstance(inside, dict):
        return [value]
    if not isinstance(inside, list):
        raise NoRecording(f"{value.place}: this is a single value, and no conversation; {_EXPECTED_FORMATS}")
    several = [one for one in inside if isinstance(one, list) or (isinstance(one, dict) and not _is_message(one))]
    if not several or len(several) < len(inside):
        return [LocatedValue({"messages": inside}, value.place)]
    return [
        found
        for number, one in enumerate(inside, 1)
        for found in _expand_lists(LocatedValue(one, f"{value.place}[{number}]"))
    ]


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and "role" in value and "messages" not in value


# --------------------------------------------------------------------------------------------------- one conversation
def _recording_of_messages(item: LocatedValue, name: str, model: str, clock: ClockMode, dialect: str) -> Recording:
    said, place = item.value, item.place
    if "messages" not in said:
        raise NoRecording(f"{place}: this object has no `messages`; {_EXPECTED_FORMATS}")
    messages = check_messages(said["messages"], place)
    if not any(m["role"] == "assistant" for m in messages[1:]):
        raise NotReplayable(f"{place}: no assistant message answers anything here, so no request is known to replay")
    head, resets = head_length(messages), _reset_indexes(said, place)
    model = model or _text(said.get("model")) or UNNAMED_MODEL
    recorded = RecordedConversation(model, messages, _tools(said, place), resets)
    api, written, notes = _write_in_api(said, recorded, dialect, place)
    before, behind = body_start_and_end(model, written.others, api.messages_key)
    times, moments = _times(said, len(messages), place), RequestTimes(clock)
    steps = []
    for at, message in enumerate(messages):
        if message["role"] != "assistant" or at == 0:
            continue
        start = max([head, *(reset for reset in resets if reset <= at)])
        if sent := written.messages_between(start, at):
            steps.append(RecordedStep(before, sent, behind, written.answer_at(at), moments.next(times[at - 1])))
    if not steps:
        raise NotReplayable(f"{place}: no request of this holds a message, and {api.name} wants one; replay it as chat")
    named = _text(said.get("id")) or name
    return Recording(name=named, model=model, steps=tuple(steps), notes=tuple(notes), dialect=api.name)


def _write_in_api(
    said: Json, recorded: RecordedConversation, dialect: str, place: str
) -> tuple[ReplayApi, ConversationWriter, list[str]]:
    """The API of the replay, the conversation written in it, and notes on oddities."""
    messages = recorded.messages
    if is_messages_body(said):
        check_same_api(MESSAGES.name, dialect, place)
        return MESSAGES, RecordedMessages(messages, said), oddities(call_pairings(messages), place)
    api = APIS[dialect or CHAT.name]
    if api is not CHAT:
        check_expressible(messages, place)
    return api, api.write(recorded), oddities(map(pairing_of, messages), place)


def _tools(said: Json, place: str) -> list[Any]:
    tools = said.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise NotReplayable(f"{place}: `tools` must be a list of tool definitions, as in a request")
    return tools


def _reset_indexes(said: Json, place: str) -> list[int]:
    """Messages at which the client had compacted: from each on it resent only what follows."""
    try:
        return sorted(int(reset["index"]) for reset in said.get("resets") or ())
    except (TypeError, KeyError, ValueError):
        raise NotReplayable(f"{place}: `resets` must be a list of objects with an `index`") from None


def _times(said: Json, count: int, place: str) -> Sequence[float | None]:
    times = said.get("ts") or [None] * count
    if not isinstance(times, list) or len(times) != count or not all(is_timestamp(t) for t in times):
        raise NotReplayable(f"{place}: `ts` must hold seconds or null for each of the {count} messages")
    return times


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# ---------------------------------------------------------------------------------------------------------- captured
def _are_captured_requests(items: Sequence[LocatedValue]) -> bool:
    if any(isinstance(item.value.get("body"), dict) or _is_responses_body(item.value) for item in items):
        return True
    if len(items) < 2:
        return False
    if all(_REQUEST_ONLY_KEYS & item.value.keys() for item in items):
        return True
    lists = [m for item in items if isinstance(m := item.value.get("messages"), list) and m]
    near = ((one, other) for at, one in enumerate(lists) for other in lists[at + 1 : at + 1 + MAX_INTERLEAVED])
    return any(len(one) < len(other) and other[: len(one)] == one for one, other in near)


def _is_responses_body(said: Json) -> bool:
    return "input" in said and "model" in said and "messages" not in said
