"""The events of a frame tree, and their form in the ledger.

An event hangs on the ledger entry at which it was decided, as JSON. State is never edited: it is replayed from the
events of a path, so forks, retries and edited histories need no code of their own. Stored events stay readable: a tag
and the names of its fields never change, and a new field has a default.
"""

from __future__ import annotations

import base64
import functools
import operator
from collections.abc import Iterable, Iterator
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


class FrameEvent(msgspec.Struct, frozen=True):
    """What happened to a tree. A class below with a tag is an event; no list has to name it."""


class RootStarted(FrameEvent, frozen=True, tag=ROOTED):
    """At a user message: a conversation began, or its next tree after the last one ended."""

    frame: str
    title: str
    criteria: str


class NewFrame(FrameEvent, frozen=True):
    """What every event says that creates a frame with a goal."""

    frame: str
    parent: str
    title: str
    criteria: str


class FramePlanned(NewFrame, frozen=True, tag="planned"):
    compacted: str = ""
    origin: str = "model"
    key: str = ""
    """The item's id in the client's own plan."""


class FrameReplanned(FrameEvent, frozen=True, tag="replanned"):
    """New words for a frame that is still planned, or for a root that had no task."""

    frame: str
    title: str
    criteria: str
    compacted: str = ""


class FramePushed(NewFrame, frozen=True, tag="pushed"):
    """A frame began. `turn` and `call` name the opening call; `block` is the text of its result."""

    turn: str
    call: str
    block: str
    compacted: str = ""
    before: str = ""
    view: str = "fork"
    retry_of: str = ""
    origin: str = "model"


class FrameActivated(FrameEvent, frozen=True, tag="activated"):
    """A planned frame began, or a blocked one was resumed. `through` are the planned frames above it that begin with
    it, outermost first."""

    frame: str
    turn: str
    call: str
    block: str
    before: str = ""
    view: str = "fork"
    through: tuple[str, ...] = ()


class FramePopped(FrameEvent, frozen=True, tag="popped"):
    """A frame ended. `call_result` is the new result of its opening call; `carried` are user messages of the unfinished
    turn, which pass to the frame that it returns to. `artifacts` are files that its calls changed and `decisions` those
    named in its results; both are added to the ones noted before. `stays`: it was stopped in place: its entries stay in
    the context, and its call keeps its result."""

    frame: str
    status: Status
    results: str
    compacted: str
    call_result: str = msgspec.field(default="", name="told")
    carried: tuple[str, ...] = ()
    tokens: int = 0
    artifacts: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    stays: bool = False


class PopDeferred(FrameEvent, frozen=True, tag="pop deferred"):
    """A change of a frame that waits, of one of two kinds. A pop was refused, because its message also held calls of
    the client: `forgotten_frames` ends the frame with these results if the model's next message answers the user. Or an
    item of the client's plan changed inside a frame that the model had pushed, and follows behind that frame's pop: it
    ends, with what was said at the tick (`results`), or begins (in progress); one put back (planned) does not."""

    frame: str
    turn: str
    status: Status
    results: str
    compacted: str


class FrameInvalidated(FrameEvent, frozen=True, tag="invalidated"):
    """`cascade`: planned descendants that are invalidated too. `stays`: its entries stay in the context, as in
    `FramePopped`. `returns`: work leaves the frame although it was in an item of the client's plan inside."""

    frame: str
    reason: str
    call_result: str = msgspec.field(default="", name="told")
    cascade: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    stays: bool = False
    returns: bool = False


class ArtifactAdded(FrameEvent, frozen=True, tag="artifact"):
    frame: str
    artifact: str


class DecisionAdded(FrameEvent, frozen=True, tag="decision"):
    """`supersedes` is the text of the same frame's decision that this one replaces."""

    frame: str
    decision: str
    supersedes: str = ""


class NoteKept(FrameEvent, frozen=True, tag="note kept"):
    """Any other text that a tool keeps on a frame. It is told under its `kind` ("findings") wherever the decisions are:
    in results, traces and exports."""

    frame: str
    kind: str
    text: str


class ThreadWoken(FrameEvent, frozen=True, tag="woken"):
    """The proxy began to act on a thread: tools and guidance as rendered then, at the start of the context; or
    `appended`, both as one message of the dialect, behind the entry `at`. An appended text may move to the start later,
    at the entry `at`. `frame`, in a thread that woke in mid-work, is the frame whose block is due behind the newest
    message. `brief`: the client's rarely used tools are sent with brief descriptions from then on."""

    guidance: str
    tools: str
    appended: str = ""
    at: str = ""
    frame: str = ""
    brief: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """The parts that take tokens."""
        return (self.tools, self.guidance, self.appended)


class BlockStale(FrameEvent, frozen=True, tag="block stale"):
    """The blocks of these frames should be rendered anew when that breaks no prompt cache."""

    frames: tuple[str, ...]


class BlockRenewed(FrameEvent, frozen=True, tag="block renewed"):
    """New text of a frame's block, as the result of its opening call (`block`); or new texts of the woken thread
    (`guidance` or `appended`). `due`: the block comes behind the newest message."""

    frame: str
    block: str = ""
    guidance: str = ""
    appended: str = ""
    due: str = ""


