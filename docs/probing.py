"""Five probes of what is left of a recorded conversation after the proxy has rewritten its context.

A recording goes through the product in this process, as `callstack replay` plays it. The probes compare the result with
the recording:

    artifact      the files that the product lists, against the files that the recorded calls changed
    recall        what left the context: is it still there, or does one `stack_recall` bring it back?
    continuation  after something left: are the open plan items and the last failing command visible?
    decision      decisions that left: visible, or brought back by one `stack_recall`?
    edit          the text that the recorded next edit replaces: is it in what was sent?

The truth is read from the recording without the product's tables: changed files by the shape of a call's arguments,
plans by the shape of their items, decisions by a few common words. Only the outcome of a command comes from the
product's observer, because that is a judgement. A recall is the last request of the recording, answered with that call.
No model is asked, so whether one would have recalled stays unknown.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import msgspec

from callstack_proxy.management.reports import ReceiptTotals, sum_receipts
from callstack_proxy.replay.loss import NameReader
from callstack_proxy.replay.recording import RecordedStep, Recording
from callstack_proxy.replay.services import PATH, TENANT, ReplayServices, build_replay
from proxy.accounting import Receipt
from proxy.config.model import Config
from proxy.core.compaction.facts import facts_of
from proxy.core.compaction.trace import parse_traces
from proxy.core.context.message_list import context_entries
from proxy.core.frames.path_state import PathState
from proxy.core.frames.tree import FINAL_STATUSES
from proxy.core.ledger.messages import Message, Request
from proxy.core.observers import observe
from proxy.core.observers.keywords import names_in_text
from proxy.core.observers.observe_step import Step as Observed
from proxy.core.observers.observe_step import ToolExecution, ToolRoles
from proxy.dialects import OPENAI_CHAT, ParseCache
from proxy.exchange import HeldReply
from proxy.exchange import pipeline as exchange
from proxy.exchange.rounds import ClientRequest

ASKED = 30
"""Facts, and decisions, of one recording that the probe recalls: a sample that is the same every time."""
BESIDE = 40
"""Characters on either side of a fact that must come back with it, so that the word alone is not enough."""
SHOWN = 60
"""Characters that identify a command, an item or a decision that may have been shortened."""
FAR_REQUESTS = 10
"""An edit is far where nothing of the last so many requests shows the text that it replaces."""
Json = Mapping[str, Any]


@dataclass
class Share:
    """`hit` out of `of`, and what was missed."""

    hit: int = 0
    of: int = 0
    missed: list[str] = field(default_factory=list)

    def note(self, subject: str, *, hit: bool) -> None:
        self.of += 1
        self.hit += hit
        if not hit and subject not in self.missed:
            self.missed.append(subject)


@dataclass
class Probed:
    """The outcome of one recording. `rewritten` counts the requests that lacked something the client sent."""

    name: str
    row: ReceiptTotals
    requests: int = 0
    rewritten: int = 0
    shares: dict[str, Share] = field(default_factory=dict)

    def share(self, key: str) -> Share:
        return self.shares.setdefault(key, Share())


async def probed(recording: Recording, config: Config) -> Probed:
    """Play a recording to its end and apply all probes."""
    probe = _Probe(recording, config)
    for step in recording.steps:
        await probe.request(step)
    await probe.end()
    return probe.result


# ---------------------------------------------------------------------------------------------------- truth
_PATHS = ("file_path", "filePath", "path", "filename", "file_name", "file", "notebook_path", "target_file")
_CONTENTS = frozenset({"content", "contents", "file_text", "edits", "new_source", "code_edit"})
_CONTENTS |= {"new_string", "newString", "new_str", "newText", "new_text"}
_PATCH = re.compile(r"^\*\*\* (?:Add|Update) File: (.+?)\s*$", re.MULTILINE)
_REFUSED = re.compile(
    r"\W*(?:\w*error\b|traceback|failed|no replacement|could not|cannot|invalid|\(interrupted|the user doesn't want)"
    r"|.{0,200}\b(?:not found|does not exist|has not been read|no such file|no changes to make)",
    re.IGNORECASE,
)
_REPLACED = ("old_string", "oldString", "old_str", "oldText", "old_text")
_LINE_NUMBER = re.compile(r"^\s*\d+(?:\t|→|\||: )")
_LISTS = frozenset({"todos", "plan"})
"""Arguments that are a plan also when they are empty."""
_OVER = frozenset({"completed", "cancelled", "canceled", "deleted", "done", "finished"})
_SENTENCE = re.compile(r"[^.!?\n]{20,240}(?:[.!?](?=\s|$)|$)", re.MULTILINE)
_DECIDES = re.compile(
    r"\b(?:decided|instead of|rather than|in favou?r of|going with|go with|opt(?:ed)? for|the (?:best|right|simplest) "
    r"(?:approach|way|fix|solution|option)|prefer)\b",
    re.IGNORECASE,
)
_CREATED = re.compile(r"#(\d+)\b")


@dataclass
class Truth:
    """What the client's messages say so far: changed files, the plan (item to status), commands whose last run failed
    (newest last), and the last check (test, linter, build, types), if it failed."""

    names: ToolRoles
    files: set[str] = field(default_factory=set)
    plan: dict[str, str] = field(default_factory=dict)
    failing: dict[str, None] = field(default_factory=dict)
    check: str = ""
    _read: int = 0
    _calls: dict[str, Any] = field(default_factory=dict)
    _numbers: dict[str, str] = field(default_factory=dict)

    def follow(self, messages: Sequence[Message]) -> None:
        """Read on to `messages`. A client that shortened its history still did what it did before."""
        for message in messages[min(self._read, len(messages)) :]:
            self._calls.update((call.id, call) for call in message.calls)
            call = self._calls.pop(message.answers, None) if message.answers else None
            if call is not None:
                self._done(ToolExecution(call, message.text))
        self._read = len(messages)

    @property
    def open(self) -> list[str]:
        """Items that are not finished, in the order of the plan."""
        return [item for item, status in self.plan.items() if status not in _OVER]

    @property
    def next(self) -> list[str]:
        """The item in progress, else the next open one; empty if all are finished."""
        working = [item for item in self.open if self.plan[item] == "in_progress"]
        return (working or self.open)[:1]

    def _done(self, done: ToolExecution) -> None:
        arguments = decoded(done.call.arguments)
        if not _REFUSED.match(done.result[:400]):
            self.files |= set(_changed(done.call.name, arguments))
            self._planned(arguments, done.result)
        for ran in observe(Observed("", (done,)), self.names).commands:
            self.failing.pop(ran.command, None)
            if ran.outcome == "failed":
                self.failing[ran.command] = None
            if ran.kind and ran.outcome != "unknown":
                self.check = ran.command if ran.outcome == "failed" else ""

    def _planned(self, arguments: Any, result: str) -> None:
        if not isinstance(arguments, dict):
            return
        for name, value in arguments.items():
            items = _items(value)
            if items or (items is not None and name in _LISTS):
                self.plan = items
        subject, status = arguments.get("subject"), arguments.get("status")
        if isinstance(subject, str) and (number := _CREATED.search(result)):
            self._numbers[number[1]] = subject
            self.plan[subject] = "pending"
        elif isinstance(status, str) and (item := self._numbers.get(str(arguments.get("taskId")))):
            self.plan[item] = status


def decoded(arguments: str) -> Any:
    """The arguments of a call as values; arguments that are not JSON stay text."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _changed(tool: str, arguments: Any) -> Iterator[str]:
    """The files that a call writes: a path with a content, a path for a tool that is called after making one, or a
    patch."""
    if isinstance(arguments, dict) and (tool.lower().startswith("create") or not _CONTENTS.isdisjoint(arguments)):
        yield from [arguments[name] for name in _PATHS if isinstance(arguments.get(name), str)][:1]
    for text in _leaves(arguments):
        if text.lstrip().startswith("*** Begin Patch"):
            yield from _PATCH.findall(text)


