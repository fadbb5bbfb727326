"""Plans that are paid by window: what their headers say, and the weights read out of how they move."""

import random

import msgspec
import pytest
from msgspec.structs import replace

from proxy.accounting.plans.plan_accounts import MAX_ACCOUNTS, KeptPlan, PlanAccounts
from proxy.accounting.plans.plan_weights import (
    NOTHING_MEASURED,
    ListUse,
    PlanWeights,
    WindowRecord,
    fit_scale,
    fit_weights,
    list_use,
    plan_tariff,
)
from proxy.accounting.plans.plan_window import WindowReading, read_windows
from proxy.accounting.tariff import Tariff
from proxy.core.ledger import Usage

pytestmark = pytest.mark.rows("X-63")

CLAUDE = [
    (b"anthropic-ratelimit-unified-status", b"allowed"),
    (b"anthropic-ratelimit-unified-5h-utilization", b"0.42"),
    (b"anthropic-ratelimit-unified-5h-reset", b"1790814600"),
    (b"anthropic-ratelimit-unified-5h-status", b"allowed_warning"),
    (b"anthropic-ratelimit-unified-7d-utilization", b"0.1"),
    (b"anthropic-ratelimit-unified-overage-status", b"rejected"),
]
CODEX = [
    (b"x-codex-primary-used-percent", b"12.5"),
    (b"x-codex-primary-window-minutes", b"300"),
    (b"x-codex-primary-reset-at", b"1704069000"),
    (b"x-codex-secondary-used-percent", b"3"),
    (b"x-codex-secondary-window-minutes", b"10079"),
    (b"x-codex-secondary-reset-after-seconds", b"60"),
]
ROW = Tariff(("claude-x",), input=3.0, output=15.0, read=0.1, write=1.25)


def test_given_the_headers_of_a_claude_login_when_read_then_both_windows_are_told() -> None:
    five, week = read_windows(CLAUDE, 0)
    assert (five.name, five.used, five.resets_at, five.status) == ("5h", 0.42, 1790814600, "allowed_warning")
    assert (week.name, week.used, week.resets_at) == ("7d", 0.1, 0)


def test_given_the_headers_of_a_codex_login_when_read_then_windows_have_the_length_that_is_told() -> None:
    five, week = read_windows(CODEX, 1_000)
    assert (five.name, five.used, five.resets_at) == ("5h", 0.125, 1704069000)
    assert (week.name, week.used, week.resets_at) == ("7d", 0.03, 1_060)


@pytest.mark.parametrize("said", [b"", b"nan", b"inf", b"-1", b"much"])
def test_given_a_value_that_is_no_share_when_read_then_only_its_window_is_left_out(said: bytes) -> None:
    odd = [(name, said if b"5h-utilization" in name else value) for name, value in CLAUDE]
    assert [reading.name for reading in read_windows(odd, 0)] == ["7d"]


def test_given_an_answer_paid_by_the_token_when_read_then_it_tells_no_window() -> None:
    assert read_windows([(b"anthropic-ratelimit-requests-remaining", b"9"), (b"x-codex-plan-type", b"plus")], 0) == ()


def test_given_usage_when_summed_at_list_prices_then_only_cached_tokens_count_as_fresh_ones() -> None:
    use = list_use(Usage(1_000_000, 100_000, 600_000, 300_000, 100_000), ROW)
    assert use.as_vector == pytest.approx((0.3, 1.8, 2 * 0.1 * 3 + 1.25 * 0.2 * 3, 1.5))


def test_given_no_measurement_when_a_plan_is_priced_then_cached_tokens_gain_nothing_when_they_leave() -> None:
    row = plan_tariff(ROW, NOTHING_MEASURED)
    assert 0 <= row.read <= 1 / 70
    assert (row.write, row.output) == (ROW.write, ROW.output)
    assert plan_tariff(ROW, NOTHING_MEASURED, cautious=True).read == 0


