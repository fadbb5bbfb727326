"""What a request cost, what the untouched request would have cost, and the sums of both.

A request is seen as a chain of pieces, each an identity and its tokens: tools and system text first, then one per
message. `PrefixCache` says what a provider's prompt cache would have read of a chain. Two of them run side by side: one
is fed with what is really sent, one with what the client sent, so that the untouched run is told by the same rules.
`Accountant` opens an account per client request; settled, it is a `Receipt`. `totals` and `table` add receipts up.

The law: **a saving is never told too large**. All rounds count as sent, our own tools, texts and hidden rounds
included. What the provider reports stands beside what we estimate, and where it reports cached tokens it is what we
charge. The untouched run is charged as if its cache had been as lucky as it could be; where the provider's cache does
not behave as simulated, the saving is the difference of two estimates by one simulation, so that its errors cancel.
Where the provider counts fewer tokens than we do, a saving is scaled down. A conversation this process has not seen
before is taken as warm on both sides, so a restart saves nothing. Negative is told as negative.

What this module does not do: it keeps nothing on disk and knows no wire format. Its memory is bounded, its clock is
handed in (ms), and it belongs to one event loop.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import msgspec

from proxy.stack.transcript import Usage
from proxy.tariffs import AS_OF, Tariff, tariff_for

Piece = tuple[str, int]
"""Identity and tokens of tools and system text, or of one message."""
Chain = Sequence[Piece]
CacheKey = tuple[str, str, str]
"""Tenant, upstream, model: what a provider keeps a cache for."""

MILLION = 1_000_000
MOST_PIECES = 1_000_000
"""Pieces one simulation remembers, eight bytes each; the conversations longest unused go first."""
MOST_LINES = 32
"""Lines one conversation keeps warm: frames, forks and branches. The longest unused go first."""
MOST_HEADS = 4096
MARK = 8
"""Bytes a piece is remembered by."""


# ---------------------------------------------------------------------------------------------------------- simulation
class CacheUse(msgspec.Struct, frozen=True):
    """Input tokens by what they cost: read from the cache, written to it, paid in full."""

    cached: int = 0
    written: int = 0
    uncached: int = 0
    prefix: int = 0
    """The known beginning, before the provider's minimum and steps: at most this much could be read."""

    def __add__(self, other: CacheUse) -> CacheUse:
        return CacheUse(
            self.cached + other.cached,
            self.written + other.written,
            self.uncached + other.uncached,
            self.prefix + other.prefix,
        )

    @property
    def total(self) -> int:
        return self.cached + self.written + self.uncached


@dataclass(slots=True)
class _Line:
    """A chain that was sent: its marks in a row, and when it was used last, in ms."""

    marks: bytes
    used: int


class PrefixCache:
    """What a provider's prompt cache holds, as far as it can be told from outside.

    A piece is found only behind the same pieces as before, a changed or moved one makes everything behind it new. Each
    line sent stays warm for the tariff's lifetime and warms its beginning whenever it is used. Providers that want
    breakpoints are taken to get one behind the last message.
    """

    def __init__(self, most_pieces: int = MOST_PIECES) -> None:
        self._most_pieces = most_pieces
        self._pieces = 0
        # By key and the first two pieces: conversations that begin alike share a shelf, all others only their head.
        self._shelves: OrderedDict[tuple[CacheKey, bytes], list[_Line]] = OrderedDict()
        self._heads: OrderedDict[tuple[CacheKey, bytes], int] = OrderedDict()

    def knows(self, key: CacheKey, chain: Chain) -> bool:
        """Whether a conversation that begins like this was seen, however long ago."""
        return (key, _marks(chain[:2])) in self._shelves

    def use(self, key: CacheKey, chain: Chain, tariff: Tariff, now: int, *, warm: bool = False) -> CacheUse:
        """Account for one request at `now` (ms) and remember it. `warm`: all but its last piece is in the cache."""
        marks = _marks(chain)
        tokens = [count for _, count in chain]
        since = now - tariff.ttl_s * 1000
        found = len(chain) - 1 if warm else self._found(key, marks, since)
        self._remember(key, marks, since, now)
        total = sum(tokens)
        prefix = sum(tokens[:found])
        cached = _storable(prefix, tariff)
        # Where storing costs nothing extra, what is stored is plain input.
        written = max(0, _storable(total, tariff) - cached) if tariff.write != 1 else 0
        return CacheUse(cached, written, total - cached - written, prefix)

    def _found(self, key: CacheKey, marks: bytes, since: int) -> int:
        """Pieces at the beginning that are still warm."""
        warm = [
            _shared(line.marks, marks) for line in self._shelves.get((key, marks[: 2 * MARK]), ()) if line.used >= since
        ]
        head = int(self._heads.get((key, marks[:MARK]), since - 1) >= since)
        return max(head, *warm) if warm else head

    def _remember(self, key: CacheKey, marks: bytes, since: int, now: int) -> None:
        opening = (key, marks[: 2 * MARK])
        before = self._shelves.pop(opening, [])
        # A line that goes on is the same line, longer.
        kept = [line for line in before if line.used >= since and not marks.startswith(line.marks)][-MOST_LINES + 1 :]
        self._shelves[opening] = [*kept, _Line(marks, now)]
        self._pieces += _size(self._shelves[opening]) - _size(before)
        self._heads[(key, marks[:MARK])] = now
        self._heads.move_to_end((key, marks[:MARK]))
        while len(self._heads) > MOST_HEADS:
            self._heads.popitem(last=False)
        while self._pieces > self._most_pieces and len(self._shelves) > 1:
            self._pieces -= _size(self._shelves.popitem(last=False)[1])


