"""Which requests a plan pays for, and what is known of the windows of each account.

A login in place of a key is a plan; so is any account whose answers tell of windows. Kept by a hash of what names the
account. Until enough was measured a plan has the weights that are expected of plans. What was measured can be taken out
and put back (`kept`, `restore`), so that a new process need not begin anew.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from proxy.accounting.plans.plan_weights import (
    NOTHING_MEASURED,
    ListUse,
    PlanWeights,
    WindowRecord,
    fit_scale,
    fit_weights,
    plan_tariff,
)
from proxy.accounting.plans.plan_window import Headers, WindowReading, window_minutes
from proxy.accounting.tariff import Tariff
from proxy.core.memo import keep_newest

CLAUDE_LOGIN = b"sk-ant-oat"
"""How the login tokens of Claude's plans begin; an API key begins with `sk-ant-api`."""
CHATGPT_ACCOUNT = b"chatgpt-account-id"
"""The header that Codex sends with the login of a ChatGPT plan, and not with an API key (codex-rs/login and
codex-rs/backend-client of github.com/openai/codex)."""
PAYER_HEADERS = frozenset({b"authorization", b"x-api-key", CHATGPT_ACCOUNT})
"""Headers of a request that say who pays for it."""
ORGANIZATION = b"anthropic-organization-id"
"""In answers of Anthropic. A login token is replaced within hours, the organization stays."""
MAX_ACCOUNTS = 1024
ACCOUNT_DIGITS = 12
"""Of the hash of an account, in receipts."""
MAX_RECORDS = 120
"""Answered rounds of one window that the weights are read from."""
FIRST_FIT, FIT_GROWTH = 8, 0.2
"""Weights are read from so many rounds first, and again with each fifth more."""
MAX_KEPT_CREDENTIALS = 8
"""Of one account, the newest: login tokens are replaced within hours."""
AnsweredRound = tuple[ListUse | None, Sequence[WindowReading]]
"""What a round used, None where its answer did not say, and what it told of windows."""


class PlanWindow(msgspec.Struct, frozen=True, gc=False):
    """A window as it stood with a request. `scale` is the share of it that a USD of fresh input takes, 0 while nothing
    is known, with its error."""

    name: str
    scale: float = 0.0
    scale_error: float = 0.0
    used: float = 0.0
    """What the provider last told, as a share."""
    resets_at: int = 0
    """Seconds since 1970; 0 where it was not told."""
    status: str = ""


class PlanState(msgspec.Struct, frozen=True, gc=False):
    """What is known of an account's plan: the weights, and its windows, the shortest first."""

    weights: PlanWeights = NOTHING_MEASURED
    windows: tuple[PlanWindow, ...] = ()
    account: str = ""
    """Tells accounts apart in receipts."""


UNKNOWN_PLAN = PlanState()


class KeptPlan(msgspec.Struct, frozen=True):
    """What was measured of an account, as it is stored. `records` are those of each window, oldest first."""

    credentials: tuple[str, ...]
    rounds: int
    weights: PlanWeights
    scales: dict[str, tuple[float, float]]
    records: dict[str, tuple[WindowRecord, ...]]


class _Account:
    """What the answers to one account said."""

    def __init__(self, kept: KeptPlan | None = None) -> None:
        self._records: dict[str, deque[WindowRecord]] = {}
        self._scales: dict[str, tuple[float, float]] = {}
        self._rounds, self._next_fit = 0, FIRST_FIT
        self._after_gap: set[str] = set()
        """Windows of which no answer was read since the records were put back."""
        self.state = UNKNOWN_PLAN
        if kept is not None:
            self._records = {name: deque(records, MAX_RECORDS) for name, records in kept.records.items() if records}
            self._scales, self._after_gap = dict(kept.scales), set(self._records)
            self._rounds, self._next_fit = kept.rounds, kept.rounds + _rounds_to_next_fit(kept.rounds)
            self.state = PlanState(kept.weights, self._windows())

    def learn(self, use: ListUse | None, readings: Iterable[WindowReading]) -> bool:
        """`use` is None where an answer did not say what it used. Returns whether the weights were read anew."""
        for reading in readings:
            record = WindowRecord(use, reading, is_after_gap=reading.name in self._after_gap)
            self._after_gap.discard(reading.name)
            self._records.setdefault(reading.name, deque(maxlen=MAX_RECORDS)).append(record)
        self._rounds += 1
        weights, is_fitted = self.state.weights, self._rounds >= self._next_fit
        if is_fitted:
            self._next_fit = self._rounds + _rounds_to_next_fit(self._rounds)
            weights = self._fit()
        self.state = PlanState(weights, self._windows())
        return is_fitted

    def kept(self, credentials: tuple[str, ...]) -> KeptPlan:
        records = {name: tuple(records) for name, records in self._records.items()}
        return KeptPlan(credentials, self._rounds, self.state.weights, self._scales, records)

    def _windows(self) -> tuple[PlanWindow, ...]:
        return tuple(map(self._window, sorted(self._records, key=window_minutes)))

    def _fit(self) -> PlanWeights:
        """The window whose readings say most tells the weights; of the others only the size is read."""
        fits = [fit for fit in map(fit_weights, map(tuple, self._records.values())) if fit.rounds]
        best = min(fits, key=lambda fit: fit.uncertainty, default=self.state.weights)
        if best.rounds:
            self._scales = {name: fit_scale(tuple(records), best) for name, records in self._records.items()}
        return best

    def _window(self, name: str) -> PlanWindow:
        newest = self._records[name][-1].reading
        return PlanWindow(name, *self._scales.get(name, (0.0, 0.0)), newest.used, newest.resets_at, newest.status)