def replaced_texts(arguments: Any) -> Iterator[str]:
    """The texts that an edit expects to find in its file: old texts, and the lines that a patch removes or leaves."""
    if isinstance(arguments, str) and "*** Begin Patch" in arguments:
        yield "\n".join(line[1:] for line in arguments.splitlines() if line[:1] in ("-", " "))
    elif isinstance(arguments, dict):
        yield from (arguments[name] for name in _REPLACED if isinstance(arguments.get(name), str))
        arguments = [value for name, value in arguments.items() if name not in _REPLACED]
    for inner in arguments if isinstance(arguments, list) else ():
        yield from replaced_texts(inner)


def bare_lines(text: str) -> frozenset[str]:
    """Lines of a file without indentation and without the numbers that a tool for reading puts in front."""
    lines = (_LINE_NUMBER.sub("", line).strip() for line in text.splitlines())
    return frozenset(line for line in lines if line)


def _items(value: Any) -> dict[str, str] | None:
    """A list of items with statuses, as text to status; None if `value` is no such list."""
    if not isinstance(value, list) or not all(isinstance(item, dict) and "status" in item for item in value):
        return None
    texts = (next((i[n] for n in ("content", "step", "title", "text") if isinstance(i.get(n), str)), "") for i in value)
    return {text: str(item["status"]) for text, item in zip(texts, value, strict=True) if text}


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    elif isinstance(value, str):
        yield value


