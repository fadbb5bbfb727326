"""The receipt of a client request: its outcome, tokens and money, as a JSON object.

Receipts are stored for weeks, so a field that is added later needs a default. No receipt can be part of a reference
cycle, so the garbage collector does not track them (`gc=False`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from proxy.accounting.prompt_cache import CacheUse
from proxy.core.ledger import Usage

SUMMARY_STATUS = "summary"
"""Status of what was asked of a summariser: no request of a client, and all of it our own overhead."""
KEEP_ALIVE_STATUS = "keep_alive"
"""Status of what was sent to keep the provider's prompt cache: likewise."""
OWN_REQUEST_STATUSES = frozenset({SUMMARY_STATUS, KEEP_ALIVE_STATUS})
ANSWERED_STATUS = "answered"
"""Status of a request that the proxy answered by itself: no provider was asked, so nothing had a price or a usage."""
HELD_OUT, FOLDED = "holdout", "folded"
"""The two groups of conversations that are compared, as `Receipt.group` names them."""


class PlanWindowUse(msgspec.Struct, frozen=True, gc=False):
    """What a request took of one window of a plan. Shares are 1 for the whole window, and 0 while nobody knows how
    large it is."""

    name: str
    """Its length: `5h`, `7d`."""
    share: float = 0.0
    share_untouched: float = 0.0
    scale: float = 0.0
    """The share that a USD of `PlanCost.cost` takes, as known with this request, and its error."""
    scale_error: float = 0.0
    used: float = 0.0
    """Of the window, by all requests to this account, as the provider told last."""
    resets_at: int = 0
    """Seconds since 1970; 0 where it was not told."""


class PlanCost(msgspec.Struct, frozen=True, gc=False):
    """What a request cost that a plan pays for. `cost` and `cost_untouched` are in USD of fresh input that weigh as
    much in the plan's windows: not what anybody pays."""

    cost: float
    cost_untouched: float
    read: float
    """What a token weighs that is read from the cache, as a multiple of a fresh one."""
    read_for_gate: float
    """The least of that, by which folds are weighed."""
    write: float
    """What a written or answered token weighs beside its list price, as a multiple of what a fresh one does."""
    output: float
    rounds: int
    """From how many answers the weights were read; 0: they are what is expected of plans."""
    windows: tuple[PlanWindowUse, ...] = ()
    account: str = ""
    """Tells accounts apart: the beginning of a hash. Empty in older receipts."""


class GateDecision(msgspec.Struct, frozen=True, gc=False):
    """One question of the gate and its answer, also "not now". All but the prices are in tokens; `cost` and `gain` are
    in input tokens that would be paid in full."""

    kind: str
    """wake, fold, trim, view or unfold; a text, so that no receipt on disk becomes unreadable by a word."""
    subject: str
    """The frames it is about, `part` for a part of one that goes on."""
    done: bool
    reason: str
    """gate (it pays), cold, pressure, bound, not_yet, ...: the word for why it was done or not."""
    removed: int = 0
    """What leaves the context."""
    compaction: int = 0
    """What stands for it."""
    behind: int = 0
    """What stays behind the cut and is written to the provider's cache again."""
    requests: int = 0
    """How many more requests were expected."""
    read: float = 0.0
    """Price of a token read from the cache, as a multiple of the input price; `write` the same of one written to it."""
    write: float = 0.0
    cost: float = 0.0
    gain: float = 0.0
    """Over all requests that were expected."""
    added: int = 0
    """Tools and guidance that come with it for good."""
    reasoning: int = 0
    """Reasoning that can no longer be sent."""
    band: float = 0.0
    """Of `gain`, what requests cost less because they stay below the length from which all of one costs more."""


