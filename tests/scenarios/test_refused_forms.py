"""A provider that refuses a request for its form is asked again with less of ours, and at last as the client asked."""

import json
from typing import Any

import pytest

from llm_test_provider import ReceivedRequest, ScriptedAnswer, ScriptedProvider, call, says, status
from tests.client_dialects import CHAT
from tests.harness import Conversation, Stage, as_one_text, does, pop, tool

pytestmark = pytest.mark.rows("X-27")
REFUSED = status(400, body={"error": {"message": "Unsupported request.", "type": "invalid_request_error"}})
ABOUT_TOOLS = status(400, body={"error": {"message": "tools.3.parameters: unknown keyword"}})


@pytest.fixture(autouse=True)
def _not_judged(stage: Stage) -> None:
    stage.judged = False


def ours(provider: ScriptedProvider) -> list[list[str]]:
    """Our tools in every request."""
    return [[name for name in received.tool_names if name.startswith("stack")] for received in provider.received]


@pytest.mark.one_process("each process learns for itself what a provider refuses")
def test_it_is_asked_once_more_with_recall_alone_and_that_is_remembered(
    stage: Stage, provider: ScriptedProvider
) -> None:
    chat = stage.chat()
    provider.will(REFUSED, says("Hello."), says("Again."))

    first, second = chat.says("Hello"), chat.says("And now?")

    assert (first.text, second.text) == ("Hello.", "Again.")
    assert first.stack_status == second.stack_status == "full; form=mild"
    assert [len(names) for names in ours(provider)] == [5, 1, 1]
    assert not any("stack_frame_push" in r.raw.decode() for r in provider.received[1:])
    assert [receipt["form"] for receipt in chat.proxy.receipts()] == ["mild", "mild"]
    assert 'form="mild"' in chat.proxy.page("/metrics")


def test_where_the_refusal_is_about_tools_none_of_ours_is_offered(stage: Stage, provider: ScriptedProvider) -> None:
    provider.will(ABOUT_TOOLS, says("Hello."))

    assert stage.chat().says("Hello").stack_status == "full; form=bare"
    assert [len(names) for names in ours(provider)] == [5, 0]


@pytest.mark.one_process("each process learns for itself what a provider refuses")
def test_at_last_the_clients_own_request_goes_and_from_then_on_at_once(
    stage: Stage, provider: ScriptedProvider
) -> None:
    chat = stage.chat()
    provider.will(REFUSED, REFUSED, says("Hello."), says("Again."))

    first, second = chat.says("Hello"), chat.says("And now?")

    assert first.stack_status == second.stack_status == "bypass; reason=form; form=own"
    assert (first.text, second.text) == ("Hello.", "Again.")
    assert [len(names) for names in ours(provider)] == [5, 1, 0, 0]
    assert "stack_" not in provider.received[-1].raw.decode()


def test_an_error_of_the_clients_own_request_passes_as_it_came_and_nothing_is_learned(
    stage: Stage, provider: ScriptedProvider
) -> None:
    chat = stage.chat()
    own = {"error": {"message": "temperature must be below 2", "type": "invalid_request_error"}}
    provider.will(REFUSED, REFUSED, status(400, body=own), says("Fine."))

    refused, fine = chat.says("Hello"), chat.says("Better")

    assert (refused.status, json.loads(refused.raw)) == (400, own)
    assert refused.stack_status == "error; reason=upstream_error"
    assert fine.stack_status == "full"


def test_a_refusal_for_another_reason_is_not_tried_again(stage: Stage, provider: ScriptedProvider) -> None:
    provider.will(status(401), says("never asked"))

    assert stage.chat().says("Hello").status == 401
    assert len(provider.received) == 1


def test_with_a_closed_policy_the_clients_own_request_is_not_sent(stage: Stage, provider: ScriptedProvider) -> None:
    provider.will(REFUSED, REFUSED, says("never asked"))

    assert stage.chat(stage.proxy(fail_policy="closed")).says("Hello").status == 400
    assert len(provider.received) == 2


# ------------------------------------------------------------------------------------------------- our tools, strictly
MIXED = status(400, body={"error": {"message": "Tools with mixed values for 'strict' are not allowed."}})
LONG = "a finding of the search, in many words, " * 200


def _own_tools(received: ReceivedRequest) -> list[Any]:
    tools = received.body.get("tools") or []
    functions = [each.get("function", each) for each in tools]
    return [each for each in functions if each["name"].startswith("stack")]


def _refuses_mixtures(answer: ScriptedAnswer) -> Any:
    def answered(received: ReceivedRequest) -> ScriptedAnswer:
        functions = [each.get("function", each) for each in received.body.get("tools") or []]
        return MIXED if len({each.get("strict", False) for each in functions}) > 1 else answer

    return answered


def _refuses_ours(answer: ScriptedAnswer) -> Any:
    return lambda received: ABOUT_TOOLS if _own_tools(received) else answer


def _strict_chat(stage: Stage, **settings: object) -> Conversation:
    chat = stage.chat(stage.proxy(frame_max_tokens=1000, **settings))
    offered = [tool(name) for name in chat.tools]
    for each in offered:
        each["function"]["strict"] = True
    chat.options["tools"] = offered
    return chat


def _works(chat: Conversation, provider: ScriptedProvider, wanted: str, wrapped: Any) -> None:
    provider.will(*[wrapped(does(call("bash", command=f"look {wanted}")))] * 1)
    chat.says(f"Find out why the {wanted} fails.")
    provider.will(wrapped(says(f"The {wanted} fails for a lock.")))
    chat.returns(f"{wanted}: {LONG}")