def _marks(chain: Chain) -> bytes:
    """The identities in a row, eight bytes each: long chains compare at the speed of memory."""
    return array("q", [hash(identity) for identity, _ in chain]).tobytes()


def _size(lines: Iterable[_Line]) -> int:
    return sum(len(line.marks) // MARK for line in lines)


def _shared(one: bytes, other: bytes) -> int:
    """How many pieces two lines have in common at their beginning."""
    low, high = 0, min(len(one), len(other)) // MARK
    if one[: high * MARK] == other[: high * MARK]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if one[: middle * MARK] == other[: middle * MARK]:
            low = middle
        else:
            high = middle - 1
    return low


def _storable(tokens: int, tariff: Tariff) -> int:
    """Tokens of a prefix that a cache of this tariff can hold."""
    whole = tokens - tokens % tariff.step
    return whole if whole >= tariff.minimum else 0


# ------------------------------------------------------------------------------------------------------------ receipts
class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a client request, as whoever carried it out knows it. Times are ms, `created` since 1970."""

    id: str
    conversation: str = ""
    thread: str = ""
    frame: str = ""
    model: str = ""
    upstream: str = ""
    mode: str = ""
    status: str = ""
    """full, asleep, side, off, shadow, stateless, bypass or error; `reason` is its word, for a bypass above all."""
    reason: str = ""
    created: int = 0
    duration_ms: float = 0.0
    overhead_ms: float = 0.0
    stream: bool = False
    hidden_calls: int = 0
    recalls: int = 0
    events: tuple[str, ...] = ()
    """Frame events in the order they happened: `pushed f12`, `popped f12`."""
    client_status: int = 0
    upstream_status: int = 0
    finish_reason: str = ""
    would_send: int = 0
    """Shadow: tokens that would have been sent."""


class Receipt(Outcome, frozen=True, kw_only=True):
    """What a client request cost. Tokens of ours are counted by `counter`; money is USD."""

    rounds: int
    tokens_in: int
    """What the client sent."""
    tokens_sent: int
    """What was sent upstream, all rounds together."""
    tokens_last: int
    """What was sent in the last round: how full the window is."""
    tokens_saved: int
    """`tokens_in - tokens_sent`."""
    fixed_in: int
    """Of `tokens_in`, the client's tools and system text."""
    fixed_sent: int
    """The same as part of `tokens_sent`: once per round."""
    own_tools: int
    """Of `tokens_last`, our tools."""
    own_texts: int
    """Of `tokens_last`, our guidance, blocks and notes."""
    own_rounds: int
    """Of `tokens_sent`, all rounds before the last."""
    sent: CacheUse
    """Estimated, all rounds together."""
    untouched: CacheUse
    """Estimated for what the client sent."""
    usage: Usage
    """Reported by the provider, all rounds together; input contains cached and written tokens."""
    usage_by_round: tuple[Usage | None, ...]
    """None where a round reported none."""
    cost: float
    cost_untouched: float
    saved: float
    basis: Literal["reported", "estimated"]
    """What `cost` is computed from."""
    priced: bool
    """False: the model is not in the table, and declared defaults stand in."""
    output_priced: bool
    """False: the output price is not known, output counts as free on both sides."""
    tariffs_as_of: str = AS_OF
    counter: str = ""


_NO_USE = CacheUse()
_FACTS = Outcome.__struct_fields__


class Account:
    """One client request while it is under way: note every round as it leaves, settle once."""

    def __init__(self, accountant: Accountant, key: CacheKey, chain: Chain) -> None:
        self._accountant, self._key = accountant, key
        self._tariff = accountant.tariff_of(key[2])
        self._warm = len(chain) > 2 and not accountant.untouched.knows(key, chain)
        self._untouched = accountant.untouched.use(key, chain, self._tariff, accountant.clock(), warm=self._warm)
        self._fixed, self._tail = (chain[0][1], chain[-1][1]) if chain else (0, 0)
        self._rounds: list[CacheUse] = []
        self._own = (0, 0)
        self.tokens_in = self._untouched.total

    @property
    def tokens_sent(self) -> int:
        """So far, all rounds together."""
        return sum(use.total for use in self._rounds)

    def note_sent(self, chain: Chain, *, own_tools: int = 0, own_texts: int = 0) -> None:
        """A round leaves. `own_tools` and `own_texts` are tokens in `chain` that are ours."""
        warm = self._warm and not self._rounds
        cache = self._accountant.really_sent
        self._rounds.append(cache.use(self._key, chain, self._tariff, self._accountant.clock(), warm=warm))
        self._own = (own_tools, own_texts)

    def settle(self, outcome: Outcome, usage: Sequence[Usage | None] = ()) -> Receipt:
        """The receipt. `usage` is what the provider reported, one per round in order; missing ones count as None."""
        rounds = len(self._rounds)
        reported = (*usage, *[None] * rounds)[:rounds]
        last = self._rounds[-1].total if rounds else 0
        total = self.tokens_sent
        tariff = self._tariff
        self._accountant.note_report(self._key, reported)
        basis: Literal["reported", "estimated"] = (
            "reported" if None not in reported and self._accountant.reports_caches(self._key) else "estimated"
        )
        cost, saved = self._money(reported, basis, failed=outcome.upstream_status >= 400)
        return Receipt(
            **{name: getattr(outcome, name) for name in _FACTS},
            rounds=rounds,
            tokens_in=self.tokens_in,
            tokens_sent=total,
            tokens_last=last,
            tokens_saved=self.tokens_in - total if rounds else 0,
            fixed_in=self._fixed,
            fixed_sent=self._fixed * rounds,
            own_tools=self._own[0],
            own_texts=self._own[1],
            own_rounds=total - last,
            sent=sum(self._rounds, _NO_USE),
            untouched=self._untouched,
            usage=_sum_of(reported),
            usage_by_round=reported,
            cost=cost,
            cost_untouched=cost + saved,
            saved=saved,
            basis=basis,
            priced=tariff.known,
            output_priced=tariff.output is not None,
            counter=self._accountant.counter,
        )

    def _money(self, reported: Sequence[Usage | None], basis: str, *, failed: bool) -> tuple[float, float]:
        """Cost and saving in USD. A request that the provider refused is not billed, with us or without."""
        billed = self._rounds[:-1] if failed else self._rounds
        told = [usage for usage in reported[: len(billed)] if usage]
        estimate = sum(_price(use, self._tariff) for use in billed)
        untouched = _price(self._untouched, self._tariff)
        output = [_output_price(usage, self._tariff) for usage in told]
        charged = sum(_price(_use_of(usage), self._tariff) for usage in told) if basis == "reported" else estimate
        cost = charged + sum(output)
        if failed:
            return cost, -cost
        if billed == [self._untouched]:
            difference = 0.0
        elif basis == "reported" and _as_simulated(billed, told):
            ratio = min(1.0, _ratio(billed, told))
            difference = ratio * _price(self._luckiest(billed, told), self._tariff) - charged
        else:
            difference = untouched - estimate
            difference *= _scale(_ratio(billed, told), gain=difference > 0)
        # The untouched run has no hidden rounds: what the model wrote in them is our cost.
        hidden = sum(output[:-1])
        # No run costs less than nothing: a loss is at most all that was paid.
        return cost, max(difference - hidden, -cost)

    def _luckiest(self, billed: Sequence[CacheUse], told: Sequence[Usage]) -> CacheUse:
        """What the client sent, if the cache held all that it could.

        Steps may fall luckier for other tokens than ours; and a provider that read clearly more than we thought warm
        would have had the untouched line warm too.
        """
        use = self._untouched
        cached = use.prefix
        believed = sum(one.prefix for one in billed) * _ratio(billed, told)
        if sum(usage.cached for usage in told) > 1.05 * believed + self._tariff.minimum:
            cached = max(cached, use.total - self._tail)
        cached = cached if cached >= self._tariff.minimum else 0
        written = max(0, use.written - max(0, cached - use.cached))
        return CacheUse(cached, written, max(0, use.total - cached - written), cached)


def _as_simulated(billed: Iterable[CacheUse], told: Iterable[Usage]) -> bool:
    """Whether the provider's cache held what we thought. Where it did not, it would not have for the untouched run."""
    return 2 * sum(usage.cached for usage in told) >= sum(use.cached for use in billed)


def _ratio(billed: Iterable[CacheUse], told: Iterable[Usage]) -> float:
    """The provider's tokens to ours; 1 where it reported none."""
    ours, theirs = sum(use.total for use in billed), sum(usage.input for usage in told)
    return theirs / ours if ours and theirs else 1.0


def _scale(ratio: float, *, gain: bool) -> float:
    """From our tokens to the provider's, so that a gain is never told larger, nor a loss smaller, than it counts."""
    return min(1.0, ratio) if gain else max(1.0, ratio)


def _price(use: CacheUse, tariff: Tariff) -> float:
    return (use.uncached + tariff.read * use.cached + tariff.write * use.written) * tariff.input / MILLION


def _output_price(usage: Usage, tariff: Tariff) -> float:
    return usage.output * (tariff.output or 0.0) / MILLION


def _use_of(usage: Usage) -> CacheUse:
    return CacheUse(usage.cached, usage.written, max(0, usage.input - usage.cached - usage.written))


def _sum_of(reported: Iterable[Usage | None]) -> Usage:
    told = [usage for usage in reported if usage]
    return Usage(
        sum(usage.input for usage in told),
        sum(usage.output for usage in told),
        sum(usage.cached for usage in told),
        sum(usage.written for usage in told),
    )


class Accountant:
    """Keeps the two simulations. `clock` gives ms since 1970, `counter` names what counts our tokens."""

    def __init__(
        self, clock: Callable[[], int], counter: str = "o200k_base", tariff_of: Callable[[str], Tariff] = tariff_for
    ) -> None:
        self.clock, self.counter, self.tariff_of = clock, counter, tariff_of
        self.really_sent, self.untouched = PrefixCache(), PrefixCache()
        self._reporting: OrderedDict[CacheKey, None] = OrderedDict()

    def open(self, chain: Chain, *, tenant: str, upstream: str, model: str) -> Account:
        """An account for a request; `chain` is what the client sent, `model` the name sent upstream."""
        return Account(self, (tenant, upstream, model), chain)

    def note_report(self, key: CacheKey, reported: Iterable[Usage | None]) -> None:
        """A provider that once told of cached tokens is believed from then on, also when it tells of none."""
        if any(usage and (usage.cached or usage.written) for usage in reported):
            self._reporting[key] = None
            self._reporting.move_to_end(key)
            if len(self._reporting) > MOST_HEADS:
                self._reporting.popitem(last=False)

    def reports_caches(self, key: CacheKey) -> bool:
        return key in self._reporting


def response_headers(told: Account | Receipt, overhead_ms: float) -> tuple[tuple[str, str], ...]:
    """What the client is told of tokens and money: while streaming from the open account, else from the receipt."""
    headers = [
        ("x-stack-tokens-in", str(told.tokens_in)),
        ("x-stack-tokens-sent", str(told.tokens_sent)),
        ("x-stack-tokens-saved", str(told.tokens_in - told.tokens_sent if told.tokens_sent else 0)),
        ("x-stack-overhead-ms", f"{overhead_ms:.1f}"),
    ]
    if isinstance(told, Receipt):
        headers += [("x-stack-cost", usd(told.cost)), ("x-stack-cost-untouched", usd(told.cost_untouched))]
        headers += [] if told.priced else [("x-stack-priced", "false")]
    return tuple(headers)


def usd(amount: float) -> str:
    """USD with eight decimals: a hundredth of what one cached token of a cheap model costs."""
    return f"{amount:.8f}"


# -------------------------------------------------------------------------------------------------------------- totals
By = Literal["request", "frame", "conversation", "model", "day"]


class Row(msgspec.Struct, kw_only=True):
    """Receipts added up under one key."""

    key: str
    requests: int = 0
    rounds: int = 0
    recalls: int = 0
    tokens_in: int = 0
    tokens_sent: int = 0
    tokens_saved: int = 0
    fixed_in: int = 0
    fixed_sent: int = 0
    own: int = 0
    """Our tools, texts and hidden rounds, in tokens; contained in `tokens_sent`."""
    peak_in: int = 0
    peak_sent: int = 0
    """The fullest single request."""
    reported_input: int = 0
    reported_cached: int = 0
    cost: float = 0.0
    cost_untouched: float = 0.0
    saved: float = 0.0
    estimated: int = 0
    """Requests whose cost is an estimate."""
    unpriced: int = 0
    """Requests whose model is not in the table."""

    def add(self, receipt: Receipt) -> None:
        self.requests += 1
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(receipt, name))
        self.own += receipt.own_tools + receipt.own_texts + receipt.own_rounds
        self.peak_in = max(self.peak_in, receipt.tokens_in)
        self.peak_sent = max(self.peak_sent, receipt.tokens_last)
        self.reported_input += receipt.usage.input
        self.reported_cached += receipt.usage.cached
        self.estimated += receipt.basis == "estimated"
        self.unpriced += not receipt.priced


