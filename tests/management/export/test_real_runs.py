"""Exports of conversations that a client really had, in every dialect: what can be gone on with, what comes back."""

import asyncio
import json
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from callstack_proxy.management.export.importer import import_conversation
from llm_test_provider import ScriptedProvider, call, says
from proxy.core.context.message_list import unpaired_calls
from proxy.core.ledger.messages import is_stack_tool
from proxy.dialects import DIALECTS, ParseCache
from proxy.store.sql import open_store
from tests.harness import Conversation, RunningProxy, Stage, bash, does, pop, push, recall, texts
from tests.management.export.conftest import exported

THOUGHT = "I wonder about Decimal"
CANARY = "sk-canary-0123456789abcdef"


def worked(stage: Stage, provider: ScriptedProvider, proxy: RunningProxy) -> Conversation:
    """A frame done and popped, another under way beside a call of the client, a recall from the first."""
    steps = (
        does(push("Fix rounding")),
        does(bash("pytest billing"), text="I look at billing."),
        does(pop("Decimal until the last step")),
        says("Billing is green."),
        does(push("Write the changelog"), bash("git log")),
        does(recall("Fix rounding")),
        does(bash("vim CHANGELOG.md")),
    )
    provider.will(*(step.but(reasoning=THOUGHT) for step in steps))
    chat = stage.chat(proxy, headers={"authorization": f"Bearer {CANARY}"})
    chat.says("make the suite green")
    chat.returns("1 failed: rounding")
    chat.says("and the changelog")
    chat.returns("abc123 first commit")
    return chat


def read(stage: Stage, body: bytes) -> Any:
    return next(d for path, d in DIALECTS.items() if stage.tongue.path.endswith(path)).parse_request(body, ParseCache())


@pytest.mark.rows("X-13")
def test_the_trimmed_messages_are_a_request_that_any_client_can_send(stage: Stage, provider: ScriptedProvider) -> None:
    """S0-04, X-13: no name of ours, each call with its result; what the finished frame left is there, what it did
    not."""
    proxy = stage.proxy()
    worked(stage, provider, proxy)

    body = exported(proxy, "messages")

    request = read(stage, body)
    assert unpaired_calls(request.messages) == ()
    assert not any(is_stack_tool(name) for name in request.tool_names)
    assert not any(call.is_stack_call for message in request.messages for call in message.calls)
    said = "\n".join(message.text for message in request.messages)
    assert "Decimal until the last step" in said
    assert all(message.text != "1 failed: rounding" for message in request.messages)
    assert [m.text for m in request.head] == ["You are a careful engineer."]


def test_a_provider_takes_the_trimmed_messages_as_they_are(stage: Stage, provider: ScriptedProvider) -> None:
    """L8: the scripted provider refuses what the real ones refuse: bad pairs, empty messages, reasoning that was bound
    to another beginning. Of what the proxy rewrote none is told, so none can be refused."""
    proxy = stage.proxy()
    worked(stage, provider, proxy)
    body = exported(proxy, "messages")

    provider.will(says("gone on"))
    answer = stage.proxy(mode="off").post(body, streamed=True)

    assert (answer.status, answer.text) == (200, "gone on")
    assert THOUGHT.encode() in exported(proxy, "logs")
    assert THOUGHT.encode() not in body


def test_the_whole_history_is_the_client_s_body_as_it_was_sent(stage: Stage, provider: ScriptedProvider) -> None:
    """Taking the proxy away leaves the client with its full history."""
    proxy = stage.proxy()
    worked(stage, provider, proxy)

    assert exported(proxy, "messages", whole="true").rstrip() == stage.notes[-1].body


def test_an_asleep_conversation_is_exported_as_the_client_has_it(stage: Stage, provider: ScriptedProvider) -> None:
    """L5: nothing was changed, so nothing is."""
    proxy = stage.proxy(wake_at_tokens=1_000_000)
    provider.will(does(bash("ls")).but(reasoning=THOUGHT), says("two files"))
    chat = stage.chat(proxy)
    chat.says("look around")
    chat.returns("a.py b.py")

    body = exported(proxy, "messages")

    assert [m.text for m in read(stage, body).messages if m.text] == ["look around", "a.py b.py", "two files"]
    assert THOUGHT.encode() in body


