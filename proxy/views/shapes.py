"""The shapes of everything `/stack` answers, as types: what the views return and what OpenAPI describes.

Times are ms since the epoch. Names of frames and states are those of the state file the idea of frames comes from
(`sessionID` is a frame's id), everything else is written as Python would.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict  # pydantic reads the one of `typing` from Python 3.12 on only

PartState = Literal["pending", "running", "completed", "error"]
"""Of a call: its arguments arrive; it runs; its result came, and says that it worked or that it did not."""


class ConversationRow(TypedDict):
    """One conversation. Titles, frames and `awake` tell of the path that grew last. `turns` are client requests that
    were answered, an identical one asked again counted once; `retries` are the further answers to those."""

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
    `auto` is there, and true, where the proxy made the frame and not the model."""

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


class FileTouched(TypedDict):
    """A file that a frame's calls named. `how`: changed or read; `entry`: where it was last touched."""

    path: str
    how: str
    entry: str


class FrameDetail(FrameState):
    """A frame with its place. `ancestors`: the nearest first; `children`: in order of birth."""

    conversation: str
    active: bool
    ancestors: list[str]
    children: list[str]
    origin: str
    attempts: int
    retryOf: str | None
    tokens: int
    files: list[FileTouched]


class State(TypedDict):
    """The tree of one path."""

    version: int
    frames: dict[str, FrameState]
    activeFrameID: NotRequired[str]
    rootFrameIDs: list[str]
    updatedAt: int


class CallMade(TypedDict):
    id: str
    name: str
    arguments: str
    state: PartState


class MessageShown(TypedDict):
    """`answers` is the id of the call this is the result of, or empty; `error`: that result tells of a failure. `wire`,
    the stored text byte for byte, is there when it was asked for."""

    role: str
    text: str
    calls: list[CallMade]
    answers: str
    error: bool
    tokens: int
    wire: NotRequired[str]


class LogItem(MessageShown):
    """One message of a frame. `results` are those of hidden calls; `current`: stands on the path that grew last.
    `finish` is the provider's word for how an answer ended; `complete` is false for one that broke off."""

    id: str
    kind: str
    thread: str
    created: int
    current: bool
    results: list[MessageShown]
    finish: str
    complete: bool


class FrameLog(TypedDict):
    frame: str
    conversation: str
    title: str
    status: str
    entries: list[LogItem]


class RequestRow(TypedDict):
    """One client request. `receipt` is empty until it is answered."""

    id: str
    conversation: str
    thread: str
    frame: str
    entry: str
    created: int
    status: str
    receipt: dict[str, Any]


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


class Difference(TypedDict):
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


class RoundDifference(Difference):
    round: int


class RequestDifference(TypedDict):
    id: str
    status: str
    rounds: list[RoundDifference]


class TotalsRow(TypedDict):
    """Receipts added up. Tokens as our counter counts, money in USD; `own` is what we added, contained in
    `tokens_sent`; `peak_in` and `peak_sent` are the fullest single request."""

    key: str
    requests: int
    rounds: int
    recalls: int
    tokens_in: int
    tokens_sent: int
    tokens_saved: int
    fixed_in: int
    fixed_sent: int
    own: int
    peak_in: int
    peak_sent: int
    reported_input: int
    reported_cached: int
    cost: float
    cost_untouched: float
    saved: float
    estimated: int
    unpriced: int


class Totals(TypedDict):
    """`unsettled`: requests without a receipt, most of them still being answered."""

    by: str
    rows: list[TotalsRow]
    total: TotalsRow
    unsettled: int
