"""When the budget of a key is spent, and when it begins anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta, timezone
from typing import Literal

import pytest
from msgspec.structs import replace

from proxy.auth import (
    BudgetChecks,
    CostEstimate,
    LimitedRequest,
    UsageLimits,
    check_countable,
    check_models,
    days_since_1970,
    period_at,
)
from proxy.errors import BudgetReserved, BudgetSpent, BudgetUnknown, ModelNotAllowed, NotCounted, ProxyError, StoreError
from proxy.store import UsageRecord
from proxy.store.memory import MemoryStore

NOW = datetime(2026, 2, 28, 23, 0, tzinfo=UTC)


async def check(
    limits: UsageLimits,
    *used: UsageRecord,
    at: datetime = NOW,
    store: MemoryStore | None = None,
    estimate: CostEstimate | None = None,
) -> ProxyError | None:
    """The refusal of a request, or None."""
    store = store or MemoryStore()
    store.write("key-ana", used)
    try:
        await BudgetChecks(store, lambda: int(at.timestamp() * 1000)).reserve("key-ana", limits, estimate)
    except ProxyError as error:
        return error
    return None


def model_error(limits: UsageLimits, method: str, path: str, body: object = None, query: bytes = b"") -> str:
    """Why a list of models refuses a request; empty where it passes."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    try:
        check_models(limits, LimitedRequest(method, path, query, raw), "key")
    except ModelNotAllowed as error:
        return str(error)
    return ""