# ------------------------------------------------------------------------------------------------------------------ fit
REQUESTS = 30
HIDDEN = {
    "reads free": (1.0, 0.0, 1.0, 1.0),
    "a seventieth": (1.0, 1 / 70, 1.0, 1.0),
    "a fiftieth": (1.0, 0.02, 1.2, 0.8),
    "as listed": (1.0, 0.1, 1.0, 1.0),
    "answers dear": (1.0, 0.05, 0.8, 2.0),
    "writes dear": (1.0, 0.1, 1.8, 0.7),
}


def weigh(weights: PlanWeights, use: ListUse) -> float:
    return sum(weight * used for weight, used in zip(weights.four, use.as_vector, strict=True))


def well_told(found: PlanWeights) -> set[str]:
    """Which of the four the readings tell apart: their error is at most a twentieth."""
    errors = (found.fresh_error, found.read_error, found.write_error, found.output_error)
    told = zip(("fresh", "read", "write", "output"), found.four, errors, strict=True)
    return {name for name, weight, error in told if error <= 0.05 * weight}


def session(seed: int, *, heavy: bool = True) -> list[ListUse]:
    """What 30 requests of several conversations use, in USD. Short, cold, long and talkative ones come in no order."""
    draw, uses = random.Random(seed), []
    for _ in range(REQUESTS):
        kind = draw.choice(("read", "write", "answer", "fresh"))
        amount = draw.uniform(0.4, 1.0)
        read = draw.uniform(20, 60) if heavy and kind == "read" else draw.uniform(0, 1)
        uses.append(
            ListUse(
                amount if kind == "fresh" else 0.02,
                read,
                amount if kind == "write" else 0.1,
                amount if kind == "answer" else 0.1,
            )
        )
    return uses


def record(
    uses: list[ListUse], weights: PlanWeights, share: float, *, counts_itself: bool, whole: bool = False, jump: int = -1
) -> list[WindowRecord]:
    """What the headers say when all of it takes `share` of a window: two decimals, with a reset when it is full."""
    unit, used, resets_at, records = share / sum(weigh(weights, use) for use in uses), 0.003, 10_000, []
    for number, use in enumerate(uses):
        taken = weigh(weights, use) * unit
        used += 0.2 if number == jump else 0.0
        if used + taken > 1:
            used, resets_at = 0.0, resets_at + 18_000
        told = used + taken if counts_itself else used
        told = int(told * 100) / 100 if whole else round(told, 2)
        records.append(WindowRecord(use, WindowReading("5h", told, resets_at)))
        used += taken
    return records


def unit_of(uses: list[ListUse], weights: PlanWeights, share: float) -> float:
    return share / sum(weigh(weights, use) for use in uses)


@pytest.mark.parametrize("counts_itself", [False, True])
@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
def test_given_thirty_requests_when_weights_are_fitted_then_they_are_within_a_tenth(
    hidden: tuple[float, float, float, float], *, counts_itself: bool
) -> None:
    weights, known = PlanWeights(*hidden), 0
    for seed in range(6):
        uses = session(seed)
        found = fit_weights(record(uses, weights, 2.4, counts_itself=counts_itself, whole=seed % 2 == 1))
        unit = unit_of(uses, weights, 2.4)
        told = (found.fresh, found.read, found.write, found.output)
        assert found.rounds == REQUESTS
        for name, wanted, got in zip(("fresh", "read", "write", "output"), hidden, told, strict=True):
            if name in well_told(found):
                assert got / unit == pytest.approx(wanted, rel=0.1), (name, seed)
        known += len(well_told(found))
        assert found.read / unit == pytest.approx(hidden[1], rel=0.1, abs=0.002)
    assert known >= 6 * (3 if hidden[1] else 2.5)


