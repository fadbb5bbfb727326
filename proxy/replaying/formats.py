"""The formats a recording may have, and the requests it was made of.

    trajectory   an object with `messages` and, where they were recorded, `tools`, `model`, `ts`, `resets`, `id`
    messages     a list of messages, or an object that holds one: the same without the rest
    captured     request bodies in the order in which they came, each alone or as the `body` of a line about it

Of a list of messages, request n is everything before the n-th assistant message, since the client last compacted its
history. Captured requests are what they are; the answer to one is what the line says or what a later request echoes.

The law: **the format is read from what is there**, not from a name. Several bodies are captured requests where one
goes on from another, or where they carry what only a request does; otherwise each is a conversation of its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proxy.replaying.messages import HEAD_ROLES, checked, oddities
from proxy.replaying.reading import Located, values_in
from proxy.replaying.recording import Clock, Json, Moments, NoRecording, NotReplayable, Recording, Step, around, encoded

UNNAMED = "not recorded"
"""The model of a recording that names none; it has no prices, and reports say so."""
CHAT = "/chat/completions"
_ONLY_IN_REQUESTS = frozenset(
    {"stream", "stream_options", "temperature", "top_p", "max_tokens", "max_completion_tokens", "tool_choice"}
    | {"parallel_tool_calls", "response_format", "stop", "seed", "n", "reasoning_effort"}
)
INTERLEAVED = 8
"""Requests of other conversations that may stand between two of one."""
_ENVELOPE = frozenset({"model", "messages", "stream", "stream_options"})
"""Written anew, or left out of a captured body: how an answer travels changes nothing of what is sent."""
_WANTED = (
    "wanted is an object with `messages`, a list of messages, or captured requests with a `body`, "
    "as one JSON value or one on each line"
)


def recordings_in(path: Path, *, model: str = "", clock: Clock = "recorded") -> list[Recording]:
    """The conversations of a file. `model` replaces the recorded one. Raises NotReplayable."""
    name = path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json")
    items = _items(values_in(path))
    if _are_captured(items):
        captures, notes = _captures(items, path)
        recording = captured(name, captures, model=model, clock=clock)
        return [replace(recording, notes=(*notes, *recording.notes))]
    alone = len(items) == 1
    return [
        _conversation(item, name if alone else f"{name}[{number}]", model, clock)
        for number, item in enumerate(items, 1)
    ]


def _items(values: Sequence[Located]) -> list[Located]:
    """One for each conversation or request: lists of them are opened, messages one a line are gathered."""
    if len(values) > 1 and all(_is_message(v.value) for v in values):
        return [Located({"messages": [v.value for v in values]}, values[0].place)]
    items: list[Located] = []
    for value in values:
        items += _opened(value)
    return items


def _opened(value: Located) -> list[Located]:
    inside = value.value
    if isinstance(inside, dict):
        return [value]
    if not isinstance(inside, list):
        raise NoRecording(f"{value.place}: this is a single value, and no conversation; {_WANTED}")
    several = [one for one in inside if isinstance(one, list) or (isinstance(one, dict) and not _is_message(one))]
    if not several or len(several) < len(inside):
        return [Located({"messages": inside}, value.place)]
    return [
        found for number, one in enumerate(inside, 1) for found in _opened(Located(one, f"{value.place}[{number}]"))
    ]


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and "role" in value and "messages" not in value


# -------------------------------------------------------------------------------------------------------- one
# conversation
def _conversation(item: Located, name: str, model: str, clock: Clock) -> Recording:
    """A recording of an object with `messages`."""
    said, place = item.value, item.place
    if "messages" not in said:
        raise NoRecording(f"{place}: this object has no `messages`; {_WANTED}")
    messages = checked(said["messages"], place)
    if not any(m["role"] == "assistant" for m in messages[1:]):
        raise NotReplayable(f"{place}: no assistant message answers anything here, so no request is known to replay")
    model = model or _text(said.get("model")) or UNNAMED
    before, behind = around(model, {"tools": tools} if (tools := _tools(said, place)) else {})
    wires = [encoded(message) for message in messages]
    head = next((at for at, m in enumerate(messages) if m["role"] not in HEAD_ROLES), len(messages))
    resets, times, moments = _resets(said, place), _times(said, len(messages), place), Moments(clock)
    steps = []
    for at, message in enumerate(messages):
        if message["role"] != "assistant" or at == 0:
            continue
        start = max([head, *(reset for reset in resets if reset <= at)])
        sent = (*wires[:head], *wires[start:at])
        if sent:
            steps.append(Step(before, sent, behind, message, moments.next(times[at - 1])))
    return Recording(_text(said.get("id")) or name, model, tuple(steps), tuple(oddities(messages, place)))


def _tools(said: Json, place: str) -> list[Any]:
    tools = said.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise NotReplayable(f"{place}: `tools` must be a list of tool definitions, as in a request")
    return tools


def _resets(said: Json, place: str) -> list[int]:
    """From which messages on the client resent only what follows."""
    try:
        return sorted(int(reset["index"]) for reset in said.get("resets") or ())
    except (TypeError, KeyError, ValueError):
        raise NotReplayable(f"{place}: `resets` must be a list of objects with an `index`") from None


def _times(said: Json, count: int, place: str) -> Sequence[float | None]:
    times = said.get("ts") or [None] * count
    if not isinstance(times, list) or len(times) != count or not all(_is_time(t) for t in times):
        raise NotReplayable(f"{place}: `ts` must hold seconds or null for each of the {count} messages")
    return times


def _is_time(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# ---------------------------------------------------------------------------------------------------------------
# captured
@dataclass(frozen=True, slots=True)
class Capture:
    """A request as it came: its messages, and the other members of its body. `answer` is what is known of it; `failed`:
    the provider refused it."""

    model: str
    messages: tuple[bytes, ...]
    others: Json
    place: str
    answer: Json | None = None
    at_s: float | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    failed: bool = False


def _are_captured(items: Sequence[Located]) -> bool:
    if any(isinstance(item.value.get("body"), dict) for item in items):
        return True
    if len(items) < 2:
        return False
    if all(_ONLY_IN_REQUESTS & item.value.keys() for item in items):
        return True
    lists = [m for item in items if isinstance(m := item.value.get("messages"), list) and m]
    near = ((one, other) for at, one in enumerate(lists) for other in lists[at + 1 : at + 1 + INTERLEAVED])
    return any(len(one) < len(other) and other[: len(one)] == one for one, other in near)


def capture_of(body: Json, place: str, shared: dict[bytes, bytes]) -> Capture:
    """From a body. `shared` keeps once what many requests have. Raises NotReplayable."""
    wires = tuple(shared.setdefault(wire, wire) for wire in map(encoded, checked(body.get("messages"), place)))
    others = {name: value for name, value in body.items() if name not in _ENVELOPE}
    return Capture(_text(body.get("model")), wires, others, place)


def _captures(items: Sequence[Located], path: Path) -> tuple[list[Capture], list[str]]:
    """Those of a file, and what of it was left out."""
    shared: dict[bytes, bytes] = {}
    found: list[Capture] = []
    elsewhere: Counter[str] = Counter()
    for item in items:
        said = item.value
        body = said.get("body") if "body" in said else said
        endpoint = _text(said.get("path")).partition("?")[0] if "body" in said else ""
        if not isinstance(body, dict) or not body:
            continue
        if endpoint and not endpoint.endswith(CHAT):
            elsewhere[endpoint] += 1
            continue
        one = capture_of(body, item.place, shared)
        found.append(_with_line(one, said) if "body" in said else one)
    other = ", ".join(f"{count} to {endpoint}" for endpoint, count in elsewhere.items())
    if not found:
        what = f"requests to another endpoint ({other})" if other else "no request with a body"
        raise NoRecording(f"{path} holds {what}; only chat completions can be replayed")
    return found, [f"left out: {other}; only chat completions are replayed"] if other else []


def _with_line(one: Capture, line: Json) -> Capture:
    """What a line about a request says beside its body."""
    answer = line.get("answer")
    status = answer.get("status") if isinstance(answer, dict) else None
    return replace(
        one,
        answer=_answered(answer) or _chosen(line.get("response")),
        at_s=at if _is_time(at := line.get("t")) else None,
        headers=_headers(line.get("headers")),
        failed=isinstance(status, int) and status >= 400,
    )


def _answered(answer: object) -> Json | None:
    """The message of an answer told as `text`, `calls` of `id`, `name`, `args`, and `reasoning`."""
    if not isinstance(answer, dict) or not (answer.get("text") or answer.get("calls")):
        return None
    message: dict[str, Any] = {"role": "assistant", "content": _text(answer.get("text")) or None}
    if reasoning := _text(answer.get("reasoning")):
        message["reasoning_content"] = reasoning
    calls = [call for call in answer.get("calls") or () if isinstance(call, dict)]
    if calls:
        message["tool_calls"] = [
            {
                "id": str(call.get("id", "")),
                "type": "function",
                "function": {"name": str(call.get("name", "")), "arguments": _arguments(call.get("args"))},
            }
            for call in calls
        ]
    return message


def _arguments(told: object) -> str:
    return told if isinstance(told, str) else encoded(told if told is not None else {}).decode()


def _chosen(response: object) -> Json | None:
    """The message of a chat completion."""
    choices = response.get("choices") if isinstance(response, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) and message.get("role") == "assistant" else None


def _headers(told: object) -> tuple[tuple[bytes, bytes], ...]:
    """By them a client may name its session. What asks us for a mode is left out: the replay's own counts."""
    if not isinstance(told, dict):
        return ()
    named = ((name.lower(), value) for name, value in told.items() if isinstance(value, str))
    return tuple(
        (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in named
        if name != "x-stack-mode"
    )


def captured(name: str, captures: Sequence[Capture], *, model: str = "", clock: Clock = "recorded") -> Recording:
    """Requests of one or several conversations, in the order in which they came. Raises NotReplayable."""
    kept = [one for one in captures if not one.failed]
    if not kept:
        raise NotReplayable(f"{captures[0].place}: the provider refused this request and all behind it")
    refused = len(captures) - len(kept)
    notes = [f"left out: {refused} that the provider refused; what was asked next is there"] if refused else []
    steps: list[Step] = []
    moments = Moments(clock)
    for one in kept:
        before, behind = around(model or one.model or UNNAMED, one.others)
        steps.append(Step(before, one.messages, behind, one.answer, moments.next(one.at_s), one.headers))
    notes += oddities([json.loads(wire) for wire in kept[-1].messages], kept[-1].place)
    return Recording(name, model or kept[0].model or UNNAMED, tuple(_with_echoes(steps)), tuple(notes))


def _with_echoes(steps: Sequence[Step]) -> Iterator[Step]:
    """Where no answer is told, it is the message that the next request that goes on from this one has behind it."""
    for at, step in enumerate(steps):
        yield step if step.answer is not None else _answered_by(step, steps[at + 1 :])


def _answered_by(step: Step, later: Iterable[Step]) -> Step:
    length = len(step.messages)
    for other in later:
        if len(other.messages) > length and other.messages[:length] == step.messages:
            echo = json.loads(other.messages[length])
            if echo.get("role") == "assistant":
                return replace(step, answer=echo)
    return step
