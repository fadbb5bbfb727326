"""A tool search and the tools that it loaded belong together: whatever leaves the context, the model keeps every tool
that the client believes loaded, in each API's own form, and a loaded definition is counted where the provider bills it
(DESIGN 6, L11).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llm_test_provider import Model, ScriptedAnswer, ScriptedCall, ScriptedProvider, answers, overflow, says
from proxy.accounting import tariff_for
from tests.bill import sum_charged
from tests.harness import does, pop, push, recall
from tests.scenarios.native import SCHEMA, Json, Messages, Native, Responses, bash, padded
from tests.wire.proxied import ServedProxy

FREE, BOUND, MANUAL, GPT = "claude-opus-4-8", "claude-opus-5-5", "claude-sonnet-4-5", "gpt-5.4"
TRACE = "The texts of its files and outputs are gone from here."
Started = Callable[..., ServedProxy]


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    models = [Model(FREE, binding="error"), Model(BOUND, binding="error"), Model(MANUAL), Model(GPT, binding="error")]
    with ScriptedProvider(models=models) as running:
        yield running


@pytest.fixture
def start(provider: ScriptedProvider, tmp_path: Path) -> Iterator[Started]:
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(ServedProxy(provider.url, tmp_path / "data", **settings))


# ---------------------------------------------------------------------------------------------------------- the clients
def deferred(name: str, words: int = 3) -> Json:
    return {"name": name, "description": "word " * words, "input_schema": SCHEMA, "defer_loading": True}


class Searching:
    """A client whose tools are loaded by a search. `loads` has the model search, and lets the client go on."""

    chat: Native

    def loads(self, name: str) -> ScriptedAnswer:
        """What the model says to load this tool."""
        raise NotImplementedError

    def found(self, name: str) -> None:
        """What the client answers, if it searched itself."""
        raise NotImplementedError

    def can_call(self, body: Json, name: str) -> bool:
        raise NotImplementedError

    def stops_deferring(self) -> None:
        raise NotImplementedError


class ClientSearch(Searching):
    """As Claude Code searches: a tool of its own, whose result holds references, and words behind it."""

    def __init__(self, proxy: ServedProxy, model: str = FREE) -> None:
        search = {"name": "ToolSearch", "description": "Finds tools.", "input_schema": SCHEMA}
        bash_tool = {"name": "bash", "description": "Runs a command.", "input_schema": SCHEMA}
        self.chat = Messages(proxy, model, {"tools": [bash_tool, search, deferred("fetch"), deferred("issue")]})

    def loads(self, name: str) -> ScriptedAnswer:
        return answers("Looking.", [ScriptedCall("ToolSearch", {"query": name})], "I need a tool.")

    def found(self, name: str) -> None:
        calls = [block["id"] for block in self.chat.history[-1]["content"] if block["type"] == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": call, "content": [{"type": "tool_reference", "tool_name": name}]}
            for call in calls
        ]
        self.chat.history.append({"role": "user", "content": [*results, {"type": "text", "text": "Tool loaded."}]})

    def found_beside(self, name: str, text: str) -> None:
        """The results of another call and of a search."""
        other, search = (block["id"] for block in self.chat.history[-1]["content"] if block["type"] == "tool_use")
        found = [{"type": "tool_reference", "tool_name": name}]
        results = [(other, text), (search, found)]
        told: list[Json] = [{"type": "tool_result", "tool_use_id": call, "content": words} for call, words in results]
        self.chat.history.append({"role": "user", "content": [*told, {"type": "text", "text": "Tool loaded."}]})

    def can_call(self, body: Json, name: str) -> bool:
        blocks = [b for m in body["messages"] for b in m["content"] if isinstance(m["content"], list)]
        found = [inner for b in blocks if isinstance(b.get("content"), list) for inner in b["content"]]
        return {"type": "tool_reference", "tool_name": name} in found


class ServerSearch(Searching):
    """The provider searches itself, inside the answer that then calls the tool."""

    def __init__(self, proxy: ServedProxy, model: str = FREE) -> None:
        search = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
        bash_tool = {"name": "bash", "description": "Runs a command.", "input_schema": SCHEMA}
        self.chat = Messages(proxy, model, {"tools": [bash_tool, search, deferred("fetch"), deferred("issue")]})
        self.searches = 0

    def loads(self, name: str) -> ScriptedAnswer:
        self.searches += 1
        ident = f"srvtoolu_{self.searches}"
        references = [{"type": "tool_reference", "tool_name": name}]
        content = {"type": "tool_search_tool_search_result", "tool_references": references}
        own = (
            {"type": "server_tool_use", "id": ident, "name": "tool_search_tool_regex", "input": {"query": name}},
            {"type": "tool_search_tool_result", "tool_use_id": ident, "content": content},
        )
        return does(ScriptedCall(name, {"command": "first"}), reasoning="I need a tool.", own=own)

    def found(self, name: str) -> None:
        calls = [block["id"] for block in self.chat.history[-1]["content"] if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call, "content": "used"} for call in calls]
        self.chat.history.append({"role": "user", "content": results})

    def can_call(self, body: Json, name: str) -> bool:
        searched = [b for m in body["messages"] for b in m["content"] if isinstance(b, dict)]
        results = [b["content"]["tool_references"] for b in searched if b.get("type") == "tool_search_tool_result"]
        return [{"type": "tool_reference", "tool_name": name}] in results


class ResponsesSearch(Searching):
    """As Codex searches: the client answers with the definitions themselves."""

    def __init__(self, proxy: ServedProxy, model: str = GPT) -> None:
        search = {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": SCHEMA}
        bash_tool = {"type": "function", "name": "bash", "description": "Runs a command.", "parameters": SCHEMA}
        self.chat = Responses(proxy, model, {"tools": [bash_tool, search]})
        self.searches = 0

    def loads(self, name: str) -> ScriptedAnswer:
        self.searches += 1
        told = {"type": "tool_search_call", "call_id": f"call_search_{self.searches}", "execution": "client"}
        return ScriptedAnswer(own=({**told, "status": "completed", "arguments": {"query": name}},))

    def found(self, name: str) -> None:
        tool = {"type": "function", "name": name, "description": "", "parameters": SCHEMA, "defer_loading": True}
        told = {"type": "tool_search_output", "call_id": f"call_search_{self.searches}", "execution": "client"}
        self.chat.history.append({**told, "status": "completed", "tools": [tool]})

    def found_beside(self, name: str, text: str) -> None:
        """The results of another call and of a search."""
        [call] = [item["call_id"] for item in self.chat.history if item.get("type") == "function_call"]
        self.chat.history.append({"type": "function_call_output", "call_id": call, "output": text})
        self.found(name)

    def can_call(self, body: Json, name: str) -> bool:
        outputs = [item["tools"] for item in body["input"] if item.get("type") == "tool_search_output"]
        return name in [tool["name"] for tools in outputs for tool in tools]


class HostedSearch(ResponsesSearch):
    """The provider of the responses API searches itself, in a namespace of deferred functions."""

    def __init__(self, proxy: ServedProxy, model: str = GPT) -> None:
        super().__init__(proxy, model)
        functions = [self.function(name) for name in ("fetch", "issue")]
        self.namespace = {"type": "namespace", "name": "tracker", "description": "A tracker."}
        bash_tool = self.chat.options["tools"][0]
        self.chat.options["tools"] = [bash_tool, {"type": "tool_search"}, {**self.namespace, "tools": functions}]

    def function(self, name: str) -> Json:
        return {"type": "function", "name": name, "description": "", "parameters": SCHEMA, "defer_loading": True}

    def loads(self, name: str) -> ScriptedAnswer:
        self.searches += 1
        told = {"execution": "server", "call_id": None, "status": "completed"}
        tools = [{**self.namespace, "tools": [self.function(name)]}]
        own = (
            {"type": "tool_search_call", "id": f"tsc_{self.searches}", **told, "arguments": {"paths": ["tracker"]}},
            {"type": "tool_search_output", "id": f"tso_{self.searches}", **told, "tools": tools},
        )
        return does(bash("cat used.py"), own=own)

    def found(self, name: str) -> None:
        [call] = [item["call_id"] for item in self.chat.history[-2:] if item.get("type") == "function_call"]
        self.chat.history.append({"type": "function_call_output", "call_id": call, "output": "used"})

    def can_call(self, body: Json, name: str) -> bool:
        outputs = [item["tools"] for item in body["input"] if item.get("type") == "tool_search_output"]
        return name in [tool["name"] for tools in outputs for namespace in tools for tool in namespace["tools"]]


ALL_FORMS = [ClientSearch, ServerSearch, ResponsesSearch, HostedSearch]


@pytest.fixture(params=ALL_FORMS)
def client(request: pytest.FixtureRequest, start: Started) -> Searching:
    return request.param(start())  # type: ignore[no-any-return]


def sent(provider: ScriptedProvider, at: int = -1) -> Json:
    return dict(json.loads(provider.received[at].raw))


def work(provider: ScriptedProvider, chat: Native, task: str, steps: int = 4) -> None:
    """A request of the user with some reading, and words at its end."""
    provider.will(*(does(bash(f"cat {task[:4]}{n}.py")) for n in range(steps)), says(f"{task} That is done now."))
    chat.says(task)
    read(chat, task, steps)


def read(chat: Native, task: str, steps: int) -> None:
    for n in range(steps):
        chat.returns(padded(f"{task[:4]}-{n}", 900))


def load(provider: ScriptedProvider, client: Searching, name: str, task: str) -> None:
    """A request in which a tool is loaded behind some reading."""
    rest = [does(bash(f"cat {n}.py")) for n in range(4)]
    provider.will(does(bash("cat first.py")), client.loads(name), *rest, says(f"{task} It is filed."))
    client.chat.says(task)
    client.chat.returns(padded("before", 900))
    client.found(name)
    client.chat.asks()
    read(client.chat, task, 4)


LATER = ("Translate the onboarding email.", "Investigate the slow export.", "Write release notes for the parser.")


# ---------------------------------------------------------------------------------------------------------------- folds
@pytest.mark.rows("X-46")
def test_a_loaded_tool_stays_when_the_work_around_it_leaves(provider: ScriptedProvider, client: Searching) -> None:
    load(provider, client, "issue", "File an issue about the broken login.")
    for task in LATER:
        work(provider, client.chat, task)

        assert client.can_call(sent(provider), "issue")
    assert client.chat.status == "full"
    line = provider.received[-1].raw.decode()
    assert "before-1" not in line
    assert TRACE in line


@pytest.mark.rows("X-46")
def test_what_stands_for_the_work_begins_with_what_it_loaded(provider: ScriptedProvider, client: Searching) -> None:
    load(provider, client, "issue", "File an issue about the broken login.")
    for task in LATER:
        work(provider, client.chat, task)

    body = sent(provider)
    line = [json.dumps(m) for m in body["messages" if "messages" in body else "input"] if m.get("role") != "system"]
    loading = next(n for n, m in enumerate(line) if "tool_reference" in m or "tool_search_output" in m)
    trace = next(n for n, m in enumerate(line) if TRACE in m)
    assert "File an issue" in line[0]
    assert loading <= 3
    assert loading <= trace <= loading + 3
    assert "tool_result" not in line[trace].split(TRACE)[1]
    note = line[trace].partition("<stack-context")[2].partition("</stack-context>")[0]
    assert "Tool loaded" not in note, "words of the client, and no request"


@pytest.mark.rows("X-46")
@pytest.mark.parametrize("form", [ClientSearch, ResponsesSearch])
def test_what_was_read_beside_a_search_leaves_with_the_work(
    provider: ScriptedProvider, start: Started, form: type[ClientSearch | ResponsesSearch]
) -> None:
    """The note says that its texts are gone; one that stayed would show a file as it was before the work."""
    client = form(start())
    searched = client.loads("issue")
    both = does(bash("cat a.py"), *searched.calls, own=searched.own)
    provider.will(both, *(does(bash(f"cat {n}.py")) for n in range(4)), says("It is filed."))
    client.chat.says("File an issue about the broken login.")
    client.found_beside("issue", padded("beside", 900))
    client.chat.asks()
    read(client.chat, "File", 4)
    work(provider, client.chat, LATER[0])
    work(provider, client.chat, LATER[1])

    assert client.can_call(sent(provider), "issue")
    assert TRACE in provider.received[-1].raw.decode()
    assert b"beside-1" not in provider.received[-1].raw
    assert client.chat.status == "full"


@pytest.mark.rows("X-46")
def test_folds_that_merge_keep_every_tool(provider: ScriptedProvider, client: Searching) -> None:
    for name, task in (("issue", "File an issue about the broken login."), ("fetch", "Read the page on rate limits.")):
        load(provider, client, name, task)
    for task in LATER:
        work(provider, client.chat, task)

    assert client.can_call(sent(provider), "issue")
    assert client.can_call(sent(provider), "fetch")
    assert client.chat.status == "full"


@pytest.mark.rows("X-46")
def test_the_line_only_grows_around_a_loaded_tool(provider: ScriptedProvider, client: Searching) -> None:
    """L2, where nothing is folded between two requests."""
    load(provider, client, "issue", "File an issue about the broken login.")
    for task in LATER:
        work(provider, client.chat, task)
    folded = [bool(r["receipt"]["events"]) for r in client.chat.proxy.page("/stack/requests?limit=100")["requests"]][
        ::-1
    ]
    lines = [body.get("messages") or body.get("input") for body in (json.loads(r.raw) for r in provider.received)]

    for before, after, rewritten in zip(lines[:-1], lines[1:], folded[1:], strict=True):
        assert rewritten or without_markers(after[: len(before)]) == without_markers(before)


def without_markers(messages: list[Json]) -> str:
    return json.dumps(messages).replace(', "cache_control": {"type": "ephemeral"}', "")


@pytest.mark.rows("X-46")
def test_a_tool_whose_references_the_client_took_out_is_referred_to_no_more(
    provider: ScriptedProvider, start: Started
) -> None:
    """A provider refuses a reference to a tool that is not offered, so a client strips it when a server has gone."""
    client = ClientSearch(start())
    load(provider, client, "issue", "File an issue about the broken login.")
    work(provider, client.chat, LATER[0])
    gone: Json = {"type": "text", "text": "[Tool references removed - tools no longer available]"}
    for message in client.chat.history:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if "tool_reference" in json.dumps(block):
                block["content"] = [gone]
    tools = client.chat.options["tools"]
    client.chat.options["tools"] = [t | {"name": "ticket"} if t["name"] == "issue" else t for t in tools]

    for task in LATER[1:]:
        work(provider, client.chat, task)

    assert b"tool_reference" not in provider.received[-1].raw
    assert client.chat.status == "full"


# --------------------------------------------------------------------------------------------------------------- frames
@pytest.mark.rows("X-46")
@pytest.mark.parametrize("form", ALL_FORMS)
@pytest.mark.parametrize("model", [FREE, BOUND, MANUAL])
def test_a_tool_loaded_in_a_frame_outlives_it(
    provider: ScriptedProvider, start: Started, form: Callable[..., Searching], model: str
) -> None:
    of_responses = form in (ResponsesSearch, HostedSearch)
    if of_responses and model is not FREE:
        pytest.skip("models of another API")
    client = form(start()) if of_responses else form(start(), model)
    if model == MANUAL:
        client.chat.options |= {"thinking": {"type": "enabled", "budget_tokens": 2_000}}
    provider.will(
        does(push("File it"), reasoning="A task."),
        client.loads("issue"),
        does(bash("cat 1.py"), reasoning="Reading."),
        does(pop("it is filed"), reasoning="Done."),
        does(bash("cat 2.py"), reasoning="And more."),
        says("All is filed."),
        says("Sure."),
    )
    client.chat.says("File an issue about the broken login.")
    client.found("issue")
    client.chat.asks()
    client.chat.returns(padded("inside"))
    client.chat.returns("outside")
    client.chat.says("And then?")

    for at in (-1, -2, -3):
        assert client.can_call(sent(provider, at), "issue")
        assert b"inside-1" not in provider.received[at].raw
    assert client.chat.status == "full"


def ids(items: list[Json], kind: str, name: str) -> set[str]:
    return {item[name] for item in items if item.get("type") == kind}


@pytest.mark.rows("X-46")
@pytest.mark.parametrize("form", [ClientSearch, ResponsesSearch])
def test_a_search_beside_a_push_keeps_the_calls_of_its_message_with_their_results(
    provider: ScriptedProvider, start: Started, form: type[ClientSearch | ResponsesSearch]
) -> None:
    """The calls behind a push are the frame's and leave with it, unless a result of theirs stays for what it loaded."""
    client = form(start())
    searched = client.loads("issue")
    both = does(push("Read files"), bash("cat a.py"), *searched.calls, own=searched.own)
    provider.will(both, does(bash("cat b.py")), does(pop("it is filed")), says("Filed."), says("Sure."))
    client.chat.says("File an issue about the broken login.")
    client.found_beside("issue", padded("beside"))
    client.chat.asks()
    client.chat.returns(padded("inside"))
    client.chat.says("And then?")

    for at in (-1, -2):
        body = sent(provider, at)
        blocks = [b for m in body.get("messages", ()) for b in m["content"] if isinstance(b, dict)]
        items = body.get("input", blocks)
        answered = ids(items, "tool_result", "tool_use_id") | ids(items, "function_call_output", "call_id")
        assert answered == ids(items, "tool_use", "id") | ids(items, "function_call", "call_id")
        assert client.can_call(body, "issue")
        assert b"inside-1" not in provider.received[at].raw
    assert client.chat.status == "full"


