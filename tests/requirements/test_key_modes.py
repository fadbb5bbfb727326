"""X-15: the off switch of one client key."""

import pytest

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import ScriptedProvider, says
from proxy.config.sections import Mode
from tests.harness import Conversation, Stage

Issued = dict[str, str]


def _headers(chat: Conversation, mode: Mode | None) -> Issued:
    key = issue_key(chat.proxy.config.keys_path, str(mode), mode=mode)
    return {"authorization": f"Bearer {key}"}


@pytest.mark.rows("X-15")
@pytest.mark.parametrize(("mode", "told"), [("off", "off"), ("shadow", "shadow"), ("active", "full"), (None, "full")])
def test_x_15_the_requests_of_a_key_run_in_the_mode_it_was_issued_with(
    stage: Stage, provider: ScriptedProvider, mode: Mode | None, told: str
) -> None:
    """The laws hold too: what passes in mode off is byte for byte the client's."""
    stage.looks_into_store = False  # which needs a key here
    chat = stage.chat(stage.proxy(tenancy="key"))
    chat.headers = _headers(chat, mode)
    provider.will(says("ok"))

    assert chat.says("hello").stack_status == told


@pytest.mark.rows("X-15")
def test_x_15_a_request_may_ask_for_another_mode_than_its_key(stage: Stage, provider: ScriptedProvider) -> None:
    stage.looks_into_store = False  # which needs a key here
    chat = stage.chat(stage.proxy(tenancy="key"))
    chat.headers = _headers(chat, "off")
    provider.will(says("ok"))

    assert chat.says("hello", headers={"x-stack-mode": "active"}).stack_status == "full"
