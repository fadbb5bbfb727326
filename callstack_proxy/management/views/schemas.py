"""The types of all responses of `/stack`, for the views and for OpenAPI. Times are ms since the epoch. Frames and
states keep the field names of the original state file (`sessionID` is a frame's id); other names are Python style."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict  # pydantic reads the one of `typing` from Python 3.12 on only

CallState = Literal["pending", "running", "completed", "error"]
"""Its arguments arrive; it runs; its result reports success; its result reports failure."""


class ConversationRow(TypedDict):
    """One conversation. Titles, frames and `awake` tell of the path that grew last. `turns` are client requests that
    were answered, an identical one asked again counted once; `retries` are the further answers to those. `stopped`: a
    person has stopped the agent, and its requests are refused until it is resumed. `unreadable`
    is there, and says why, where it is damaged or was written by a newer version: then nothing is told of what it
    holds. `cost`, `cost_untouched` and `saved` are USD so far, without what a plan paid for; `saved` and
    `saved_percent` are after `cost_caused`, which came of files that were read again because they had left, and
    negative for a loss; `saved_percent` is null where the untouched run cost nothing. `plan`: what was taken of the
    plan that paid for all of it; `plan_part`: which part a plan paid for, where it paid not for all; else empty."""

    id: str
    parent: str | None
    threads: list[str]
    title: str
    created: int
    last_active: int
    requests: int
    turns: int
    retries: int
    frames: int
    active_frame: str | None
    awake: bool
    mode: str | None
    stopped: bool
    cost: float
    cost_untouched: float
    saved: float
    saved_percent: float | None
    cost_caused: float
    plan: str
    plan_part: str
    unreadable: NotRequired[str]


class ThreadRow(TypedDict):
    """One path that a client loop continues. `tip` is its newest entry."""

    id: str
    tip: str
    last_active: int
    awake: bool
    active_frame: str | None
    frames: int
    tools: list[str]


class FrameState(TypedDict):
    """One frame. What does not apply is left out. `artifacts` are what was noted and the files its calls changed;
    `auto` is there, and true, where the proxy made the frame and not the model; `folded` where what it did left the
    line by a fold and can be unfolded; `kept` where it was asked back, alone or with what it is part of: it comes
    back if it is folded, and is never folded again."""

    sessionID: str
    parentSessionID: NotRequired[str]
    status: str
    title: str
    successCriteria: str
    successCriteriaCompacted: str
    results: NotRequired[str]
    resultsCompacted: NotRequired[str]
    createdAt: int
    updatedAt: int
    artifacts: list[str]
    decisions: list[str]
    logPath: str
    invalidationReason: NotRequired[str]
    invalidatedAt: NotRequired[int]
    plannedChildren: NotRequired[list[str]]
    auto: NotRequired[bool]
    folded: NotRequired[bool]
    kept: NotRequired[bool]


class UnfoldView(TypedDict):
    """A folded frame that is wanted back. `frame` is the one whose fold is taken back: the one asked for, or one that
    holds what it did. `new` is false where it was asked before; `comes` says when, in words."""

    frame: str
    title: str
    conversation: str
    new: bool
    now: bool
    comes: str


class LoopRow(TypedDict):
    """A loop that was warned of. `calls` are its calls in words, `signatures` the same for machines; `entry` is where
    it closed, at `created`; `standing`: the work it arose in goes on, and nobody has cleared it."""

    kind: str
    calls: list[str]
    signatures: list[str]
    count: int
    frame: str
    entry: str
    created: int
    standing: bool


class TouchedFile(TypedDict):
    """A file that a frame's calls named. `how`: changed or read; `entry`: where it was last touched."""

    path: str
    how: str
    entry: str


class InterimSummaryView(TypedDict):
    """What the model summed up of a frame while it went on, at `created`: all up to the entry `entry`."""

    type: Literal["manual_summary"]
    text: str
    entry: str
    created: int


class WithInterimSummary(TypedDict):
    """Whether the model summed up a frame before its end."""

    summary: NotRequired[InterimSummaryView]


