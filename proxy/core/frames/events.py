"""What can happen to a tree of frames, and how the ledger keeps it.

An event hangs on the entry it was decided at, as JSON; state is never edited, it is what the events on a path make of
it. So forks, retries and edits of history need no code of their own.

The law: **what was recorded stays readable**. A kind keeps its tag and the names of its members, and a member that
comes later has a default: what lies in a database is read with these classes.

What this module does not do: it decides nothing (the tools do), and changes no tree (`applying` does).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from hashlib import sha256

import msgspec

from proxy.core.frames.suggestion_log import AutonomySettings, Suggestion
from proxy.core.frames.tree import Loop, Status
from proxy.core.ledger import LedgerEvent

ROOTED = "rooted"
ROOT_ANNOUNCED_KIND = "root told"
HISTORY_REWRITTEN_KIND = "rewritten"
REASONING_REMOVED = "reasoning removed"
HEAD_CHANGED = "head"


class RootStarted(msgspec.Struct, frozen=True, tag=ROOTED):
    """A conversation began, or, once its tree of frames has ended, the next one. At a message of the user's."""

    frame: str
    title: str
    criteria: str


class FramePlanned(msgspec.Struct, frozen=True, tag="planned"):
    frame: str
    parent: str
    title: str
    criteria: str
    compacted: str = ""
    origin: str = "model"
    key: str = ""
    """How the client's own plan calls it."""


class FrameReplanned(msgspec.Struct, frozen=True, tag="replanned"):
    """A planned frame was given other words; allowed only while it is planned."""

    frame: str
    title: str
    criteria: str
    compacted: str = ""


class FramePushed(msgspec.Struct, frozen=True, tag="pushed"):
    """A frame began. `turn`, `call` name the opening call; `block` is the text the child is told as its result."""

    frame: str
    parent: str
    title: str
    criteria: str
    turn: str
    call: str
    block: str
    compacted: str = ""
    before: str = ""
    view: str = "fork"
    retry_of: str = ""
    origin: str = "model"


class FrameActivated(msgspec.Struct, frozen=True, tag="activated"):
    """A planned frame began, or a blocked one was resumed; `through` are the planned frames between it and the one it
    was called from, the outermost first: they begin with it."""

    frame: str
    turn: str
    call: str
    block: str
    before: str = ""
    view: str = "fork"
    through: tuple[str, ...] = ()


class FramePopped(msgspec.Struct, frozen=True, tag="popped"):
    """A frame ended. `told` is what the result of its opening call says from now on; `closed` are frames below it
    that closed as blocked; `carried` are the user messages of the unfinished turn, handed to the frame it returns
    to. `artifacts` are the files its calls changed, `decisions` those its results tell of: both join what was noted.
    One that `stays` was stopped where it stood: nothing is told in its place, and no word of it leaves the line."""

    frame: str
    status: Status
    results: str
    compacted: str
    told: str = ""
    carried: tuple[str, ...] = ()
    tokens: int = 0
    artifacts: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    stays: bool = False


class FrameInvalidated(msgspec.Struct, frozen=True, tag="invalidated"):
    """`cascade`: planned descendants that go with it. `stays`: as of a frame that ended."""

    frame: str
    reason: str
    told: str = ""
    cascade: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    stays: bool = False


class ArtifactAdded(msgspec.Struct, frozen=True, tag="artifact"):
    frame: str
    artifact: str


class DecisionAdded(msgspec.Struct, frozen=True, tag="decision"):
    """`supersedes` is the decision of the same frame whose place it takes, in its words."""

    frame: str
    decision: str
    supersedes: str = ""


class ThreadWoken(msgspec.Struct, frozen=True, tag="woken"):
    """The thread woke: tools and guidance, as rendered then, in front of all; or `appended`, both as one message of the
    dialect, behind the entry `at`. What was appended may be told in front later: then at the entry `at`."""

    guidance: str
    tools: str
    appended: str = ""
    at: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """What of it takes tokens."""
        return (self.tools, self.guidance, self.appended)