def _texts(message: Message) -> list[str]:
    """All texts of a message. In a text of ours, XML escapes are undone."""
    text = message.text
    if "<stack-context" in text:
        text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return [text, *(leaf for call in message.calls for leaf in _leaves(decoded(call.arguments)))]


def flat(text: str) -> str:
    """The text on one line, so that a wrapped text still matches."""
    return " ".join(text.split())


class Sight:
    """The visible text of a request; each message is read once, however often it is sent."""

    def __init__(self) -> None:
        self._flat: dict[str, str] = {}
        self._lines: dict[str, frozenset[str]] = {}

    def lines(self, messages: Iterable[Message]) -> set[str]:
        """All lines of the messages, as `bare_lines` has them."""
        found: set[str] = set()
        for message in messages:
            if message.identity not in self._lines:
                self._lines[message.identity] = frozenset().union(*map(bare_lines, _texts(message)))
            found |= self._lines[message.identity]
        return found

    def of(self, messages: Iterable[Message]) -> str:
        for message in messages:
            if message.identity not in self._flat:
                self._flat[message.identity] = "\n".join(map(flat, _texts(message)))
        return "\n".join(self._flat[message.identity] for message in messages)


# --------------------------------------------------------------------------------------------------- probes
@dataclass(frozen=True, slots=True)
class Fact:
    """A name that left the context, with the text around it."""

    name: str
    around: str


