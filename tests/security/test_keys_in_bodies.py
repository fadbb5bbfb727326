"""A8: keys that a client writes into the body of a request are passed on, and are in no log, file or page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.client_dialects import TONGUES, TestDialect
from tests.harness import does, pop, push
from tests.security.test_secrets import contents, found, pages
from tests.wire.proxied import LogCapture, ServedProxy
from tests.wire.stage import Starting
from tests.wire.talking import ask

MEMBERS: dict[str, Any] = {
    "api_key": "canary-api-key-01",
    "headers": {"authorization": "Bearer canary-headers-02"},
    "extra_headers": {"x-api-key": "canary-extra-headers-03"},
    "extra_body": {"api_key": "canary-extra-body-04"},
    "api_base": "https://user:canary-base-05@provider.example",
    "metadata": {"token": "canary-metadata-06"},
    "user_config": {"model_list": [{"litellm_params": {"api_key": "canary-config-07"}}]},
    "aws_secret_access_key": "canary-aws-08",
    "mcp_servers": [{"type": "url", "url": "https://mcp.example", "name": "m", "authorization_token": "canary-mcp-09"}],
}
MCP_TOOL = {
    "type": "mcp",
    "server_label": "m",
    "server_url": "https://mcp.example",
    "headers": {"Authorization": "Bearer canary-tool-headers-10"},
    "authorization": "canary-tool-authorization-11",
}
"""A tool of the responses API."""
CANARIES = [b"canary-"]


def requests_of(tongue: TestDialect, provider: ScriptedProvider, proxy: ServedProxy) -> None:
    tool = {
        "type": "function",
        "function": {"name": "read_file", "description": "Reads.", "parameters": {"type": "object", "properties": {}}},
    }
    for stream in (True, False):
        provider.will(does(push(f"work {stream}"), text="Start."), does(pop("done")), says("End."), says("More."))
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": "You work."},
            {"role": "user", "content": f"Begin {stream}."},
        ]
        for words in ("Go on.", ""):
            body = json.loads(tongue.body({"model": "m", "messages": messages, "tools": [tool], "stream": stream}))
            if tongue.path.endswith("/responses"):
                body["tools"] = [*body["tools"], MCP_TOOL]
            told = ask(proxy.origin, body | MEMBERS, path=tongue.path, headers=tongue.headers)
            assert told.status == 200, told.body
            messages += [{"role": "assistant", "content": "Start.End."}, {"role": "user", "content": words}]


@pytest.mark.rows("X-25")
@pytest.mark.parametrize("tongue", TONGUES.values(), ids=TONGUES)
def test_a8_keys_in_a_body_are_passed_and_kept_nowhere(
    start: Starting, provider: ScriptedProvider, journal: LogCapture, tmp_path: Path, tongue: TestDialect
) -> None:
    proxy = start(log_level="debug")
    requests_of(tongue, provider, proxy)
    shown = pages(proxy)
    proxy.__exit__(None, None, None)

    assert all(b"canary-api-key-01" in received.raw for received in provider.received)
    assert found([b"Start."], contents(tmp_path)), "the search finds what is there"
    assert found(CANARIES, contents(tmp_path)) == []
    assert found(CANARIES, shown + journal.text.encode()) == []
