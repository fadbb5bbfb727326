"""L11: what belongs together leaves the context together, or stays: a call and its result, an item and the reasoning it
was made with, a request for approval and its answer, a tool run of the provider and its result in a later message."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from llm_test_provider import ReceivedRequest, ScriptedAnswer, ScriptedProvider, answers, cut, overflow, says
from tests.harness import does
from tests.scenarios.native import Json, Messages, Native, Responses, bash, padded
from tests.wire.proxied import TOKEN, ServedProxy
from tests.wire.talking import ask

pytestmark = pytest.mark.rows("X-46")
GPT, DROPPING, REFUSING = "gpt-5.4", "gpt-5.6-sol", "claude-opus-5.5"
"""Models of which the reasoning is not bound; is, and dropped by the provider; is, and refused."""
TAKEN_WITHOUT_ID = ("message", "function_call")
JOBS = (
    "Fix the failing parser test.",
    "Now, unrelated: translate the onboarding email into French.",
    "Now, unrelated: rename the billing service to invoices.",
    "Now, unrelated: draw the architecture as a diagram.",
)
Started = Callable[..., ServedProxy]


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture
def start(provider: ScriptedProvider, tmp_path: Path) -> Iterator[Started]:
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(ServedProxy(provider.url, tmp_path / "data", **settings))


def events(chat: Native) -> list[str]:
    receipts = [row["receipt"] for row in chat.proxy.page("/stack/requests?limit=100")["requests"]]
    return [event.partition(" ")[0] for receipt in receipts for event in receipt["events"]]


def blocks(body: Json) -> list[Json]:
    """The items of an input, or the blocks of all messages, in order."""
    if "input" in body:
        return list(body["input"])
    listed = [m["content"] for m in body["messages"] if isinstance(m["content"], list)]
    return [block for content in listed for block in content]


def torn(received: ReceivedRequest) -> list[str]:
    """What a provider would refuse: half of a pair, or an item by its id without the reasoning it was made with."""
    found, reasoned, before = [], False, ""
    halves: dict[str, set[str]] = {}
    for block in blocks(received.body):
        kind = block.get("type", "message")
        reasoned = kind == "reasoning" or (reasoned and not kind.endswith(("_output", "_response")))
        if block.get("id", "").startswith("made_") and not reasoned:
            found.append(f"{block['id']} without its reasoning")
        if before == "reasoning" and kind.endswith(("_output", "_response", "reasoning")):
            found.append(f"reasoning before {kind}")
        before = kind
        for name, half in (("approval_request_id", "answer"), ("tool_use_id", "result"), ("call_id", kind[-6:])):
            if name in block:
                halves.setdefault(block[name], set()).add("result" if half == "output" else half)
        if kind in ("mcp_approval_request", "server_tool_use", "tool_use"):
            halves.setdefault(block["id"], set()).add("begun")
    under_way = max((name for name in halves if name.startswith("srvtoolu_")), default="")
    return found + [f"{n}: {sorted(k)}" for n, k in halves.items() if len(k) < 2 and (n, k) != (under_way, {"begun"})]


def untorn(provider: ScriptedProvider) -> bool:
    faults = {received.number: found for received in provider.received if (found := torn(received))}
    assert not faults
    return True


# ------------------------------------------------------------------------------------ an item and what it was made with
HOSTED: dict[str, Json] = {
    "web_search_call": {"action": {"type": "search", "query": "q"}},
    "file_search_call": {"queries": ["q"], "results": []},
    "code_interpreter_call": {"code": "1", "container_id": "c", "outputs": []},
    "image_generation_call": {"result": "aW1hZ2U="},
    "mcp_call": {"name": "roll", "server_label": "dice", "arguments": "{}", "output": "4"},
    "mcp_list_tools": {"server_label": "dice", "tools": []},
    "item_of_the_future": {"x": 1},
}


def works(chat: Native, provider: ScriptedProvider, job: int, own: Callable[[str], tuple[Json, ...]]) -> None:
    """One request of the user with four calls, each with a long result; all answers with a thought and own items."""
    for step in range(4):
        made = f"{job}_{step}"
        provider.will(does(bash(f"step {made}"), own=own(made), reasoning=f"thought {made}"))
    provider.will(says(f"Job {job} is done, and all is well.", own=own(f"{job}_end"), reasoning=f"closing {job}"))
    chat.says(JOBS[job])
    for step in range(4):
        chat.returns(padded(f"result-{job}-{step}"))


@pytest.mark.parametrize("model", [GPT, DROPPING])
@pytest.mark.parametrize("kind", HOSTED)
def test_an_item_that_keeps_its_id_keeps_its_reasoning(
    provider: ScriptedProvider, start: Started, kind: str, model: str
) -> None:
    chat = Responses(start(), model)
    for job in range(4):
        works(chat, provider, job, lambda made: ({"type": kind, "id": f"made_{made}", **HOSTED[kind]},))

    assert "folded" in events(chat)
    assert "result-0-0-1" not in provider.received[-1].raw.decode()
    assert {received.status for received in provider.received} == {200}
    assert untorn(provider)
    kept = [item["id"] for item in provider.received[-1]["input"] if item.get("type") == kind]
    assert "made_0_end" in kept  # it stands beside closing words


def test_a_model_that_refuses_reasoning_gets_none_for_the_items_sake(
    provider: ScriptedProvider, start: Started
) -> None:
    """Both leave: the provider may know such an item by its id, and may refuse what it cannot read."""
    chat = Responses(start(), REFUSING)
    kind = "web_search_call"
    for job in range(4):
        works(chat, provider, job, lambda made: ({"type": kind, "id": f"made_{made}", **HOSTED[kind]},))

    assert "folded" in events(chat)
    assert {received.status for received in provider.received} == {200}
    assert untorn(provider)
    assert "made_0_end" not in provider.received[-1].raw.decode()


CLIENT_RUN: dict[str, Json] = {
    "local_shell_call": {"action": {"type": "exec", "command": ["ls"], "env": {}}},
    "computer_call": {"action": {"type": "screenshot"}, "pending_safety_checks": []},
}


@pytest.mark.parametrize("model", [GPT, DROPPING, REFUSING])
@pytest.mark.parametrize("kind", CLIENT_RUN)
def test_a_call_that_the_client_answers_by_its_id_keeps_its_reasoning_and_its_result(
    provider: ScriptedProvider, start: Started, kind: str, model: str
) -> None:
    """They leave together, or stay together, also where a part of the work leaves before them."""
    chat = Responses(start(wake_at_tokens=0, frame_max_tokens=3_000), model)
    for job in range(4):
        for step in range(4):
            made = f"{job}_{step}"
            call: Json = {"type": kind, "id": f"made_{made}", "call_id": f"call_{made}", "status": "completed"}
            provider.will(answers(own=(call | CLIENT_RUN[kind],), reasoning=f"thought {made}"))
        provider.will(says(f"Job {job} is done, and all is well.", reasoning=f"closing {job}"))
        chat.says(JOBS[job])
        for step in range(4):
            text = padded(f"result-{job}-{step}", 4_000)
            shown: Json = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{text}"}
            output = shown if kind == "computer_call" else text
            chat.history.append({"type": f"{kind}_output", "call_id": f"call_{job}_{step}", "output": output})
            chat.asks()

    assert {received.status for received in provider.received} == {200}
    assert untorn(provider)
    assert chat.status == "full"
    assert "folded" in events(chat)


def test_past_us_too_an_item_keeps_its_reasoning(provider: ScriptedProvider, start: Started) -> None:
    chat = Responses(start(), DROPPING)
    kind = "web_search_call"
    works(chat, provider, 0, lambda made: ({"type": kind, "id": f"made_{made}", **HOSTED[kind]},))
    provider.will(says("Past."))
    chat.headers["x-stack-mode"] = "off"
    chat.says("without you")

    assert chat.status == "off"
    assert untorn(provider)


# ------------------------------------------------------------------------------------------------------------ approvals
def asked(number: str) -> Json:
    return {
        "type": "mcp_approval_request",
        "id": f"mcpr_{number}",
        "name": "stack_of_dice",
        "arguments": "{}",
        "server_label": "dice",
    }


def allowed(chat: Responses) -> None:
    """Answers the request for approval that the newest answer holds."""
    request = next(item for item in reversed(chat.history) if item.get("type") == "mcp_approval_request")
    chat.history.append(
        {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True, "reason": "fine"}
    )
    chat.asks()


@pytest.mark.parametrize("reasoning", ["", "a thought"])
def test_an_approval_leaves_with_its_request(provider: ScriptedProvider, start: Started, reasoning: str) -> None:
    chat = Responses(start(), GPT)
    for job in range(4):
        provider.will(ScriptedAnswer(own=(asked(f"{job}"),), reasoning=reasoning))
        provider.will(*(does(bash(f"step {n}"), reasoning=reasoning) for n in range(4)), says(f"Job {job} is done."))
        chat.says(JOBS[job])
        allowed(chat)
        for n in range(4):
            chat.returns(padded(f"result-{job}-{n}"))

    assert "folded" in events(chat)
    assert "mcpr_0" not in provider.received[-1].raw.decode()
    assert untorn(provider)
    assert {received.status for received in provider.received} == {200}


def test_what_was_run_after_an_approval_keeps_it(provider: ScriptedProvider, start: Started) -> None:
    """The run names the request, and stands beside closing words, which stay."""
    chat = Responses(start(), GPT)
    for job in range(4):
        ran = {"type": "mcp_call", "id": f"mcp_{job}", "approval_request_id": f"mcpr_{job}", **HOSTED["mcp_call"]}
        provider.will(*(does(bash(f"step {n}")) for n in range(4)), answers(own=(asked(f"{job}"),)))
        provider.will(says(f"Job {job} is done.", own=(ran,)))
        chat.says(JOBS[job])
        for n in range(4):
            chat.returns(padded(f"result-{job}-{n}"))
        allowed(chat)

    assert "folded" in events(chat)
    assert "result-0-0-1" not in provider.received[-1].raw.decode()
    assert "mcpr_0" in provider.received[-1].raw.decode()
    assert untorn(provider)


def test_nobody_approves_in_the_clients_place(provider: ScriptedProvider, start: Started) -> None:
    """The user went on to something else."""
    chat = Responses(start(), GPT)
    provider.will(answers(own=(asked("1"),)), says("Then not."))
    chat.says("Roll the dice.")
    chat.says("Never mind.")

    assert chat.status == "full"
    assert "mcp_approval_response" not in provider.received[-1].raw.decode()
    assert provider.received[-1].raw.count(b"mcpr_1") == 1


# ------------------------------------------------------------------------------ tools that the provider runs by itself
def programs_call(run: str, number: int) -> Json:
    made = {"type": "tool_use", "id": f"toolu_{run}_{number}", "name": "bash", "input": {}}
    return made | {"caller": {"type": "code_execution_20260120", "tool_id": run}}


def programmed(chat: Native, provider: ScriptedProvider, job: int, *, closing: bool) -> None:
    """A program at the provider calls the client's tool in two messages; its own result comes with the third, which is
    the answer to the user if it is `closing`."""
    run = f"srvtoolu_{job}"
    begun: Json = {"type": "server_tool_use", "id": run, "name": "code_execution", "input": {"code": "x"}}
    ended: Json = {"type": "code_execution_tool_result", "tool_use_id": run, "content": {"stdout": "ok"}}
    waiting = [
        answers(own=made, finish="tool_calls") for made in ((begun, programs_call(run, 1)), (programs_call(run, 2),))
    ]
    provider.will(*waiting)
    provider.will(*([] if closing else [does(bash("three"), own=(ended,))]))
    provider.will(says(f"Job {job} is done, and all is well.", own=(ended,) if closing else ()))
    chat.says(JOBS[job])
    for n in range(2 if closing else 3):
        chat.returns(padded(f"result-{job}-{n}", 1_200))


@pytest.mark.parametrize("closing", [False, True])
def test_a_run_of_the_provider_leaves_with_its_result(
    provider: ScriptedProvider, start: Started, closing: bool
) -> None:
    """Where the result stands beside closing words, which stay, all of the run stays."""
    chat = Messages(start(), GPT)
    for job in range(4):
        programmed(chat, provider, job, closing=closing and job == 0)

    line = blocks(provider.received[-1].body)
    assert "folded" in events(chat)
    assert ("srvtoolu_0" in [block.get("id") for block in line]) is closing
    assert ("result-0-0-1" in json.dumps(line)) is closing
    assert untorn(provider)


def test_what_there_is_to_say_waits_until_a_program_has_its_results(provider: ScriptedProvider, start: Started) -> None:
    """Their message takes nothing else: a word of a person would be a 400."""
    chat = Messages(start(), GPT)
    provider.will(does(bash()), answers(own=(programs_call("srvtoolu_1", 1),), finish="tool_calls"))
    provider.will(does(bash()), says("Done."))
    chat.says("Count the lines.")
    chat.returns("ok")
    (conversation,) = chat.proxy.page("/stack/conversations")["conversations"]
    queue = f"/stack/conversations/{conversation['id']}/messages"
    told = ask(chat.proxy.origin, {"text": "Mind the docs."}, path=queue, headers={"x-stack-key": TOKEN})
    assert told.status == 202
    chat.returns("17")
    chat.returns("ok")

    assert ["Mind the docs." in str(received.body) for received in provider.received] == [False] * 3 + [True]
    assert {received.status for received in provider.received} == {200}


def test_a_paused_run_is_not_parted_by_what_does_not_fit(provider: ScriptedProvider, start: Started) -> None:
    chat = Messages(start(infer_requests=False, mirror_plans=False, frame_max_tokens=10_000_000), GPT)
    for job in range(3):
        programmed(chat, provider, job, closing=True)
    provider.will(overflow(used=9_000, window=8_500))
    programmed(chat, provider, 3, closing=True)

    assert "trim" in events(chat)
    assert untorn(provider)


def test_a_run_that_broke_off_without_its_result_is_left_out(provider: ScriptedProvider, start: Started) -> None:
    """The provider refuses it, also from a client that gives it back; what was said is there."""
    chat = Messages(start(), GPT)
    begun: Json = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
    said = answers("I will look it up now, and that takes a while.", own=(begun,))
    provider.will(cut(said, after_events=8), says("Here."))
    chat.history.append({"role": "user", "content": "Look it up."})
    heard = "".join(event.get("delta", {}).get("text", "") for event in chat.streams())
    chat.history.append({"role": "assistant", "content": [begun, {"type": "text", "text": heard}]})
    chat.says("Go on.")

    line = provider.received[-1].raw.decode()
    assert heard
    assert heard in line
    assert "srvtoolu_1" not in line
