"""Budgets and lists of models hold at every door: what passes without a receipt is counted, what cannot be counted is
refused, what runs in the background is counted before it is fetched, and requests at once do not pass together."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import pytest

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import FixedReply, ScriptedProvider, Usage, answers, says, stall
from proxy.auth import UsageLimits
from tests.postgresql_server import PostgresServer
from tests.wire.proxied import ServedProxy
from tests.wire.stage import Starting
from tests.wire.talking import CHAT, ReceivedAnswer, ask

Json = dict[str, Any]
HELLO: Json = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "hello"}]}
WAIT_S = 20.0
SSE = (("content-type", "text/event-stream"),)


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    """One for each test, because fixed replies stay."""
    with ScriptedProvider() as running:
        yield running


@pytest.fixture
def keyed(start: Starting) -> ServedProxy:
    return start(tenancy="key", upstreams__default__key="k")


def client(proxy: ServedProxy, **limits: object) -> Callable[..., ReceivedAnswer]:
    """Asks with a key that has these limits."""
    key = issue_key(proxy.app.config.keys_path, "ana", limits=UsageLimits.model_validate(limits))

    def send(body: object = None, path: str = CHAT, method: str = "POST", **headers: str) -> ReceivedAnswer:
        return ask(proxy.origin, body, path=path, method=method, headers={"authorization": f"Bearer {key}", **headers})

    return send


def used(proxy: ServedProxy) -> tuple[int, int]:
    """Requests and tokens of the key."""
    operator = issue_key(proxy.app.config.keys_path, f"root{len(proxy.app.config.keys_path.read_bytes())}", admin=True)
    told = ask(proxy.origin, method="GET", path="/stack/usage", headers={"x-stack-key": operator})
    rows = [row for row in told.json["rows"] if row["name"] == "ana"]
    return sum(row["requests"] for row in rows), sum(row["tokens"] for row in rows)


def code_of(answer: ReceivedAnswer) -> tuple[int, str]:
    return answer.status, answer.json["error"]["code"]


@pytest.mark.rows("X-57")
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings"])
def test_what_passes_without_a_receipt_is_counted_by_its_usage(
    keyed: ServedProxy, provider: ScriptedProvider, path: str
) -> None:
    answer = {"data": [], "usage": {"prompt_tokens": 900, "completion_tokens": 200, "total_tokens": 1100}}
    provider.reply(path, FixedReply(200, json.dumps(answer).encode()))
    send = client(keyed, tokens=1_000)

    assert send({"model": "gpt-5-mini", "input": "x", "prompt": "x"}, path).status == 200
    assert used(keyed) == (1, 1_100)
    assert code_of(send({"model": "gpt-5-mini", "input": "x"}, path)) == (429, "budget_spent")
    assert provider.received[-1].header("accept-encoding") == "identity"


@pytest.mark.rows("X-57")
def test_a_stream_that_tells_no_usage_is_counted_by_its_events(keyed: ServedProxy, provider: ScriptedProvider) -> None:
    stream = b'data: {"choices":[{"text":"a"}]}\n\n' * 400
    provider.reply("/v1/completions", FixedReply(200, stream, SSE))
    send = client(keyed, tokens=100_000)

    assert send({"model": "gpt-5-mini", "prompt": "x", "stream": True}, "/v1/completions").body == stream
    assert used(keyed)[1] >= 400


@pytest.mark.rows("X-57")
def test_a_request_that_passes_beside_our_bookkeeping_is_counted_too(
    keyed: ServedProxy, provider: ScriptedProvider
) -> None:
    """Nothing in it can be placed, so it has no receipt."""
    answer = {"choices": [], "usage": {"prompt_tokens": 900, "completion_tokens": 200}}
    provider.reply(CHAT, FixedReply(200, json.dumps(answer).encode()))
    send = client(keyed, tokens=1_000)

    assert send({"model": "gpt-5-mini", "messages": []}).told.startswith("bypass")
    assert used(keyed) == (1, 1_100)


@pytest.mark.rows("X-57")
@pytest.mark.parametrize("path", ["/v1/batches", "/v1/messages/batches", "/v1/images/generations", "/v1/x/cancel"])
def test_what_cannot_be_counted_is_refused_with_a_way_out(
    keyed: ServedProxy, provider: ScriptedProvider, path: str
) -> None:
    refused = client(keyed, tokens=1_000)(HELLO, path)
    assert code_of(refused) == (403, "not_counted")
    assert "a key without a budget" in refused.json["error"]["message"]
    assert not provider.received


@pytest.mark.rows("X-57")
@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS"])
def test_a_body_where_none_belongs_is_refused(keyed: ServedProxy, provider: ScriptedProvider, method: str) -> None:
    send = client(keyed, tokens=1_000)
    assert code_of(send(HELLO, CHAT, method)) == (403, "not_counted")
    assert not provider.received
    provider.reply("/v1/models", FixedReply(200, b'{"data": []}'))
    assert send(None, "/v1/models", "GET").status == 200


@pytest.mark.rows("X-57")
def test_a_model_whose_output_has_no_price_is_refused_under_a_budget_in_usd(
    keyed: ServedProxy, provider: ScriptedProvider
) -> None:
    refused = client(keyed, usd=1.0)(HELLO | {"model": "never-heard-of"})
    assert code_of(refused) == (403, "model_not_priced")
    assert "tariffs" in refused.json["error"]["message"]
    assert not provider.received


@pytest.mark.rows("X-57")
@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.long)])
def test_requests_at_once_do_not_pass_a_budget_together(
    request: pytest.FixtureRequest, start: Starting, provider: ScriptedProvider, replicas: int
) -> None:
    """Nor on two replicas, half of them on each."""
    server: PostgresServer | None = request.getfixturevalue("postgres") if replicas > 1 else None
    store = {"store": server.new_database()} if server else {}
    proxies = [start(tenancy="key", upstreams__default__key="k", **store) for _ in range(replicas)]
    may_end = threading.Event()
    provider.will(*(stall(says("ok"), until=may_end.is_set) for _ in range(20)))
    key = issue_key(proxies[0].app.config.keys_path, "ana", limits=UsageLimits(tokens=5_000))
    headers = {"authorization": f"Bearer {key}"}

    def send(number: int) -> ReceivedAnswer:
        return ask(proxies[number % replicas].origin, HELLO | {"max_tokens": 10}, headers=headers)

    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(send, number) for number in range(20)]
        try:  # neither of the two that find room ends before all others are refused
            finished = as_completed(asked, timeout=WAIT_S)
            refused = [next(finished).result() for _ in range(18)]
        finally:
            may_end.set()
        answered = [each.result() for each in finished]

    assert [answer.status for answer in answered] == [200, 200]
    assert len(provider.received) == 2
    assert {code_of(answer) for answer in refused} == {(429, "budget_reserved")}
    assert {answer.header("retry-after") for answer in refused} == {"1"}
    assert not any(answer.header("x-should-retry") for answer in refused)
    assert any(send(number).status == 200 for number in range(100)), "nothing stays reserved"


@pytest.mark.rows("X-57")
@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses", "/v1/completions"])
def test_a_request_without_a_bound_whose_input_alone_is_more_than_the_rest_is_refused(
    keyed: ServedProxy, provider: ScriptedProvider, path: str
) -> None:
    send = client(keyed, tokens=1_000)
    words = "one two three four " * 1_000
    body = HELLO | {"messages": [{"role": "user", "content": words}], "input": words, "prompt": words}

    refused = send(body, path)

    assert refused.status == 429
    assert "it names no bound" in refused.body.decode()
    assert "Name max_tokens" in refused.body.decode()
    assert not provider.received


@pytest.mark.rows("X-57")
def test_a_request_without_a_bound_is_refused_where_the_rest_is_less_than_requests_take(
    keyed: ServedProxy, provider: ScriptedProvider
) -> None:
    send = client(keyed, tokens=10_000)
    provider.will(says("ok", usage=Usage(5_000, 1_000)), says("short", usage=Usage(10, 10)))

    assert send(HELLO).status == 200
    assert code_of(send(HELLO)) == (429, "budget_spent")
    assert send(HELLO | {"max_tokens": 100}).status == 200
    assert len(provider.received) == 2


def in_background(status: str, usage: Json | None = None) -> FixedReply:
    told = {"id": "resp_bg", "object": "response", "status": status, "background": True, "output": [], "usage": usage}
    return FixedReply(200, json.dumps(told | {"model": "gpt-5-mini"}).encode())


@pytest.mark.rows("X-57")
def test_a_response_in_the_background_counts_with_its_bound_and_then_with_its_figures(
    keyed: ServedProxy, provider: ScriptedProvider
) -> None:
    provider.reply("/v1/responses", in_background("queued"))
    send = client(keyed, tokens=100_000)
    asked = {"model": "gpt-5-mini", "input": "x", "background": True, "store": True, "max_output_tokens": 50_000}

    assert send(asked, "/v1/responses").status == 200
    assert used(keyed)[1] >= 50_000
    assert code_of(send(asked, "/v1/responses")) == (429, "budget_spent")

    provider.reply("/v1/responses/resp_bg", in_background("in_progress"))
    send(None, "/v1/responses/resp_bg", "GET")
    assert used(keyed)[1] >= 50_000
    usage = {"input_tokens": 30, "output_tokens": 70, "total_tokens": 100}
    provider.reply("/v1/responses/resp_bg", in_background("completed", usage))
    for _ in range(3):  # it counts once
        send(None, "/v1/responses/resp_bg", "GET")
    assert 0 < used(keyed)[1] < 1_000


BACKGROUND: Json = {"model": "gpt-5-mini", "input": "x", "background": True, "max_output_tokens": 50_000}
FINISHED = in_background("completed", {"input_tokens": 30, "output_tokens": 70, "total_tokens": 100})


@pytest.mark.rows("X-57")
def test_a_response_in_the_background_is_settled_after_a_restart(start: Starting, provider: ScriptedProvider) -> None:
    provider.reply("/v1/responses", in_background("queued"))
    provider.reply("/v1/responses/resp_bg", FINISHED)
    proxy = start(tenancy="key", upstreams__default__key="k")
    key = issue_key(proxy.app.config.keys_path, "ana", limits=UsageLimits(tokens=100_000))
    headers = {"authorization": f"Bearer {key}"}
    assert ask(proxy.origin, BACKGROUND, path="/v1/responses", headers=headers).status == 200
    assert used(proxy)[1] >= 50_000
    proxy.__exit__(None, None, None)

    again = start(tenancy="key", upstreams__default__key="k")
    for _ in range(3):  # it counts once
        ask(again.origin, None, path="/v1/responses/resp_bg", method="GET", headers=headers)
    assert 0 < used(again)[1] < 1_000


@pytest.mark.long
@pytest.mark.rows("X-57")
def test_a_response_in_the_background_is_settled_once_by_whichever_replica_tells_it(
    start: Starting, provider: ScriptedProvider, postgres: PostgresServer
) -> None:
    provider.reply("/v1/responses", in_background("queued"))
    provider.reply("/v1/responses/resp_bg", FINISHED)
    store = postgres.new_database()
    one, other = (start(tenancy="key", upstreams__default__key="k", store=store) for _ in range(2))
    key = issue_key(one.app.config.keys_path, "ana", limits=UsageLimits(tokens=100_000))
    headers = {"authorization": f"Bearer {key}"}
    assert ask(one.origin, BACKGROUND, path="/v1/responses", headers=headers).status == 200

    def fetch(number: int) -> int:
        origin = (other, one)[number % 2].origin
        return ask(origin, None, path="/v1/responses/resp_bg", method="GET", headers=headers).status

    with ThreadPoolExecutor(12) as pool:
        assert set(pool.map(fetch, range(24))) == {200}
    assert 0 < used(other)[1] < 1_000
    assert used(one) == used(other)


@pytest.mark.rows("X-57")
def test_a_response_in_the_background_that_took_more_than_was_thought_counts_whole(
    keyed: ServedProxy, provider: ScriptedProvider
) -> None:
    provider.reply("/v1/responses", in_background("queued"))
    usage = {"input_tokens": 50_000, "output_tokens": 50_000, "total_tokens": 100_000}
    provider.reply("/v1/responses/resp_bg", in_background("completed", usage))
    send = client(keyed, tokens=1_000)
    asked = {"model": "gpt-5-mini", "input": "x", "background": True}

    assert send(asked, "/v1/responses").status == 200
    assert send(None, "/v1/responses/resp_bg", "GET").status == 200

    assert 100_000 <= used(keyed)[1] < 101_000
    assert code_of(send(asked, "/v1/responses")) == (429, "budget_spent")


def leave(proxy: ServedProxy, provider: ScriptedProvider, key: str, path: str, body: Json, behind: int = 0) -> None:
    """Ask, and go as soon as the provider was asked, or when so many bytes have come."""
    sent, known = json.dumps(body).encode(), len(provider.received)
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{proxy.port}\r\nauthorization: Bearer {key}\r\n"
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=WAIT_S) as connection:
        connection.sendall(
            f"{head}content-type: application/json\r\ncontent-length: {len(sent)}\r\n\r\n".encode() + sent
        )
        provider.wait_for(known + 1)
        while behind > 0:
            behind -= len(connection.recv(65536))
    provider.wait_until(lambda: provider.received[known].left_at is not None)
    proxy.catch_up()


@pytest.mark.rows("X-57")
@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
def test_who_leaves_a_stream_has_spent_what_had_come_of_it(
    keyed: ServedProxy, provider: ScriptedProvider, path: str
) -> None:
    """Thinking too. Anthropic's first event has figures already, of one token."""
    provider.when(lambda _: True, stall(answers("x", reasoning="so it is " * 2_000), after_events=900), loop=True)
    key = issue_key(keyed.app.config.keys_path, "ana", limits=UsageLimits(tokens=200_000))
    asked = {"model": "gpt-5-mini", "stream": True, "messages": HELLO["messages"], "input": "hello"}
    for _ in range(2):
        leave(keyed, provider, key, path, asked | {"max_tokens": 30_000, "max_output_tokens": 30_000}, 80_000)
    assert 600 < used(keyed)[1] < 10_000


