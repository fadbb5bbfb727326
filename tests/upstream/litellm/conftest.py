"""Providers behind litellm: the real library, against the scripted provider on a real socket.

litellm is an extra, and its requirements do not go together with those of the tests of other clients. So these tests
are skipped where it is not installed; `tests/clients/test_litellm.py` runs them in an environment of their own.
"""

import asyncio
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import util
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider
from proxy.config.sections import UpstreamSettings
from proxy.upstream.litellm import LitellmUpstream
from proxy.upstream.litellm.loader import load_library

HERE = Path(__file__).resolve().parent
IMPORTED_S = 60
"""What the import of litellm may take on a busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """litellm warns of its own and its parts' doings; those are not ours to mend."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session")
def litellm() -> None:
    """The library, imported once, or a skipped test."""
    if util.find_spec("litellm") is None:
        pytest.skip("litellm is not installed: pip install 'callstack-proxy[litellm]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load_library()


@pytest.fixture
def provider(litellm: None) -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


Asked = asyncio.AbstractEventLoop


@asynccontextmanager
async def through(
    provider: ScriptedProvider, vendor: str = "openai", **settings: object
) -> AsyncIterator[LitellmUpstream]:
    """An upstream that reaches the scripted provider as one of `vendor`."""
    url = provider.url if vendor == "openai" else provider.origin
    given = {"kind": "litellm", "url": url, "key": "sk-operator", "model_prefix": f"{vendor}/", **settings}
    upstream = LitellmUpstream("there", UpstreamSettings.model_validate(given))
    try:
        yield upstream
    finally:
        await upstream.aclose()