class FrameDetail(FrameState, WithInterimSummary):
    """A frame with its place. `ancestors`: the nearest first; `children`: in order of birth."""

    conversation: str
    active: bool
    ancestors: list[str]
    children: list[str]
    origin: str
    attempts: int
    retryOf: str | None
    tokens: int
    files: list[TouchedFile]


class TreeState(TypedDict):
    """The tree of one path."""

    version: int
    frames: dict[str, FrameState]
    activeFrameID: NotRequired[str]
    rootFrameIDs: list[str]
    updatedAt: int


class CallView(TypedDict):
    id: str
    name: str
    arguments: str
    state: CallState


MessageState = Literal["waiting", "delivered", "expired"]


class MessageRow(TypedDict):
    """What a person said into a conversation. `position` counts what waits, from 1; `thread` is the only one that may
    be told, null for any; `delivered` and `entry` say when the model was told, and with which words of the ledger."""

    id: str
    lane: str
    thread: str | None
    text: str
    state: MessageState
    position: int | None
    created: int
    expires: int
    delivered: int | None
    entry: str | None


class InFlightRow(TypedDict):
    """A request under way. `round` counts from 0 the rounds with the provider; `text` is what all of them said so far,
    at most its newest 20,000 characters, `calls` are those of the newest one."""

    request: str
    thread: str
    frame: str
    status: str
    created: int
    round: int
    text: str
    calls: list[CallView]


class MessageView(TypedDict):
    """`answers` is the id of the call this is the result of, or empty; `error`: that result tells of a failure. `wire`,
    the stored text byte for byte, is there when it was asked for."""

    role: str
    text: str
    calls: list[CallView]
    answers: str
    error: bool
    tokens: int
    wire: NotRequired[str]


class LogItem(MessageView):
    """One message of a frame. `results` are those of hidden calls; `current`: stands on the path that grew last.
    `finish` is the provider's word for how an answer ended; `complete` is false for one that broke off."""

    id: str
    kind: str
    thread: str
    created: int
    current: bool
    results: list[MessageView]
    finish: str
    complete: bool


class FrameLogItem(LogItem):
    """The same with the one `frame` it belongs to now: a pop hands user messages of the unfinished turn on, and both
    logs have them."""

    frame: str


class FrameLog(TypedDict):
    frame: str
    conversation: str
    title: str
    status: str
    entries: list[FrameLogItem]


class RequestRow(TypedDict):
    """One client request. `receipt` is empty until it is answered."""

    id: str
    conversation: str
    thread: str
    frame: str
    entry: str
    created: int
    status: str
    receipt: ReceiptView


class SentBody(TypedDict):
    round: int
    created: int
    body: str


class RequestDetail(RequestRow):
    """With the client's body and each body sent for it."""

    body: str
    sent: list[SentBody]


class MessageChange(TypedDict):
    """`change`: kept, first bytes, left out, inserted. `client` and `sent` are positions in `messages`."""

    change: str
    role: str
    client: int | None
    sent: int | None
    bytes: int
    calls: list[str]
    text: str


class NamedChanges(TypedDict):
    kept: list[str]
    changed: list[str]
    inserted: list[str]
    left_out: list[str]


class BodyDiff(TypedDict):
    """One body against another; the rest is there where both are chat requests (`readable`)."""

    same: bool
    readable: bool
    client_bytes: int
    sent_bytes: int
    counts: NotRequired[dict[str, int]]
    head: NotRequired[list[MessageChange]]
    messages: NotRequired[list[MessageChange]]
    tools: NotRequired[NamedChanges]
    fields: NotRequired[NamedChanges]


class RoundDiff(BodyDiff):
    round: int


class RequestDiff(TypedDict):
    id: str
    status: str
    receipt: ReceiptView
    rounds: list[RoundDiff]


