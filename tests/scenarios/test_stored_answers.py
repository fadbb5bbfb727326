"""An answer that its client may name later is on disk before its end leaves; any other ends as soon as it can. One that
is named and not known here is read from its provider."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import FixedReply, ScriptedAnswer, ScriptedProvider, cut, says, stall
from proxy.errors import StoreError
from proxy.exchange import provider_history
from proxy.exchange.rounds.provider_turns import MAX_REFUSALS
from proxy.store import ConversationCache
from tests.harness import RunningProxy, Stage, bash, does, pop, push, recall
from tests.scenarios.test_references import Forgetful, told

pytestmark = pytest.mark.rows("X-61")

Json = dict[str, Any]
WAIT_S = 10.0
USER: Json = {"role": "user", "content": "look"}
LONG = "All of it, word for word. " * 60_000
"""A plain answer that leaves in pieces while it comes."""
NEVER = 10**9
"""Tokens at which nothing wakes."""


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture
def stage(provider: ScriptedProvider, tmp_path: Path) -> Iterator[Stage]:
    running = Stage(provider, tmp_path, streamed=True)
    yield running
    running.stop()


class SlowDisk:
    """Nothing is known to be written before it is told to go on."""

    def __init__(self) -> None:
        self.is_awaited, self.goes_on = threading.Event(), threading.Event()

    async def wait(self) -> None:
        self.is_awaited.set()
        assert await asyncio.to_thread(self.goes_on.wait, WAIT_S)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    """Patched: only the wait for the disk tells whether the end of an answer waits for it."""
    slow, waits = SlowDisk(), ConversationCache.wait_until_durable

    async def wait(self: ConversationCache, *given: Any) -> None:
        await waits(self, *given)
        if len(given) == 1:  # what a request waits for before it leaves is another matter
            await slow.wait()

    monkeypatch.setattr(ConversationCache, "wait_until_durable", wait)
    return slow


@contextmanager
def asked(proxy: RunningProxy, path: str = "/v1/responses", **members: Any) -> Iterator[socket.socket]:
    """The connection on which the answer comes, ended with it."""
    question: Json = {"messages": [USER]} if path.endswith("completions") else {"input": [USER]}
    body = json.dumps({"model": "gpt-x", **question, **members}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=WAIT_S) as connection:
        connection.sendall(head.replace("host: x", f"host: 127.0.0.1:{proxy.port}").encode() + body)
        yield connection


def come_by_now(connection: socket.socket) -> bytes:
    """What has left for the client, and no more."""
    connection.setblocking(False)
    try:
        return rest(connection)
    finally:
        connection.settimeout(WAIT_S)


def rest(connection: socket.socket) -> bytes:
    pieces = []
    try:
        while piece := connection.recv(1 << 20):
            pieces.append(piece)
    except BlockingIOError:
        pass
    return b"".join(pieces)


STREAMED: Json = {"stream": True}
ANSWERS: dict[str, tuple[int, Json, ScriptedAnswer, bytes]] = {
    "a relayed stream": (NEVER, STREAMED, says("Done.", pace_ms=20), b"response.completed"),
    "a relayed answer": (NEVER, {}, says("Done."), b'"completed"'),
    "a relayed answer of many pieces": (NEVER, {}, says(LONG), b'word for word. "'),
    "a stream of ours": (0, STREAMED, says("Done.", pace_ms=20), b"response.completed"),
    "an answer of ours": (0, {}, says("Done."), b'"completed"'),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_the_end_of_an_answer_that_can_be_named_waits_for_the_disk(
    stage: Stage, provider: ScriptedProvider, disk: SlowDisk, kind: str
) -> None:
    wakes_at, members, answer, end = ANSWERS[kind]
    proxy = stage.proxy(wake_at_tokens=wakes_at)
    provider.will(answer)
    with asked(proxy, **members) as connection:
        assert disk.is_awaited.wait(WAIT_S)
        before = come_by_now(connection)
        disk.goes_on.set()
        after = rest(connection)

    assert end not in before
    assert end in before + after
    assert (b"Done." in before) is bool(members), "the words leave at once"


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "plain"])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
def test_what_nobody_can_name_waits_for_no_disk(
    stage: Stage, provider: ScriptedProvider, disk: SlowDisk, path: str, streamed: bool
) -> None:
    members = {"store": False} if path == "/v1/responses" else {}
    for wakes_at in (0, NEVER):
        provider.will(says("Done."))
        with asked(stage.proxy(wake_at_tokens=wakes_at), path, stream=streamed, **members) as connection:
            assert b"Done." in rest(connection)
    assert not disk.is_awaited.is_set()


@pytest.mark.parametrize("wakes_at", [0, NEVER], ids=["awake", "asleep"])
def test_a_provider_that_goes_wrong_behind_the_end_changes_nothing(
    stage: Stage, provider: ScriptedProvider, wakes_at: int
) -> None:
    """It leaves the connection open, or breaks it: the answer was whole before, and its client can go on from it."""
    client = Forgetful(stage.proxy(wake_at_tokens=wakes_at), streamed=True)
    whole = says("Done.")
    provider.will(whole)
    client.says("how many events?")
    events = client.last.raw.count(b"event: ") if client.last else 0
    provider.will(stall(whole, after_events=events), cut(whole, after_events=events), says("Bye."))
    for words in ("first", "second", "third"):
        assert client.says(words).stack_status == ("asleep" if wakes_at else "full")
    assert {receipt["status"] for receipt in client.proxy.receipts()} == {"asleep" if wakes_at else "full"}


@pytest.mark.parametrize("wakes_at", [0, NEVER], ids=["awake", "asleep"])
def test_a_store_that_fails_keeps_no_end_from_the_client(
    stage: Stage, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, wakes_at: int
) -> None:
    async def fail(*given: Any) -> None:
        if len(given) == 2:
            raise StoreError("the disk is gone", code="store_unreachable")

    client = Forgetful(stage.proxy(wake_at_tokens=wakes_at), streamed=True)
    provider.will(says("Done."))
    with monkeypatch.context() as patched:  # a disk that fails in this one moment: no real one can be told to
        patched.setattr(ConversationCache, "wait_until_durable", fail)
        assert client.says("look").text == "Done."


# ------------------------------------------------------------------------------------------- an answer made elsewhere
RULES: Json = {"role": "developer", "content": "Work with care."}


@dataclass(frozen=True)
class AtProvider:
    """Where a client that has no proxy yet sends its requests."""

    port: int


def client_of(provider: ScriptedProvider) -> Forgetful:
    """A client that has talked to the provider itself so far: it opened with rules, and ran a command."""
    client = Forgetful(cast(RunningProxy, AtProvider(urlsplit(provider.url).port or 0)), streamed=False)
    provider.will(says("One."), does(bash("ls"), text="I look.", reasoning="hm"), says("Two."))
    client.says("first", RULES)
    client.says("second")
    client.returns("a.py")
    return client


BEFORE = ["developer: Work with care.", "user: first", "assistant: One.", "user: second", "assistant: I look. bash"]
BEFORE += ["tool: a.py", "assistant: Two."]


def asked_of(provider: ScriptedProvider) -> list[list[str]]:
    """The lines that left for the provider and were taken."""
    return [told(received) for received in provider.asked]


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "plain"])
def test_a_session_from_before_the_proxy_is_taken_up(stage: Stage, provider: ScriptedProvider, streamed: bool) -> None:
    """Frames, folds and recall work from the first request on, and nothing is read twice."""
    client = client_of(provider)
    client.proxy, client.streamed = stage.proxy(), streamed
    provider.will(does(push("Login"), text="I begin."), does(bash("cat a.py")), does(pop("a typo")), says("Three."))
    provider.will(does(recall("Login")), says("Four."))
    read = len(provider.received)
    statuses = [client.says("third").stack_status, client.returns("typo()").stack_status]
    reads = [each.path for each in provider.received[read:] if each.method == "GET"]
    statuses.append(client.says("what did you run?").stack_status)

    assert statuses == ["full"] * 3
    assert [each.method for each in provider.received].count("GET") == len(reads) == 6
    line = asked_of(provider)[-1]
    assert [said for said in line if said in BEFORE] == BEFORE
    assert "assistant: bash" not in line, "the frame was folded"
    assert "cat a.py" in line[-1]
    assert client.proxy.statuses()["Login"] == "completed"
    assert len(client.proxy.conversations) == 1


def test_asleep_the_bytes_pass_and_the_history_is_known(stage: Stage, provider: ScriptedProvider) -> None:
    client = client_of(provider)
    client.proxy = stage.proxy(wake_at_tokens=NEVER)
    provider.will(says("Three."), says("Four."))
    client.says("third")
    assert provider.asked[-1].raw == client.sent
    client.headers = {"x-stack-mode": "off"}
    assert client.says("fourth").stack_status == "off"

    assert provider.asked[-1].raw == client.sent
    assert "first" in " ".join(client.proxy.kept(client.proxy.conversations[0]["id"]))


def test_a_session_of_another_machine_is_taken_up(stage: Stage, provider: ScriptedProvider) -> None:
    """What the other proxy put in goes, or stays as a text: none of its calls, of which it knew the rest."""
    client = Forgetful(stage.proxy(), streamed=False)
    provider.will(says("One."), does(push("Login")), does(pop("it was a typo")), says("Two."), says("Three."))
    client.says("first", RULES)
    several = client.says("second")
    client.says("third")
    last, client.proxy = client.last, stage.proxy()
    provider.will(says("Four."), says("Five."))
    statuses = [client.says("fourth").stack_status, client.says("fifth").stack_status]
    line = asked_of(provider)[-1]
    client.last = several
    provider.will(says("?"))
    refused = client.asks({"role": "user", "content": "and?"})

    assert statuses == ["full", "full"]
    assert [said for said in line if said.startswith("user: ") and "<" not in said] == [
        f"user: {words}" for words in ("first", "second", "third", "fourth", "fifth")
    ]
    assert not any("stack_frame" in said.partition(" ")[2][:20] for said in line)
    assert any("it was a typo" in said for said in line)
    assert last is not None
    assert (refused.status, refused.stack_status) == (400, "bypass; reason=previous_response")


def test_what_was_not_read_in_time_passes_and_is_read_with_the_next_request(
    stage: Stage, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(provider)
    client.proxy = stage.proxy()
    provider.will(says("Three."), says("Four."))
    with monkeypatch.context() as patched:  # a provider that takes four seconds would keep the test waiting as long
        patched.setattr(provider_history, "READ_SECONDS", 0.0)
        late = client.says("third")
    assert (late.stack_status, provider.asked[-1].raw) == ("bypass; reason=previous_response", client.sent)
    assert client.says("fourth").stack_status == "full"
    assert [said for said in asked_of(provider)[-1] if said in BEFORE] == BEFORE


def test_an_input_is_read_page_by_page(stage: Stage, provider: ScriptedProvider) -> None:
    client = Forgetful(client_of(provider).proxy, streamed=False)
    provider.will(says("One."), says("Two."))
    client.answered(*({"role": "user", "content": f"part {n}"} for n in range(230)))
    client.proxy = stage.proxy()
    assert client.says("and?").stack_status == "full"
    said = [line.split("\n")[0] for line in asked_of(provider)[-1]]
    assert [line for line in said if "part" in line] == [f"user: part {n}" for n in range(230)]


def test_a_provider_that_tells_all_before_in_each_input_is_read_once(stage: Stage, provider: ScriptedProvider) -> None:
    client = client_of(provider)
    assert client.last is not None
    name = client.last.response["previous_response_id"]
    before = client.gets(name).json["output"]
    asked = client.gets(f"{client.last.id}/input_items?order=asc").json["data"]
    history = [RULES, {"role": "user", "content": "first"}, {"role": "user", "content": "second"}, *before, *asked]
    whole = {"object": "list", "data": history, "has_more": False}
    provider.reply(f"/v1/responses/{client.last.id}/input_items", FixedReply(200, json.dumps(whole).encode()))
    client.proxy = stage.proxy()
    provider.will(says("Three."))
    client.says("third")

    assert [said for said in asked_of(provider)[-1] if said in BEFORE] == [s for s in BEFORE if "One" not in s]


def test_a_provider_that_tells_nothing_is_soon_asked_no_more(stage: Stage, provider: ScriptedProvider) -> None:
    """An id that nobody knows: each time the provider's own error passes."""
    client = Forgetful(stage.proxy(), streamed=False)
    answers = [client.asks(USER, previous_response_id="resp_unheard") for _ in range(MAX_REFUSALS + 2)]

    assert {each.status for each in answers} == {400}
    assert {each.json["error"]["code"] for each in answers} == {"previous_response_not_found"}
    assert {each.stack_status for each in answers} == {"bypass; reason=previous_response"}
    assert [each.method for each in provider.received].count("GET") == MAX_REFUSALS


