"""O3, O4: what went wrong is said once, and what is said to have been sent is what was sent."""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, answers, call, cut, says, status
from proxy.telemetry.log_fields import MAX_FIELD_CHARS, LogFields, log_field
from tests.harness import does, pop, push
from tests.wire.proxied import LogCapture, ServedProxy
from tests.wire.stage import Starting
from tests.wire.talking import ReceivedAnswer, ask, body_of

AWAKE = pytest.mark.parametrize("awake", [True, False], ids=["awake", "asleep"])
STREAM = pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
NOWHERE = "http://127.0.0.1:9/v1"
"""The discard port, where nobody listens."""


def line_of(journal: LogCapture, told: ReceivedAnswer) -> tuple[str, str, int, int]:
    """Status, reason, the client's status and the upstream's, of the one line that a request left."""
    assert told.request, told
    [line] = journal.wait_for_requests(1)
    assert line["stack_id"] == told.request
    return line["stack_status"], line["stack_reason"], line["stack_client_status"], line["stack_upstream_status"]


# ------------------------------------------------------------------------------------------------------------------ O3
@AWAKE
@STREAM
@pytest.mark.parametrize("code", [400, 429, 503])
def test_o3_an_error_of_the_provider_leaves_one_line(
    proxy: ServedProxy, provider: ScriptedProvider, journal: LogCapture, awake: bool, stream: bool, code: int
) -> None:
    provider.will(*[status(code)] * (3 if awake and code in (400, 404) else 1))  # in milder forms, if awake
    told = ask(proxy.origin, body_of(f"O3 {code}", awake=awake, stream=stream))
    assert line_of(journal, told) == ("error", "upstream_error", code, code)
    assert told.told == "error; reason=upstream_error"


@pytest.mark.parametrize("code", [200, 429])
def test_the_line_of_a_request_is_plain_whatever_it_is_about(
    proxy: ServedProxy, provider: ScriptedProvider, journal: LogCapture, code: int
) -> None:
    """The log writes it as it is: no other looks for texts that have no end, and figures that have."""
    provider.will(says("hi") if code == 200 else status(code))
    ask(proxy.origin, body_of() | {"model": "m" * 10 * MAX_FIELD_CHARS})
    [line] = journal.wait_for_requests(1)
    [record] = [record for record in journal.records if record.getMessage() == "request"]
    said = vars(record)["stack"]

    assert isinstance(said, LogFields)
    assert said == {name: log_field(value) for name, value in said.items()}
    assert len(line["stack_model"]) == MAX_FIELD_CHARS


@AWAKE
def test_o3_a_provider_that_cannot_be_reached_leaves_one_line(
    start: Starting, journal: LogCapture, awake: bool
) -> None:
    told = ask(start(upstream=NOWHERE).origin, body_of(awake=awake))
    assert (told.status, told.json["error"]["code"]) == (502, "upstream_unreachable")
    assert line_of(journal, told) == ("error", "upstream_unreachable", 502, 0)


@AWAKE
@STREAM
def test_o3_an_answer_that_broke_off_leaves_one_line(
    proxy: ServedProxy, provider: ScriptedProvider, journal: LogCapture, awake: bool, stream: bool
) -> None:
    provider.will(cut(says("half" * 99), after_bytes=300))
    told = ask(proxy.origin, body_of("O3 cut", awake=awake, stream=stream))
    assert line_of(journal, told) == ("error", "upstream_closed", told.status, 200)


@AWAKE
def test_o3_an_error_that_was_half_told_leaves_one_line(
    proxy: ServedProxy, provider: ScriptedProvider, journal: LogCapture, awake: bool
) -> None:
    provider.will(cut(status(503), after_bytes=3))
    told = ask(proxy.origin, body_of("O3 half told", awake=awake))
    assert line_of(journal, told) == ("error", "upstream_closed", told.status, 503)


@pytest.mark.parametrize("code", [200, 400, 503])
def test_o3_a_bypass_leaves_one_line(
    proxy: ServedProxy, provider: ScriptedProvider, journal: LogCapture, code: int
) -> None:
    provider.when("no-messages", status(code))
    told = ask(proxy.origin, {"model": "m", "x": "no-messages"})
    assert line_of(journal, told) == ("bypass", "unreadable", told.status, told.status)
    assert told.told == "bypass; reason=unreadable"


def test_o3_a_bypass_to_nowhere_leaves_one_line(start: Starting, journal: LogCapture) -> None:
    told = ask(start(upstream=NOWHERE).origin, b"not json")
    assert (told.status, told.json["error"]["code"]) == (502, "upstream_unreachable")
    assert line_of(journal, told) == ("error", "upstream_unreachable", 502, 0)


