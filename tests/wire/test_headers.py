"""Headers of a client with an underscore in their names: which pass upstream, and which are refused."""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.wire.proxied import ServedProxy
from tests.wire.talking import ask, body_of

PASSED = ["session_id", "Conversation_Id", "thread_id", "user_agent", "x_request_id", "anthropic_version", "_", "a-b_c"]
REFUSED = [
    "x_stack_mode",
    "X-Stack_Session",
    "x_stack-key",
    "x_stack_anything",
    "transfer_encoding",
    "content_encoding",
    "content_length",
    "keep_alive",
    "x_api_key",
    "X-API_Key",
    "api_key",
    "proxy_authenticate",
    "proxy_authorization",
    "proxy_connection",
    "sec_fetch_site",
]


@pytest.mark.rows("X-26")
@pytest.mark.parametrize("awake", [True, False], ids=["awake", "asleep"])
def test_names_with_an_underscore_pass_upstream_as_they_came(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool
) -> None:
    provider.will(says("fine"))
    told = ask(proxy.origin, body_of(awake=awake), headers={name: f"of {name}" for name in PASSED})

    assert (told.status, told.text) == (200, "fine")
    assert {name: provider.received[0].header(name.lower()) for name in PASSED} == {n: f"of {n}" for n in PASSED}


@pytest.mark.rows("X-26")
@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_others_may_read_as_one_that_counts_here_is_refused(
    proxy: ServedProxy, provider: ScriptedProvider, name: str
) -> None:
    told = ask(proxy.origin, body_of(), headers={name: "a"})

    assert (told.status, provider.received) == (400, [])
    assert name.lower().replace("_", "-") in told.json["error"]["message"]
