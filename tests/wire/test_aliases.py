"""Models by alias: whatever becomes of a request, it carries the name that its upstream knows."""

import json
from typing import Any

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.wire.stage import Starting
from tests.wire.talking import ask, body_of

ALONE = [{"role": "system", "content": "nobody speaks"}]
WAYS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "rendered": (body_of("hello", awake=True), {}),
    "relayed": (body_of("hello"), {}),
    "off": (body_of("hello", awake=True), {"x-stack-mode": "off"}),
    "passed without us": (body_of() | {"messages": ALONE}, {}),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_alias_leaves_as_the_upstreams_name(start: Starting, provider: ScriptedProvider, way: str) -> None:
    body, headers = WAYS[way]
    proxy = start(upstreams__default__aliases__mine="theirs")
    provider.will(says("ok"))

    answer = ask(proxy.origin, body | {"model": "mine"}, headers=headers)

    assert answer.status == 200
    assert provider.asked[-1].body["model"] == "theirs"


def test_another_endpoint_is_asked_by_the_same_name(start: Starting, provider: ScriptedProvider) -> None:
    proxy = start(upstreams__default__aliases__mine="theirs")

    ask(proxy.origin, {"input": "words", "model": "mine"}, path="/v1/embeddings")

    assert json.loads(provider.received[-1].raw) == {"input": "words", "model": "theirs"}
