"""What messages and responses have and chat completions have not: bindings that a client chooses itself, contexts that
the provider edits or compacts, turns that pause, tools that the provider runs, and tools that are appended.

Every request that leaves is checked by the scripted provider as the API itself would: what it forbids is a 400.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import Model, ScriptedAnswer, ScriptedProvider, answers, call, overflow, says, status
from proxy.accounting.model_prices import tariff_for
from proxy.core.context import LEFT_OUT_WORK
from tests.harness import does, pop, push, recall
from tests.scenarios.native import Chat, Json, Messages, Native, Responses, bash, padded
from tests.wire.proxied import ServedProxy

BOUND = "claude-opus-5-5"
"""A model that binds its reasoning, and may be given tools behind its prefix."""
FREE = "claude-opus-4-8"
MANUAL = "claude-sonnet-4-5"
"""One whose tool loops open with thinking."""
GPT = "gpt-5.4"
APPENDABLE = "gpt-5.6-sol"
MODELS = [
    Model("scripted-model"),
    Model(BOUND, binding="error"),
    Model(FREE, binding="error"),
    Model(MANUAL),
    Model(GPT, binding="error"),
    Model(APPENDABLE, binding="error"),
    Model("deepseek-v4-flash", required=("reasoning_content",)),
]
Started = Callable[..., ServedProxy]


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(models=MODELS) as running:
        yield running


@pytest.fixture
def start(provider: ScriptedProvider, tmp_path: Path) -> Iterator[Started]:
    """Starts a proxy in front of the provider; awake from the first request on, unless told otherwise."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(ServedProxy(provider.url, tmp_path / "data", **settings))


def told(provider: ScriptedProvider, at: int = -1) -> str:
    return provider.received[at].raw.decode()


def thoughts(provider: ScriptedProvider) -> list[str]:
    """What was thought on the newest line."""
    return [m["reasoning_content"] for m in provider.received[-1].messages if "reasoning_content" in m]


# -------------------------------------------------------------------------------------------- bindings a client chooses
BINDING = {"anthropic-beta": "thinking-binding-controls-2026-08-01"}
DROPS: Json = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
DROPPED = [{"type": "thinking_dropped", "path": "messages.3.content.0", "reason": "prefix_binding_mismatch"}]


def a_foreign_turn(provider: ScriptedProvider, proxy: ServedProxy) -> Json:
    """An answer with its thinking, from a conversation with other words before it."""
    provider.will(says("from elsewhere", reasoning="thought elsewhere"))
    other = Messages(proxy, BOUND)
    other.says("Something else entirely.")
    return other.history[-1]


@pytest.mark.parametrize("hidden", [False, True])
def test_a_client_that_has_thinking_dropped_is_told_what_was_dropped(
    provider: ScriptedProvider, start: Started, hidden: bool
) -> None:
    """What we know to be void we leave out ourselves; a block that the client brought along is between it and the
    provider, also where the answer comes behind a hidden round. We ask for no dropping on our own."""
    proxy = start()
    foreign = a_foreign_turn(provider, proxy)
    chat = Messages(proxy, BOUND, {"thinking": DROPS}, BINDING)
    provider.will(says("one"))
    chat.says("first")
    chat.history += [{"role": "user", "content": "and elsewhere?"}, foreign]
    provider.will(*[does(push("A part"))] * hidden, *[does(pop("done"))] * hidden, says("two"))

    answer = chat.says("second")

    assert answer["input_transformations"] == DROPPED
    assert chat.status == "full"
    for received in provider.received[1:]:
        assert received["thinking"] == DROPS
        assert received.header("anthropic-beta") == BINDING["anthropic-beta"]
    assert "block_binding" not in told(provider, 0)


def test_a_stream_tells_what_was_dropped(provider: ScriptedProvider, start: Started) -> None:
    proxy = start()
    foreign = a_foreign_turn(provider, proxy)
    chat = Messages(proxy, BOUND, {"thinking": DROPS}, BINDING)
    provider.will(says("one"))
    chat.says("first")
    chat.history += [{"role": "user", "content": "and elsewhere?"}, foreign, {"role": "user", "content": "second"}]
    provider.will(does(push("A part")), does(pop("done")), says("two"))

    begun = chat.streams()[0]

    assert begun["type"] == "message_start"
    assert begun["message"]["input_transformations"] == DROPPED


# ---------------------------------------------------------------------------------------------- thoughts in the content
THINKS = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


def thinking(text: str, *made: Json) -> ScriptedAnswer:
    """A chat completion that thinks inside its content, as Mistral's reasoning models do."""
    said = [THINKS, *([{"type": "text", "text": text}] if text else [])]
    message = {"role": "assistant", "content": said, **({"tool_calls": list(made)} if made else {})}
    told = {"index": 0, "message": message, "finish_reason": "tool_calls" if made else "stop"}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "magistral", "choices": [told]}
    return status(200, body=body)


