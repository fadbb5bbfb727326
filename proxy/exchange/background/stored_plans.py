"""Keeps what was measured of plans (`PlanAccounts`) in the store, so that a restart does not begin to measure anew.

An account is a setting of a scope that no tenant has, named by its hash. It is written as often as its weights are read
anew: after 8 answers, and then with each fifth more. What was not written for `KEPT_MS` is deleted with the next start.
"""

from __future__ import annotations

import logging
from contextlib import suppress

import msgspec

from proxy.accounting import KeptPlan, PlanAccounts
from proxy.errors import StoreError
from proxy.store import SettingRecord, Store

log = logging.getLogger(__name__)

SCOPE = "(plans)"
"""Under which they are stored in place of a tenant, whose names have no brackets."""
KEPT_MS = 14 * 24 * 60 * 60 * 1000
"""Two of the longest windows. A login without a name for its account gets another token, and so another hash."""
REMOVED = b"null"


def store_plan(store: Store, plans: PlanAccounts, account: str, now: int) -> None:
    """Write what is known of the account. What cannot be written is measured again after a restart."""
    try:
        store.write(SCOPE, [SettingRecord(account, msgspec.json.encode(plans.kept(account)), now)])
    except StoreError as error:
        log.warning("what was measured of a plan is not kept", extra={"reason": error.code})


async def load_plans(store: Store, plans: PlanAccounts, now: int) -> None:
    """Put back what was stored, the newest last, and delete what is old. A store that cannot be read has nothing."""
    try:
        stored = await store.settings(SCOPE)
    except StoreError:
        return
    held = sorted((record for record in stored if record.value != REMOVED), key=lambda record: record.created)
    old = [record for record in held if record.created < now - KEPT_MS]
    for record in held[len(old) :]:
        with suppress(msgspec.DecodeError):  # of another version
            plans.restore(record.name, msgspec.json.decode(record.value, type=KeptPlan))
    if old:
        with suppress(StoreError):
            store.write(SCOPE, [SettingRecord(record.name, REMOVED, now) for record in old])