def _rounds_to_next_fit(rounds: int) -> int:
    return max(1, int(min(rounds, MAX_RECORDS) * FIT_GROWTH)) if rounds >= FIRST_FIT else FIRST_FIT - rounds


class PlanAccounts:
    """The accounts whose requests this process has seen, and those that were put back."""

    def __init__(self) -> None:
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._names: OrderedDict[str, str] = OrderedDict()
        """The account of a credential, once an answer named it."""

    def may_pay(self, headers: Headers) -> bool:
        """Whether a plan may pay for a request with these headers: a quick look."""
        return bool(self._accounts) or any(
            name == CHATGPT_ACCOUNT or (name == b"authorization" and CLAUDE_LOGIN in value) for name, value in headers
        )

    def account_of(self, headers: Headers) -> str:
        """The account that pays for a request with these headers by a plan; empty where it pays by the token, as far as
        is known."""
        told = dict(headers)
        credential = _credential(told)
        if not credential:
            return ""
        if known := self._names.get(credential):
            return known
        is_login = CHATGPT_ACCOUNT in told or _secret(told).startswith(CLAUDE_LOGIN)
        return credential if is_login or credential in self._accounts else ""

    def learn(self, headers: Headers, organization: bytes, rounds: Sequence[AnsweredRound]) -> str:
        """Take in what the answers to a request with these headers said, in order. `organization` is what they named
        as the account, or empty. Returns the account where its weights were read anew, which is worth keeping; else
        nothing."""
        credential = _credential(dict(headers))
        if not credential or not any(readings for _, readings in rounds):
            return ""
        name = _hashed(organization) if organization else credential
        keep_newest(self._names, credential, name, MAX_ACCOUNTS)
        account = self._accounts.get(name) or _Account()
        keep_newest(self._accounts, name, account, MAX_ACCOUNTS)
        fitted = [account.learn(use, readings) for use, readings in rounds]
        return name if any(fitted) else ""

    def kept(self, account: str) -> KeptPlan:
        """What is known of an account, to be stored."""
        credentials = [credential for credential, name in self._names.items() if name == account]
        return self._accounts[account].kept(tuple(credentials[-MAX_KEPT_CREDENTIALS:]))

    def restore(self, account: str, kept: KeptPlan) -> None:
        """Put back what was stored; an account of which this process has heard stays as it is."""
        if account in self._accounts:
            return
        keep_newest(self._accounts, account, _Account(kept), MAX_ACCOUNTS)
        for credential in kept.credentials:
            keep_newest(self._names, credential, account, MAX_ACCOUNTS)

    def state(self, account: str) -> PlanState:
        known = self._accounts.get(account)
        return known.state if known else UNKNOWN_PLAN

    def paying(self, headers: Headers, organization: bytes, *, tells_windows: bool) -> PlanState | None:
        """The plan that pays for a request with these headers, None for who pays by the token. `organization` is what
        its answers named as the account, `tells_windows` whether they told of windows."""
        account = self.account_of(headers)
        if not account and not tells_windows:
            return None
        name = _hashed(organization) if organization else account or _credential(dict(headers))
        return replace(self.state(account), account=name[:ACCOUNT_DIGITS])

    def gate_row(self, account: str, tariff: Tariff) -> Tariff:
        """The row by which the gate asks whether a rewrite pays; unchanged for who pays by the token."""
        return plan_tariff(tariff, self.state(account).weights, cautious=True) if account else tariff


def _secret(told: Mapping[bytes, bytes]) -> bytes:
    shown = told.get(b"authorization", b"").strip()
    return shown[7:].strip() if shown[:7].lower() == b"bearer " else shown or told.get(b"x-api-key", b"")


def _credential(told: Mapping[bytes, bytes]) -> str:
    """A hash of what names who pays; empty where nothing does."""
    secret = _secret(told)
    return _hashed(told.get(CHATGPT_ACCOUNT) or secret) if secret else ""


def _hashed(name: bytes) -> str:
    return sha256(name).hexdigest()[:32]
