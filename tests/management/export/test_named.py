"""The history of a client that keeps nothing itself and names what was said before."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import ScriptedProvider, says
from proxy.core.context.message_list import unpaired_calls
from proxy.dialects import OPENAI_RESPONSES, ParseCache
from tests.client_dialects import TONGUES
from tests.harness import RunningProxy, Stage, bash, does, pop, push, running_stage
from tests.management.export.conftest import exported
from tests.scenarios.test_references import Forgetful

Json = dict[str, Any]


@pytest.fixture
def stage(provider: ScriptedProvider, tmp_path: Path) -> Iterator[Stage]:
    (tongue,) = [each for each in TONGUES.values() if each.short == "responses"]
    with running_stage(provider, tmp_path, streamed=True, tongue=tongue) as running:
        yield running


def worked(proxy: RunningProxy, provider: ScriptedProvider) -> Forgetful:
    provider.will(
        does(push("Count")),
        does(bash("ls")),
        does(pop("two files")),
        says("There are two."),
    )
    client = Forgetful(proxy, streamed=True)
    client.says("count the files")
    client.returns("a.py b.py")
    return client


def texts(body: bytes) -> list[str]:
    request = OPENAI_RESPONSES.parse_request(body, ParseCache())
    assert unpaired_calls(request.messages) == ()
    return [message.text for message in request.messages if message.text]


def test_the_whole_history_holds_what_was_only_named(stage: Stage, provider: ScriptedProvider) -> None:
    """`--whole`: behind the newest request stands everything up to the answer it names, as the client was told it."""
    proxy = stage.proxy()
    worked(proxy, provider)

    body = exported(proxy, "messages", whole="true")

    assert "previous_response_id" not in json.loads(body)
    assert texts(body) == ["count the files", "a.py b.py"]
    assert b"stack_" not in body


def test_the_trimmed_messages_name_nothing(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy()
    worked(proxy, provider)

    body = exported(proxy, "messages")

    assert "previous_response_id" not in json.loads(body)
    assert texts(body)[0] == "count the files"
    assert texts(body)[-1] == "There are two."
