"""What left the context, and what of it was needed later.

After every request the client's history is compared with what was sent for it; missing messages have left, and belong
to the frame that owns them. Then every name in the recorded answer that occurs earlier in the history is in what was
sent, or behind a ref that is, or lost to the model. Doubt never counts in our favour: a name counts as in the context
only where the text is there, a ref only where that request shows it and its frame holds the name. Names in the system
text and the tools do not count, because those never leave. Whether the model would have recalled a ref, or gone another
way, cannot be known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from callstack_proxy.replay.outcome import MissedName, NameNeeds, RemovedContent
from proxy.core.frames import PathEntry, PathState, ancestors, frame_id_of
from proxy.core.ledger import Message, Request
from proxy.core.observers import names_in_text

FAR_REQUESTS = 10
"""A name that last occurred so many requests ago counts as far."""
MAX_MISSED_NAMES = 50
"""Missed names reported for one recording."""
_REF = re.compile(r'\bref="([^"\s]{1,120})"')


class NameReader:
    """Names in messages; each message is read once."""

    def __init__(self) -> None:
        self._names: dict[str, frozenset[str]] = {}
        self._fixed: dict[tuple[bytes, tuple[str, ...]], frozenset[str]] = {}

    def names_in(self, message: Message) -> frozenset[str]:
        known = self._names.get(message.identity)
        if known is None:
            texts = [message.text, *(text for call in message.calls for text in _texts_of(call.arguments))]
            known = self._names[message.identity] = frozenset().union(*map(names_in_text, texts))
        return known

    def fixed_names(self, request: Request) -> frozenset[str]:
        """Names of the system text and the tools."""
        key = request.raw_tools, tuple(message.identity for message in request.head)
        known = self._fixed.get(key)
        if known is None:
            tools = names_in_text(request.raw_tools.decode("utf-8", "replace"))
            known = self._fixed[key] = tools.union(*map(self.names_in, request.head))
        return known


def _texts_of(arguments: str) -> Iterable[str]:
    """The values in the arguments of a call as texts, without the names of parameters."""
    try:
        return list(_leaves(json.loads(arguments)))
    except (ValueError, RecursionError):
        return (arguments,)


def _leaves(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif value is not None:
        yield str(value)


@dataclass
class _History:
    """The message in which each name last occurs, up to the client's newest message."""

    messages: tuple[Message, ...] = ()
    last: dict[str, int] = field(default_factory=dict)
    requests: list[int] = field(default_factory=list)
    """How many assistant messages come before each message."""

    def advance(self, messages: tuple[Message, ...], reader: NameReader) -> None:
        """Read `messages`: only the new ones, or all where the client rewrote its history."""
        known = len(self.messages)
        # Mostly the very same objects, because the dialect reads each message once.
        if messages[:known] != self.messages and [m.identity for m in messages[:known]] != [
            m.identity for m in self.messages
        ]:
            self.last, self.requests, known = {}, [], 0
        for at in range(known, len(messages)):
            before = self.requests[-1] + (messages[at - 1].role == "assistant") if at else 0
            self.requests.append(before)
            self.last.update(dict.fromkeys(reader.names_in(messages[at]), at))
        self.messages = messages

    def age(self, at: int) -> int:
        """Requests since the message at `at` was new; 1 for a message of the newest request."""
        return self.requests[-1] - self.requests[at] + 1


@dataclass(frozen=True)
class ObservedRequest:
    """A request as the client sent it and as it was sent upstream; `number` from 1. `path` are the ids of its entries,
    one for each of the client's messages and then more; `story` is the state of that path."""

    number: int
    conversation: str
    client: Request
    sent: Request
    answer: Message | None
    path: Sequence[str] = ()
    story: PathState = field(default_factory=PathState)