class BlockStale(msgspec.Struct, frozen=True, tag="block stale"):
    """What these frames were told of the tree around them is to be written anew, where that breaks no cache."""

    frames: tuple[str, ...]


class BlockRenewed(msgspec.Struct, frozen=True, tag="block renewed"):
    """What a frame was told of the tree around it is told in these words from now on: as the result of the call that
    opened it (`block`), or with what the thread was given when it woke (`guidance` or `appended`)."""

    frame: str
    block: str = ""
    guidance: str = ""
    appended: str = ""


class ContextTrimmed(msgspec.Struct, frozen=True, tag="trim"):
    """The line did not fit the window: these entries left it, and `trace` stands for them; these `answers` of ours, by
    turn and call, are told in `words` from now on."""

    entries: tuple[str, ...]
    trace: str
    at: str = ""
    answers: tuple[tuple[str, str], ...] = ()
    words: str = ""


class FrameEntered(msgspec.Struct, frozen=True, tag="entered"):
    """A frame that nobody pushed began: seen in what the client says. One that was planned begins, one that is under
    way beside others goes on, another is born.
    `taking` are entries already on the path that it owns from now on: the call group that opened it, or a turn that
    turned out to be a frame. A person begins one in the same way (`human`)."""

    frame: str
    parent: str
    title: str
    criteria: str
    origin: str
    taking: tuple[str, ...] = ()
    retry_of: str = ""


class SubagentStarted(msgspec.Struct, frozen=True, tag="delegated"):
    """A subagent began: a conversation of its own does the work of this frame. `call` is the call that told it what to
    do; its result ends the frame."""

    frame: str
    parent: str
    title: str
    criteria: str
    conversation: str
    call: str


class FrameSplit(msgspec.Struct, frozen=True, tag="parted"):
    """Long work was cut: what was done so far is a finished frame under the one it was done in, which goes on. `taking`
    are the entries that it owns from now on."""

    frame: str
    parent: str
    title: str
    results: str
    taking: tuple[str, ...]
    tokens: int = 0
    artifacts: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()


class FrameFolded(msgspec.Struct, frozen=True, tag="folded"):
    """Entries of a frame that nobody pushed left the line; `trace` stands for them behind the entry `at`, and for what
    earlier traces stood for whose entries are among them. `muted` are answers that stay without their reasoning."""

    frame: str
    entries: tuple[str, ...]
    trace: str
    at: str = ""
    muted: tuple[str, ...] = ()


class FoldSummarized(msgspec.Struct, frozen=True, tag="summarised"):
    """A model wrote what the span came to that left with the fold of `frame` at the same entry. Nothing on the line
    changes by it: it is told when the trace is written anew."""

    frame: str
    text: str


class InterimSummaryAdded(msgspec.Struct, frozen=True, tag="interim summary"):
    """The model summed up where `frame` stands, which goes on. Nothing on the line changes by it: when what stands up
    to the entry `at` leaves, `words` are told with its trace. `text` is what people are shown."""

    frame: str
    at: str
    words: str
    text: str


class FrameKept(msgspec.Struct, frozen=True, tag="kept"):
    """A person wants a folded frame back, and never folded again; it comes back at the next moment that is cheap, or
    with `now` at the next one, whatever it costs."""

    frame: str
    now: bool = False


class FrameUnfolded(msgspec.Struct, frozen=True, tag="unfolded"):
    """The entries of a fold are on the line again."""

    frame: str


class ResultReplaced(msgspec.Struct, frozen=True, tag="replaced"):
    """The result of a call is told with other words from now on: an output too long for the line, a note whose file
    had left it, an old output that was cleared. What was stored stays as it was."""

    entry: str
    text: str
    why: str = ""


class ReasoningRemoved(msgspec.Struct, frozen=True, tag=REASONING_REMOVED):
    """From the first item that no longer fits its prefix all are left out, never put back. `why` is `HEAD` where the
    client changed its system text, its tools or the vendor of its model."""

    turns: tuple[str, ...]
    why: str = ""


class ProviderCompacted(msgspec.Struct, frozen=True, tag="sealed"):
    """These entries hold what stands for all before them, readable by the provider alone: they never leave the line,
    and no fold reaches over them."""

    entries: tuple[str, ...]