@pytest.mark.rows("X-57")
def test_who_leaves_before_an_answer_has_spent_the_input_and_what_runs_on(
    keyed: ServedProxy, provider: ScriptedProvider
) -> None:
    provider.when(lambda _: True, says("late", delay_s=WAIT_S), loop=True)
    key = issue_key(keyed.app.config.keys_path, "ana", limits=UsageLimits(tokens=200_000))
    words = "please read this " * 1_000

    leave(keyed, provider, key, CHAT, {"model": "gpt-5-mini", "messages": [{"role": "user", "content": words}]})
    spent = used(keyed)[1]
    assert 1_000 < spent < 10_000

    leave(keyed, provider, key, "/v1/responses", BACKGROUND)
    assert used(keyed)[1] >= spent + 50_000


@pytest.mark.rows("X-58")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, HELLO | {"models": ["gpt-9"]}),
        (CHAT, b'{"model":"gpt-9","messages":[],"model":"gpt-5-mini"}'),
        (CHAT, HELLO | {"Model": "gpt-9"}),
        ("/v1/batches", HELLO),
        ("/v1/messages/batches", HELLO | {"requests": [{"params": {"model": "gpt-9"}}]}),
        ("/openai/deployments/gpt-9/chat/completions", HELLO),
        ("/v1/responses", {"model": "gpt-5-mini", "input": "x", "tools": [{"type": "image_generation"}]}),
        ("/v1/responses", {"model": "gpt-5-mini", "prompt": {"id": "pmpt_1"}}),
        (CHAT, b'{"model":"gpt-5-mini","messages":[],"reasoning":{"model":"gpt-9","model":"gpt-5-mini"}}'),
        (CHAT, HELLO | {"provider": {"order": [{"MODEL": ["gpt-9"]}]}}),
        ("/v1/responses", b'{"model":"gpt-5-mini","input":"x","tools":[{"Type":"image_generation"}]}'),
        ("/v1/responses", b'{"model":"gpt-5-mini","input":"x","tools":[{"type":"x","type":"function"}]}'),
        (
            "/v1/responses",
            b'{"model":"gpt-5-mini","input":"x","tools":[{"type":"advisor","of":{"model":"gpt-9","model":"gpt-5-mini"}}]}',
        ),
    ],
    ids=range(13),
)
def test_a_list_of_models_holds_at_every_door(
    keyed: ServedProxy, provider: ScriptedProvider, path: str, body: object
) -> None:
    send = client(keyed, models=("gpt-5-mini",))
    assert code_of(send(body, path)) == (403, "model_not_allowed")
    assert not provider.received
    provider.will(says("ok"))
    assert send(HELLO).status == 200