class ContextTrimmed(FrameEvent, frozen=True, tag="trim"):
    """The context exceeded the window: these entries left it and `trace` replaces them. The results of our calls
    `answers` (turn, call) are replaced by `words`."""

    entries: tuple[str, ...]
    trace: str
    at: str = ""
    answers: tuple[tuple[str, str], ...] = ()
    words: str = ""


class FrameEntered(NewFrame, frozen=True, tag="entered"):
    """A frame began without a push: inferred from the client's messages, or by a person ("human"). It is new, planned,
    or already in progress. It takes over the earlier entries `taking`: the call group that opened it, or a turn that
    turned out to be a frame. With `around` it stands above that frame, which is in progress; the work goes on in
    there."""

    origin: str
    taking: tuple[str, ...] = ()
    retry_of: str = ""
    around: str = ""


class FrameMoved(FrameEvent, frozen=True, tag="moved"):
    """A frame goes on under another parent, because the one that it stood in has ended. If a result stands for that
    one, what was done in the frame before belongs there; else it goes along."""

    frame: str
    parent: str


class SubagentStarted(FrameEvent, frozen=True, tag="delegated"):
    """A subagent began to do the work of this frame in a conversation of its own. `call` gave it the task, and the
    result of that call ends the frame."""

    frame: str
    parent: str
    title: str
    criteria: str
    conversation: str
    call: str


class FrameSplit(FrameEvent, frozen=True, tag="parted"):
    """The work so far of a long frame became a finished frame below it, which owns the entries `taking`."""

    frame: str
    parent: str
    title: str
    results: str
    taking: tuple[str, ...]
    tokens: int = 0
    artifacts: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()


class FrameFolded(FrameEvent, frozen=True, tag="folded"):
    """Entries of an inferred frame left the context. `trace` replaces them behind the entry `at`, together with earlier
    traces whose entries are among them. `muted` are answers that lose their reasoning."""

    frame: str
    entries: tuple[str, ...]
    trace: str
    at: str = ""
    muted: tuple[str, ...] = ()


class FoldSummarized(FrameEvent, frozen=True, tag="summarised"):
    """A model's summary of what left with the fold of `frame` at the same entry. It appears when the trace is next
    rendered; the context does not change now."""

    frame: str
    text: str


class InterimSummaryAdded(FrameEvent, frozen=True, tag="interim summary"):
    """The model's summary of a frame that goes on. When the entries up to `at` leave the context, `words` join their
    trace; the context does not change now. People see `text`."""

    frame: str
    at: str
    words: str
    text: str


class FrameKept(FrameEvent, frozen=True, tag="kept"):
    """A person wants a folded frame back, and never folded again: when that is cheap, or at once if `now`."""

    frame: str
    now: bool = False


class FrameUnfolded(FrameEvent, frozen=True, tag="unfolded"):
    """The entries of a fold are back in the context."""

    frame: str


class ResultReplaced(FrameEvent, frozen=True, tag="replaced"):
    """New text for the result of a call: an output that was too long, a note whose file had left the context, an old
    output that was cleared. An empty text: the stored one again, which never changes."""

    entry: str
    text: str
    why: str = ""


class ReasoningRemoved(FrameEvent, frozen=True, tag=REASONING_REMOVED):
    """Removes the reasoning of turns for good, from the first that no longer fits its prefix. `why` is `HEAD_CHANGED`
    if the client changed its system text, its tools or the model's vendor."""

    turns: tuple[str, ...]
    why: str = ""


class ProviderCompacted(FrameEvent, frozen=True, tag="sealed"):
    """These entries hold the provider's compaction of all before them, which only the provider can read: they never
    leave the context, and no fold reaches past them."""

    entries: tuple[str, ...]


class ProviderEditedContext(FrameEvent, frozen=True, tag="provider trimmed"):
    """The provider edited or compacted its input, so its cache state is unknown from now on."""


class LoopDetected(FrameEvent, frozen=True, tag="looped"):
    """The frame repeats itself in a loop; a note tells the model."""

    frame: str
    loop: Loop


class LoopWarningsCleared(FrameEvent, frozen=True, tag="loops cleared"):
    """A person dismissed the loops up to the entry `at`."""

    frame: str
    at: str


class ContextPressureWarned(FrameEvent, frozen=True, tag="pressed"):
    """The context has filled `filled` of `window` tokens; a note tells the model."""

    frame: str
    filled: int
    window: int


class ContextPressureRelieved(FrameEvent, frozen=True, tag="relieved"):
    """The context is clearly shorter than at the last warning."""


class QueuedMessagesDelivered(FrameEvent, frozen=True, tag="dequeued"):
    """The model receives queued messages: `entry` is the overlay with their text, `messages` their ids. On a turn they
    stand behind the round of this event."""

    frame: str
    entry: str
    messages: tuple[str, ...]


class CheckpointSet(FrameEvent, frozen=True, tag="checkpoint"):
    """Names a point of `branch`: everything up to and including the entry `at`. `look` is the fingerprint of
    the request before: hashes of system text and tools, and the model."""

    name: str
    at: str
    branch: str = msgspec.field(default="main", name="line")
    automatic: bool = False
    look: tuple[str, str, str] = ("", "", "")