class CostDecisionView(TypedDict):
    """One question of the cost gate and its answer, also "not now". `kind`: wake, fold, trim, view or unfold;
    `subject` the frames, "part" for a part of one; `reason`: gate (it pays), cold, pressure, bound, not_yet and
    others. In tokens: `removed` leave the line, `compaction` stands for them, `behind` stay behind the cut and are
    written to the provider's cache again, `added` comes with it for good, `reasoning` can no longer be sent.
    `requests` were still expected; `read` and `write` are prices as multiples of the input price; `cost` and `gain`
    are input tokens that would be paid in full, and `band` is the part of `gain` that comes from staying below the
    length from which a request costs more."""

    kind: str
    subject: str
    done: bool
    reason: str
    removed: int
    compaction: int
    behind: int
    requests: int
    read: float
    write: float
    cost: float
    gain: float
    added: int
    reasoning: int
    band: float


class CacheTokensView(TypedDict):
    """Input tokens by what they cost. `prefix`: at most this much could be read from the cache."""

    cached: int
    written: int
    uncached: int
    prefix: int


class UsageView(TypedDict):
    """As the provider reports it; `input` contains cached and written tokens, `written` those kept for an hour, of
    which older receipts say nothing."""

    input: int
    output: int
    cached: int
    written: int
    written_long: NotRequired[int]


class PlanWindowView(TypedDict):
    """What a request took of one window of a plan (`5h`, `7d`). Shares are 1 for the whole window, and 0 while its size
    is not known; `scale` is the share that 1 of the plan's `cost` takes. `used` is what the provider told last, of all
    requests to the account; `resets_at` is in seconds since 1970."""

    name: str
    share: float
    share_untouched: float
    scale: float
    scale_error: float
    used: float
    resets_at: int


class PlanCostView(TypedDict):
    """A request that a plan pays for: `cost` and `cost_untouched` are USD of fresh input that weigh as much in its
    windows, which nobody pays. `read` is what a cached token weighs beside a fresh one, `read_for_gate` the least of
    it, by which folds are weighed; `write` and `output` are weights beside list prices. `rounds`: from how many answers
    they were read, 0 for what is expected of plans. `account` tells accounts apart, empty in older receipts."""

    cost: float
    cost_untouched: float
    read: float
    read_for_gate: float
    write: float
    output: float
    rounds: int
    windows: list[PlanWindowView]
    account: str


class ReceiptView(TypedDict, total=False):
    """What a request cost; empty until it is answered. Tokens as our counter (`counter`) counts them, money in USD at
    the prices of `tariffs_as_of`. `tokens_in` came from the client, `tokens_sent` were sent in all rounds together,
    `tokens_last` in the last one; `fixed_*` is the client's tools and system text; `own_*` is what we added, with
    `own_traces` contained in `own_texts`. `sent` and `untouched` are estimates, `usage` is the provider's; `basis` says
    which of them `cost` is computed from; `plan` is null for what is paid by the token. `saved` is negative for a
    loss. `brief_tools` of the client's tools were not sent in the last round."""

    id: str
    conversation: str
    thread: str
    frame: str
    model: str
    upstream: str
    mode: str
    status: str
    reason: str
    created: int
    duration_ms: float
    overhead_ms: float
    stream: bool
    hidden_calls: int
    recalls: int
    rereads: int
    rereads_gone: int
    events: list[str]
    client_status: int
    upstream_status: int
    finish_reason: str
    would_send: int
    decisions: list[CostDecisionView]
    lost_reasoning: int
    brief_tools: int
    client: str
    project: str
    group: str
    rounds: int
    tokens_in: int
    tokens_sent: int
    tokens_last: int
    tokens_saved: int
    fixed_in: int
    fixed_sent: int
    own_tools: int
    own_texts: int
    own_traces: int
    own_rounds: int
    sent: CacheTokensView
    untouched: CacheTokensView
    usage: UsageView
    usage_by_round: list[UsageView | None]
    cost: float
    cost_untouched: float
    saved: float
    basis: str
    priced: bool
    output_priced: bool
    tariffs_as_of: str
    cost_rereads: float
    price_factor: float
    billed: bool
    counter: str
    form: str
    fixed_untouched: CacheTokensView
    fixed_once: CacheTokensView
    plan: PlanCostView | None
    cost_fixed: float


