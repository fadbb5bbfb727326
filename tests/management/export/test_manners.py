"""What single models and APIs ask of a request body, in the messages that are handed out."""

import json
from typing import Any

import pytest

from callstack_proxy.management.export.messages import context_body
from callstack_proxy.management.export.source import ExportInput
from callstack_proxy.management.views.conversations import path_state_of
from proxy.core.frames.events import FrameEvent, RootStarted, ThreadWoken, as_ledger_event
from proxy.core.ledger.ledger import Conversation, Entry, EntryKind, Ledger, Round
from proxy.core.ledger.messages import Message, ModelResponse
from proxy.dialects import ANTHROPIC_MESSAGES, OPENAI_CHAT, Dialect, ParseCache
from proxy.store.interface import RequestRecord
from tests.management.export.conftest import Json

THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def material(dialect: Dialect, body: Json, *said: Message, events: tuple[FrameEvent, ...] = ()) -> ExportInput:
    """A conversation in which this was said, with the newest request of the client."""
    ledger = Ledger(Conversation("conversation", "local", dialect=dialect.name))
    parent = ""
    for seq, message in enumerate(said):
        kind = EntryKind.TURN if message.role == "assistant" else EntryKind.MESSAGE
        ledger.add_entry(Entry(f"e{seq}", parent, seq, kind, "t", None if kind is EntryKind.TURN else message))
        if kind is EntryKind.TURN:
            ledger.add_round(Round(f"e{seq}", 1, ModelResponse(message), last=True))
        parent = f"e{seq}"
    for number, event in enumerate((RootStarted("froot", "Root", "done"), *events)):
        ledger.add_event(as_ledger_event(event, "e0", 0, 100 + number, 0))
    sent = RequestRecord("r", "conversation", "t", "froot", "", 0, "full", body=(json.dumps(body).encode(),))
    return ExportInput(ledger, path_state_of(ledger), (), sent)


def read(dialect: Dialect, said: Json) -> Message:
    name = "input" if dialect.name == "openai_responses" else "messages"
    return dialect.parse_request(
        json.dumps({"model": "m", "max_tokens": 1, name: [said]}).encode(), ParseCache()
    ).messages[0]


def chat_call(name: str, call: str) -> Json:
    return {"id": call, "type": "function", "function": {"name": name, "arguments": "{}"}}


@pytest.mark.parametrize(("model", "roles"), [("gpt-5", ["user", "assistant", "tool", "user"]),
                                              ("mistral-large-latest", ["user", "assistant", "tool"])])  # fmt: skip
def test_a_note_stands_where_the_model_takes_it(model: str, roles: list[str]) -> None:
    """A mixed turn whose stack call was answered: some models take no user message behind a result."""
    said = read(OPENAI_CHAT, {"role": "assistant", "content": None,
                              "tool_calls": [chat_call("bash", "c1"), chat_call("stack_status", "c2")]})  # fmt: skip
    told = material(
        OPENAI_CHAT, {"model": model, "messages": [{"role": "user", "content": "go"}]},
        OPENAI_CHAT.user_message("go"), said, OPENAI_CHAT.tool_result("c1", "two files"),
    )  # fmt: skip
    ledger = told.ledger
    (done,) = ledger.rounds["e1"]
    ledger.rounds["e1"] = (Round("e1", 1, done.spoken, (OPENAI_CHAT.tool_result("c2", "all is well"),), last=True),)
    told = ExportInput(ledger, path_state_of(ledger), (), told.newest_request)

    messages = json.loads(context_body(told))["messages"]

    assert [message["role"] for message in messages] == roles
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["c1"]
    assert "all is well" in json.dumps(messages[-1])
    assert messages[2]["content"].startswith("two files")


@pytest.mark.parametrize(("thinking", "kept"), [({"type": "enabled", "budget_tokens": 1024}, True),
                                                ({"type": "adaptive"}, False)])  # fmt: skip
def test_a_tool_loop_opens_with_its_reasoning_where_the_request_asks_for_that(thinking: Json, kept: bool) -> None:
    """L8: of a thread that the proxy rewrote reasoning is left out, but not what the API then misses."""
    made = {"type": "tool_use", "id": "c1", "name": "bash", "input": {}}
    body: dict[str, Any] = {"model": "claude-sonnet-4-5", "max_tokens": 2048, "thinking": thinking,
                            "messages": [{"role": "user", "content": "go"}]}  # fmt: skip
    told = material(
        ANTHROPIC_MESSAGES, body, ANTHROPIC_MESSAGES.user_message("go"),
        read(ANTHROPIC_MESSAGES, {"role": "assistant", "content": [THINKING, {"type": "text", "text": "earlier"}]}),
        ANTHROPIC_MESSAGES.user_message("and on"),
        read(ANTHROPIC_MESSAGES, {"role": "assistant", "content": [THINKING, made]}),
        ANTHROPIC_MESSAGES.tool_result("c1", "ok"),
        events=(ThreadWoken("guidance", "[]"),),
    )  # fmt: skip

    answers = [m["content"] for m in json.loads(context_body(told))["messages"] if m["role"] == "assistant"]

    assert [THINKING in content for content in answers] == [False, kept]


def test_our_tools_told_among_the_messages_stay_out() -> None:
    """Where an API takes tools and guidance behind the newest message, they are ours all the same."""
    appended = json.dumps({"role": "system", "content": [{"type": "text", "text": "use stack_recall"}]})
    told = material(
        ANTHROPIC_MESSAGES,
        {"model": "claude-opus-4-8", "max_tokens": 2048, "messages": [{"role": "user", "content": "go"}]},
        ANTHROPIC_MESSAGES.user_message("go"),
        read(ANTHROPIC_MESSAGES, {"role": "assistant", "content": [{"type": "text", "text": "done"}]}),
        events=(ThreadWoken("", "", appended, "e0"),),
    )

    assert "stack_recall" not in context_body(told).decode()