def test_a_client_reads_no_thought_of_a_content_as_words_and_may_drop_it(
    provider: ScriptedProvider, start: Started
) -> None:
    """X-21: what it gives back is the turn it was given, less what was thought."""
    chat = Chat(start())
    pushed = {"name": "stack_frame_push", "arguments": json.dumps({"title": "A part", "successCriteria": "works"})}
    provider.will(thinking("", {"id": "c", "type": "function", "function": pushed}), thinking("Begun."), says("Done."))

    (choice,) = chat.says("Begin.")["choices"]

    assert choice["message"]["content"] == [THINKS, {"type": "text", "text": "Begun."}]
    conversation = chat.heard.conversation
    chat.history[-1] = {"role": "assistant", "content": "Begun."}
    chat.says("Go on.")
    assert chat.heard.conversation == conversation
    assert [m["content"] for m in provider.received[-1].messages if m["role"] == "assistant"] == [
        [THINKS],
        [THINKS, {"type": "text", "text": "Begun."}],
    ]


# ------------------------------------------------------------------------------------- contexts that the provider edits
EDITS: Json = {"edits": [{"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 30_000}}]}
EDITED: Json = {
    "context_management": {
        "applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 2, "cleared_input_tokens": 1_200}]
    }
}
COMPACTION: Json = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VhbGVk"}
BLOCK: Json = {"type": "compaction", "content": "What was done so far.", "encrypted_content": "c2VhbGVk"}
JOBS = (
    "Fix the failing parser test.",
    "Now, unrelated: translate the onboarding email into French.",
    "Now, unrelated: rename the billing service to invoices.",
    "Now, unrelated: draw the architecture as a diagram.",
)


def works(chat: Native, provider: ScriptedProvider, job: int, *, groups: int = 4, **closing: Any) -> None:
    """One request of the user with its calls, each with a long result."""
    steps = [does(bash(f"job {job} step {n}")) for n in range(groups)]
    provider.will(*steps, says(f"Job {job} is done, and all is well with it.", **closing))
    chat.says(JOBS[job])
    for n in range(groups):
        chat.returns(padded(f"result-{job}-{n}"))


def receipts(chat: Native) -> list[Json]:
    return [row["receipt"] for row in chat.proxy.page("/stack/requests?limit=100")["requests"]]


def events(chat: Native) -> list[str]:
    """Kinds of all events that the receipts tell of."""
    return [event.partition(" f")[0] for receipt in receipts(chat) for event in receipt["events"]]


def reasons(chat: Native) -> set[str]:
    """Why anything was folded, or not."""
    return {decision["reason"] for receipt in receipts(chat) for decision in receipt["decisions"]}


@pytest.mark.parametrize("edited", [False, True])
def test_a_line_that_the_provider_edits_is_folded_for_its_price_no_more(
    provider: ScriptedProvider, start: Started, edited: bool
) -> None:
    """`context_management` passes as it came. From the answer on that tells of edits nobody knows what is cached."""
    chat = Messages(start(), FREE, {"context_management": EDITS}, {"anthropic-beta": "context-management-2025-06-27"})
    works(chat, provider, 0, extra=EDITED if edited else {})
    works(chat, provider, 1)
    works(chat, provider, 2)

    assert all(received["context_management"] == EDITS for received in provider.received)
    assert chat.history[-1]["content"][-1]["text"].startswith("Job 2 is done")
    assert ("result-0-0-1" in told(provider)) is edited
    assert ("provider trimmed" in events(chat)) is edited

    assert ("provider_trimmed" in reasons(chat)) is edited
    assert ("folded" in events(chat)) is not edited


def test_a_line_that_the_provider_edits_still_loses_what_does_not_fit(
    provider: ScriptedProvider, start: Started
) -> None:
    chat = Messages(start(), FREE)
    works(chat, provider, 0, extra=EDITED)
    provider.will(overflow(used=9_000, window=8_000))
    works(chat, provider, 1)

    assert "trim" in events(chat)
    assert "result-0-0-1" not in told(provider)
    assert "result-1-3-1" in told(provider)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_compaction_in_an_answer_comes_back_as_the_answer_it_is_part_of(
    provider: ScriptedProvider, start: Started, streamed: bool
) -> None:
    """Clients of the responses API give the items back one by one; the compaction goes upstream once, where it stood,
    and the turn is known again with what it called and said."""
    chat = Responses(start(), GPT)
    provider.will(does(bash("one"), own=(COMPACTION,), reasoning="thinking"), says("done"))
    chat.history.append({"role": "user", "content": "Fix it."})
    if streamed:
        chat.keep(chat.streams()[-1]["response"])
    else:
        chat.asks()
    chat.returns("result one")
    provider.will(says("indeed"))
    chat.says("And now?")

    types = [item.get("type", "message") for item in provider.received[-1]["input"]]
    assert types == [
        "message", "reasoning", "compaction", "function_call", "function_call_output", "message", "message"
    ]  # fmt: skip
    assert {receipt["thread"] for receipt in receipts(chat)} == {"main"}
    assert events(chat).count("provider trimmed") == 1
    assert events(chat).count("sealed") == 1


@pytest.mark.parametrize("kind", [Messages, Responses])
def test_what_is_sealed_stays_and_nothing_is_folded_for_its_price_behind_it(
    provider: ScriptedProvider, start: Started, kind: type[Native]
) -> None:
    chat = kind(start(), FREE if kind is Messages else GPT)
    sealed = BLOCK if kind is Messages else COMPACTION
    works(chat, provider, 0)
    works(chat, provider, 1, own=(sealed,))
    works(chat, provider, 2)
    works(chat, provider, 3)

    line = told(provider)
    assert line.count(json.dumps(sealed["encrypted_content"])) == 1
    assert "result-1-0-1" in line
    assert "result-2-0-1" in line
    assert reasons(chat) >= {"provider_trimmed"}


@pytest.mark.parametrize("streamed", [False, True])
def test_what_the_providers_compaction_cost_is_in_the_receipt(
    provider: ScriptedProvider, start: Started, streamed: bool
) -> None:
    """It is billed like a request, and told in none of the other figures; without a proxy it would be paid as well."""
    own = {"input_tokens": 23_000, "cache_creation_input_tokens": 9, "cache_read_input_tokens": 8, "output_tokens": 100}
    summary = {
        "type": "compaction",
        "input_tokens": 40_000, "cache_creation_input_tokens": 10_000, "cache_read_input_tokens": 130_000,
        "output_tokens": 3_500,
    }  # fmt: skip
    costs: list[tuple[float, float, int]] = []
    for told in (own, own | {"iterations": [summary, {"type": "message", **own}]}):
        chat = Messages(start(), "claude-opus-5.5")
        provider.will(says("All is well.", own=(BLOCK,), extra={"usage": told}))
        chat.history.append({"role": "user", "content": f"Fix it, attempt {len(costs)}."})
        if streamed:
            chat.streams()
        else:
            chat.asks()
        receipt = receipts(chat)[0]
        costs.append((receipt["cost"], receipt["saved"], receipt["usage"]["input"]))

    row = tariff_for("claude-opus-5.5")
    paid = row.input * (40_000 + 10_000 * row.write + 130_000 * row.read) + (row.output or 0) * 3_500
    (without, saved, prompt), (with_it, saved_then, prompt_then) = costs
    assert paid > 0
    assert with_it - without == pytest.approx(paid / 1_000_000)
    assert saved_then == pytest.approx(saved, rel=1e-3)  # the ids in our texts differ, and so do their tokens
    assert prompt_then == prompt


def test_a_fold_does_not_reach_over_what_the_client_had_compacted(provider: ScriptedProvider, start: Started) -> None:
    """A client that compacted by itself brings the sealed item along. That says nothing of caches, so work behind it
    is folded as ever; work in front of it is not told in one trace with it, and it stays itself."""
    chat = Responses(start(), GPT)
    works(chat, provider, 0)
    chat.history.append(COMPACTION)
    works(chat, provider, 1)
    works(chat, provider, 2)
    works(chat, provider, 3)

    line = told(provider)
    items = [item.get("type", "message") for item in provider.received[-1]["input"]]
    assert items.count("compaction") == 1
    assert "folded" in events(chat)
    assert "result-0-0-1" in line
    assert "result-1-0-1" not in line
    assert line.index("result-0-0-1") < line.index("c2VhbGVk") < line.rindex("<stack-context ")


@pytest.mark.parametrize("kind", [Messages, Responses])
def test_a_line_that_does_not_fit_keeps_what_is_sealed(
    provider: ScriptedProvider, start: Started, kind: type[Native]
) -> None:
    """The trace of what left behind it stands behind it: nothing in front of it is read."""
    chat = kind(start(), FREE if kind is Messages else GPT)
    sealed = BLOCK if kind is Messages else COMPACTION
    works(chat, provider, 0, own=(sealed,))
    works(chat, provider, 1)
    works(chat, provider, 2)
    provider.will(overflow(used=19_000, window=18_000))
    works(chat, provider, 3)

    line = told(provider)
    assert line.count("c2VhbGVk") == 1
    assert "result-0-0-1" not in line
    assert "result-1-0-1" not in line
    assert line.index("c2VhbGVk") < line.index("oldest steps")


# --------------------------------------------------------------------------------------- turns that pause, server tools
SEARCHED: tuple[Json, ...] = (
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "frames"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "https://example.org/1", "encrypted_content": "c2VhcmNo"}],
    },
)
UNDER_WAY = (SEARCHED[0] | {"id": "srvtoolu_2"},)
LATER = (SEARCHED[1] | {"tool_use_id": "srvtoolu_2"},)