def test_given_requests_that_do_not_tell_kinds_apart_when_fitted_then_the_error_says_so() -> None:
    weights = PlanWeights(1.0, 0.02, 1.2, 0.8)
    for seed in range(6):
        uses = session(seed, heavy=False)
        found = fit_weights(record(uses, weights, 0.5, counts_itself=False))
        unit = unit_of(uses, weights, 0.5)
        assert found.read_error > 0.1 * found.read
        assert abs(found.read - 0.02 * unit) < 4 * found.read_error
        assert found.cautious_read_ratio < 0.02


def test_given_somebody_else_on_the_same_plan_when_fitted_then_a_jump_of_theirs_changes_little() -> None:
    weights, uses = PlanWeights(1.0, 0.1, 1.0, 1.0), session(3)
    found = fit_weights(record(uses, weights, 0.7, counts_itself=False, jump=12))
    unit = unit_of(uses, weights, 0.7)
    assert (found.write, found.output) == pytest.approx((unit, unit), rel=0.15)


@pytest.mark.parametrize("share", [0.0, 0.02])
def test_given_a_window_that_hardly_moves_when_fitted_then_nothing_is_claimed(share: float) -> None:
    uses = session(1)
    assert fit_weights(record(uses, PlanWeights(), share, counts_itself=False)) == NOTHING_MEASURED
    assert fit_weights([]) == NOTHING_MEASURED


def test_given_rounds_without_usage_when_fitted_then_what_they_moved_is_nobodys() -> None:
    weights, uses = PlanWeights(1.0, 0.1, 1.0, 1.0), session(2)
    records = record(uses, weights, 1.8, counts_itself=True)
    records[11] = WindowRecord(None, records[11].reading)
    found = fit_weights(records)
    assert found.write / unit_of(uses, weights, 1.8) == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("counts_itself", [False, True])
def test_given_somebody_else_on_the_same_plan_when_a_window_is_sized_then_their_jump_is_left_out(
    *, counts_itself: bool
) -> None:
    """The week moves by its jump and little else; what a token weighs comes from the window of 5 hours."""
    weights, uses = PlanWeights(1.0, 0.1, 1.0, 1.0), session(3)
    told = fit_weights(record(uses, weights, 2.4, counts_itself=counts_itself))
    scale, error = fit_scale(record(uses, weights, 0.2, counts_itself=counts_itself, jump=12), told)
    assert told.counts_itself is counts_itself
    assert scale == pytest.approx(unit_of(uses, weights, 0.2), rel=0.1)
    assert 0 < error < 0.1 * scale


def test_given_a_window_that_only_somebody_else_moved_when_sized_then_nothing_is_claimed() -> None:
    uses = session(1)
    assert fit_scale(record(uses, PlanWeights(), 0.02, counts_itself=False, jump=12), PlanWeights()) == (0.0, 0.0)
    assert fit_scale([], PlanWeights()) == (0.0, 0.0)


@pytest.mark.parametrize("counts_itself", [False, True])
def test_given_a_round_without_usage_when_a_window_is_sized_then_the_cut_is_where_its_use_shows(
    *, counts_itself: bool
) -> None:
    weights, uses = PlanWeights(1.0, 0.1, 1.0, 1.0, counts_itself=counts_itself), [ListUse(fresh=1.0)] * REQUESTS
    for number in range(4, REQUESTS, 5):
        uses[number] = ListUse(fresh=3.0)
    records = record(uses, weights, 0.6, counts_itself=counts_itself)
    for number in range(4, REQUESTS, 5):
        records[number] = WindowRecord(None, records[number].reading)
    assert fit_scale(records, weights)[0] == pytest.approx(unit_of(uses, weights, 0.6), rel=0.1)