def test_no_format_holds_a_key(stage: Stage, provider: ScriptedProvider, tmp_path: Path) -> None:
    """A8: what travelled in a header is in no export, nor is the tenant or the secret of the store."""
    proxy = stage.proxy()
    worked(stage, provider, proxy)

    kinds = ("ledger", "stack", "jetbox", "logs", "handover", "messages", "speedscope", "collapsed", "otel")
    found = {kind: exported(proxy, kind) for kind in kinds}

    assert [kind for kind, told in found.items() if CANARY.encode() in told] == []
    assert b'"tenant"' not in found["ledger"]


async def _taken_in(folder: Path, ledger: Path) -> None:
    store = open_store("sqlite", folder)
    await store.start()
    await import_conversation(store, "local", ledger)
    await store.close()


def test_a_client_goes_on_in_another_house_as_if_nothing_had_happened(
    stage: Stage, provider: ScriptedProvider, tmp_path: Path
) -> None:
    """S3-30, X-08: exported, imported into a fresh data directory, and the next request is the one before, and more."""
    first = stage.proxy()
    chat = worked(stage, provider, first)
    before, frames = provider.received[-1], first.frames()
    (tmp_path / "whole.jsonl").write_bytes(exported(first, "ledger"))
    asyncio.run(_taken_in(tmp_path / "data1", tmp_path / "whole.jsonl"))
    second = stage.proxy()
    chat.proxy = second

    provider.will(does(pop("written")), says("All done."))
    answer = chat.returns("saved")

    assert answer.text == "All done."
    assert provider.received[-2].messages[: len(before.messages)] == before.messages
    assert second.statuses() == {**{t: f["status"] for t, f in frames.items()}, "Write the changelog": "completed"}
    assert texts(provider.received[-1].messages) != texts(provider.received[-2].messages)


@pytest.mark.rows("S3-25", "S3-26", "S3-28")
def test_actions_in_a_loop_that_goes_on_are_told_as_such(stage: Stage, provider: ScriptedProvider) -> None:
    """S3-25, S3-26, S3-28: under the signature the actions have in the other files; new words of the user end it."""
    proxy = stage.proxy()
    provider.will(*[does(bash("cat a.py")) for _ in range(4)], says("I stop."), says("ok"))
    chat = stage.chat(proxy)
    chat.says("read it")
    for _ in range(4):
        chat.returns("the same text")

    state, looped = (file_in(exported(proxy, "jetbox"), name) for name in ("state.json", "loops.json"))
    chat.says("do something else")
    after = file_in(exported(proxy, "jetbox"), "state.json")

    (signature,) = state["loop_counts"]
    assert (state["blocked_actions"], state["loop_counts"][signature]) == ([signature], 4)
    assert [(row["signature"], row["attempt_count"]) for row in looped] == [(signature, 4)]
    assert after["blocked_actions"] == []


@pytest.mark.rows("X-17", "S3-05", "S3-25")
def test_what_a_configured_tool_runs_is_told_as_commands_are(stage: Stage, provider: ScriptedProvider) -> None:
    """X-17, S3-05, S3-25: how the tests ended, and the loop, whatever words the model puts beside the command."""
    proxy = stage.proxy(observe__do_it__role="shell", observe__do_it__arguments="line")
    provider.will(*[does(call("do_it", line="pytest", description=f"try {n}")) for n in range(4)], says("I stop."))
    chat = stage.chat(proxy, tools=("do_it",))
    chat.says("run the tests")
    for _ in range(4):
        chat.returns("2 failed, 3 passed")

    state = file_in(exported(proxy, "jetbox"), "state.json")

    assert state["last_probe_state"] == {"test_ok": False}
    assert len(state["blocked_actions"]) == 4


def file_in(archive: bytes, name: str) -> Any:
    with zipfile.ZipFile(BytesIO(archive)) as packed:
        return json.loads(packed.read(name))
