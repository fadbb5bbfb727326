"""What the status line is told: of plans and dollars, of requests that end late, and of questions beside the work."""

import time
from dataclasses import dataclass

import msgspec
import pytest

from callstack_proxy.management.api.status_line import PAGE, StatusLines
from proxy.accounting import PlanCost, Receipt
from proxy.core.ledger import Conversation
from proxy.store.interface import RequestRecord
from proxy.store.memory import MemoryStore
from tests.management.api.small_ledger import records_of

pytestmark = pytest.mark.rows("X-69")


@dataclass
class Day:
    """A store with requests of today, and the status lines of one process."""

    store: MemoryStore
    lines: StatusLines
    usual: RequestRecord
    began: int

    def asked(self, number: int, **receipt: object) -> None:
        """Request `number` as it stands now, each a millisecond younger; without a receipt it is under way."""
        name, created = f"request{number:04}", self.began + number
        kept = msgspec.structs.replace(
            msgspec.json.decode(self.usual.receipt, type=Receipt), id=name, created=created, **receipt
        )
        told = msgspec.json.encode(kept) if receipt else b"{}"
        request = msgspec.structs.replace(self.usual, id=name, created=created, receipt=told)
        self.store.write("local", [request])

    async def told(self, session: str = "") -> dict[str, object]:
        return {**await self.lines.view(self.store, "local", session)}


@pytest.fixture
def day() -> Day:
    store, (records, _) = MemoryStore(), records_of("local", "a")
    store.write("local", [record for record in records if not isinstance(record, RequestRecord)])
    return Day(
        store,
        StatusLines(),
        next(record for record in records if isinstance(record, RequestRecord)),
        time.time_ns() // 1_000_000,
    )


async def test_what_a_plan_paid_for_is_told_by_what_it_weighs_and_not_by_list_prices(day: Day) -> None:
    day.asked(0, saved=0.36, cost_untouched=1.0, plan=PlanCost(0.75, 1.0, 0.0, 0.0, 1.0, 1.0, 0))
    day.asked(1, saved=0.25, cost_untouched=0.5)

    told = await day.told()

    assert (told["saved"], told["untouched"]) == (0.25, 0.5)
    assert (told["plan_saved"], told["plan_untouched"]) == (0.25, 1.0)


@pytest.mark.parametrize("newer", [1, PAGE + 1])
async def test_a_request_that_ends_after_newer_ones_counts_today(day: Day, newer: int) -> None:
    day.asked(0)
    for number in range(1, newer):
        day.asked(number, saved=0.0)
    day.asked(newer)
    assert (await day.told())["saved"] == 0

    day.asked(0, saved=0.5)
    if newer > 1:  # so many have begun since: the next one that ends tells of it
        day.asked(newer, saved=0.25)

    assert (await day.told())["saved"] == (0.5 if newer == 1 else 0.75)


async def test_a_question_beside_the_work_says_nothing_of_the_context(day: Day) -> None:
    day.asked(0, tokens_in=100_000, tokens_last=40_000)
    day.asked(1, tokens_in=840, tokens_last=840, status="side")

    told = await day.told()

    assert (told["tokens_sent"], told["tokens_in"]) == (40_000, 100_000)


async def test_what_a_session_saved_is_told_apart_with_what_it_delegated(day: Day) -> None:
    ours, delegated = Conversation("ours", "local", hint="s"), Conversation("delegated", "local", parent="ours")
    day.store.write("local", [ours, delegated, Conversation("other", "local")])
    for number, conversation in enumerate(("ours", "delegated", "other")):
        day.usual = msgspec.structs.replace(day.usual, conversation=conversation)
        day.asked(number, saved=0.25 * (number + 1), cost_untouched=1.0)

    told = await day.told("s")

    assert (told["saved"], told["untouched"]) == (1.5, 3.0)
    assert (told["session_saved"], told["session_untouched"]) == (0.75, 2.0)
    assert (await day.told("never seen"))["session_untouched"] == 0
