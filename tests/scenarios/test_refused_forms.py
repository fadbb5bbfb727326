"""A provider that refuses a request for its form is asked again with less of ours, and at last as the client asked."""

import json

import pytest

from llm_test_provider import ScriptedProvider, says, status
from tests.harness import Stage

pytestmark = pytest.mark.rows("X-27")
REFUSED = status(400, body={"error": {"message": "Unsupported request.", "type": "invalid_request_error"}})
ABOUT_TOOLS = status(400, body={"error": {"message": "tools.3.parameters: unknown keyword"}})


@pytest.fixture(autouse=True)
def _not_judged(stage: Stage) -> None:
    stage.judged = False


def ours(provider: ScriptedProvider) -> list[list[str]]:
    """Our tools in every request."""
    return [[name for name in received.tool_names if name.startswith("stack")] for received in provider.received]


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