def compact(block: Json) -> str:
    """As the provider writes it, and it has to come back."""
    return json.dumps(block, separators=(",", ":"))


@pytest.mark.parametrize("merged", [True, False])
def test_a_paused_turn_ends_as_it_is_and_goes_on_from_where_it_stood(
    provider: ScriptedProvider, start: Started, merged: bool
) -> None:
    """The client sends the assistant's content back, without a word of the user, and the turn goes on on its line;
    also where the client makes one message of both parts then."""
    chat = Messages(start(), FREE)
    provider.will(
        does(push("A search")),
        says("Searching.", own=(*SEARCHED, *UNDER_WAY), finish="pause_turn"),
        says("Found it.", own=LATER),
    )

    paused = chat.says("Search for it.")
    went_on = chat.asks()
    if merged:
        chat.history[-2:] = [{"role": "assistant", "content": paused["content"] + went_on["content"]}]
    provider.will(does(pop("it is found")), says("All is found."))
    chat.says("And?")

    assert paused["stop_reason"] == "pause_turn"
    assert [block["type"] for block in paused["content"]] == [
        "server_tool_use", "web_search_tool_result", "server_tool_use", "text"
    ]  # fmt: skip
    assert all(receipt["thread"] == "main" and receipt["status"] == "full" for receipt in receipts(chat))
    resumed = json.loads(provider.received[2].raw)["messages"]
    assert resumed[-1] == {"role": "assistant", "content": paused["content"]}
    assert "tool_result" in json.dumps(resumed[-2])
    for block in (*SEARCHED, *UNDER_WAY, *LATER):
        assert told(provider, 3).count(compact(block)) == 1


