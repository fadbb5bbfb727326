"""A proxy between a scripted client and a scripted provider, streamed and not, as the scenarios have it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import ScriptedProvider
from tests.harness import Conversation, Stage, running_stage


@pytest.fixture(params=["streamed", "plain"])
def streamed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "streamed")


@pytest.fixture
def provider(request: pytest.FixtureRequest) -> Iterator[ScriptedProvider]:
    """The scripted provider; parametrised indirectly it gets these arguments."""
    arguments: dict[str, Any] = getattr(request, "param", {})
    with ScriptedProvider(**arguments) as running:
        yield running


@pytest.fixture
def stage(provider: ScriptedProvider, tmp_path: Path, streamed: bool) -> Iterator[Stage]:
    with running_stage(provider, tmp_path, streamed=streamed) as running:
        yield running


@pytest.fixture
def chat(stage: Stage) -> Conversation:
    """A client in front of a proxy as it comes, awake from the first request."""
    return stage.chat()
