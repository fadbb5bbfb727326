"""`callstack_proxy.Session`: an agent loop that asks its model itself, with the engine of the proxy in its process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessage

from callstack_proxy import AsyncSession, Engine, Refused, Session
from callstack_proxy.cli.context import PRESENCE_LOCK
from callstack_proxy.engine import PRESENCE_LOCK as OURS
from callstack_proxy.engine import configuration
from llm_test_provider import ScriptedProvider, call, calls, says
from proxy.errors import BadRequest, InvalidConfiguration, NotAllowed
from tests.harness import does, pop, push, recall

Json = dict[str, Any]
SETTINGS = {"wake_at_tokens": 0, "folding": "full", "assembly_budget_ms": 10_000}
HOUSE = Path(__file__).resolve().parents[2]
MODEL = "gpt-5.4"
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]
FILE = "\n".join(f"line {number}: some words about totals and rounding" for number in range(150))


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture
def ask(provider: ScriptedProvider) -> Callable[..., Json]:
    return asking(provider.url)


def asking(url: str) -> Callable[..., Json]:
    """Asks the model as a program does that has no proxy."""

    def post(messages: list[Json], tools: list[Json]) -> Json:
        return posted(f"{url}/v1/chat/completions", {"model": MODEL, "messages": messages, "tools": tools})

    return post


def posted(url: str, body: Json) -> Json:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return dict(json.loads(answer.read()))


def opening(text: str = "Fix the rounding in the totals.") -> list[Json]:
    return [{"role": "system", "content": "You are careful."}, {"role": "user", "content": text}]


def run_agent(session: Session, ask: Callable[..., Json], history: list[Json], requests: int = 99) -> list[Any]:
    """A loop as docs/library.md shows it; the figures of each of its steps."""
    figures: list[Any] = []
    while len(figures) < requests:
        messages, tools = session.context(history, TOOLS)
        step = session.answer(ask(messages, tools))
        if step.again:
            continue
        figures.append(step.figures)
        history.append(step.message)
        if not step.calls:
            break
        history += [{"role": "tool", "tool_call_id": made["id"], "content": result_of(made)} for made in step.calls]
    return figures


def result_of(made: Json) -> str:
    return f"{FILE}\n{made['function']['arguments']}"


@pytest.mark.rows("X-67")
def test_calls_of_ours_are_answered_inside(provider: ScriptedProvider, ask: Callable[..., Json]) -> None:
    provider.will(
        does(push("Find the bug")),
        does(call("read", path="a.py")),
        does(pop("The bug is in a.py: marker."), text="Found it."),
        does(recall("Find the bug")),
        says("It is fixed."),
    )
    history = opening()

    with Session(MODEL, settings=SETTINGS) as session:
        run_agent(session, ask, history)

    assert [message["role"] for message in history] == ["system", "user", "assistant", "tool", "assistant"]
    assert history[-1]["content"].endswith("It is fixed.")
    assert "stack_" not in json.dumps(history)
    sent = provider.received
    assert all("stack_frame_push" in each.tool_names for each in sent)
    assert "a.py" in dict(sent[-1].results)[sent[-1].calls[-1].id]


TASKS = ("Fix the rounding in the totals.", "Now write a letter to the accountants, something else entirely.")


@pytest.mark.rows("X-67")
def test_a_job_of_twenty_requests_ends_as_without_us_and_costs_less(
    provider: ScriptedProvider, ask: Callable[..., Json], tmp_path: Path
) -> None:
    script = [calls("read", path=f"f{number}.py") for number in range(9)]
    provider.will(*[*script, says("The totals are right."), *script, says("The letter is written.")] * 2)
    direct, ours, figures = opening()[:1], opening()[:1], []

    for text in TASKS:
        direct.append({"role": "user", "content": text})
        run_direct(ask, direct)
    with Session(MODEL, data=tmp_path, settings=SETTINGS) as session:
        for text in TASKS:
            ours.append({"role": "user", "content": text})
            figures += run_agent(session, ask, ours)
    receipts = receipts_in(tmp_path)

    assert said_in(ours) == said_in(direct)
    assert len(figures) == len(provider.received) - 20 == 20
    assert sum(each.tokens_saved for each in figures) > 0.2 * sum(each.tokens_in for each in figures)
    assert sum(each.cost for each in figures) < sum(each.cost_untouched for each in figures)
    assert sum(each["cost"] for each in receipts) == pytest.approx(sum(each.cost for each in figures), abs=1e-4)
    billed = sum(len(json.dumps(each.body)) for each in provider.received[20:])
    assert billed < 0.8 * sum(len(json.dumps(each.body)) for each in provider.received[:20])


def run_direct(ask: Callable[..., Json], history: list[Json]) -> None:
    while True:
        message = ask(history, TOOLS)["choices"][0]["message"]
        history.append(message)
        made = message.get("tool_calls") or []
        if not made:
            return
        history += [{"role": "tool", "tool_call_id": each["id"], "content": result_of(each)} for each in made]


def receipts_in(data: Path) -> list[Json]:
    with Engine(data=data) as engine:
        return [json.loads(row.receipt) for row in engine.run(engine.opened.store.requests("local", limit=99))]


def said_in(history: list[Json]) -> list[Any]:
    return [(m["role"], m.get("content"), [c["function"] for c in m.get("tool_calls") or ()]) for m in history]


KILLED = """
import json, os, signal, sys
from callstack_proxy import Session
from tests.library.test_session import MODEL, SETTINGS, asking, opening, run_agent