def test_nothing_is_suggested_behind_a_paused_turn(provider: ScriptedProvider, start: Started) -> None:
    """The provider goes on with the last message only where that is the assistant's."""
    chat = Messages(start(), FREE)
    pages = [{"type": "web_search_result", "url": "https://example.org/1", "encrypted_content": "c2 Vh " * 50_000}]
    found = SEARCHED[1] | {"content": pages}
    provider.will(
        does(bash("ls")), says("Searching.", own=(SEARCHED[0], found, *UNDER_WAY), finish="pause_turn"),
        answers("Found it.", [bash("pwd")], own=LATER), says("Done."),
    )  # fmt: skip

    chat.says("Search for it.")
    chat.returns("a.py")
    chat.asks()
    chat.returns("/src")

    resumed = json.loads(provider.received[2].raw)["messages"]
    assert resumed[-1]["role"] == "assistant"
    assert "STACK SUGGESTION" in told(provider)


def test_calls_of_ours_in_a_paused_turn_are_dropped_with_it(provider: ScriptedProvider, start: Started) -> None:
    chat = Messages(start(), FREE)
    provider.will(
        answers("Searching.", [push("A search")], own=UNDER_WAY, finish="pause_turn"), says("Found.", own=LATER)
    )

    paused = chat.says("Search for it.")
    chat.asks()

    assert [block["type"] for block in paused["content"]] == ["server_tool_use", "text"]
    assert len(provider.received) == 2
    assert "stack_frame_push" not in str(json.loads(provider.received[1].raw)["messages"])


def test_what_the_provider_ran_by_itself_rides_with_its_group(provider: ScriptedProvider, start: Started) -> None:
    """It is never paired by us, never cut through, and leaves with the fold that takes its group."""
    chat = Messages(start(), FREE)
    provider.will(
        does(bash("ls"), own=SEARCHED, text="Both."),
        *(does(bash(f"{n}")) for n in range(3)),
        says("Done."),
    )
    chat.says(JOBS[0])
    for n in range(4):
        chat.returns(padded(f"result-0-{n}"))
        line = json.loads(provider.received[-1].raw)["messages"]
        assert [block["type"] for block in line[1]["content"]] == [
            "server_tool_use", "web_search_tool_result", "text", "tool_use"
        ]  # fmt: skip
    works(chat, provider, 1)
    works(chat, provider, 2)

    assert "folded" in events(chat)
    for gone in (*map(compact, SEARCHED), "result-0-0-1"):
        assert gone not in told(provider)


@pytest.mark.rows("S4-15")
def test_a_result_that_its_client_calls_an_error_is_one_whatever_it_says(
    provider: ScriptedProvider, tmp_path: Path
) -> None:
    """Its text tells of no failure; what did not happen is no artifact. After a restart as before."""

    def seen(proxy: ServedProxy) -> tuple[list[str], list[str]]:
        (conversation,) = proxy.page("/stack/conversations")["conversations"]
        log = proxy.page(f"/stack/frames/{conversation['active_frame']}/log")["entries"]
        artifacts = proxy.page(f"/stack/conversations/{conversation['id']}/artifacts")["artifacts"]
        return [c["state"] for entry in log for c in entry["calls"]], [each["artifact"] for each in artifacts]

    provider.will(does(*(call("Write", file_path=path, content="x") for path in ("a.py", "b.py"))), says("ok"))
    with ServedProxy(provider.url, tmp_path / "data") as proxy:
        chat = Messages(proxy, FREE)
        chat.says("Write both.")
        asked, also = (block["id"] for block in chat.history[-1]["content"])
        wrong = {"type": "tool_result", "tool_use_id": asked, "content": "nothing came of it", "is_error": True}
        right = {"type": "tool_result", "tool_use_id": also, "content": "written", "is_error": False}
        chat.history.append({"role": "user", "content": [wrong, right]})
        chat.asks()
        assert seen(proxy) == (["error", "completed"], ["b.py"])

    with ServedProxy(provider.url, tmp_path / "data") as proxy:
        assert seen(proxy) == (["error", "completed"], ["b.py"])