def test_nothing_is_read_where_the_proxy_stays_out(stage: Stage, provider: ScriptedProvider) -> None:
    client = client_of(provider)
    client.proxy, client.headers = stage.proxy(), {"x-stack-mode": "off"}
    provider.will(says("Three."))
    assert client.says("third").stack_status == "bypass; reason=previous_response"
    assert "GET" not in [each.method for each in provider.received]


@pytest.mark.rows("X-57")
def test_an_answer_of_another_key_is_not_found_where_both_ask_with_the_operators(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """The provider knows one customer, and would tell; what nobody here knows passes, and so does all where each client
    brings a key of its own."""
    stage.looks_into_store = False  # which needs a key here
    shared, own = (stage.proxy(tenancy="key", upstreams__default__key=key) for key in ("sk-operator", None))
    provider.when(lambda _: True, says("Fine."), loop=True)
    provider.reply("/v1/responses/resp_far", FixedReply(200, b"{}"))
    statuses: dict[str, list[int]] = {}
    for proxy in shared, own:
        ana, bob = ({"authorization": f"Bearer {issue_key(proxy.config.keys_path, name)}"} for name in ("ana", "bob"))
        name = proxy.asked("POST", "/v1/responses", {"model": "gpt-x", "input": "Hello."}, ana)[1]["id"]
        if proxy is own:
            provider.reply(f"/v1/responses/{name}", FixedReply(200, b"{}"))
        following = {"model": "gpt-x", "input": "And?", "previous_response_id": name}
        assert proxy.asked("POST", "/v1/responses", following, ana)[0] == 200
        seen = len(provider.received)
        told = [
            proxy.asked("POST", "/v1/responses", following, bob),
            proxy.asked("POST", "/v1/responses", {**following, "input": []}, bob),
            proxy.asked("GET", f"/v1/responses/{name}", None, bob),
            proxy.asked("DELETE", f"/v1/responses/{name}", None, bob),
            proxy.asked("GET", f"/v1/responses//{name}", None, bob),
            proxy.asked("DELETE", f"//v1//responses///{name}/", None, bob),
            proxy.asked("GET", f"/v1/%72esponses/{name.replace('_', '%5F')}", None, bob),
            proxy.asked("GET", f"/v1/Responses/{name}/other", None, bob),
            proxy.asked("POST", "/v1/responses/", following, bob),
            proxy.asked("POST", "/v1/responses/input_tokens", following, bob),
        ]
        statuses["shared" if proxy is shared else "own"] = [status for status, _ in told]
        if proxy is shared:
            assert {body["error"]["code"] for _, body in told} == {"response_not_found"}
            assert len(provider.received) == seen
            assert proxy.asked("GET", "/v1/responses/resp_far", None, bob)[0] == 200
            proxy.restart()  # nothing is in memory
            assert proxy.asked("GET", f"/v1/responses/{name}", None, bob)[0] == 404

    assert statuses["shared"] == [404] * 10
    assert 404 not in statuses["own"][:4]


@pytest.mark.rows("X-57")
def test_an_id_whose_owner_the_store_cannot_tell_is_not_asked_with_the_operators_key(
    stage: Stage, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patched: a store that fails at this question alone, and one that never answers it."""
    stage.looks_into_store = False  # which needs a key here
    shared, own = (
        stage.proxy(tenancy="key", upstreams__default__key=key, assembly_budget_ms=200) for key in ("sk-operator", None)
    )
    provider.when(lambda _: True, says("Fine."), loop=True)
    provider.reply("/v1/responses/resp_far", FixedReply(200, b"{}"))

    async def fails(*_: Any) -> bool:
        raise StoreError("the disk is gone")

    async def waits(*_: Any) -> Any:
        return await asyncio.get_running_loop().create_future()

    following = {"model": "gpt-x", "input": "And?", "previous_response_id": "resp_far"}
    for trouble in fails, waits:
        monkeypatch.setattr(ConversationCache, "is_anothers_answer", trouble)
        for proxy in shared, own:
            ana = {"authorization": f"Bearer {issue_key(proxy.config.keys_path, trouble.__name__)}"}
            seen = len(provider.received)
            told = [
                proxy.asked("POST", "/v1/responses", following, ana),
                proxy.asked("GET", "/v1/responses/resp_far", None, ana),
            ]
            if proxy is shared:
                assert [(s, body["error"]["code"]) for s, body in told] == [(503, "response_owner_unknown")] * 2
                assert "again" in told[0][1]["error"]["message"]
                assert len(provider.received) == seen
            else:
                assert 503 not in [status for status, _ in told]
