"""Whether litellm is here, and its import.

The law: **it is imported in a thread, once somebody needs it**, with everything off that it would do by itself: no
price table from the network, no `.env` file, no callbacks, no log. It takes 3 to 5 s of CPU, and requests that come
earlier wait for it.

Two releases of it carried code that stole keys; those and all that are older than the first one tried are refused.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import re
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata, util
from typing import Any

from proxy.errors import UpstreamError

INSTALL_COMMAND = "pip install 'callstack-proxy[litellm]'"
INSTALL_DIALECTS_COMMAND = "pip install 'callstack-proxy[litellm-dialects]'"
"""What litellm needs besides for messages and responses, and does not ask for."""
MIN_VERSION = (1, 106, 2)
COMPROMISED_VERSIONS = frozenset({"1.82.7", "1.82.8"})
ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it fetches a price table, and blocks for seconds without a network
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",  # else it reads a .env file from wherever it was started
    "AIOHTTP_KEEPALIVE_TIMEOUT": "30",  # seconds; it tries nothing again on a connection that was just being closed
}
PRELOADED_MODULES = (
    "openai.resources",
    "litellm.proxy.utils",
    "litellm.llms.anthropic.pass_through.messages.streaming_iterator",
    "litellm.responses.mcp.litellm_proxy_mcp_handler",
)
"""What the first requests would import else, for up to 0.6 s each, while the loop waits."""
OPENAI_PROVIDERS = ("openai", "azure")
"""Providers that have all of OpenAI's tools themselves."""
LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")
"""They write what was asked and answered."""
HTTP_LIBRARIES = ("httpx", "httpx2")
"""What carries litellm's requests, by its version."""


def unavailable_reason() -> str:
    """Why litellm cannot be used here, with what to do; empty where it can. Nothing is imported by looking."""
    if util.find_spec("litellm") is None:
        return f"litellm is not installed; {INSTALL_COMMAND}"
    version = metadata.version("litellm")
    if version in COMPROMISED_VERSIONS:
        return f"litellm {version} is a compromised release; remove it, change every key it saw, then {INSTALL_COMMAND}"
    if tuple(int(figure) for figure in re.findall(r"\d+", version)[:3]) < MIN_VERSION:
        return f"litellm {version} is older than {'.'.join(map(str, MIN_VERSION))}; {INSTALL_COMMAND}"
    return ""


@dataclass(frozen=True, slots=True)
class LitellmLibrary:
    """litellm, imported and silenced. `client` is the HTTP library it asks with."""

    litellm: Any
    client: Any

    def function(self, name: str) -> Any:
        """A function of litellm by its dotted name; None where this version has none."""
        found = self.litellm
        for part in name.split("."):
            found = getattr(found, part, None)
        return found

    def provider_of(self, model: str) -> str:
        """litellm's word for who is asked for a model; empty for a name it does not know, which the call will tell."""
        try:
            return str(self.litellm.get_llm_provider(model)[1])
        except Exception:  # of its own kinds, which change with its versions
            return ""

    def takes_any_member(self, provider: str) -> bool:
        """Whether a provider takes bodies of OpenAI's API, and so any member that may stand in one."""
        return provider in OPENAI_PROVIDERS or provider in self.litellm.openai_compatible_providers


def load_library() -> LitellmLibrary:
    """Import litellm; where it is imported already, this only sets it up again."""
    os.environ.update(ENVIRONMENT)
    litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    litellm.turn_off_message_logging = True
    litellm.disable_streaming_logging = True
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    for module in PRELOADED_MODULES:
        with suppress(ImportError):  # of another version, or what it needs is missing: a request will tell
            importlib.import_module(module)
    client = next(name for name in HTTP_LIBRARIES if util.find_spec(name))
    return LitellmLibrary(litellm, importlib.import_module(client))


class LibraryLoader:
    """The import, under way at most once."""

    def __init__(self) -> None:
        self._result: Future[LitellmLibrary] | None = None

    def begin(self) -> Future[LitellmLibrary]:
        """Start it, where it has not been started. Returns at once."""
        if self._result is None:
            self._result = Future()
            threading.Thread(target=self._run, args=(self._result,), name="litellm", daemon=True).start()
        return self._result

    def _run(self, result: Future[LitellmLibrary]) -> None:
        try:
            result.set_result(load_library())
        except Exception as error:  # whatever a package does while it is imported
            result.set_exception(error)

    @property
    def loaded(self) -> LitellmLibrary | None:
        """The library, once it is here."""
        ready = self._result is not None and self._result.done() and self._result.exception() is None
        return self._result.result() if self._result is not None and ready else None

    async def library(self) -> LitellmLibrary:
        """The library, waited for. Raises UpstreamError where it cannot be imported."""
        if (here := self.loaded) is not None:
            return here
        try:
            # A caller that goes away must not end the import for the others.
            return await asyncio.shield(asyncio.wrap_future(self.begin()))
        except Exception as error:  # an import runs whatever the package does
            raise UpstreamError(f"litellm cannot be imported ({error}); {INSTALL_COMMAND}") from error