def test_server_side_calls_of_the_responses_api_ride_along_too(provider: ScriptedProvider, start: Started) -> None:
    searched = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    chat = Responses(start(), GPT)
    provider.will(
        answers("", [bash("ls"), push("A part")], own=(searched,), reasoning="thinking"),
        does(pop("ok")),
        says("Done."),
    )
    chat.says("Search, and list.")
    chat.returns("a list")

    types = [item.get("type", "message") for item in provider.received[-1]["input"]]
    assert types[1:] == [
        "reasoning", "web_search_call", "function_call", "function_call",
        "function_call_output", "function_call_output",
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------------ manual thinking
BUDGET: Json = {"type": "enabled", "budget_tokens": 2_048}
ADAPTIVE: Json = {"type": "adaptive"}


def loops(chat: Native, provider: ScriptedProvider, groups: int) -> None:
    """So many calls with a thought before each; the loop stays open."""
    provider.will(*(does(bash(f"step {n}"), reasoning=f"thought {n}") for n in range(groups + 1)))
    chat.says("Do it all, step by step.")
    for n in range(groups):
        chat.returns(padded(f"result-{n}"))


@pytest.mark.parametrize("model", [FREE, MANUAL])
@pytest.mark.parametrize(("thinking", "waits"), [(BUDGET, True), (ADAPTIVE, False)])
def test_a_loop_that_must_open_with_its_thinking_is_not_cut(
    provider: ScriptedProvider, start: Started, model: str, thinking: Json, waits: bool
) -> None:
    """With a budget the last message of the loop must open with its thinking, whatever the model: nothing is folded
    until the user speaks. Adaptive thinking may be left out."""
    chat = Messages(start(frame_max_tokens=4_000), model, {"thinking": thinking})
    loops(chat, provider, 6)
    assert ("folded" not in events(chat)) is waits
    assert (len(thoughts(provider)) == 6) is waits

    provider.will(says("Done."), says("Indeed."))
    chat.returns(padded("result-6"))
    chat.says("And now, unrelated: translate the email.")
    assert "folded" in events(chat)


def test_a_loop_that_does_not_fit_keeps_the_thinking_it_must_open_with(
    provider: ScriptedProvider, start: Started
) -> None:
    chat = Messages(start(infer_requests=False), MANUAL, {"thinking": BUDGET})
    loops(chat, provider, 5)
    provider.will(overflow(used=9_000, window=8_000), says("Done."))
    chat.returns(padded("result-5"))

    assert "trim" in events(chat)
    assert "result-0-1" not in told(provider)


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_a_loop_that_passes_as_it_came_keeps_the_thinking_it_must_open_with(
    provider: ScriptedProvider, start: Started, mode: str
) -> None:
    """What was made behind a hidden round is left out of the client's own request, but not what it must open with."""
    chat = Messages(start(), MANUAL, {"thinking": BUDGET})
    provider.will(does(push("A part"), reasoning="hidden"))
    loops(chat, provider, 2)
    provider.will(says("Done."))
    chat.headers["x-stack-mode"] = mode
    chat.returns("a result")

    assert chat.status == mode
    assert thoughts(provider)[-1] == "thought 2"


def test_thinking_that_is_off_leaves_what_was_thought_before(provider: ScriptedProvider, start: Started) -> None:
    """It is no part of the prefix, so nothing becomes void by it, and the provider reads none of it."""
    chat = Messages(start(), BOUND, {"thinking": ADAPTIVE})
    provider.will(
        says("one", reasoning="first thought"), says("two"), says("three", reasoning="third thought"), says("!")
    )
    chat.says("first")
    chat.options["thinking"] = {"type": "disabled"}
    chat.says("second")
    assert thoughts(provider) == ["first thought"]
    chat.options["thinking"] = ADAPTIVE
    chat.says("third")
    chat.says("fourth")
    assert thoughts(provider) == ["first thought", "third thought"]


# ------------------------------------------------------------------------------------------------ texts behind results
def neighbours(provider: ScriptedProvider, first: str, second: str) -> list[str]:
    """Messages of one role right behind one of the other, on any line that left."""
    lines = [received["messages"] for received in provider.received]
    return [str(b) for line in lines for a, b in pairwise(line) if (a["role"], b["role"]) == (first, second)]


@pytest.mark.parametrize(("model", "behind"), [("mistral-large-3", 0), (GPT, 1)])
def test_no_user_message_of_ours_stands_behind_a_result_where_the_model_refuses_it(
    provider: ScriptedProvider, start: Started, model: str, behind: int
) -> None:
    """The call that came with the push stays, and what was done since leaves. The result in front of the trace stays as
    it was sent; words of the assistant stand between them where no user message may follow it."""
    chat = Chat(start(frame_max_tokens=4_000, wake_at_tokens=0), model)
    provider.will(does(push("Long work")))
    loops(chat, provider, 6)

    assert "folded" in events(chat)
    assert bool(neighbours(provider, "tool", "user")) is bool(behind)
    line = provider.received[-1].messages
    at = min(at for at, m in enumerate(line) if 'note="earlier work"' in str(m))
    assert str(line[at]["content"]).startswith("<stack-context ")
    result = line[at - 1] if behind else line[at - 2]
    assert result["role"] == "tool"
    assert any(result in received.messages for received in provider.received[:3])
    if not behind:
        assert (line[at - 1]["role"], line[at - 1]["content"]) == ("assistant", LEFT_OUT_WORK)
    assert "result-1-0" not in told(provider)


def test_texts_of_ours_behind_results_make_no_two_user_messages(provider: ScriptedProvider, start: Started) -> None:
    """The messages API merges neighbours of one role: what is ours stands in the message of the results."""
    chat = Messages(start(frame_max_tokens=4_000), FREE)
    provider.will(does(push("Long work")))
    loops(chat, provider, 6)

    assert "folded" in events(chat)
    assert neighbours(provider, "user", "user") == []


# ------------------------------------------------------------------------------------------- another model in between
SWITCHED: list[tuple[type[Native], str, str]] = [
    (Chat, "deepseek-v4-flash", "gpt-5.4"),
    (Messages, FREE, "gemini-3.1-pro"),
    (Responses, GPT, "claude-opus-4-8"),
]


@pytest.mark.parametrize(("kind", "first", "other"), SWITCHED)
def test_another_vendors_model_gets_the_frames_and_no_reasoning(
    provider: ScriptedProvider, start: Started, kind: type[Native], first: str, other: str
) -> None:
    """Reasoning is for the vendor that made it. Frames, what was folded and recall go on."""
    chat = kind(start(), first)
    works_with_thoughts(chat, provider)
    provider.will(does(push("A part"), reasoning="hidden thought"), says("ok", reasoning="shown thought"))
    chat.says("Begin a part.")
    assert thoughts(provider)

    chat.model = other
    gone = frames_titled(chat, JOBS[0])[-1]  # the root has this title too
    provider.will(does(recall(gone, page=2)), does(pop("the part is done")), says("Here."))
    chat.says("What came of the parser?")

    assert thoughts(provider) == []
    assert "result-0-0-1" in told(provider, -2)
    assert "the part is done" in told(provider)
    assert {receipt["thread"] for receipt in receipts(chat)} == {"main"}


@pytest.mark.parametrize(
    ("kind", "first", "other"),
    [(Chat, "gpt-5.4", "gpt-5.4-mini"), (Messages, FREE, "claude-opus-5"), (Responses, GPT, "gpt-5.4-mini")],
)
def test_another_model_of_the_same_vendor_keeps_the_reasoning(
    provider: ScriptedProvider, start: Started, kind: type[Native], first: str, other: str
) -> None:
    chat = kind(start(), first)
    provider.will(says("one", reasoning="first thought"), says("two", reasoning="second thought"), says("three"))
    chat.says("first")
    chat.says("second")
    chat.model = other
    chat.says("third")

    assert thoughts(provider) == ["first thought", "second thought"]


def works_with_thoughts(chat: Native, provider: ScriptedProvider) -> None:
    """A job that is folded when the next one begins, with a thought before each step of both."""
    for job in (0, 1):
        steps = [does(bash(f"step {n}"), reasoning=f"thought {job}.{n}") for n in range(4)]
        provider.will(*steps, says(f"Job {job} is done, and all is well.", reasoning="closing thought"))
        chat.says(JOBS[job])
        for n in range(4):
            chat.returns(padded(f"result-{job}-{n}"))
    assert "folded" in events(chat)


def frames_titled(chat: Native, title: str) -> list[str]:
    frames = chat.proxy.state(chat.heard.conversation)["frames"]
    return [frame for frame, told in frames.items() if told["title"] == title]


# ----------------------------------------------------------------------------------------- system messages in between
REMINDED: Json = {"role": "system", "content": "The plan is empty."}


def test_a_reminder_of_the_client_stays_in_front_of_an_answer_when_work_around_it_leaves(
    provider: ScriptedProvider, start: Started
) -> None:
    """Claude Code puts system messages behind results. The API takes them in front of an assistant's message alone, so
    none may stay behind between a user's message and a trace of ours, or the user's next one."""
    chat = Messages(start(frame_max_tokens=4_000), FREE)
    for job in range(3):
        provider.will(*(does(bash(f"job {job} step {n}")) for n in range(6)), says("It is done."))
        chat.says(JOBS[job])
        for n in range(5):
            chat.history += [tool_results(chat, padded(f"result-{job}-{n}")), REMINDED]
            chat.asks()
        interrupted = [tool_results(chat, "no more"), {"role": "user", "content": "Stop, and tell me."}]
        chat.history += interrupted[: 1 + (job == 1)]
        chat.asks()

    assert "folded" in events(chat)
    assert told(provider).count("The plan is empty.") == 15


def tool_results(chat: Native, *texts: str) -> Json:
    """The message with the results of the newest calls."""
    calls = [block["id"] for block in chat.history[-1]["content"] if block["type"] == "tool_use"]
    results = zip(calls, texts, strict=True)
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": call, "content": text} for call, text in results],
    }


