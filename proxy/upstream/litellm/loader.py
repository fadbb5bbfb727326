"""Checks for litellm and imports it.

The import takes 3 to 5 s of CPU, so it runs in a thread when litellm is first needed; earlier requests wait. Its own
activities are off: no price table from the network, no `.env` file, no callbacks, no log. Some releases carried code
that stole keys; those, and all older than the first tested one, are refused.
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
"""Packages that litellm needs for messages and responses but does not declare."""
MIN_VERSION = (1, 106, 2)
COMPROMISED_VERSIONS = re.compile(r"1\.82\.[78]|1\.107(?:\D.*)?")
"""Of 1.107 the first release was; the later ones of that line are refused with it."""
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
"""Modules that the first requests would otherwise import, blocking the loop for up to 0.6 s each."""
OPENAI_PROVIDERS = ("openai", "azure")
"""Providers that support all OpenAI tools themselves."""
LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")
"""Loggers that write prompts and answers."""
HTTP_LIBRARIES = ("httpx", "httpx2")
"""HTTP libraries that litellm may use, depending on its version."""


def unavailable_reason() -> str:
    """Why litellm cannot be used, with what to do; empty if it can. Imports nothing."""
    if util.find_spec("litellm") is None:
        return f"litellm is not installed; {INSTALL_COMMAND}"
    version = metadata.version("litellm")
    if COMPROMISED_VERSIONS.fullmatch(version):
        what = "is a compromised release, or one of its line"
        return f"litellm {version} {what}; remove it, change every key it saw, then {INSTALL_COMMAND}"
    if tuple(int(figure) for figure in re.findall(r"\d+", version)[:3]) < MIN_VERSION:
        return f"litellm {version} is older than {'.'.join(map(str, MIN_VERSION))}; {INSTALL_COMMAND}"
    return ""


@dataclass(frozen=True, slots=True)
class LitellmLibrary:
    """litellm, imported and silenced. `client` is its HTTP library."""

    litellm: Any
    client: Any

    def function(self, name: str) -> Any:
        """A function of litellm by dotted name; None if this version lacks it."""
        attribute = self.litellm
        for part in name.split("."):
            attribute = getattr(attribute, part, None)
        return attribute

    def provider_of(self, model: str) -> str:
        """litellm's name of the provider of a model; empty if unknown."""
        try:
            return str(self.litellm.get_llm_provider(model)[1])
        except Exception:  # of its own kinds, which change with its versions
            return ""

    def takes_any_member(self, provider: str) -> bool:
        """Whether the provider speaks OpenAI's API, and so accepts any member in a body."""
        return provider in OPENAI_PROVIDERS or provider in self.litellm.openai_compatible_providers


def load_library() -> LitellmLibrary:
    """Import litellm; a repeated call only configures it again."""
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
    """Runs the import at most once."""

    def __init__(self) -> None:
        self._result: Future[LitellmLibrary] | None = None

    def begin(self) -> Future[LitellmLibrary]:
        """Start the import unless started. Returns at once."""
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
        """The library, or None until it is imported."""
        ready = self._result is not None and self._result.done() and self._result.exception() is None
        return self._result.result() if self._result is not None and ready else None

    async def library(self) -> LitellmLibrary:
        """The library, waiting for the import. Raises UpstreamError if it fails."""
        if (loaded := self.loaded) is not None:
            return loaded
        try:
            # A caller that goes away must not end the import for the others.
            return await asyncio.shield(asyncio.wrap_future(self.begin()))
        except Exception as error:  # an import runs whatever the package does
            raise UpstreamError(f"litellm cannot be imported ({error}); {INSTALL_COMMAND}") from error