_SUMMED = (
    "rounds", "recalls", "tokens_in", "tokens_sent", "tokens_saved", "fixed_in", "fixed_sent",
    "cost", "cost_untouched", "saved",
)  # fmt: skip
_KEYS: Mapping[By, Callable[[Receipt], str]] = {
    "request": lambda receipt: receipt.id,
    "frame": lambda receipt: receipt.frame or "(no frame)",
    "conversation": lambda receipt: receipt.conversation,
    "model": lambda receipt: receipt.model,
    "day": lambda receipt: datetime.fromtimestamp(receipt.created / 1000, UTC).date().isoformat(),
}


def totals(receipts: Iterable[Receipt], by: By = "conversation") -> tuple[Row, ...]:
    """One row per key, in the order in which the keys first appear."""
    rows: dict[str, Row] = {}
    for receipt in receipts:
        key = _KEYS[by](receipt)
        rows.setdefault(key, Row(key=key)).add(receipt)
    return tuple(rows.values())


def total(receipts: Iterable[Receipt]) -> Row:
    """All of them in one row."""
    row = Row(key="total")
    for receipt in receipts:
        row.add(receipt)
    return row


_HEADINGS = ("", "requests", "tokens in", "sent", "saved", "peak in", "peak sent", "cost $", "untouched $", "saved $")


def table(rows: Sequence[Row], *, fixed: bool = True) -> str:
    """The rows as text. Without `fixed`, the client's own tools and system text are left out of the token sums."""
    lines = [_HEADINGS, *(_cells(row, fixed=fixed) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    text = [
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    ]
    notes = [f"{sum(row.estimated for row in rows)} of {sum(row.requests for row in rows)} requests: cost estimated"]
    if unpriced := sum(row.unpriced for row in rows):
        notes.append(f"{unpriced} requests: model not in the price table of {AS_OF}, a round price stands in")
    return "\n".join([*text, *notes])


def _cells(row: Row, *, fixed: bool) -> tuple[str, ...]:
    came = row.tokens_in - (0 if fixed else row.fixed_in)
    went = row.tokens_sent - (0 if fixed else row.fixed_sent)
    counts = (row.requests, came, went, came - went if row.tokens_sent else 0, row.peak_in, row.peak_sent)
    money = (row.cost, row.cost_untouched, row.saved)
    return (row.key, *(f"{count:,}" for count in counts), *(f"{amount:.4f}" for amount in money))