# ------------------------------------------------------------------------------------------------- tools that are added
INLINE = {"anthropic-beta": "inline-tools-2026-09-15,context-management-2025-06-27"}
WAKES_LATE = {"wake_at_tokens": 3_000, "frame_max_tokens": 40_000}
ADDING: list[tuple[type[Native], str, dict[str, str]]] = [(Messages, BOUND, INLINE), (Responses, APPENDABLE, {})]


def grows_awake(chat: Native, provider: ScriptedProvider) -> None:
    """A thread with a thought in each answer, asleep at first, which wakes at the second request of the user."""
    provider.will(
        *(does(bash(f"step {n}"), reasoning=f"thought {n}") for n in range(3)),
        says("ok", reasoning="closing"),
    )
    chat.says("Look around.")
    for n in range(3):
        chat.returns(padded(f"result-{n}"))
    provider.will(does(push("A part"), reasoning="pushing"), does(bash("in it"), reasoning="inside"))
    chat.says("And now do it.")
    assert "woken" in events(chat)


@pytest.mark.rows("X-08")
@pytest.mark.parametrize(("kind", "model", "headers"), ADDING)
def test_tools_are_added_behind_the_newest_message_and_no_thought_is_lost(
    provider: ScriptedProvider, start: Started, kind: type[Native], model: str, headers: dict[str, str]
) -> None:
    """Where the API takes tools and guidance inside a conversation, waking leaves all that stood before it as it was:
    what was thought stays valid, and the provider's cache too. It is told once, and replayed byte for byte."""
    chat = kind(start(**WAKES_LATE), model, headers=headers)
    grows_awake(chat, provider)
    asleep, woken, inside = provider.received[-3:]

    assert thoughts(provider) == ["thought 0", "thought 1", "thought 2", "closing", "pushing"]
    members = ("tools", "system", "instructions")
    assert [woken.body.get(name) for name in members] == [asleep.body.get(name) for name in members]
    assert "stack_recall" in woken.tool_names
    assert woken.raw.startswith(asleep.raw[: asleep.raw.rindex(b"result-2-4")])
    told_of = woken.raw.index(b"Task frames")
    assert told_of > woken.raw.index(b"And now do it.")
    assert inside.raw.count(b"Task frames") == 1

    provider.will(does(pop("done"), reasoning="popping"), says("It is done.", reasoning="last"), says("Yes."))
    chat.returns("the output")
    chat.says("Really?")
    end = woken.raw.rindex(b"]}")
    assert provider.received[-1].raw[:end] == woken.raw[:end]
    assert thoughts(provider)[:5] == ["thought 0", "thought 1", "thought 2", "closing", "pushing"]
    if kind is Responses:  # the other caches what a client marks, and this one marks nothing
        assert asleep.usage
        assert woken.usage
        assert woken.usage.cached > asleep.usage.prompt - 128