class _Probe:
    def __init__(self, recording: Recording, config: Config) -> None:
        self.result = Probed(recording.name, sum_receipts(()))
        self._behind: ReplayServices = build_replay(config)
        self._known, self._reader, self._sight = ParseCache(), NameReader(), Sight()
        self._truth = Truth(config.observed_tools)
        self._last: tuple[RecordedStep, Request, Request, str] | None = None
        self._ids = 0
        self._came: dict[str, int] = {}
        """By identity of a message: the request that brought it, from 1."""

    async def request(self, step: RecordedStep) -> None:
        """Play one request of the client."""
        conversation = await self._serve(step)
        if not self._behind.provider.received:
            return
        client, sent = OPENAI_CHAT.parse_request(step.body, self._known), self._behind.provider.received[-1]
        self._last = step, client, sent, conversation
        self._truth.follow(client.messages)
        self.result.requests += 1
        for message in client.messages:
            self._came.setdefault(message.identity, self.result.requests)
        self._next_edits(step, client, sent)
        if _gone(client, sent):
            self.result.rewritten += 1
            self._continuation(self._sight.of(sent.messages))

    async def _serve(self, step: RecordedStep) -> str:
        """Let the product answer. Returns the conversation that it assigned the request to."""
        behind, heard = self._behind, HeldReply()
        self._ids += 1
        behind.clock.advance_to(step.at_ms)
        behind.provider.expect(step)
        client_request = ClientRequest(f"r{self._ids:08d}", TENANT, "POST", PATH, b"", list(step.headers), step.body)
        await exchange.handle(behind.services, client_request, heard)
        return heard.header_values.get("x-stack-conversation", "")

    def _continuation(self, seen: str) -> None:
        for key, items in (("open items", self._truth.open), ("next item", self._truth.next)):
            for item in items:
                self.result.share(key).note(item, hit=flat(item) in seen)
        newest = (("failing check", self._truth.check), ("failing command", next(reversed(self._truth.failing), "")))
        for key, command in newest:
            if command:
                self.result.share(key).note(command, hit=flat(command)[:SHOWN] in seen)

    def _next_edits(self, step: RecordedStep, client: Request, sent: Request) -> None:
        """The edit probe, for edits of a text that the client's own messages show."""
        olds = [old for call in (step.answer or {}).get("tool_calls") or () for old in replaced_texts(_arguments(call))]
        wanted = [lines for lines in map(bare_lines, olds) if lines]
        if not wanted:
            return
        shown, here = self._sight.lines(client.messages), self._sight.lines(sent.messages)
        since = self.result.requests - FAR_REQUESTS
        newest = self._sight.lines(m for m in client.messages if self._came[m.identity] > since)
        for lines in (w for w in wanted if w <= shown):
            self.result.share("edits").note(max(lines, key=len), hit=lines <= here)
            if not lines <= newest:
                self.result.share("far edits").note(max(lines, key=len), hit=lines <= here)

    async def end(self) -> None:
        """Apply the probes that look at the conversation after its last request."""
        records = await self._behind.store.requests(TENANT, limit=self._ids)
        self.result.row = sum_receipts(msgspec.json.decode(record.receipt, type=Receipt) for record in records)
        if self._last is None:
            return
        _, client, sent, conversation = self._last
        await self._artifacts(conversation)
        gone = _gone(client, sent)
        if not gone:
            return
        seen = self._sight.of(sent.messages)
        for message in (m for m in client.messages if m.role == "user" and m.text.strip()):
            self.result.share("user messages").note(message.text[:SHOWN], hit=message not in gone)
        await self._facts(client, gone, seen)
        await self._decisions(gone, seen)

    async def _artifacts(self, conversation: str) -> None:
        """The artifact probe: files of frames that left the context, and files seen in what is still there."""
        cached = await self._behind.services.conversation_cache.get(TENANT, conversation)
        tip = cached.ledger.newest_tip() if cached else None
        if cached is None or tip is None:
            return
        listed, by_command = _listed(cached.path_state(tip.id), self._truth.names)
        for path in sorted(listed - by_command):  # no call tells what a command changed
            self.result.share("files precise").note(path, hit=path in self._truth.files)
        for path in sorted(self._truth.files):
            self.result.share("files listed").note(path, hit=path in listed)

    async def _facts(self, client: Request, gone: Sequence[Message], seen: str) -> None:
        """The recall probe: look for every name that left; recall a sample of those out of sight, by the name and by
        the words around it."""
        fixed, facts = self._reader.fixed_names(client), _facts_in(gone)
        away = []
        for name in sorted(facts.keys() - fixed):
            self.result.share("facts in sight").note(name, hit=name in seen)
            away += [facts[name]] if name not in seen else []
        for fact in sorted(away, key=lambda f: sha256(f.name.encode()).digest())[:ASKED]:
            got = await self._recalled({"query": fact.name})
            self.result.share("facts by name").note(fact.name, hit=flat(fact.around) in got)
            if query := _query(fact.around.replace(fact.name, " ")):
                got = await self._recalled({"query": query})
                self.result.share("facts by surroundings").note(f"{fact.name}: {query}", hit=fact.name in got)

    async def _decisions(self, gone: Sequence[Message], seen: str) -> None:
        """The decision probe: sentences of the assistant that state a choice."""
        told = (flat(d) for m in gone if m.role == "assistant" for d in _SENTENCE.findall(m.text) if _DECIDES.search(d))
        for decision in list(dict.fromkeys(told))[:ASKED]:
            here = decision[:SHOWN] in seen
            self.result.share("decisions in sight").note(decision, hit=here)
            got = "" if here else await self._recalled({"query": _query(decision)})
            self.result.share("decisions reached").note(decision, hit=here or decision[:SHOWN] in got)

    async def _recalled(self, arguments: Json) -> str:
        """What one call of `stack_recall` returns, on one line: only the stored texts, without our own words."""
        if self._last is None:
            return ""
        call = {"name": "stack_recall", "arguments": json.dumps(arguments, ensure_ascii=False)}
        made = {"id": f"probe{self._ids}", "type": "function", "function": call}
        await self._serve(
            dataclasses.replace(self._last[0], answer={"role": "assistant", "content": None, "tool_calls": [made]})
        )
        received = self._behind.provider.received
        results = [m.text for m in received[-1].messages[-1:] if m.answers] if len(received) > 1 else []
        return "\n".join(_stored(text) for result in results for text in _GIVEN.findall(result))