class BranchSwitchRequested(FrameEvent, frozen=True, tag="line wanted"):
    """From the user's next message on, work continues on `branch`; with `at` it is a new branch that begins
    behind that entry, the checkpoint of this name."""

    branch: str = msgspec.field(name="line")
    at: str = ""
    checkpoint: str = ""
    reason: str = ""


class BranchSwitched(FrameEvent, frozen=True, tag="switched"):
    """The requested branch begins with the message that holds this event. `look`: the fingerprint of the last request
    on the branch that is left."""

    branch: str = msgspec.field(name="line")
    at: str = ""
    checkpoint: str = ""
    reason: str = ""
    look: tuple[str, str, str] = ("", "", "")


class CopiedText(msgspec.Struct, frozen=True):
    """A text of another branch: its message by `number` (0: the results of a frame), its role, and its reference."""

    ref: str
    role: str
    source: str
    text: str
    number: int = 0


class InjectionRequested(FrameEvent, frozen=True, tag="injection wanted"):
    """These texts of the branch `source` are to be added once at the end of the other `branch`."""

    branch: str = msgspec.field(name="line")
    source: str
    texts: tuple[CopiedText, ...]


class InjectionDelivered(FrameEvent, frozen=True, tag="injected"):
    """The texts that waited for `branch` were added to it."""

    branch: str = msgspec.field(name="line")


class HistoryRewritten(FrameEvent, frozen=True, tag=HISTORY_REWRITTEN_KIND):
    """The client sent old messages in another form, the first of them here; overlays move along to the new forms.
    Stores written before this event existed moved only some of them."""


class SuggestionMade(FrameEvent, frozen=True, tag="suggested"):
    """A frame operation was suggested while `frame` was active."""

    frame: str
    suggestion: Suggestion


class SuggestionsCleared(FrameEvent, frozen=True, tag="suggestions cleared"):
    """At `at` (ms) somebody withdrew the waiting suggestions, or reset the counts."""

    at: int
    waiting: bool = False
    counts: bool = False


class AutonomySet(FrameEvent, frozen=True, tag="autonomy set"):
    """New autonomy settings of this conversation, always complete."""

    chosen: AutonomySettings


class UserCommandApplied(FrameEvent, frozen=True, tag="by hand"):
    """A person changed the tree; the events beside this one are the changes. `key` is unique at this entry, `words` are
    for the model, `reply` is for the person."""

    key: str
    words: str
    reply: str = msgspec.field(default="", name="told")


class UserCommandsAnnounced(FrameEvent, frozen=True, tag="hand told"):
    """The model was told of all user commands so far; `words` is a digest of the text."""

    words: str


class RootAnnounced(FrameEvent, frozen=True, tag=ROOT_ANNOUNCED_KIND):
    """The model was told of a new root."""

    frame: str


class ParentsAnnounced(FrameEvent, frozen=True, tag="parents told"):
    """A subagent was told of the frames of its parent conversation; `words` is a digest of the text."""

    conversation: str
    words: str


def _kinds(base: type[FrameEvent] = FrameEvent) -> Iterator[type[FrameEvent]]:
    """All classes of events: those with a tag of their own."""
    for each in base.__subclasses__():
        if each.__struct_config__.tag is not None:
            yield each
        yield from _kinds(each)


EVENT_CLASSES = tuple(_kinds())
_decoder: msgspec.json.Decoder[FrameEvent] = msgspec.json.Decoder(functools.reduce(operator.or_, EVENT_CLASSES))


def as_ledger_event(event: FrameEvent, entry: str, number: int, seq: int, now: int) -> LedgerEvent:
    """The event as a ledger record, whose subject says what counts as the same event.

    A frame begins once. Events that may repeat at the same entry (a frame that is popped as blocked, resumed and popped
    again) get their round and a digest as subject, or the second would be dropped as a second writer's. A thread wakes
    once, and may be moved to the start of the context once at the same entry.
    """
    data = msgspec.json.encode(event)
    subject = event.branch if isinstance(event, BranchSwitched) else getattr(event, "frame", "")
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
    return any(event.kind == ROOTED for event in events)


def decode_event(event: LedgerEvent) -> FrameEvent:
    return _decoder.decode(event.data)


def call_key(number: int, call: str) -> str:
    """A call within its turn: providers repeat ids from round to round."""
    return f"{number}/{call}"


def frame_id(turn: str, call_number: int) -> str:
    """`f` and 8 letters: base32 of a hash of the turn and the number of the call in it."""
    digest = sha256(f"{turn}\n{call_number}".encode()).digest()
    return "f" + base64.b32encode(digest[:5]).decode().lower()


FIRST_SUBAGENT_NUMBER = 10_000
"""Subagent frames are numbered from here; frames of push calls by the number of the call."""


def subagent_frame_id(turn: str, call_number: int = 0) -> str:
    """Id of the frame of a subagent that the client call of this number began."""
    return frame_id(turn, FIRST_SUBAGENT_NUMBER + call_number)