@pytest.mark.parametrize(
    ("kind", "model", "headers"),
    [
        (Messages, BOUND, {}),
        (Messages, FREE, INLINE),
        (Messages, APPENDABLE, INLINE),
        (Responses, GPT, {}),
        (Responses, BOUND, {}),
        (Chat, APPENDABLE, {}),
    ],
)
def test_tools_are_told_in_front_where_they_cannot_be_added(
    provider: ScriptedProvider, start: Started, kind: type[Native], model: str, headers: dict[str, str]
) -> None:
    """Without the beta that it is the client's to ask for, for a model without the trait, for one behind another
    vendor's dialect, and in chat completions."""
    chat = kind(start(**WAKES_LATE), model, headers=headers)
    grows_awake(chat, provider)

    assert "Task frames" in provider.received[-1].system
    assert "stack_recall" in str(provider.received[-1]["tools"])


def test_added_tools_are_told_in_front_once_the_client_asks_for_no_beta_any_more(
    provider: ScriptedProvider, start: Started
) -> None:
    """A client asks for betas model by model. What was thought behind the added tools goes with them, for good."""
    chat = Messages(start(**WAKES_LATE), BOUND, headers=INLINE)
    grows_awake(chat, provider)
    chat.headers = {}
    provider.will(does(pop("done")), says("Ended.", reasoning="in front"), says("Yes."), says("No."))
    chat.returns("the output")

    assert "Task frames" in provider.received[-1].system
    assert "tool_addition" not in told(provider)
    assert thoughts(provider) == []
    chat.headers = dict(INLINE)
    chat.says("Really?")
    assert "tool_addition" not in told(provider)
    assert thoughts(provider) == ["in front"]


def test_the_request_that_woke_may_be_sent_again_without_the_beta(provider: ScriptedProvider, start: Started) -> None:
    """Nothing of what was appended may be in it: the API would refuse it."""
    chat = Messages(start(wake_at_tokens=0), BOUND, headers=dict(INLINE))
    provider.will(says("one"), says("another"))
    chat.says("Begin.")
    assert "tool_addition" in told(provider)
    chat.history.pop()
    chat.headers = {}
    chat.asks()

    assert "tool_addition" not in told(provider)
    assert "Task frames" in provider.received[-1].system