_GIVEN = re.compile(r"<<recall [^\n]*>>\n(.*?)\n<<end ", re.DOTALL)


def _arguments(call: Json) -> Any:
    """The arguments of a recorded call, decoded."""
    return decoded(call.get("function", {}).get("arguments") or "")


def _stored(text: str) -> str:
    """A stored text on one line; for the arguments of a call, the texts in them."""
    value = decoded(text)
    if isinstance(value, dict):
        return "\n".join(map(flat, _leaves(value)))
    return "\n".join([flat(text), flat(text.replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"'))])


def _gone(client: Request, sent: Request) -> list[Message]:
    """The client's messages that were not sent."""
    if sent.body == client.body:
        return []
    placement = {m.identity for m in sent.messages}
    return [m for m in client.messages if m.identity not in placement]


def _listed(path_state: PathState, names: ToolRoles) -> tuple[set[str], set[str]]:
    """The files that the product lists as changed, also deleted ones: those of ended frames, those in traces, and those
    seen in the current context. Of them, those of which it says that a command did it."""
    ended = (path for f in path_state.tree.frames.values() if f.status in FINAL_STATUSES for path in f.artifacts)
    told = (path for trim in path_state.tree.removals for path in parse_traces(trim.trace).facts.changed)
    seen = facts_of(context_entries(path_state), names).changed
    paths = (*ended, *told, *seen)
    by_command = {_MARK.sub("", path) for path in paths if "by command" in path}
    return {_MARK.sub("", path) for path in paths}, by_command


_MARK = re.compile(r" \((?:created|deleted|undone|(?:deleted )?by command(?: or earlier)?)\)$")


def _facts_in(gone: Iterable[Message]) -> dict[str, Fact]:
    """Each name of these messages, with the place where it was said last."""
    found: dict[str, Fact] = {}
    for text in (text for message in gone for text in _texts(message)):
        for line in text.splitlines():
            for name in names_in_text(line):
                if (at := line.find(name)) >= 0:
                    found[name] = Fact(name, line[max(0, at - BESIDE) : at + len(name) + BESIDE])
    return found


def _query(text: str) -> str:
    """A query about a line by somebody who knows its subject: its three longest words, in their order."""
    words = re.findall(r"[^\W\d_][\w.-]{3,}", text)
    longest = sorted(dict.fromkeys(words), key=len)[-3:]
    return " ".join(word for word in dict.fromkeys(words) if word in longest)
