"""A provider, and proxies in front of it that are killed from outside, so nothing here looks into their store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider
from tests.harness import Stage


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture
def stage(provider: ScriptedProvider, tmp_path: Path) -> Iterator[Stage]:
    """Clients that ask for plain answers, unless the file has a stage of its own."""
    running = Stage(provider, tmp_path, streamed=False, looks_into_store=False)
    yield running
    running.stop()