@pytest.mark.rows("X-46")
def test_a_frame_with_a_view_of_its_own_has_the_tools_of_its_parents(
    provider: ScriptedProvider, start: Started
) -> None:
    for form in ALL_FORMS:
        client = form(start(child_view="isolate"))
        load(provider, client, "issue", "File an issue about the broken login.")
        provider.will(does(push("Another")), does(bash("cat x.py")), says("Read."))
        client.chat.says("Look into the other one as well.")
        client.chat.returns("text")

        assert client.can_call(sent(provider), "issue")
        assert b"before-1" not in provider.received[-1].raw
        assert client.chat.status == "full"


@pytest.mark.rows("X-46")
def test_a_recall_of_the_work_leaves_the_tool_where_it_is(provider: ScriptedProvider, client: Searching) -> None:
    load(provider, client, "issue", "File an issue about the broken login.")
    for task in LATER:
        work(provider, client.chat, task)
    provider.will(does(recall("File an issue")), says("It says so."), says("Yes."))
    client.chat.says("What did the first files say?")
    client.chat.says("Sure?")

    assert client.can_call(sent(provider), "issue")
    assert client.chat.status == "full"


# ------------------------------------------------------------------------------------------------------------- overflow
@pytest.mark.rows("X-46")
@pytest.mark.parametrize("form", ALL_FORMS)
def test_a_context_that_is_too_long_is_shortened_around_the_tools(
    provider: ScriptedProvider, start: Started, form: Callable[..., Searching]
) -> None:
    client = form(start())
    provider.will(does(bash("cat first.py")), client.loads("issue"), *(does(bash(f"cat {n}.py")) for n in range(6)))
    client.chat.says("File an issue about the broken login.")
    client.chat.returns(padded("before", 900))
    client.found("issue")
    client.chat.asks()
    for n in range(5):
        client.chat.returns(padded(f"output-{n}", 900))
    provider.will(overflow(), says("It fits."))
    client.chat.returns(padded("newest", 900))

    assert client.can_call(sent(provider), "issue")
    assert b"before-1" not in provider.received[-1].raw
    assert client.chat.status == "full"