class ReadAgainView(TypedDict):
    """Files that were read again, as receipts tell it: in the `requests` in which the proxy acted, `gone` of text that
    had left (which took `cost` of the untouched bill), and in the `passed` requests of sessions that passed
    untouched."""

    requests: int
    rereads: int
    gone: int
    cost: float
    passed: int
    passed_rereads: int


class TotalsRow(TypedDict):
    """Receipts added up. Tokens as our counter counts, money in USD. `title` and `status` are those of a frame, a
    conversation or a request. `rereads` are reads of what had been read before in the conversation, `rereads_gone`
    those of them whose content we had taken off the line, in all and by tool; they are looked up for frames and
    conversations alone.
    `untouched_*` is how the cache would have taken what the client sent, `sent_*` how it took what was sent, both
    estimated; `reported_*` is the provider's own usage, told for `reported` requests, of which we counted
    `reported_sent` tokens. `own` is what we added, contained in `tokens_sent`, with its parts; `own_traces` are
    contained in `own_texts`. `lost_reasoning` had to be left out. `peak_in` and `peak_sent` are the fullest single
    request. `saved_percent` is of `cost_untouched`, negative for a loss. `caused` counts what of `read_again.gone` is
    above the rate at which agents read again where nothing left, `cost_caused` is its price, and `saved_after` is
    `saved` less that. `cost_fixed` is the share of the client's tools and system text in both costs. Of these sums
    `by_plan_cost` and `by_plan_untouched` are list prices of what a plan paid for, which nobody pays. `by_plan`,
    `estimated`, `unpriced` and `output_unpriced` count requests."""

    key: str
    title: str
    status: str
    requests: int
    rounds: int
    recalls: int
    rereads: int | None
    rereads_gone: int | None
    tokens_in: int
    tokens_sent: int
    tokens_saved: int
    untouched_cached: int
    untouched_written: int
    untouched_uncached: int
    sent_cached: int
    sent_written: int
    sent_uncached: int
    fixed_in: int
    fixed_sent: int
    own: int
    own_tools: int
    own_texts: int
    own_traces: int
    rereads_gone_by: dict[str, int] | None
    own_rounds: int
    lost_reasoning: int
    peak_in: int
    peak_sent: int
    reported: int
    reported_sent: int
    reported_input: int
    reported_output: int
    reported_cached: int
    reported_written: int
    cost: float
    cost_untouched: float
    saved: float
    saved_percent: float | None
    read_again: ReadAgainView
    caused: float
    cost_caused: float
    saved_after: float
    saved_after_percent: float | None
    cost_fixed: float
    by_plan: int
    by_plan_cost: float
    by_plan_untouched: float
    estimated: int
    unpriced: int
    output_unpriced: int


class Totals(TypedDict):
    """`fixed`: with the client's tools and system text. `zone`: that of the days. `unsettled`: requests without a
    receipt, most of them still being answered. `capped`: there are older requests than those added up. `dearer`:
    conversations that cost more than untouched, by id, the worst first."""

    by: str
    fixed: bool
    zone: str
    rows: list[TotalsRow]
    total: TotalsRow
    dearer: list[str]
    unsettled: int
    capped: bool


class MeasureRow(TypedDict):
    """One measure of both groups; less is better in all. `folded` and `held_out` are the amount of a typical session
    (geometric mean) where `unit` is "percent", and a rate in percent where it is "points". `difference`, `low` and
    `high` are in that unit, null without enough sessions. `verdict` is better, worse, same or few."""

    name: str
    unit: str
    folded: float | None
    held_out: float | None
    difference: float | None
    low: float | None
    high: float | None
    verdict: str


class ProofView(TypedDict):
    """Sessions that were held out (`holdout`) against the others. `folded` and `held_out` count them; `sentences` tell
    the result. `capped`: there are older requests than those compared."""

    folded: int
    held_out: int
    measures: list[MeasureRow]
    sentences: list[str]
    capped: bool
