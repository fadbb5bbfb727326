"""The types of all responses of `/stack`, for the views and for OpenAPI. Times are ms since the epoch. Frames and
states keep the field names of the original state file (`sessionID` is a frame's id); other names are Python style."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict  # pydantic reads the one of `typing` from Python 3.12 on only

from callstack_proxy.management.reports import ComparedMeasure, ReceiptTotals
from callstack_proxy.management.views.struct_schema import StructSchema
from proxy.accounting import Receipt

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
    notes: NotRequired[dict[str, list[str]]]
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


class NoReceipt(TypedDict):
    """While the request is being answered, and where its receipt cannot be read."""


class RequestRow(TypedDict):
    """One client request. `receipt` is empty until it is answered."""

    id: str
    conversation: str
    thread: str
    frame: str
    entry: str
    created: int
    status: str
    receipt: Annotated[Receipt, StructSchema()] | NoReceipt


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
    receipt: Annotated[Receipt, StructSchema()] | NoReceipt
    rounds: list[RoundDiff]


class Totals(TypedDict):
    """`fixed`: with the client's tools and system text. `zone`: that of the days. `unsettled`: requests without a
    receipt, most of them still being answered. `capped`: there are older requests than those added up. `dearer`:
    conversations that cost more than untouched, by id, the worst first."""

    by: str
    fixed: bool
    zone: str
    rows: list[Annotated[ReceiptTotals, StructSchema()]]
    total: Annotated[ReceiptTotals, StructSchema()]
    dearer: list[str]
    unsettled: int
    capped: bool


class ProofView(TypedDict):
    """Sessions that were held out (`holdout`) against the others. `folded` and `held_out` count them; `sentences` tell
    the result. `capped`: there are older requests than those compared."""

    folded: int
    held_out: int
    measures: Sequence[Annotated[ComparedMeasure, StructSchema()]]
    sentences: list[str]
    capped: bool