session, history = Session(MODEL, data=sys.argv[2], settings=SETTINGS), opening()
run_agent(session, asking(sys.argv[1]), history, requests=2)
print(json.dumps(history), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
@pytest.mark.rows("X-67")
def test_a_killed_program_goes_on_where_it_was(
    provider: ScriptedProvider, ask: Callable[..., Json], tmp_path: Path
) -> None:
    provider.will(
        does(push("Find the bug")), does(call("read", path="a.py")), does(call("read", path="b.py")),
        does(pop("In b.py: marker.")), says("It is fixed."),
    )  # fmt: skip
    words = [sys.executable, "-c", KILLED, provider.url, str(tmp_path)]

    died = subprocess.run(words, capture_output=True, text=True, cwd=HOUSE, check=False)
    history = json.loads(died.stdout)
    with Session(MODEL, data=tmp_path, settings=SETTINGS) as session:
        run_agent(session, ask, history)

    assert died.returncode == -9
    assert history[-1]["content"] == "It is fixed."
    assert len({each["conversation"] for each in receipts_in(tmp_path)}) == 1
    assert "In b.py: marker." in json.dumps(provider.received[-1].body)
    assert "stack_frame_push" in json.dumps(provider.received[-1].messages)


UNCLOSED = """
import sys
from callstack_proxy import Session

session = Session("gpt-5.4", data=sys.argv[1])
session.context([{"role": "user", "content": "hello"}])
session.answer({"role": "assistant", "content": "hello"})
heavy = (
    "fastapi",
    "starlette",
    "uvicorn",
    "typer",
    "rich",
    "callstack_proxy.cli",
    "proxy.server",
    "callstack_proxy.management",
)
print([name for name in heavy if name in sys.modules])
"""


@pytest.mark.rows("X-67")
def test_a_program_that_closes_nothing_loses_nothing_and_loads_no_server(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", UNCLOSED, str(tmp_path)], capture_output=True, cwd=HOUSE, check=True)

    assert (done.stdout, done.stderr) == (b"[]\n", b"")
    assert [each["status"] for each in receipts_in(tmp_path)] == ["asleep"]


@pytest.mark.rows("X-67")
def test_the_loop_of_the_page_on_the_library_works(
    provider: ScriptedProvider, ask: Callable[..., Json], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.will(does(push("Find the bug")), does(call("read", path="a.py")), does(pop("In a.py.")), says("Fixed."))
    (code,) = re.findall(r"```python\n(.*?)```", (HOUSE / "docs/library.md").read_text(), re.DOTALL)
    scope: Json = {}
    exec(code, scope)
    monkeypatch.chdir(tmp_path)
    # the page keeps the defaults, with which a session this short never wakes
    monkeypatch.setattr("callstack_proxy.session.configuration", lambda data, _: configuration(data, SETTINGS))

    assert scope["run_agent"](ask, result_of, opening(), TOOLS) == "Fixed."
    assert len(code.strip().splitlines()) <= 20
    assert len(provider.received) == 4


@pytest.mark.rows("X-67")
def test_a_failure_of_the_callers_is_no_answer(provider: ScriptedProvider, ask: Callable[..., Json]) -> None:
    provider.will(does(push("Find the bug")), says("Fixed."))
    history = opening()
    with Session(MODEL, settings=SETTINGS) as session:
        first = session.context(history, TOOLS)
        again = session.context(history, TOOLS)  # the caller's connection broke, say
        assert session.answer(ask(*again)).again
        hidden = session.context(history, TOOLS)
        other = session.context([*history, {"role": "user", "content": "Stop, do something else."}], TOOLS)
        step = session.answer({"role": "assistant", "content": "Something else it is."})

    assert first == again
    assert len(hidden[0]) > len(first[0])
    assert "something else" in json.dumps(other[0])
    assert step.message["content"] == "Something else it is."


@pytest.mark.rows("X-67")
def test_what_the_engine_cannot_help_with_comes_back_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    image = {"role": "user", "content": [{"type": "text", "text": "hello"}], "name": "ann"}
    said = {"role": "assistant", "content": "hello"}

    with Session(MODEL, settings={"mode": "off"}) as session:
        messages, tools = session.context([image], TOOLS)
        assert (messages[0] is image, tools) == (True, TOOLS)
        assert session.answer(said).message == said
        assert session.context([{"role": 5}])[0] == [{"role": 5}]
        assert session.answer(said).figures.status.startswith("bypass")
        assert session.context([])[0] == []
        assert session.context([{"role": "user", "content": "/stack help"}])[0][0]["content"] == "/stack help"

        async def breaks(*_: object) -> None:
            raise ZeroDivisionError

        session.context([image], TOOLS)
        # no input that we know of breaks the engine, so it is broken by hand
        monkeypatch.setattr("callstack_proxy.engine.Turn.next", breaks)  # see above
        own = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        ours = {"id": "c2", "type": "function", "function": {"name": "stack_recall", "arguments": "{}"}}
        assert session.answer({**said, "tool_calls": [own, ours]}).message == {**said, "tool_calls": [own]}
        monkeypatch.undo()
        monkeypatch.setattr("callstack_proxy.engine.pipeline.handle", breaks)
        assert session.context([image], TOOLS)[0] == [image]
        assert session.answer(said).message == said


@pytest.mark.rows("X-67")
def test_wrong_use_is_told_and_leaves_the_session_as_it_was(tmp_path: Path) -> None:
    with Session(MODEL, data=tmp_path) as session:
        for messages in ("hello", {"role": "user"}, ["hello"], [{"role": "user", "content": object()}], [b"x"], 5):
            with pytest.raises(BadRequest):
                session.context(messages)  # type: ignore[arg-type]
        with pytest.raises(NotAllowed, match="context"):
            session.answer({"role": "assistant", "content": "hello"})
        session.context([{"role": "user", "content": "hello"}])
        for answer in ("hello", {}, {"role": "user", "content": "hello"}, {"choices": 5}, None):
            with pytest.raises(BadRequest):
                session.answer(answer)
        with pytest.raises(InvalidConfiguration, match="in use"):
            Engine(data=tmp_path)
        assert session.answer({"role": "assistant", "content": "hello"}).message["content"] == "hello"
    with pytest.raises(NotAllowed, match="closed"):
        session.context([{"role": "user", "content": "hello"}])
    with pytest.raises(InvalidConfiguration, match="folding"):
        Engine(settings={"foldin": "full"})
    with pytest.raises(BadRequest, match="api"):
        Session(MODEL, api="gemini")  # type: ignore[arg-type]
    assert OURS == PRESENCE_LOCK


@pytest.mark.rows("X-67")
def test_what_the_provider_refuses_is_tried_in_another_form_or_told() -> None:
    form = {"error": {"message": "tools[1].function: unknown tool", "type": "invalid_request_error", "param": "tools"}}
    with Session(MODEL, settings=SETTINGS) as session:
        session.context(opening(), TOOLS)
        step = session.refused(400, form)
        tried = 0
        while step.again and tried < 9:
            messages, tools = session.context(opening(), TOOLS)
            tried += 1
            if tools == TOOLS:
                break
            step = session.refused(400, form)
        step = session.answer({"role": "assistant", "content": "hello"})
        assert (step.message["content"], messages, tools) == ("hello", opening(), TOOLS)
        session.context(opening("another one"), TOOLS)
        with pytest.raises(Refused, match="no money") as refused:
            session.refused(402, {"error": {"message": "no money", "code": "broke"}})
    assert (refused.value.status, refused.value.code) == (402, "broke")


@pytest.mark.rows("X-67")
@pytest.mark.parametrize("api", ["messages", "responses"])
def test_other_apis(provider: ScriptedProvider, ask: Callable[..., Json], api: Any) -> None:
    provider.will(does(push("Find the bug")), does(call("read", path="a.py")))
    path = {"messages": "/v1/messages", "responses": "/v1/responses"}[api]
    shape = {"type": "object", "properties": {}}
    read = {"name": "read", "input_schema": shape} if api == "messages" else {
        "type": "function", "name": "read", "parameters": shape,
    }  # fmt: skip
    more = {"max_tokens": 99, "system": "Be careful."} if api == "messages" else {"instructions": "Be careful."}
    body = {"model": MODEL, "input" if api == "responses" else "messages": opening()[1:], "tools": [read], **more}

    with Engine(settings=SETTINGS) as engine, engine.session(MODEL, api=api) as session:
        while True:
            step = session.answer(posted(f"{provider.url}{path}", session.request(body)))
            if not step.again:
                break

    assert [made["name"] for made in step.calls] == ["read"]
    assert "stack_" not in json.dumps(step.response["content" if api == "messages" else "output"])
    assert len(provider.received) == 2


@pytest.mark.rows("X-67")
async def test_coroutines_and_values_of_an_sdk(provider: ScriptedProvider) -> None:
    provider.will(does(push("Find the bug")), says("It is fixed."))
    history: list[Any] = opening()
    async with (
        AsyncSession(MODEL, settings=SETTINGS) as session,
        AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="sk-test") as client,
    ):
        history.append(ChatCompletionMessage(role="assistant", content="I begin."))
        history.append({"role": "user", "content": "Go on."})
        while True:
            messages, tools = await session.context(history, TOOLS)
            reply = await client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
            step = await session.answer(reply)
            if not step.again:
                break

    assert step.message["content"] == "It is fixed."
    assert step.figures.cost > 0