# ------------------------------------------------------------------------------------------------------------- accounts
def login(token: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer sk-ant-oat01-" + token)]


def test_given_a_login_token_that_is_replaced_when_an_answer_names_the_account_then_its_weights_stay() -> None:
    plans, weights = PlanAccounts(), PlanWeights(1.0, 0.1, 1.0, 1.0)
    told = [(entry.use, (entry.reading,)) for entry in record(session(2), weights, 1.8, counts_itself=False)]

    plans.learn(login(b"old"), b"organization", told)
    new = plans.account_of(login(b"new"))
    assert plans.state(new).weights == NOTHING_MEASURED
    paying = [plans.paying(login(token), b"organization", tells_windows=True) for token in (b"old", b"new")]
    assert paying[0]
    assert paying[1]
    assert paying[0].account == paying[1].account != ""
    plans.learn(login(b"new"), b"organization", told[:1])

    state = plans.state(plans.account_of(login(b"new")))
    assert state == plans.state(plans.account_of(login(b"old")))
    assert state.weights.rounds >= 25
    assert state.windows[0].scale == pytest.approx(unit_of(session(2), weights, 1.8), rel=0.1)


@pytest.mark.parametrize(
    ("headers", "is_plan"),
    [
        (login(b"x"), True),
        ([(b"authorization", b"Bearer eyJh.eyJz.sig"), (b"chatgpt-account-id", b"1-2")], True),
        ([(b"authorization", b"Bearer sk-proj-x")], False),
        ([(b"x-api-key", b"sk-ant-api03-x")], False),
        ([(b"chatgpt-account-id", b"1-2")], False),
        ([], False),
    ],
)
def test_given_what_a_request_carries_when_asked_then_a_login_is_a_plan_and_a_key_is_none(
    headers: list[tuple[bytes, bytes]], *, is_plan: bool
) -> None:
    plans = PlanAccounts()
    assert bool(plans.account_of(headers)) is is_plan
    row = plans.gate_row(plans.account_of(headers), ROW)
    assert row.read == (0.0 if is_plan else ROW.read)


def test_given_many_accounts_when_learned_then_the_oldest_are_forgotten() -> None:
    plans = PlanAccounts()
    for number in range(MAX_ACCOUNTS + 1):
        plans.learn([(b"authorization", b"Bearer %d" % number)], b"", [(ListUse(), (WindowReading("5h", 0.1),))])
    assert not plans.account_of([(b"authorization", b"Bearer 0")])
    assert plans.account_of([(b"authorization", b"Bearer 7")])


# ----------------------------------------------------------------------------------------------------------------- kept
LOGIN = [(b"authorization", b"Bearer sk-ant-oat01-a")]


def answered(number: int) -> tuple[ListUse, tuple[WindowReading, ...]]:
    """A round that takes 4 % of a window and says so."""
    return ListUse(fresh=0.04), (WindowReading("5h", round(0.04 * number, 2)), WindowReading("7d", 0.0))


def test_given_what_was_kept_when_put_back_then_the_plan_is_known_as_before() -> None:
    plans = PlanAccounts()
    names = [plans.learn(LOGIN, b"organization", [answered(number)]) for number in range(12)]
    account = next(filter(None, names))
    stored = msgspec.json.encode(plans.kept(account))

    again = PlanAccounts()
    again.restore(account, msgspec.json.decode(stored, type=KeptPlan))

    assert [bool(name) for name in names].index(True) == 7
    assert again.account_of(LOGIN) == account
    assert again.state(account) == plans.state(account)
    assert again.state(account).weights.rounds
    assert again.kept(account) == plans.kept(account)


def test_given_rounds_that_nobody_saw_when_put_back_then_they_are_not_taken_for_ours() -> None:
    """Between two processes the window moved on by what was not recorded."""
    plans, again = PlanAccounts(), PlanAccounts()
    for number in range(12):
        plans.learn(LOGIN, b"organization", [answered(number)])
    account = plans.account_of(LOGIN)
    again.restore(account, plans.kept(account))

    for number in range(12, 24):
        use, (five, week) = answered(number)
        again.learn(LOGIN, b"organization", [(use, (replace(five, used=five.used + 0.02), week))])

    window = again.state(account).windows[0]
    assert window.scale == pytest.approx(1.0, rel=0.02)