def count_error(limits: UsageLimits, method: str, path: str, body: object = None) -> str:
    """Why a budget refuses a request that cannot be counted; empty where it passes."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    try:
        check_countable(limits, LimitedRequest(method, path, b"", raw), "key")
    except NotCounted as error:
        return str(error)
    return ""


def day(moment: datetime) -> int:
    return days_since_1970(moment)


@pytest.mark.parametrize(
    ("moment", "per", "begins", "ends"),
    [
        (NOW, "day", "2026-02-28", "2026-03-01"),
        (NOW, "month", "2026-02-01", "2026-03-01"),
        (datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC), "month", "2026-12-01", "2027-01-01"),
        (datetime(2026, 3, 1, 1, 0, tzinfo=timezone(timedelta(hours=3))), "day", "2026-02-28", "2026-03-01"),
    ],
)
def test_a_period_is_a_day_or_a_calendar_month_in_utc(moment: datetime, per: str, begins: str, ends: str) -> None:
    found = period_at(moment, "day" if per == "day" else "month")
    assert [each.date().isoformat() for each in found] == [begins, ends]
    assert {each.timetz().isoformat() for each in found} == {"00:00:00+00:00"}


async def test_only_what_was_used_in_the_period_counts() -> None:
    yesterday = UsageRecord(day(NOW) - 1, cost=4.0)
    assert await check(UsageLimits(usd=5, per="day"), yesterday, UsageRecord(day(NOW), cost=4.0)) is None
    refused = await check(UsageLimits(usd=5), yesterday, UsageRecord(day(NOW), cost=4.0))

    assert isinstance(refused, BudgetSpent)
    assert refused.retry_after_s == 3600
    assert "$8.00 of $5.00 a month. It begins anew on 2026-03-01" in str(refused)
    assert await check(UsageLimits(usd=5), yesterday, at=NOW + timedelta(hours=2)) is None


def test_small_budgets_are_told_in_digits_that_count() -> None:
    told = [UsageLimits(usd=usd).describe() for usd in (1234.5, 0.01, 0.0025)]
    assert told == ["$1,234.50 a month", "$0.01 a month", "$0.0025 a month"]


async def test_either_budget_ends_it() -> None:
    used = UsageRecord(day(NOW), tokens=100, cost=1.0)
    assert await check(UsageLimits(usd=2, tokens=101), used) is None
    assert isinstance(await check(UsageLimits(usd=2, tokens=100), used), BudgetSpent)
    assert isinstance(await check(UsageLimits(usd=1, tokens=101), used), BudgetSpent)


LISTED = UsageLimits(models=("gpt-x", "claude-*"))
CHAT = "/v1/chat/completions"
HELLO = {"model": "gpt-x", "messages": [{"role": "user", "content": "hello"}]}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("GET", "/v1/models/gpt-x"),
        ("GET", "/v1/models/org/gpt-x"),
        ("GET", "/v1/models/org%2Fgpt-x"),
        ("DELETE", "/v1/responses/r1"),
        ("GET", "/v1/responses/r1/input_items"),
        ("POST", "/v1/responses/r1/cancel"),
        ("POST", "/v1/messages/batches/b1/cancel"),
    ],
)
def test_looking_and_clearing_away_are_free(method: str, path: str) -> None:
    assert not model_error(LISTED, method, path)
    assert not count_error(UsageLimits(tokens=1), method, path)


@pytest.mark.rows("X-58")
@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses", "/v1/embeddings", "/v1/messages/count_tokens"])
def test_a_model_is_named_whole_or_by_a_pattern(path: str) -> None:
    for model in ("gpt-x", "claude-opus-4-8"):
        assert not model_error(LISTED, "POST", path, HELLO | {"model": model})
    others: list[object] = ["gpt-x2", "GPT-X", None, ["gpt-x"], {"name": "gpt-x"}]
    for other in others:
        assert model_error(LISTED, "POST", path, HELLO | {"model": other})


ALLOWED_BODIES = [
    HELLO | {"a_number_of_theirs": 1, "a_switch": True, "nothing": None},
    HELLO | {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"model": {}}}}}]},
    HELLO | {"tools": [{"name": "run", "input_schema": {"properties": {"model": {"const": "gpt-9"}}}}]},
    HELLO | {"tools": [{"type": "web_search"}, {"type": "image_generation", "model": "gpt-x"}]},
    HELLO | {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}]},
    HELLO | {"messages": [{"role": "user", "content": '{"model": "gpt-9", "models": []}'}]},
    HELLO | {"metadata": {"model": "gpt-9"}, "prompt": "words"},
    HELLO | {"provider": {"allow_fallbacks": True}, "chat_template_kwargs": {"model_identity": "You are a cook."}},
    HELLO | {"input": [{"type": "additional_tools", "tools": [{"type": "web_search"}, {"type": "local_shell"}]}]},
]


@pytest.mark.rows("X-58")
@pytest.mark.parametrize("body", ALLOWED_BODIES, ids=range(len(ALLOWED_BODIES)))
def test_what_names_no_other_model_passes(body: object) -> None:
    assert not model_error(LISTED, "POST", CHAT, body)


REFUSED_BODIES: list[object] = [
    HELLO | {"models": ["gpt-9"]},
    HELLO | {"models": ["gpt-x"], "route": "fallback"},
    HELLO | {"route": "fallback"},
    HELLO | {"fallbacks": [{"model": "gpt-9"}]},
    HELLO | {"extra_body": {"model": "gpt-9"}},
    HELLO | {"plugins": [{"id": "auto-router"}]},
    HELLO | {"Model": "gpt-9"},
    HELLO | {"MODEL": 1},
    HELLO | {"model ": "gpt-9"},
    HELLO | {"Models": ["gpt-9"]},
    HELLO | {"a_word_of_theirs": "gpt-9"},
    HELLO | {"reasoning": {"model": "gpt-9"}},
    HELLO | {"context_management": {"edits": [{"type": "compact", "model": "gpt-9"}]}},
    HELLO | {"prompt": {"id": "pmpt_1"}},
    HELLO | {"tools": [{"type": "image_generation"}]},
    HELLO | {"tools": [{"type": "image_generation", "model": "gpt-image"}]},
    HELLO | {"tools": [{"type": "advisor_20260301", "name": "advisor", "model": "gpt-9"}]},
    HELLO | {"tools": [{"type": "agent", "options": {"Model": "gpt-9"}}]},
    HELLO | {"tools": [{"type": "openrouter:fusion"}]},
    HELLO | {"tools": [{"type": "openrouter:fusion", "parameters": {"analysis_models": ["gpt-9"]}}]},
    HELLO | {"provider": {"fallbackModel": "gpt-9"}},
    HELLO | {"extra_headers": {"x-model": "gpt-9"}},
    HELLO | {"input": [{"type": "additional_tools", "tools": [{"type": "image_generation"}]}]},
    HELLO | {"messages": [{"role": "system", "content": [{"tool": {"definition": {"type": "advisor"}}}]}]},
    HELLO | {"tools": [{"type": "namespace", "tools": [{"type": "image_generation", "model": "gpt-image"}]}]},
    b'{"model":"gpt-9","messages":[],"model":"gpt-x"}',
    b'{"model":"gpt-x","messages":[],"mod\\u0065l":"gpt-9"}',
    b'{"model":"gpt-x","tools":[{"type":"image_generation","model":"gpt-9","model":"gpt-x"}]}',
    b'{"model":"gpt-x","tools":[{"type":"image_generation","type":"function","model":"gpt-9"}]}',
    b'["gpt-x"]',
    b"\xef\xbb\xbf{}",
    b"not json",
    b"",
]


@pytest.mark.rows("X-58")
@pytest.mark.parametrize("body", REFUSED_BODIES, ids=range(len(REFUSED_BODIES)))
def test_what_may_reach_another_model_is_refused_and_says_why(body: object) -> None:
    told = model_error(LISTED, "POST", CHAT, body)
    assert "may ask for gpt-x, claude-*" in told
    assert "callstack key limit" in told


@pytest.mark.rows("X-58")
@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("POST", "/v1/batches", b""),
        ("POST", "/v1/messages/batches", b""),
        ("POST", "/v1/images/generations", b""),
        ("POST", "/v1/images/generations/cancel", b""),
        ("POST", "/v1/chat/completions/x/cancel", b""),
        ("POST", "/v1/audio/chat/completions", b""),
        ("POST", "/openai/deployments/gpt-9/chat/completions", b"api-version=1"),
        ("POST", "/openai/deployments/gpt-9/embeddings", b""),
        ("POST", "/v1/engines/gpt-9/completions", b""),
        ("POST", "/v1/chat/complet%69ons", b""),
        ("POST", "/v1/CHAT/completions", b""),
        ("POST", CHAT, b"model=gpt-9"),
        ("POST", CHAT, b"x=1&Model=gpt-9"),
        ("POST", CHAT, b"model[]=gpt-9"),
        ("POST", CHAT, b"a=b;deployment-id=gpt-9"),
        ("PUT", CHAT, b""),
        ("PATCH", "/v1/responses/r1/cancel", b""),
        ("GET", CHAT, b""),
        ("DELETE", CHAT, b""),
        ("OPTIONS", "/v1/responses/r1", b""),
        ("GET", "/v1/models", b""),
    ],
)
def test_a_decoy_in_the_body_does_not_help_on_other_paths_and_methods(method: str, path: str, query: bytes) -> None:
    assert model_error(LISTED, method, path, HELLO, query)


@pytest.mark.rows("X-58")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-model", "gpt-9"),
        ("helicone-model-override", "gpt-9"),
        ("x-portkey-config", '{"override": {"model": "gpt-9"}}'),
    ],
)
def test_a_header_by_which_a_gateway_takes_another_model_is_refused(name: str, value: str) -> None:
    for said, is_refused in ((value, True), (value.replace("gpt-9", "gpt-x"), False)):
        headers = [(name.encode(), said.encode()), (b"x-turn-metadata", b'{"turn": 1}')]
        asked = LimitedRequest("POST", CHAT, b"", json.dumps(HELLO).encode(), headers)
        with pytest.raises(ModelNotAllowed) if is_refused else nullcontext():
            check_models(LISTED, asked, "key")


@pytest.mark.rows("X-57")
def test_only_a_bound_that_its_api_knows_is_one() -> None:
    """What a provider ignores bounds nothing."""

    def bound(path: str, **members: object) -> int | None:
        return LimitedRequest("POST", path, b"", json.dumps(members).encode()).most_output

    known = {
        CHAT: {"max_tokens", "max_completion_tokens"},
        "/v1/messages": {"max_tokens"},
        "/v1/responses": {"max_output_tokens"},
    }
    names = {"max_tokens", "max_completion_tokens", "max_output_tokens"}
    for path, members in known.items():
        assert {name for name in names if bound(path, **{name: 5}) == 5} == members
        assert not any(bound(path, **{name: True}) for name in names)


@pytest.mark.rows("X-57")
def test_answers_are_counted_however_their_number_is_written() -> None:
    for written in (60, 60.0, "60"):
        assert LimitedRequest("POST", CHAT, b"", json.dumps({"n": written}).encode()).answer_count == 60
    odd: object
    for odd in (None, True, [], "many", "inf"):
        assert LimitedRequest("POST", CHAT, b"", json.dumps({"n": odd}).encode()).answer_count == 1


@pytest.mark.rows("X-57")
def test_a_dearer_way_of_answering_is_refused_under_a_budget_in_usd() -> None:
    for dearer in ({"service_tier": "priority"}, {"speed": "fast"}):
        assert "leave it out" in count_error(UsageLimits(usd=1.0), "POST", CHAT, HELLO | dearer)
        assert not count_error(UsageLimits(tokens=1), "POST", CHAT, HELLO | dearer)
    assert not count_error(UsageLimits(usd=1.0), "POST", CHAT, HELLO | {"service_tier": "auto", "speed": None})


@pytest.mark.rows("X-58")
def test_on_a_deployment_path_both_names_count() -> None:
    path = "/openai/deployments/gpt-x/chat/completions"
    assert not model_error(LISTED, "POST", path, HELLO)
    assert model_error(LISTED, "POST", path, HELLO | {"model": "claude-opus-4-8"})


@pytest.mark.rows("X-58")
def test_looking_where_a_model_might_answer_is_refused() -> None:
    assert model_error(LISTED, "GET", "/v1/prompt/hello")
    assert model_error(LISTED, "GET", "/v1/models", query=b"model=gpt-9")


@pytest.mark.rows("X-57")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/batches"),
        ("POST", "/v1/messages/batches"),
        ("POST", "/v1/images/generations"),
        ("POST", "/v1/images/generations/cancel"),
        ("POST", "/v1/audio/speech/count_tokens/cancel"),
        ("POST", "/v1/unknown/count_tokens"),
        ("GET", CHAT),
        ("HEAD", CHAT),
        ("DELETE", CHAT),
        ("OPTIONS", "/v1/responses"),
        ("PUT", CHAT),
    ],
)
def test_what_nobody_could_count_is_refused_under_a_budget(method: str, path: str) -> None:
    assert "cannot be counted here" in count_error(UsageLimits(tokens=1), method, path, HELLO)


@pytest.mark.rows("X-57")
def test_a_member_that_is_read_in_two_ways_is_refused_under_a_budget() -> None:
    limits = UsageLimits(usd=1.0)
    assert not count_error(limits, "POST", CHAT, HELLO | {"a_word_of_theirs": "fine"})
    assert count_error(limits, "POST", CHAT, b'{"model":"a","max_tokens":9,"max_tokens":99999}')
    assert count_error(limits, "POST", CHAT, HELLO | {"Max_Tokens": 99})
    assert count_error(limits, "POST", CHAT, HELLO | {"models": ["dearer"]})


@pytest.mark.rows("X-57")
async def test_what_is_under_way_takes_its_room_until_it_is_over() -> None:
    limits, budgets = UsageLimits(tokens=10_000), BudgetChecks(MemoryStore(), lambda: int(NOW.timestamp() * 1000))
    first = await budgets.reserve("key-ana", limits, CostEstimate(6_000, 0.0))
    with pytest.raises(BudgetReserved) as refused:
        await budgets.reserve("key-ana", limits, CostEstimate(6_000, 0.0))
    assert refused.value.retry_after_s == 1
    await budgets.reserve("key-bob", limits, CostEstimate(6_000, 0.0))
    budgets.release(first)
    await budgets.reserve("key-ana", limits, CostEstimate(6_000, 0.0))


@pytest.mark.rows("X-57")
async def test_a_request_that_names_its_bound_must_fit_and_one_that_names_none_takes_the_rest() -> None:
    used = UsageRecord(day(NOW), tokens=900)
    limits = UsageLimits(tokens=1_000)
    refused = await check(limits, used, estimate=CostEstimate(101, 0.0, is_bounded=True))
    assert "may cost 101 tokens" in str(refused)
    assert "100 of 1,000 tokens a month are left" in str(refused)
    assert await check(limits, used, estimate=CostEstimate(100, 0.0, is_bounded=True)) is None
    assert await check(limits, used, estimate=CostEstimate(32_000, 0.0)) is None
    assert isinstance(await check(UsageLimits(usd=1), estimate=CostEstimate(1, 1.01, is_bounded=True)), BudgetSpent)


@pytest.mark.rows("X-57")
async def test_without_a_bound_there_must_be_room_for_its_input_and_for_what_requests_take() -> None:
    limits = UsageLimits(tokens=1_000, usd=1)
    used = UsageRecord(day(NOW), requests=3, tokens=900, cost=0.6)

    async def told(estimate: CostEstimate, used: UsageRecord = used) -> str:
        refused = await check(limits, used, estimate=estimate)
        assert refused is None or isinstance(refused, BudgetSpent)
        return str(refused or "")

    assert "may cost 300 tokens (it names no bound" in await told(CostEstimate(32_000, 0.5))
    assert "Name max_tokens, so that it is known to fit" in await told(CostEstimate(32_000, 0.5))
    assert "may cost 101 tokens" in await told(CostEstimate(101, 0.5))  # no model writes more
    assert not await told(CostEstimate(100, 0.5))
    few = replace(used, requests=10)
    assert not await told(CostEstimate(32_000, 0.5), few)
    assert "may cost 101 tokens" in await told(CostEstimate(32_000, 0.5, input_tokens=101), few)
    assert "may cost $0.41" in await told(CostEstimate(32_000, 0.5, input_usd=0.41), few)
    assert not await told(CostEstimate(1_000_000, 100.0, input_tokens=999), UsageRecord(day(NOW)))


@pytest.mark.rows("X-57")
async def test_what_ends_while_the_budget_is_read_is_not_missed() -> None:
    """Its reservation is gone, and what it used is not in what was read before."""
    limits, store = UsageLimits(tokens=10_000), EndingStore()
    budgets = BudgetChecks(store, lambda: int(NOW.timestamp() * 1000))
    under_way = await budgets.reserve("key-ana", limits, CostEstimate(6_000, 0.0))

    def end() -> None:
        store.write("key-ana", [UsageRecord(day(NOW), tokens=10_000)])
        budgets.release(under_way)

    store.behind_a_read = end
    with pytest.raises(BudgetSpent):
        await budgets.reserve("key-ana", limits, CostEstimate(1_000, 0.0))


@pytest.mark.rows("X-57")
async def test_a_further_round_reserves_what_the_rounds_before_it_used_and_what_it_may_cost() -> None:
    """Its own reservation is no room that others take; what others reserved is."""
    limits, budgets = UsageLimits(tokens=30_000), BudgetChecks(MemoryStore(), lambda: int(NOW.timestamp() * 1000))
    asking = await budgets.reserve("key-ana", limits, CostEstimate(9_000, 0.0, is_bounded=True))
    other = await budgets.reserve("key-ana", limits, CostEstimate(10_000, 0.0, is_bounded=True))

    await budgets.extend(asking, CostEstimate(8_000, 0.0), CostEstimate(12_000, 0.0, is_bounded=True))
    with pytest.raises(BudgetReserved):
        await budgets.reserve("key-ana", limits, CostEstimate(2_000, 0.0, is_bounded=True))
    for spent, bound in (8_001, True), (8_001, False), (20_000, False):
        with pytest.raises(BudgetSpent):
            await budgets.extend(asking, CostEstimate(spent, 0.0), CostEstimate(12_000, 0.0, bound, 12_000))
    assert asking.tokens == 20_000

    budgets.release(other)
    await budgets.extend(asking, CostEstimate(17_000, 0.0), CostEstimate(50_000, 0.0, input_tokens=12_000))
    assert asking.tokens == 30_000  # the rest: it names no bound


class EndingStore(MemoryStore):
    """A request ends between the read and the check."""

    def __init__(self) -> None:
        super().__init__()
        self.behind_a_read: Callable[[], None] | None = None

    async def usage_days(self, tenant: str | None, since: int = 0) -> tuple[tuple[str, UsageRecord], ...]:
        found = await super().usage_days(tenant, since)
        if self.behind_a_read is not None:
            then, self.behind_a_read = self.behind_a_read, None
            then()
        return found


class UnreadableStore(MemoryStore):
    """A mock: a real database fails to read in `tests/store`, and here it matters only that it does."""

    async def usage_days(self, tenant: str | None, since: int = 0) -> tuple[tuple[str, UsageRecord], ...]:
        raise StoreError("the disk is gone", code="store_unreachable")


async def test_where_nobody_can_say_what_was_spent_a_budget_admits_nothing() -> None:
    refused = await check(UsageLimits(usd=5), store=UnreadableStore())
    assert isinstance(refused, BudgetUnknown)
    assert refused.status == 503


@pytest.mark.rows("X-57")
@pytest.mark.parametrize("per", ["day", "month"])
async def test_a_clock_that_jumps_there_and_back_spends_no_budget_twice(per: Literal["day", "month"]) -> None:
    """A12: what was used while it was an hour ahead, in the next day and month, counts when it is right again, and when
    that time comes."""
    clock, store, limits = [NOW], MemoryStore(), UsageLimits(tokens=1_000, per=per)
    budgets = BudgetChecks(store, lambda: int(clock[0].timestamp() * 1000))

    async def spend(tokens: int) -> None:
        reservation = await budgets.reserve("key-ana", limits, CostEstimate(tokens, 0.0, is_bounded=True))
        store.write("key-ana", [UsageRecord(budgets.today(), 1, tokens)])
        budgets.release(reservation)

    clock[0] = NOW + timedelta(hours=1)
    await spend(1_000)
    for moment in (NOW, NOW - timedelta(hours=1), NOW + timedelta(hours=1)):
        clock[0] = moment
        with pytest.raises(BudgetSpent):
            await spend(1)
    clock[0] = NOW + timedelta(days=40)
    await spend(1_000)