class ProviderEditedContext(msgspec.Struct, frozen=True, tag="provider trimmed"):
    """The provider edited or compacted by itself what it was sent. What of the line it has cached is not known from
    then on."""


class LoopDetected(msgspec.Struct, frozen=True, tag="looped"):
    """The work of a frame runs in a loop, and the model is told so."""

    frame: str
    loop: Loop


class LoopWarningsCleared(msgspec.Struct, frozen=True, tag="loops cleared"):
    """A person wants to hear no more of the loops up to the entry `at`."""

    frame: str
    at: str


class ContextPressureWarned(msgspec.Struct, frozen=True, tag="pressed"):
    """The window has filled up, `filled` tokens of `window`, and the model is told so."""

    frame: str
    filled: int
    window: int


class ContextPressureRelieved(msgspec.Struct, frozen=True, tag="relieved"):
    """The line has become clearly shorter than when the model was told that the window fills up."""


class QueuedMessagesDelivered(msgspec.Struct, frozen=True, tag="dequeued"):
    """What people said from beside the client is told to the model: `entry` are the words, `messages` the ids of what
    was said. On a turn they stand behind its round at which this happened."""

    frame: str
    entry: str
    messages: tuple[str, ...]


class CheckpointSet(msgspec.Struct, frozen=True, tag="checkpoint"):
    """A point of the line `line` has a name: everything up to and with the entry `at`. `look`: hashes of the system
    text and the tools, and the model, of the request before."""

    name: str
    at: str
    line: str = "main"
    automatic: bool = False
    look: tuple[str, str, str] = ("", "", "")


class BranchSwitchRequested(msgspec.Struct, frozen=True, tag="line wanted"):
    """From the user's next message on the work goes on elsewhere: on the line of this name, or, with `at`, on a new one
    that begins behind that entry, which is the checkpoint of this name."""

    line: str
    at: str = ""
    checkpoint: str = ""
    reason: str = ""


class BranchSwitched(msgspec.Struct, frozen=True, tag="switched"):
    """What `LineWanted` wanted begins with the message this hangs on. `look`: of the last request on the line that is
    left, as in `CheckpointSet`."""

    line: str
    at: str = ""
    checkpoint: str = ""
    reason: str = ""
    look: tuple[str, str, str] = ("", "", "")


class CopiedText(msgspec.Struct, frozen=True):
    """A text of a line: its message of this number (0: what a frame returned), who said it, and where it stands."""

    ref: str
    role: str
    source: str
    text: str
    number: int = 0


class InjectionRequested(msgspec.Struct, frozen=True, tag="injection wanted"):
    """These texts of the line `source` are to be told once at the end of the line `line`."""

    line: str
    source: str
    texts: tuple[CopiedText, ...]


class InjectionDelivered(msgspec.Struct, frozen=True, tag="injected"):
    """What waited to be copied to the line `line` was told."""

    line: str


class HistoryRewritten(msgspec.Struct, frozen=True, tag=HISTORY_REWRITTEN_KIND):
    """The client gave old messages back in another form, the first of them here; what was said beside those goes along
    to where they stand now. Of a store that knows no such event, only some of it did."""


class SuggestionMade(msgspec.Struct, frozen=True, tag="suggested"):
    """A frame operation was suggested while `frame` was active."""

    frame: str
    suggestion: Suggestion


class SuggestionsCleared(msgspec.Struct, frozen=True, tag="suggestions cleared"):
    """At `at` (ms) somebody took back what waits, or had the figures begin anew."""

    at: int
    waiting: bool = False
    counts: bool = False


class AutonomySet(msgspec.Struct, frozen=True, tag="autonomy set"):
    """Somebody set for this conversation how much the proxy decides. All that is set is told each time."""

    chosen: AutonomySettings


class UserCommandApplied(msgspec.Struct, frozen=True, tag="by hand"):
    """A person did something to the tree: the events beside this one came of it. `key` tells it from whatever else was
    done at the same entry, `words` are for the model, `told` is what the person was answered."""

    key: str
    words: str
    told: str = ""


