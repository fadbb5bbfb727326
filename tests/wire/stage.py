"""The fixtures of the tests that drive the whole proxy: one proxy and one provider for all tests that change neither.

A thread is awake where its client offers tools (`wake_at_tokens` is 0) and asleep where not, so both ways through the
proxy are had from one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider
from tests.wire.proxied import LogCapture, ServedProxy

Starting = Callable[..., ServedProxy]


@pytest.fixture(scope="module")
def _provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(_provider: ScriptedProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProxy]:
    """The proxy of a module's tests."""
    with ServedProxy(_provider.url, tmp_path_factory.mktemp("proxy") / "data") as running:
        yield running


@pytest.fixture
def provider(_provider: ScriptedProvider) -> ScriptedProvider:
    """The provider behind it, its script empty and nothing remembered."""
    _provider.script.rules.clear()
    _provider.script.queue.answers.clear()
    _provider.script.queue.taken = 0
    _provider.received.clear()
    return _provider


@pytest.fixture
def start(provider: ScriptedProvider, tmp_path: Path) -> Iterator[Starting]:
    """Starts a proxy with settings of the test's own, in front of the same provider unless told otherwise."""
    with ExitStack() as stack:

        def one(name: str = "data", upstream: str | None = provider.url, **settings: object) -> ServedProxy:
            return stack.enter_context(ServedProxy(upstream, tmp_path / name, **settings))

        yield one


@pytest.fixture
def journal() -> Iterator[LogCapture]:
    """All that any library or module logs, at every level, from here on; what was answered before is told before."""
    for proxied in ServedProxy.running:
        proxied.catch_up()
    root, kept = logging.getLogger(), LogCapture()
    before = root.level
    root.addHandler(kept)
    root.setLevel(logging.DEBUG)
    yield kept
    root.removeHandler(kept)
    root.setLevel(before)
