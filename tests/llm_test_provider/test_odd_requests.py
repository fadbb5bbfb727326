"""Whatever a request looks like, the provider answers it: with its script, or with an error of the client's.

By value, without a socket: a body that is in order, with something in it replaced by what nobody would put there.
"""

import json
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llm_test_provider import ReceivedRequest, ScriptedCall, When, answers
from llm_test_provider.delivery import Delivery
from llm_test_provider.model import Model, ScriptedModel
from llm_test_provider.script import Script
from tests.llm_test_provider.speakers import SPEAKERS, DialectAnswer

Json = Any
ODD: st.SearchStrategy[Json] = st.sampled_from(
    [None, True, 0, -1, 1.5, 10**40, "", " ", "x", "\ud800", "\0"]
    + [[], {}, [[]], [None], ["x"], {"type": []}, {"id": {}}, {"role": ["user"]}]
    + [{"type": kind} for kind in ("reasoning", "thinking", "tool_result", "item_reference", "function_call")]
)
SPOKEN = answers("said", [ScriptedCall("f", {"a": 1}, "call_1"), ScriptedCall("g", {}, "call_2")], reasoning="thought")


def model() -> ScriptedModel:
    script = Script()
    script.when(When(user="never", tool_result="never", tool="never", model="never", body="never"), [SPOKEN])
    script.will([SPOKEN])
    script.queue.loop = True
    strict = Model("m", window=10**6, binding="error", required=("reasoning_content", "thought_signature"))
    return ScriptedModel(script, [strict], count=len, clock=time.monotonic, now=time.time)


def received(dialect: Any, body: Json) -> ReceivedRequest:
    raw = json.dumps(body).encode()
    path = SPEAKERS[dialect].path
    return ReceivedRequest(1, "POST", path, "", (("anthropic-beta", "x"),), raw, body, 0.0, chat=1, dialect=dialect)


def second_request(dialect: str, provider: ScriptedModel) -> Json:
    """A request that is in order and has everything in it."""
    speaker = SPEAKERS[dialect]
    first = speaker.first("hi", "be good", ["f", "g"])
    delivery = provider.respond(received(dialect, first))
    assert isinstance(delivery, Delivery)
    heard: DialectAnswer = speaker.whole(json.loads(b"".join(delivery.pieces)))
    return speaker.then(first, heard, "one", "two", text="go on")


def places(value: Json, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything in a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inside for found in places(item, (*path, key)))]


def replaced(value: Json, path: tuple[Any, ...], other: Json) -> Json:
    if not path:
        return other
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], other)
    return copy


@given(dialect=st.sampled_from(sorted(SPEAKERS)), odd=ODD, streamed=st.booleans(), data=st.data())
def test_any_request_gets_an_answer(dialect: str, odd: Json, data: st.DataObject, *, streamed: bool) -> None:
    provider = model()
    body = second_request(dialect, provider) | {"stream": streamed}
    path = data.draw(st.sampled_from(places(body)))
    asked = received(dialect, replaced(body, path, odd))

    delivery = provider.respond(asked)

    assert isinstance(delivery, Delivery)
    assert delivery.status in (200, 400, 404)
    assert isinstance([asked.messages, asked.system, asked.calls, asked.results, asked.tool_names], list)


@given(dialect=st.sampled_from(sorted(SPEAKERS)))
def test_the_request_these_begin_with_is_in_order(dialect: str) -> None:
    provider = model()
    delivery = provider.respond(received(dialect, second_request(dialect, provider)))

    assert isinstance(delivery, Delivery)
    assert delivery.status == 200