@pytest.mark.rows("X-48")
def test_where_a_mixture_is_refused_our_tools_are_offered_as_strict_as_the_clients(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """Once, and from then on at once; what a strict schema makes a model send as null is absent; folds work."""
    if stage.tongue is not CHAT:
        pytest.skip("the tools of this client are written in chat's words")
    chat = _strict_chat(stage)
    attempt = call("stack_frame_push", title="Look", successCriteria="it is known", retry_of=None)
    provider.will(MIXED, _refuses_mixtures(does(attempt)), _refuses_mixtures(does(pop("nothing"))))
    provider.will(_refuses_mixtures(says("Nothing yet.")))

    first = chat.says("What is known?")

    assert (first.text, first.stack_status) == ("Nothing yet.", "full; form=strict")
    refused, asked, *_, again = provider.received
    assert len(_own_tools(refused)) == len(_own_tools(asked)) == 5
    for definition in _own_tools(asked):
        assert definition["strict"] is True
        assert definition["parameters"]["additionalProperties"] is False
        assert definition["parameters"]["required"] == list(definition["parameters"]["properties"])
    assert not any(text.startswith("Error") for _, text in again.results)
    for wanted in ("parser", "printer", "scanner", "linker"):
        _works(chat, provider, wanted, _refuses_mixtures)
    newest = provider.received[-1]
    assert LONG not in "".join(text for _, text in newest.results[:1])
    assert "stack_recall" in [each["name"] for each in _own_tools(newest)]
    assert {receipt["form"] for receipt in chat.proxy.receipts()} == {"strict"}
    assert any("folded" in event for receipt in chat.proxy.receipts() for event in receipt["events"])


@pytest.mark.one_process("each process learns for itself what a provider refuses")
@pytest.mark.rows("X-48")
def test_where_none_of_our_tools_is_taken_nothing_is_folded_and_no_text_speaks_of_recall(
    stage: Stage, provider: ScriptedProvider
) -> None:
    chat = stage.chat(stage.proxy(frame_max_tokens=1000))

    for wanted in ("parser", "printer", "scanner", "linker"):
        provider.will(*[ABOUT_TOOLS] * (not provider.received))
        _works(chat, provider, wanted, _refuses_ours)

    assert provider.received[0].tool_names[-1].startswith("stack")
    for received in provider.received[1:]:
        assert not _own_tools(received)
        assert "stack" not in received.raw.decode()
    told = provider.received[-1].raw.decode()
    assert [told.count(f"{wanted}: {LONG}") for wanted in ("parser", "printer", "scanner", "linker")] == [1] * 4
    assert {receipt["form"] for receipt in chat.proxy.receipts()} == {"bare"}
    assert not any("folded" in event for receipt in chat.proxy.receipts() for event in receipt["events"])


@pytest.mark.rows("X-48")
def test_what_was_folded_comes_back_where_our_tools_are_refused_later(stage: Stage, provider: ScriptedProvider) -> None:
    """A session whose provider is changed behind its address, say: the folded work is on the line again."""
    chat = stage.chat(stage.proxy(frame_max_tokens=1000))
    for wanted in ("parser", "printer", "scanner", "linker"):
        _works(chat, provider, wanted, lambda answer: answer)
    assert f"parser: {LONG}" not in as_one_text(provider.received[-1].messages)

    provider.will(ABOUT_TOOLS, says("Done."))
    answer = chat.says("And now?")

    assert (answer.text, answer.stack_status) == ("Done.", "full; form=bare")
    newest = provider.received[-1]
    assert f"parser: {LONG}" in as_one_text(newest.messages)
    assert "stack" not in newest.raw.decode()


@pytest.mark.rows("X-48")
def test_what_a_person_says_is_heard_without_our_tools_too(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat()
    provider.will(ABOUT_TOOLS, _refuses_ours(does(call("bash", command="ls"), call("bash", command="pwd"))))
    chat.says("Look around.")
    (conversation,) = chat.proxy.conversations
    chat.proxy.asked("POST", f"/stack/conversations/{conversation['id']}/messages", {"text": "Mind the docs."})
    provider.will(_refuses_ours(does(call("bash", command="id"))), _refuses_ours(says("Done.")))

    chat.returns("a.py", "/home")
    chat.returns("root")

    for received in provider.received[-2:]:
        assert received.raw.decode().count("Mind the docs.") == 1
        assert [text for _, text in received.results][:2][0] == "a.py"


@pytest.mark.rows("X-48")
def test_where_the_mild_form_is_refused_for_its_tool_the_next_one_has_none(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """Refused for a role first and for a tool then. What a person says still reaches the model."""
    chat = stage.chat()
    provider.will(REFUSED, ABOUT_TOOLS, _refuses_ours(does(call("bash", command="ls"))))
    first = chat.says("Look around.")
    (conversation,) = chat.proxy.conversations
    chat.proxy.asked("POST", f"/stack/conversations/{conversation['id']}/messages", {"text": "Mind the docs."})
    provider.will(_refuses_ours(says("Done.")))
    second = chat.returns("a.py")

    assert first.stack_status == second.stack_status == "full; form=bare"
    assert [len(names) for names in ours(provider)] == [5, 1, 0, 0]
    assert provider.received[-1].raw.decode().count("Mind the docs.") == 1


@pytest.mark.rows("X-48")
def test_a_mild_form_that_was_remembered_goes_on_to_none_of_our_tools(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat()
    provider.will(REFUSED, says("Hello."), ABOUT_TOOLS, says("Again."), says("And again."))

    told = [chat.says(words).stack_status for words in ("Hello", "And now?", "And then?")]

    assert told == ["full; form=mild", "full; form=bare", "full; form=bare"]
    assert [len(names) for names in ours(provider)] == [5, 1, 1, 0, 0]