# ---------------------------------------------------------------------------------------------------------------- money
@pytest.mark.rows("X-46")
@pytest.mark.parametrize("mode", ["shadow", "active"])
@pytest.mark.parametrize("form", [ClientSearch, ServerSearch])
def test_a_loaded_definition_is_counted_where_it_is_billed(tmp_path: Path, form: Any, mode: str) -> None:
    """The untouched cost is what the provider bills for the same session without a proxy."""
    bills: dict[str, float] = {}
    for way in ("proxied", "direct"):
        with ScriptedProvider(models=[Model(FREE, cache="anthropic")]) as provider, ExitStack() as stack:
            proxy: Any = SimpleNamespace(origin=provider.url.removesuffix("/v1"))
            if way == "proxied":
                proxy = stack.enter_context(ServedProxy(provider.url, tmp_path / "data", mode=mode))
            client = form(proxy)
            options = client.chat.options
            options |= {"system": "Rule. " * 3_000, "cache_control": {"type": "ephemeral"}}
            options["tools"] = [t if t["name"] != "issue" else deferred("issue", 20_000) for t in options["tools"]]
            provider.will(says("Well."))
            client.chat.says("May I ask something?")
            load(provider, client, "issue", "File an issue about the broken login.")
            if way == "direct":
                bills[way] = sum_charged(provider.asked, tariff_for(FREE))
            else:
                receipts = [r["receipt"] for r in proxy.page("/stack/requests?limit=100")["requests"]][::-1]
                bills[way] = sum(receipt["cost_untouched"] for receipt in receipts)
                came = [receipt["tokens_in"] for receipt in receipts]
                assert came[0] < 10_000 < 20_000 < came[-1]
    assert bills["proxied"] == pytest.approx(bills["direct"], rel=0.01)