@pytest.mark.rows("X-58")
@pytest.mark.parametrize("limits", [{"models": ("gpt-5-mini",)}, {"tokens": 100_000}], ids=["models", "budget"])
def test_what_may_unpack_to_something_else_passes_no_limit(
    keyed: ServedProxy, provider: ScriptedProvider, limits: dict[str, object]
) -> None:
    """JSON as it stands, and another request for a provider that unpacks it."""
    send = client(keyed, **limits)
    for coding in ("br", "x-unknown", "gzip, gzip, gzip, gzip"):
        answer = send(HELLO, **{"content-encoding": coding})
        assert code_of(answer) == (415, "unreadable_coding"), coding
    assert not provider.received
    provider.will(says("ok"))
    assert send(HELLO, **{"content-encoding": "identity"}).status == 200


@pytest.mark.rows("X-57", "X-66")
def test_what_the_proxy_answers_itself_is_free_and_asks_for_a_model_of_the_list(keyed: ServedProxy) -> None:
    send = client(keyed, models=("gpt-5-mini",), usd=1, tokens=1_000)
    path = f"/v1/retrieve/{'0' * 24}"

    assert send(HELLO, "/v1/compress").json["messages"] == HELLO["messages"]
    assert code_of(send({**HELLO, "model": "gpt-5"}, "/v1/compress")) == (403, "model_not_allowed")
    assert code_of(send({"query": "words"}, path)) == (404, "not_found")
    assert code_of(send(path=path, method="GET")) == (404, "not_found")
    assert code_of(send(HELLO, "/openai/v1/compress")) == (403, "model_not_allowed")
    assert code_of(send(path=path, method="DELETE")) == (403, "model_not_allowed")