def test_o3_another_endpoint_that_fails_leaves_one_line(
    proxy: ServedProxy, provider: ScriptedProvider, journal: LogCapture
) -> None:
    told = ask(proxy.origin, {"model": "m"}, path="/v1/nothing/here")
    assert told.status == 404
    assert line_of(journal, told)[2:] == (404, 404)


def test_o3_another_endpoint_to_nowhere_leaves_one_line(start: Starting, journal: LogCapture) -> None:
    told = ask(start(upstream=NOWHERE).origin, method="GET", path="/v1/models")
    assert told.status == 502
    assert line_of(journal, told) == ("error", "upstream_unreachable", 502, 0)


def test_o3_a_model_that_nobody_serves_leaves_one_line(
    start: Starting, provider: ScriptedProvider, journal: LogCapture
) -> None:
    proxy = start(upstream=None, upstreams__one__url=provider.url, upstreams__one__models="only-this")
    told = ask(proxy.origin, body_of(model="another"))
    assert (told.status, told.json["error"]["code"]) == (404, "model_not_found")
    assert line_of(journal, told) == ("error", "model_not_found", 404, 0)
    assert provider.received == []


def test_o3_a_mode_that_is_none_leaves_one_line(
    proxy: ServedProxy, provider: ScriptedProvider, journal: LogCapture
) -> None:
    told = ask(proxy.origin, body_of(), headers={"x-stack-mode": "loud"})
    assert (told.status, told.json["error"]["code"]) == (400, "unknown_mode")
    assert line_of(journal, told) == ("error", "unknown_mode", 400, 0)
    assert provider.received == []


def test_o3_a_stranger_leaves_one_line(start: Starting, provider: ScriptedProvider, journal: LogCapture) -> None:
    told = ask(start(tenancy="key").origin, body_of())
    assert (told.status, told.json["error"]["code"]) == (401, "unauthorized")
    assert line_of(journal, told) == ("error", "unauthorized", 401, 0)
    assert provider.received == []


@pytest.mark.parametrize("name", ["host", "origin"])
def test_o3_a_request_that_the_edge_refuses_leaves_one_line(
    proxy: ServedProxy, provider: ScriptedProvider, journal: LogCapture, name: str
) -> None:
    told = ask(proxy.origin, body_of(), headers={name: "evil.example"})
    assert line_of(journal, told) == ("error", "forbidden", 403, 0)
    assert (told.told, provider.received) == ("error; reason=forbidden", [])


def test_o3_a_body_above_the_limit_leaves_one_line(start: Starting, journal: LogCapture) -> None:
    told = ask(start(body_limit_bytes=2048).origin, b"x" * 3000)
    assert line_of(journal, told) == ("error", "too_large", 413, 0)


@AWAKE
def test_o3_what_goes_well_leaves_one_line_too(
    proxy: ServedProxy, provider: ScriptedProvider, journal: LogCapture, awake: bool
) -> None:
    provider.will(says("fine"))
    told = ask(proxy.origin, body_of("O3 fine", awake=awake, stream=True))
    assert line_of(journal, told) == (*(("full", "") if awake else ("asleep", "no_tools")), 200, 200)


# ------------------------------------------------------------------------------------------------------------------ O4
@STREAM
def test_o4_the_bodies_kept_are_the_bodies_that_left(
    proxy: ServedProxy, provider: ScriptedProvider, stream: bool
) -> None:
    provider.will(does(push("a ü 日本")), does(pop("ü \x1b \ufffe 🙂")), answers("x", [call("read_file")]))
    messages = '[{"role":"user", "content":"caf\\u00e9 \\ud800 \\u0000", "x":1e400} ]'
    tools = '[{"type":"function","function":{"name":"read_file"}}]'
    rest = f'"stream":{str(stream).lower()},"tools":{tools},"seed":123456789012345678901234567890'
    body = f'{{ "model":"m","messages" : {messages}, {rest}}}'.encode()

    told = ask(proxy.origin, body)

    assert (told.status, told.told) == (200, "full")
    kept = proxy.page(f"/stack/requests/{told.request}")
    assert kept["body"].encode("utf-8", "surrogateescape") == body
    sent = [each["body"].encode("utf-8", "surrogateescape") for each in kept["sent"]]
    assert sent == [received.raw for received in provider.asked]
    assert [each["round"] for each in kept["sent"]] == [0, 1, 2]


def test_o4_a_request_that_passed_untouched_is_kept_as_it_came(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    provider.will(says("hi"))
    body = b'{"model": "m" ,\n "messages":[ {"role":"user","content":"O4 \xc3\xa9"} ] }\n'

    told = ask(proxy.origin, body)

    kept = proxy.page(f"/stack/requests/{told.request}")
    assert (kept["body"].encode(), kept["sent"], provider.received[0].raw) == (body, [], body)
