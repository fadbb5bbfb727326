"""Settings that can change while the proxy runs: how subagents are tracked.

Changes are stored, override the configuration, and hold after a restart and in all processes on the same store, which
see them within `REFRESH_INTERVAL_S`. An invalid change is refused as a whole with BadRequest. If the store cannot be
read, or holds unknown values, the current settings stay. Callers check who may change them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import fields
from pydantic import ValidationError

from proxy.config.sections import SubagentSettings
from proxy.core.ledger import Ledger
from proxy.core.safe_regex import MAX_PATTERNS, pattern_error
from proxy.core.tools import SubagentRules
from proxy.errors import BadRequest, StoreError
from proxy.store import SettingRecord, Store

log = logging.getLogger(__name__)

REFRESH_INTERVAL_S = 5.0
"""How often changes by other processes are read."""
ALL_TENANTS = ""
"""Tenant under which these settings are stored."""
SUBAGENT_SECTION = "subagent"
SETTABLE_KEYS = tuple(name for name in SubagentSettings.model_fields if name != "model_may_configure")
"""Keys that can be set at run time; `model_may_configure` is for the configuration alone."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def subagent_rules_of(settings: SubagentSettings) -> SubagentRules:
    """The rules for the core."""
    return SubagentRules(**settings.model_dump(include={each.name for each in fields(SubagentRules)}))


def is_long_enough(ledger: Ledger, least: SubagentSettings) -> bool:
    """Whether a subagent's conversation is long enough for a frame of its own."""
    on_path = [entry for entry in ledger.entries.values() if not entry.is_overlay]
    spoken = [done.created for rounds in ledger.rounds.values() for done in rounds]
    last = max((*(entry.created for entry in on_path), *spoken), default=0)
    lasted = last - ledger.conversation.created
    return len(on_path) >= least.min_messages and lasted >= least.min_duration


class LiveSettings:
    """`configured` are the values without changes. Without a store, changes live as long as this object."""

    def __init__(
        self, configured: SubagentSettings, store: Store | None = None, now: Callable[[], int] = _now_ms
    ) -> None:
        self._configured = configured
        self._store = store
        self._now = now
        self._overrides: dict[str, Any] = {}
        self._changes = 0
        self.on_change: Callable[[], None] = lambda: None
        """Told when this process changed settings."""
        self.subagent = without_faulty_patterns(configured)  # replaced as a whole, so that readers need no lock
        """Current settings; all of its patterns are valid."""

    @property
    def overridden_keys(self) -> tuple[str, ...]:
        """Keys with a changed value."""
        return tuple(name for name in SETTABLE_KEYS if name in self._overrides)

    def change(self, wanted: Mapping[str, Any]) -> int:
        """Set these keys; None restores the configured value. Returns the ticket of the write, 0 without a store.
        Raises BadRequest or StoreError, and then nothing has changed."""
        if fixed := [name for name in wanted if name not in SETTABLE_KEYS]:
            raise BadRequest(
                f"{SUBAGENT_SECTION}.{fixed[0]}: cannot be set while the proxy runs. Set it in the configuration, and "
                "start anew."
            )
        chosen = {**self._overrides, **wanted}
        settled = {name: value for name, value in chosen.items() if value is not None}
        holds = _validated_settings(self._configured, settled)
        for pattern in wanted.get("patterns") or ():
            if fault := pattern_error(pattern):
                raise BadRequest(f"{SUBAGENT_SECTION}.patterns: {fault}")
        if len(holds.patterns) > MAX_PATTERNS:
            raise BadRequest(f"{SUBAGENT_SECTION}.patterns: there can be at most {MAX_PATTERNS}; remove one first.")
        now = self._now()
        records = [
            SettingRecord(f"{SUBAGENT_SECTION}.{name}", msgspec.json.encode(value), now)
            for name, value in wanted.items()
        ]
        ticket = self._store.write(ALL_TENANTS, records) if self._store and records else 0
        self._overrides, self.subagent = settled, without_faulty_patterns(holds)
        self._changes += 1
        self.on_change()
        return ticket

    def try_change(self, wanted: Mapping[str, Any]) -> str:
        """As `change`; returns the fault as a sentence, or empty."""
        try:
            self.change(wanted)
        except (BadRequest, StoreError) as error:
            return f"{str(error).rstrip('.')}. Nothing was set."
        return ""

    async def refresh(self) -> None:
        """Read the stored settings. Raises StoreError, and then nothing has changed."""
        if self._store is None:
            return
        before = self._changes
        found = {record.name: record.value for record in await self._store.settings(ALL_TENANTS)}
        stored = {name: _decode_value(found.get(f"{SUBAGENT_SECTION}.{name}", b"null")) for name in SETTABLE_KEYS}
        settled = {name: value for name, value in stored.items() if value is not None}
        if (
            settled == self._overrides or before != self._changes
        ):  # what was read may be older than what was set meanwhile
            return
        try:
            holds = _validated_settings(self._configured, settled)
        except BadRequest as error:
            log.warning("what was set cannot hold here, and counts for nothing", extra={"reason": str(error)[:200]})
            return
        self._overrides, self.subagent = settled, without_faulty_patterns(holds)

    async def refresh_forever(self) -> None:
        """Refresh repeatedly until cancelled."""
        while True:
            try:
                await self.refresh()
            except StoreError as error:
                log.debug("what was set could not be read", extra={"reason": error.code})
            await asyncio.sleep(REFRESH_INTERVAL_S)


def without_faulty_patterns(settings: SubagentSettings) -> SubagentSettings:
    """The same settings without invalid patterns."""
    kept = tuple(pattern for pattern in settings.patterns if not pattern_error(pattern))[:MAX_PATTERNS]
    return settings if kept == settings.patterns else settings.model_copy(update={"patterns": kept})


def pattern_faults(settings: SubagentSettings) -> list[str]:
    """A sentence for each invalid pattern."""
    faults = [fault for pattern in settings.patterns if (fault := pattern_error(pattern))]
    more = len(settings.patterns) - len(faults) - MAX_PATTERNS
    return [*faults, f"only the first {MAX_PATTERNS} patterns count, {more} do not."] if more > 0 else faults


def _validated_settings(configured: SubagentSettings, settled: Mapping[str, Any]) -> SubagentSettings:
    """Raises BadRequest with every fault."""
    try:
        return SubagentSettings.model_validate({**configured.model_dump(), **settled})
    except ValidationError as error:
        faults = (f"{SUBAGENT_SECTION}.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise BadRequest("; ".join(faults)) from None


def _decode_value(stored: bytes) -> Any:
    """A stored value; None if it cannot be decoded."""
    try:
        return msgspec.json.decode(stored)
    except msgspec.DecodeError:
        return None
