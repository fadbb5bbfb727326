"""Some models call a tool under the namespace in which their prompt lists it (`functions.stack_recall`,
`default_api:todo_write`), spell it otherwise, or wrap several calls into one. One of ours is ours all the same; a
client's is the client's, who sees its name untouched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llm_test_provider import ScriptedCall, ScriptedProvider, call, says
from tests.client_dialects import CHAT, MESSAGES, RESPONSES
from tests.harness import Stage, bash, does, pop, push, tool

pytestmark = pytest.mark.rows("X-49")
PREFIXES = ("functions.", "default_api.", "default_api:", "functions:")


def under(prefix: str, made: ScriptedCall) -> ScriptedCall:
    return replace(made, name=prefix + made.name)


@pytest.mark.parametrize("prefix", [*PREFIXES[:3], "tools::"])
def test_a_tool_of_ours_under_a_prefix_is_ours(stage: Stage, provider: ScriptedProvider, prefix: str) -> None:
    """Nobody but the provider sees the call; it goes back under the name that was offered, its result with it."""
    chat = stage.chat()
    pushed, popped = under(prefix, push("Auth")), under(prefix, pop("found it"))
    provider.will(does(pushed, text="Hm."), does(bash("ls")), does(popped), says("Done."))

    asked = chat.says("add a login")
    answer = chat.returns("a.py")

    assert asked.calls == [("bash", '{"command": "ls"}')]
    assert answer.text == "Done."
    assert not any(b"stack_frame" in told.raw or prefix.encode() in told.raw for told in (asked, answer))
    assert list(chat.proxy.statuses().items()) == [("add a login", "in_progress"), ("Auth", "completed")]
    for received in provider.received[1:]:
        names = {made.name for made in received.calls}
        assert names <= {"stack_frame_push", "bash"}
        assert all(made.id in dict(received.results) for made in received.calls)


@pytest.mark.parametrize("form", ["name_late", "name_split", "one_character", "interleaved"])
@pytest.mark.parametrize("name", ["default_api.stack_frame_push", "Stack-Frame-Push"])
def test_a_name_in_pieces_is_held_until_it_is_known(
    stage: Stage, provider: ScriptedProvider, name: str, form: str
) -> None:
    if not stage.streamed or stage.tongue is not CHAT:
        pytest.skip("names come in pieces in a chat's stream")
    chat = stage.chat(tools=("bash", "default_finder"))
    provider.will(
        does(replace(push("Auth"), name=name), call_forms=(form,)),
        does(call("default_finder", what="x"), bash("ls"), call_forms=(form,)),
    )

    answer = chat.says("look")

    assert [name for name, _ in answer.calls] == ["default_finder", "bash"]
    assert b"stack" not in answer.raw
    assert list(chat.proxy.frames()) == ["look", "Auth"]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_tool_of_the_clients_under_a_prefix_is_told_untouched_and_seen(
    stage: Stage, provider: ScriptedProvider, prefix: str
) -> None:
    chat = stage.chat(tools=("bash", "todo_write"))
    items = [{"content": "Look", "status": "in_progress"}, {"content": "Mend", "status": "pending"}]
    provider.will(does(call(f"{prefix}todo_write", todos=items)), does(bash("ls")), says("Done."))

    asked = chat.says("mend the login")
    chat.returns("Todos have been written.")
    chat.returns("a.py")

    assert [name for name, _ in asked.calls] == [f"{prefix}todo_write"]
    assert [made.name for made in provider.received[-1].calls] == [f"{prefix}todo_write", "bash"]
    assert chat.proxy.statuses() == {"mend the login": "in_progress", "Look": "in_progress", "Mend": "planned"}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_where_the_client_has_a_tool_of_that_name_it_is_the_clients(
    stage: Stage, provider: ScriptedProvider, prefix: str
) -> None:
    if stage.tongue is MESSAGES:
        pytest.skip("that API has no such names of tools")
    name = f"{prefix}stack_recall"
    chat = stage.chat(tools=("bash", name))
    provider.will(does(call(name, ref="f1")), says("Done."))

    asked = chat.says("look")

    assert asked.stack_status == "asleep; reason=name_clash"
    assert [told for told, _ in asked.calls] == [name]


SPELLINGS = ("Stack_Recall", "stack-recall", "stackRecall", "functions.Stack-Recall", "mcp__callstack__stack_recall")


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_tool_of_ours_in_another_spelling_is_ours(stage: Stage, provider: ScriptedProvider, name: str) -> None:
    chat = stage.chat()
    provider.will(does(call(name, ref="f1"), bash("pwd")), does(call(name, ref="f1")), says("Done."))

    asked = chat.says("look")
    answer = chat.returns("/srv")

    assert ([name for name, _ in asked.calls], answer.calls, answer.text) == (["bash"], [], "Done.")
    assert not any(b"recall" in told.raw.lower() for told in (asked, answer))
    assert [made.name for made in provider.received[-1].calls] == ["stack_recall", "bash", "stack_recall"]
    assert all(made.id in dict(provider.received[-1].results) for made in provider.received[-1].calls)


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_spelling_that_the_client_offers_is_the_clients(stage: Stage, provider: ScriptedProvider, name: str) -> None:
    stage.judged = False  # a law is that no client sees `stack_`, and here it is the client's own
    if "." in name:
        pytest.skip("a namespace of prompt templates, which clients' tools do not stand in")
    chat = stage.chat(tools=("bash", name))
    provider.will(does(call(name, ref="f1"), push("Auth")), does(pop("found it")), says("Done."))

    asked = chat.says("look")
    answer = chat.returns("It was done before.")

    assert (asked.stack_status, answer.text) == ("full", "Done.")
    assert [told for told, _ in asked.calls] == [name]


RECALLS = ("recall", "Recall", "functions.recall")
BARE = (*((name, "stack_recall") for name in RECALLS), ("Stack", "stack"))


@pytest.mark.parametrize(("name", "own_name"), BARE)
def test_a_bare_name_of_ours_is_ours_where_the_client_has_none_of_that_name(
    stage: Stage, provider: ScriptedProvider, name: str, own_name: str
) -> None:
    chat = stage.chat()
    provider.will(does(call(name, op="recall", ref="f1"), bash("pwd")), says("Done."))

    asked = chat.says("look")
    answer = chat.returns("/srv")

    assert ([name for name, _ in asked.calls], answer.calls, answer.text) == (["bash"], [], "Done.")
    assert [made.name for made in provider.received[-1].calls] == [own_name, "bash"]
    assert "nothing is stored under 'f1'" in str(provider.received[-1].results)


@pytest.mark.parametrize("name", ["recall", "Stack", "recall_memory", "openstack", "mcp__memory__recall"])
def test_a_tool_of_the_clients_that_is_called_like_ours_is_the_clients(
    stage: Stage, provider: ScriptedProvider, name: str
) -> None:
    chat = stage.chat(tools=("bash", name) if name in ("recall", "Stack") else ("bash",))
    provider.will(does(call(name, ref="f1")), says("Done."))

    assert [called for called, _ in chat.says("look").calls] == [name]


@pytest.mark.parametrize("name", ["functions.recall", "default_api:Recall"])
def test_a_tool_of_the_clients_that_is_called_like_ours_is_the_clients_under_a_prefix(
    stage: Stage, provider: ScriptedProvider, name: str
) -> None:
    chat = stage.chat(tools=("bash", "recall"))
    provider.will(does(call(name, ref="f1")), says("Done."))

    assert [called for called, _ in chat.says("look").calls] == [name]


PARALLEL = "multi_tool_use.parallel"


def uses(*calls: ScriptedCall) -> ScriptedCall:
    """Calls as some models of OpenAI wrap them, into one of a tool that nobody offers."""
    wrapped = [{"recipient_name": f"functions.{made.name}", "parameters": made.arguments} for made in calls]
    return call(PARALLEL, tool_uses=wrapped)


@pytest.mark.parametrize("calls", [(push("Auth"),), (push("Auth"), bash("ls"))])
def test_calls_of_ours_wrapped_into_one_reach_no_client(
    stage: Stage, provider: ScriptedProvider, calls: tuple[ScriptedCall, ...]
) -> None:
    chat = stage.chat()
    provider.will(does(uses(*calls), text="Hm."), does(bash("ls")), says("Done."))

    asked = chat.says("look")
    answer = chat.returns("a.py")

    assert ([name for name, _ in asked.calls], answer.text) == (["bash"], "Done.")
    assert not any(b"recipient" in told.raw for told in (asked, answer))
    assert [made.name for made in provider.received[1].calls] == ["stack_frame_push"]
    assert "call each tool by itself" in provider.received[1].results[0][1]


def test_calls_of_the_clients_wrapped_into_one_are_the_clients(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat()
    provider.will(does(uses(bash("ls"), bash("pwd"))), says("Done."))

    asked = chat.says("look")

    assert [name for name, _ in asked.calls] == [PARALLEL]


def test_a_tool_of_the_clients_that_is_called_like_ours_is_the_clients_wrapped_into_one(
    stage: Stage, provider: ScriptedProvider
) -> None:
    chat = stage.chat(tools=("bash", "recall"))
    provider.will(does(uses(call("recall", ref="f1"), bash("pwd"))), says("Done."))

    assert [name for name, _ in chat.says("look").calls] == [PARALLEL]


@pytest.mark.rows("X-68")
def test_a_tool_of_the_clients_in_a_namespace_may_be_called_as_ours_are(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """Codex puts the tools of an MCP server into a namespace, those of ours into `mcp__callstack`."""
    if stage.tongue is not RESPONSES:
        pytest.skip("other APIs have no namespaces")
    stage.judged = False  # a law is that no client sees `stack_`, and here it is the client's own
    theirs = {"type": "function", "name": "stack_search", "parameters": {"type": "object"}}
    chat = stage.chat()
    namespace = {"type": "namespace", "name": "mcp__callstack", "description": "", "tools": [theirs]}
    chat.options["tools"] = [tool("bash"), namespace]
    provider.will(does(push("Auth")), does(call("stack_search", words="login")), does(pop("found it")), says("Done."))

    asked = chat.says("add a login")
    answer = chat.returns("It was done before.")

    assert asked.stack_status == "full"
    assert [name for name, _ in asked.calls] == ["stack_search"]
    assert b'"namespace":"mcp__callstack"' in asked.raw.replace(b" ", b"")
    assert answer.text == "Done."
    assert chat.proxy.statuses()["Auth"] == "completed"