class LossTracker:
    """Tracks one recording, request by request."""

    def __init__(self, reader: NameReader) -> None:
        self._reader = reader
        self._histories: dict[str, _History] = {}
        self._left: dict[tuple[str, str], RemovedContent] = {}
        self._gone: set[tuple[str, str]] = set()
        self._missed: dict[str, MissedName] = {}
        self.needs = NameNeeds()

    @property
    def left(self) -> list[RemovedContent]:
        """In the order of leaving."""
        return list(self._left.values())

    @property
    def missed(self) -> list[MissedName]:
        """The worst first: without a ref, then used most often, then oldest."""
        worst = sorted(self._missed.values(), key=lambda m: (bool(m.ref), -m.times, -m.age, m.name))
        return worst[:MAX_MISSED_NAMES]

    def observe(self, seen: ObservedRequest) -> None:
        history = self._histories.setdefault(seen.conversation, _History())
        history.advance(seen.client.messages, self._reader)
        sent = _SentContext(seen)
        if sent.differs:
            self._record_removed(seen, sent)
        if seen.answer is not None:
            self._record_needs(seen, seen.answer, history, sent)

    # ------------------------------------------------------------------------------------------------------------ left
    def _record_removed(self, seen: ObservedRequest, sent: _SentContext) -> None:
        newest: dict[str, int] = {}
        for at, message in enumerate(seen.client.messages):
            if sent.has_message(at):
                continue
            frame = sent.frame_of(at)
            newest[frame] = at
            left = self._removed_of(seen, frame)
            if (seen.conversation, message.identity) not in self._gone:
                self._gone.add((seen.conversation, message.identity))
                left.messages += 1
                left.tokens += message.tokens
        for frame, at in newest.items():
            known, left = seen.story.tree.frames.get(frame), self._removed_of(seen, frame)
            left.status = str(known.status) if known else ""
            left.ref = bool(sent.refs_to(at))

    def _removed_of(self, seen: ObservedRequest, frame: str) -> RemovedContent:
        """What left of this frame so far."""
        key = (seen.conversation, frame)
        if key not in self._left:
            known = seen.story.tree.frames.get(frame)
            self._left[key] = RemovedContent(
                frame=frame,
                title=known.title if known else "",
                conversation=seen.conversation,
                first_request=seen.number,
            )
        return self._left[key]

    # ----------------------------------------------------------------------------------------------------------- needs
    def _record_needs(self, seen: ObservedRequest, answer: Message, history: _History, sent: _SentContext) -> None:
        """Record where each name of the answer is that occurs in the history."""
        used = self._reader.names_in(answer) - self._reader.fixed_names(seen.client)
        for name in sorted(used & history.last.keys()):
            at = history.last[name]
            age = history.age(at)
            here = sent.has_message(at) or sent.has_name(name, self._reader)
            ref = "" if here else self._ref_to(name, history, sent)
            self._count(far=age >= FAR_REQUESTS, here=here, behind=bool(ref))
            if not here:
                self._record_missed(seen.number, name, history.messages[at].role, age, ref)

    def _count(self, *, far: bool, here: bool, behind: bool) -> None:
        needs = self.needs
        needs.used += 1
        needs.in_context += here
        needs.behind_ref += behind
        if far:
            needs.far_used += 1
            needs.far_in_context += here
            needs.far_behind_ref += behind

    def _ref_to(self, name: str, history: _History, sent: _SentContext) -> str:
        """A ref in the request that recalls a message with `name`, or empty."""
        newest_first = range(len(history.messages) - 1, -1, -1)
        holders = (at for at in newest_first if name in self._reader.names_in(history.messages[at]))
        return next((min(refs) for at in holders if (refs := sent.refs_to(at))), "")

    def _record_missed(self, number: int, name: str, role: str, age: int, ref: str) -> None:
        known = self._missed.get(name)
        if known is None:
            self._missed[name] = MissedName(name=name, times=1, request=number, age=age, said_by=role, ref=ref)
            return
        known.times += 1
        known.ref = known.ref if ref else ""


class _SentContext:
    """What was sent, looked up by the position of the client's messages.

    A message of the client is an entry of the path. An answer the client saw as one may have been several rounds; it
    counts as sent where any of them was.
    """

    def __init__(self, seen: ObservedRequest) -> None:
        self._seen = seen
        self._messages = seen.sent.messages
        self.differs = seen.sent.body != seen.client.body
        self._identities = {m.identity for m in self._messages}
        if not self.differs:
            return
        self._placed: dict[str, list[PathEntry]] = {}
        for path_entry in seen.story.entries:
            self._placed.setdefault(path_entry.path_id, []).append(path_entry)
        theirs = {m.identity for m in seen.client.messages}.union(*map(_identities, seen.story.entries))
        ours = [m for m in (*seen.sent.head, *self._messages) if m.identity not in theirs]
        by_message = [(m, _refs_in(m.text)) for m in ours]
        self._refs: frozenset[str] = frozenset().union(*(refs for _, refs in by_message))
        # A changed result without a ref is the client's own doing; one with a ref replaces what left.
        self._in_other_words = {m.answers for m, refs in by_message if m.answers and not refs}

    def _path_entries(self, at: int) -> Sequence[PathEntry]:
        return self._placed.get(self._entry_id(at), ())

    def _entry_id(self, at: int) -> str:
        return self._seen.path[at] if at < len(self._seen.path) else ""

    def has_message(self, at: int) -> bool:
        """Whether the message was sent, in the client's bytes or in those it was first sent in."""
        message = self._seen.client.messages[at]
        if not self.differs or message.identity in self._identities:
            return True
        if message.answers and message.answers in self._in_other_words:
            return True
        return any(identity in self._identities for p in self._path_entries(at) for identity in _identities(p))

    def has_name(self, name: str, reader: NameReader) -> bool:
        """Whether the name occurs anywhere in what was sent, in any form."""
        if any(name in reader.names_in(m) for m in self._messages):
            return True
        return any(name in m.text or any(name in c.arguments for c in m.calls) for m in self._messages)

    def frame_of(self, at: int) -> str:
        """The frame that owns the message, or empty."""
        placed = self._path_entries(at)
        if not placed:
            return ""
        first = placed[0]
        return frame_id_of(self._seen.story.tree.carried_owners.get(first.path_id, first.owner))

    def refs_to(self, at: int) -> frozenset[str]:
        """The refs in what was sent that recall the message: its frame, those above it, the trace of its removal."""
        tree, frame, entry = self._seen.story.tree, self.frame_of(at), self._entry_id(at)
        above = [known.id for known in ancestors(tree, frame)] if frame else []
        traces = [_refs_in(trim.trace) for trim in tree.removals if entry in trim.entries]
        return self._refs & frozenset((frame, *above)).union(*traces)


@lru_cache(maxsize=4096)
def _refs_in(text: str) -> frozenset[str]:
    """Cached, because request after request holds the same texts."""
    return frozenset(_REF.findall(text))


def _identities(path_entry: PathEntry) -> Iterable[str]:
    if path_entry.round is None:
        return (path_entry.entry.message.identity,) if path_entry.entry.message else ()
    return (path_entry.round.spoken.message.identity, *(result.identity for result in path_entry.round.results))