class UserCommandsAnnounced(msgspec.Struct, frozen=True, tag="hand told"):
    """The model was told of all that a person did to the tree so far; `words` is a digest of how."""

    words: str


class RootAnnounced(msgspec.Struct, frozen=True, tag=ROOT_ANNOUNCED_KIND):
    """The model was told of a root that began beside those it knew."""

    frame: str


class ParentsAnnounced(msgspec.Struct, frozen=True, tag="parents told"):
    """A subagent was told of the frames of the `conversation` that delegated it; `words` is a digest of how."""

    conversation: str
    words: str


FrameEvent = (
    RootStarted
    | FramePlanned
    | FrameReplanned
    | FramePushed
    | FrameActivated
    | FramePopped
    | FrameInvalidated
    | ArtifactAdded
    | DecisionAdded
    | ThreadWoken
    | BlockStale
    | BlockRenewed
    | ContextTrimmed
    | FrameEntered
    | SubagentStarted
    | FrameSplit
    | FrameFolded
    | FoldSummarized
    | InterimSummaryAdded
    | FrameKept
    | FrameUnfolded
    | ResultReplaced
    | ReasoningRemoved
    | ProviderCompacted
    | ProviderEditedContext
    | LoopDetected
    | LoopWarningsCleared
    | ContextPressureWarned
    | ContextPressureRelieved
    | QueuedMessagesDelivered
    | HistoryRewritten
    | SuggestionMade
    | SuggestionsCleared
    | AutonomySet
    | CheckpointSet
    | BranchSwitchRequested
    | BranchSwitched
    | InjectionRequested
    | InjectionDelivered
    | UserCommandApplied
    | UserCommandsAnnounced
    | RootAnnounced
    | ParentsAnnounced
)
_decoder: msgspec.json.Decoder[FrameEvent] = msgspec.json.Decoder(FrameEvent)


def as_ledger_event(event: FrameEvent, entry: str, number: int, seq: int, now: int) -> LedgerEvent:
    """The event as the ledger keeps it.

    A frame is born once. What may happen again at the same entry (a frame popped as blocked, resumed, popped; a line
    trimmed twice) is told apart by its round and its words, or the second time would count as another writer's first.
    A thread wakes once, and may be given all of it in front once more at the same entry.
    """
    data = msgspec.json.encode(event)
    subject = event.line if isinstance(event, BranchSwitched) else getattr(event, "frame", "")
    if isinstance(event, ResultReplaced):
        subject = event.entry
    elif isinstance(event, ThreadWoken):
        subject = "in front" if event.at and not event.appended else ""
    elif not isinstance(
        event, RootStarted | FramePlanned | FramePushed | FrameEntered | SubagentStarted | FrameSplit | FrameFolded
    ):
        subject += f"/{number}/" + sha256(data).hexdigest()[:12]
    return LedgerEvent(entry, number, seq, str(event.__struct_config__.tag), subject, data, now)


def begins_root(events: Iterable[LedgerEvent]) -> bool:
    """Whether a root begins with one of these."""
    return any(event.kind == ROOTED for event in events)


def decode_event(event: LedgerEvent) -> FrameEvent:
    return _decoder.decode(event.data)


def call_key(number: int, call: str) -> str:
    """A call within its turn: providers repeat ids from round to round."""
    return f"{number}/{call}"


def frame_id(turn: str, call_number: int) -> str:
    """`f` and 8 letters: base32 of a hash over the turn and the number of the call in it."""
    digest = sha256(f"{turn}\n{call_number}".encode()).digest()
    return "f" + base64.b32encode(digest[:5]).decode().lower()


FIRST_SUBAGENT_NUMBER = 10_000
"""Numbers of subagents' frames in their turn; those of pushed ones count its calls."""


def subagent_frame_id(turn: str, call_number: int = 0) -> str:
    """The frame of the subagent that a call of a turn began, of the calls that the client was given."""
    return frame_id(turn, FIRST_SUBAGENT_NUMBER + call_number)