class RequestAmounts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What adds up over requests: of one in its receipt, and of many in sums. Tokens are ours, money is USD."""

    rounds: int = 0
    tokens_in: int = 0
    """What the client sent."""
    tokens_sent: int = 0
    """What was sent upstream, all rounds together."""
    tokens_saved: int = 0
    """`tokens_in - tokens_sent`; at most 0 where the client got no whole answer."""
    fixed_in: int = 0
    """Of `tokens_in`, the client's tools and system text."""
    fixed_sent: int = 0
    """The same as part of `tokens_sent`: once per round."""
    own_tools: int = 0
    """Of `tokens_sent`, our tools in the last round."""
    own_texts: int = 0
    """Likewise our guidance, blocks, notes and traces."""
    own_traces: int = 0
    """Of `own_texts`, what stands where frames left."""
    own_rounds: int = 0
    """Of `tokens_sent`, all rounds before the last."""
    cost: float = 0.0
    cost_untouched: float = 0.0
    saved: float = 0.0
    cost_fixed: float = 0.0
    """Of `cost_untouched`, and taken to be as much of `cost`: the client's tools and system text."""


class RequestOutcome(RequestAmounts, frozen=True, kw_only=True, gc=False):
    """What came of a client request, as whoever carried it out knows it. Times are ms, `created` since 1970. The
    amounts are those of its receipt, and 0 before."""

    id: str
    conversation: str = ""
    thread: str = ""
    frame: str = ""
    model: str = ""
    upstream: str = ""
    mode: str = ""
    status: str = ""
    """full, asleep, side, off, shadow, stateless, answered, bypass, error, summary or keep_alive; `reason` is its word,
    for a bypass above all."""
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
    decisions: tuple[GateDecision, ...] = ()
    """What the gate was asked with this request, in order."""
    rereads: int = 0
    """Files that had been read before, whose content came with this request."""
    rereads_gone: int = 0
    """Of `rereads`, those of text that the proxy had taken out of the context."""
    lost_reasoning: int = 0
    """Tokens of reasoning that the client sent and that had to be left out; the model may think them again."""
    form: str = ""
    """"strict", "mild", "bare" or "own", the form that its provider took where it refused the full one; else empty."""
    brief_tools: int = 0
    """Tokens of descriptions of the client's tools that the last round was sent without (`client_tools: brief`)."""
    client: str = ""
    """The client's program, such as `claude-cli`; empty where it named none."""
    project: str = ""
    """The folder in which the client works, as it tells the model; empty where it does not."""
    group: str = ""
    """`HELD_OUT` or `FOLDED`: the group in which its conversation is compared; empty where it is not."""


class Receipt(RequestOutcome, frozen=True, kw_only=True, gc=False):
    """What a client request cost. Tokens of ours are counted by `counter`; money is USD."""

    tokens_last: int
    """What was sent in the last round: how full the window is."""
    sent: CacheUse
    """Estimated, all rounds together."""
    untouched: CacheUse
    """Estimated for what the client sent."""
    usage: Usage
    """Reported by the provider, all rounds together; input contains cached and written tokens."""
    usage_by_round: tuple[Usage | None, ...]
    """None where a round reported none."""
    basis: Literal["reported", "estimated"]
    """What `cost` is computed from."""
    priced: bool
    """False: the model is not in the table, and declared defaults stand in."""
    output_priced: bool
    """False: the output price is not known, output counts as free on both sides."""
    tariffs_as_of: str = ""
    """The day the prices were seen; empty where nobody said."""
    cost_rereads: float = 0.0
    """Of `cost_untouched`, what came of `rereads_gone`: all of it where the request brought nothing else."""
    price_factor: float = 1.0
    """What bills of this upstream came to, as a multiple of the list's prices: the row is corrected by it here."""
    billed: bool = False
    """Whether the answer named its cost, which `cost` then is."""
    counter: str = ""
    fixed_untouched: CacheUse = CacheUse()
    """`fixed_in` as part of `untouched`."""
    fixed_once: CacheUse = CacheUse()
    """`fixed_in` as part of `sent`, in the last round alone: what is sent again in hidden rounds is our cost."""
    plan: PlanCost | None = None
    """None where the request was paid by the token."""


def format_usd(amount: float) -> str:
    """USD with eight decimals: a hundredth of what one cached token of a cheap model costs."""
    return f"{amount:.8f}"