@pytest.mark.rows("S1-114")
def test_added_guidance_is_written_anew_with_a_fold_that_stands_before_it(
    provider: ScriptedProvider, start: Started
) -> None:
    """Once, where it stands, and not by itself: that would void what was thought behind it."""
    chat = Messages(start(**WAKES_LATE), BOUND, headers=dict(INLINE))
    grows_awake(chat, provider)
    provider.will(does(pop("Done.")), does(call("stack_cache_clear")), says("ok", reasoning="kept"))
    chat.returns("the output")
    assert "block renewed" not in events(chat)
    for job in range(4):
        works(chat, provider, job)
        assert json.dumps(provider.received[-1].body).count("# Task frames") == 1

    assert events(chat).count("block renewed") == 1
    assert "tool_addition" in json.dumps(provider.received[-1].body)
    newest = [json.dumps(received.messages[-1]) for received in provider.received]
    blocks = [text for text in newest if "<stack-context session=" in text]
    assert any(f"<title>{job}</title>" in blocks[-1] for job in JOBS)


@pytest.mark.parametrize(("kind", "model", "headers"), ADDING)
def test_added_tools_stay_when_work_before_and_behind_them_is_folded(
    provider: ScriptedProvider, start: Started, kind: type[Native], model: str, headers: dict[str, str]
) -> None:
    chat = kind(start(**WAKES_LATE), model, headers=headers)
    for job in range(4):
        works(chat, provider, job)
        assert json.dumps(provider.received[-1].body).count("# Task frames") == ("woken" in events(chat))

    assert "folded" in events(chat)
    assert "result-0-0-1" not in told(provider)
    assert "stack_recall" in provider.received[-1].tool_names


def test_added_tools_are_told_anew_behind_a_history_that_the_client_compacted(
    provider: ScriptedProvider, start: Started
) -> None:
    """The message at which the thread woke is gone: the tools stand in front of the first answer that is left."""
    chat = Messages(start(**WAKES_LATE), BOUND, headers=INLINE | {"x-stack-session": "one"})
    grows_awake(chat, provider)
    provider.will(does(pop("done")), says("Ended, all of it."), says("Going on."), says("And on."))
    chat.returns("the output")
    chat.history = [{"role": "user", "content": "Summary: a part was done, and it works."}]
    chat.asks()
    chat.says("Go on.")

    assert chat.status == "full"
    assert "stack_recall" in provider.received[-1].tool_names
    assert told(provider).count("# Task frames") == 1


# --------------------------------------------------------------------------------------- a client that edits its
# history
@pytest.mark.parametrize(("kind", "model", "headers"), [*ADDING, (Messages, BOUND, {}), (Responses, GPT, {})])
@pytest.mark.parametrize(
    ("change", "left"),
    [("oldest", []), ("middle", ["call 0", "said 0"]), ("words", ["call 0", "said 0"])],
)
def test_what_was_thought_behind_a_change_of_the_clients_own_goes_with_it(
    provider: ScriptedProvider,
    start: Started,
    kind: type[Native],
    model: str,
    headers: dict[str, str],
    change: str,
    left: list[str],
) -> None:
    """A client that shortens or edits its history leaves out its own thoughts behind that; what we keep of them for its
    answers does not fit there either. What was thought before it stays."""
    chat = kind(start(), model, headers=headers)
    sizes = [0]
    for n in range(4):
        provider.will(
            does(bash(f"step {n}"), reasoning=f"call {n}"),
            says(f"This is the answer number {n}, and it is long enough.", reasoning=f"said {n}"),
        )
        chat.says(f"This is request {n}.")
        chat.returns(f"result {n}")
        sizes.append(len(chat.history))
    if change == "words":
        chat.history[sizes[1]] = {"role": "user", "content": "This is another request altogether."}
    else:
        first = 0 if change == "oldest" else 1
        del chat.history[sizes[first] : sizes[first + 1]]
    chat.history = [bare for item in chat.history if (bare := without_thoughts(item))]
    provider.will(says("Now.", reasoning="now"), says("Yes.", reasoning="yes"))
    chat.says("And now?")
    assert thoughts(provider) == left
    chat.says("Really?")
    assert thoughts(provider) == [*left, "now"]
    assert chat.status == "full"


def without_thoughts(item: Json) -> Json:
    """A message or an item less what was thought; nothing of an item that was nothing else, and no id of another."""
    if item.get("type") == "reasoning":
        return {}
    if item.get("role", "assistant") == "assistant":
        item = {name: value for name, value in item.items() if name != "id"}
    if isinstance(item.get("content"), list):
        item = item | {"content": [block for block in item["content"] if block["type"] != "thinking"]}
    return item


# ------------------------------------------------------------------------------------------------------- deferred tools
def test_a_tool_that_is_deferred_costs_no_thought(provider: ScriptedProvider, start: Started) -> None:
    """L8: it is in no prefix until a message brings it, so one more of them changes nothing before the thoughts."""
    bash_tool: Json = {"name": "bash", "description": "Runs a command.", "input_schema": {"type": "object"}}
    deferred: list[Json] = [{**bash_tool, "name": name, "defer_loading": True} for name in ("fetch", "search")]
    chat = Messages(start(), BOUND, {"tools": [bash_tool, deferred[0]]})
    provider.will(does(bash("a"), reasoning="first"), says("Done.", reasoning="second"), says("Yes."))
    chat.says("Do it.")
    chat.returns("result")

    chat.options["tools"] = [bash_tool, *deferred]
    chat.says("And now?")

    assert thoughts(provider) == ["first", "second"]
    assert chat.status == "full"
