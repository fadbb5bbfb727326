"""The laws of the line, L1 to L10, checked on what really travelled: the one judge of every scenario.

Evidence goes in (what the client asked, what left for the provider, what is stored), breaches come out, each a
sentence that names its law. The judge reads bodies and answers only; nothing of the proxy is imported, so it cannot
share a mistake with it. The frame of a request is read off its line, as the model would: the last frame block on it
says where the model is.

A line may change in its past where its receipt tells of it (`BREAKS`), and then only as that event does: what stays
keeps its bytes and its order, and what is new there is a text of ours, or what had left before.

What it does not do: it knows no scenario. Where a law allows another break (another model, the client's own edit), the
evidence has to say before which request.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

Json = dict[str, Any]
BlockPosition = tuple[int, int, str]
"""Where the block of a frame stands; `Body.place` says by what."""
HOUR = b'"ttl":"1h"'
"""In a cache marker: what it marks is kept for longer than the client asked for."""
AWAKE = "full"
BLOCK = re.compile(r'<stack-context session="[^"]*" frame="([^"]+)" nonce="([0-9a-f]+)"')
RETURNED = re.compile(r'<frame-results ref="[^"]*" status="[^"]*" parent="([^"]+)"')
STOPPED = re.compile(
    r'<stack-context note="by hand" nonce="([0-9a-f]+)">[^<]*\bStopped, and blocked: [^\n<]*\b(\w+) \([^()\n]*\)\.\n'
)
"""A note that all work was stopped. The last that it names is the root, on whose line all goes on that was not over."""
ENDED = re.compile(r"\AFrame \w+ .*(?:You are back in|is invalidated\..* Active:) (\w+) \(", re.DOTALL)
"""What a frame's end is answered with on a line that it does not leave, and what its call tells once it is
invalidated. A block may follow, of a frame that the same message began."""
OPENING = ("stack_frame_push", "stack_frame_activate")
TRACE = "<stack-context"
SAID = "Additional user input, given while you work:\n- "
"""How the words of a person beside the client begin."""
ATTEMPTED = re.compile(r'Earlier attempt \(ref="[^"]+", blocked\): .*\Z', re.DOTALL)
"""What stands before the block of a frame that is resumed: what it came to when it was left."""
LOOPING = "Error: not run. This call is part of a loop, and would give the same again."
CLEARED = "[Old tool result content cleared]"
GIVEN_AGAIN = "Not all of that is in front of you any more."
WITHHELD = "Error: this answer is left out, because your context window had no room for it."
"""An answer of a tool of ours that a window had no room for: it is told so when the line is trimmed."""
CUT = re.compile(r"\n\[[\d,]+ of [\d,]+ characters left out here: .*stack_recall with ref=\"\w+\"\]\n")
LINES_ABOVE = re.compile(r"\[(\d+) lines left out: they stand in the earlier result of .*, entry \w+\]")
REPEATS = "\n[lines that stand above are left out; as it came: stack_recall with ref="
TIDIED = "\n[tidied: codes, blanks and equal lines are left out; as it came: stack_recall with ref="
REPEATED = re.compile(r"^\[line repeated \d+ times\]$", re.MULTILINE)
ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)")
IN_A_LINE = re.compile(r"\S[^\n]* → [^\n]*; all of it: stack_recall with ref=\"\w+\"")
STATELESS = "stateless"
REQUOTED = re.compile(
    r"\[callstack: ([\d,]+) characters of a quoted conversation stood here, more than fits\. All of it is kept .*\]"
    r"\n\n.*\n\n\[callstack: here ends what stands for the quoted conversation\.\]",
    re.DOTALL,
)
"""What stands for a history that a message quotes: the one case in which words of the user's leave a request."""
QUOTED_TEXT, QUOTED_TEXTS = 200, 3
"""A quote holds so many stored texts of so many characters."""
ANSWERED = "answered"
UNTOUCHED = ("off", "shadow")
TYPED = re.compile(r"/stack(?:[ \t]+\S.*)?")
ADDED = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
OWN = "[callstack]"
"""What an answer to a person who types to the proxy begins with."""
HEADS = ("system", "developer")
BREAKS = ("woken", "folded", "unfolded", "trim", "replaced", "reasoning removed", "switched", "block renewed")
"""Events at which a line may change in its past. That a frame was entered, parted or asked back changes nothing."""

SWITCHED = "switched"
"""The event at which the work goes on on another line."""


# ----------------------------------------------------------------------------------------------------------- evidence
BOUND = "claude-"
"""Models that accept reasoning only behind the prefix it was made under (L8): it may be left out."""
THOUGHTS = ("reasoning_content", "reasoning")
"""Members of a message that hold it: what can be read of it, and what a tongue tells of it as it was written."""


@dataclass(frozen=True, slots=True)
class ClientTurn:
    """A client's request and what it was told: the word of `x-stack-status`, where it stood, the answer's bytes.
    `events` are what its receipt tells: the kind and, mostly, the frame (`folded f12`). `raw` is the body in the bytes
    of its own dialect, where `body` tells it as a chat request."""

    number: int
    body: bytes
    status: str = AWAKE
    conversation: str = "c"
    thread: str = "main"
    frame: str = ""
    answer: bytes = b""
    events: tuple[str, ...] = ()
    raw: bytes = b""
    saved: float = 0.0
    """USD, as its receipt tells them."""
    is_answered: bool = True
    """Whether the client got a whole answer."""

    @property
    def breaks(self) -> frozenset[str]:
        return frozenset(kind for kind in BREAKS if any(f"{told} ".startswith(f"{kind} ") for told in self.events))

    @property
    def folded(self) -> list[str]:
        """The frames that left the line with this request."""
        return [told.removeprefix("folded ") for told in self.events if told.startswith("folded ")]


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """A request as the provider got it, for the client's request `of`; `raw` as in `Asked`."""

    of: int
    body: bytes
    headers: tuple[str, ...] = ()
    raw: bytes = b""


@dataclass(frozen=True, slots=True)
class Evidence:
    """In order of arrival. `kept` holds the stored texts of messages by conversation, None where nobody looked.
    `excused`: the client's requests before which a line may change in its past. `seen`: frames that nobody pushed, and
    their parents, none for a root. `signed`: all reasoning is, whatever the model (L8). `too_long`: requests that the
    provider would refuse for their length as they came. `moved`: of frames that moved, with
    which request, and the frame that each of them left."""

    asked: Sequence[ClientTurn]
    left: Sequence[UpstreamRequest]
    kept: Mapping[str, frozenset[str]] | None = None
    excused: frozenset[int] = frozenset()
    seen: Mapping[str, str] = field(default_factory=dict)
    signed: bool = False
    too_long: frozenset[int] = frozenset()
    moved: Mapping[str, Sequence[tuple[int, str]]] = field(default_factory=dict)

    def bound(self, model: str) -> bool:
        """Whether reasoning of this model holds only behind the prefix it was made behind."""
        return self.signed or model.startswith(BOUND)

    def on_the_line_of(self, frame: str, line: str, number: int) -> bool:
        """Whether work in `frame`, as the request of this number found it, stands on the line of the frame `line`: a
        frame that was seen in what the client
        says has none of its own, also where what was pushed in it returns to it. A line that names no frame (passive)
        is that of any."""
        return line == "" or self.with_a_line(frame, number) == self.with_a_line(line, number)

    def with_a_line(self, frame: str, number: int) -> str:
        while self.seen.get(frame):
            left = (holder for moved_with, holder in self.moved.get(frame, ()) if number <= moved_with)
            frame = next(left, self.seen[frame])
        return frame


# ------------------------------------------------------------------------------------------------------------- reading
_decoder = json.JSONDecoder()
_GAP = re.compile(r"[\s,:]*")


def members(text: str) -> dict[str, str]:
    """The members of a JSON object as they are written."""
    found: dict[str, str] = {}
    at = _gap(text, text.index("{") + 1)
    while text[at] != "}":
        key, at = _decoder.raw_decode(text, at)
        start = _gap(text, at)
        _, end = _decoder.raw_decode(text, start)
        found[key] = text[start:end]
        at = _gap(text, end)
    return found


def elements(text: str) -> list[str]:
    """The elements of a JSON array as they are written."""
    found = []
    at = _gap(text, text.index("[") + 1)
    while text[at] != "]":
        _, end = _decoder.raw_decode(text, at)
        found.append(text[at:end])
        at = _gap(text, end)
    return found


def _gap(text: str, at: int) -> int:
    skipped = _GAP.match(text, at)
    return skipped.end() if skipped else at


@dataclass(frozen=True)
class Body:
    """A chat request: its messages as values and as written, its tools as written."""

    messages: tuple[Json, ...]
    written: tuple[str, ...]
    tools: tuple[str, ...]
    model: str

    @classmethod
    def read(cls, raw: bytes) -> Body:
        fields = members(raw.decode())
        written = tuple(elements(fields["messages"]))
        tools = tuple(elements(fields["tools"])) if fields.get("tools", "null") != "null" else ()
        values = tuple(json.loads(each) for each in written)
        return cls(values, written, tools, json.loads(fields.get("model", '""')))

    @property
    def nonce(self) -> str:
        """The mark of our blocks in this conversation: that of the first that a call of ours was answered with, else of
        the first in a user message. Nothing of the state stands in the head."""
        names: dict[str, str] = {}
        answers: list[Json] = []
        for message in self.messages:
            names |= dict(calls_of(message))
            answers += [message] if is_ours(names.get(message.get("tool_call_id", ""), "")) else []
        others = (m for m in self.messages if m["role"] == "user")
        found = (BLOCK.search(text_of(message)) for message in (*answers, *others))
        return next((block[2] for block in found if block), "")

    def place(self, root: str = "") -> tuple[str, BlockPosition]:
        """The frame this line is for, and where the block that opened it stands: at which message, behind how many
        returns in it, and behind which earlier attempt: a frame that is resumed begins anew, be it by the message it
        was left in, or in a view in which its block stands at the same message again. A frame that began on the way to
        one below it has none: it stands where that one returned to it. `root`: the frame in which the
        conversation began, which its line does not name."""
        stands: dict[str, BlockPosition] = {root: (-1, 0, "")}
        frame, nonce = root, self.nonce
        names: dict[str, str] = {}
        for at, message in enumerate(self.messages):
            if message["role"] == "assistant":
                names |= dict(calls_of(message))
                continue
            if is_ours(names.get(message.get("tool_call_id", ""), "")) and (ended := ENDED.match(text_of(message))):
                frame = ended[1]
            if names.get(message.get("tool_call_id", "")) in OPENING:
                for returned in RETURNED.finditer(text_of(message)):
                    frame = returned[1]
                    stands.setdefault(frame, (at, 0, ""))
            for block in (b for b in BLOCK.finditer(text_of(message)) if b[2] == nonce):
                frame = block[1]
                above = text_of(message)[: block.start()]
                attempted = ATTEMPTED.search(above)
                stands[frame] = (at, len(RETURNED.findall(above)), attempted[0] if attempted else "")
            for stop in (s for s in STOPPED.finditer(text_of(message)) if s[1] == nonce):
                frame = stop[2]
        return frame, stands.get(frame, (-1, 0, ""))

    def tail(self) -> list[int]:
        """Positions behind the last assistant message."""
        last = max((at for at, m in enumerate(self.messages) if m["role"] == "assistant"), default=-1)
        behind = range(last + 1, len(self.messages))
        return [at for at in behind if self.messages[at]["role"] not in HEADS]


def text_of(message: Json) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def calls_of(message: Json) -> list[tuple[str, str]]:
    return [(call["id"], call["function"]["name"]) for call in message.get("tool_calls") or []]


def is_ours(name: str) -> bool:
    return name == "stack" or name.startswith("stack_")


def refused(line: Body) -> set[str]:
    """Calls of the client's tools that were answered for it, because they run in a loop."""
    return {str(m["tool_call_id"]) for m in line.messages if m["role"] == "tool" and text_of(m).startswith(LOOPING)}


# --------------------------------------------------------------------------------------------------------------- judge
def breaches(evidence: Evidence) -> list[str]:
    """Every breach of a law, in the order of the laws; empty when all hold."""
    rounds = [Round(asked, sent, Body.read(sent.body)) for asked, sent in _related(evidence)]
    awake = [each for each in rounds if each.asked.status == AWAKE]
    began: dict[int, Body] = {}
    for each in awake:
        began.setdefault(each.asked.number, each.body)
    laws = ((each, _line_laws(evidence, each, began[each.asked.number])) for each in awake)
    found = [f"request {each.asked.number}, {said}" for each, broken in laws for said in broken]
    found += list(_places(evidence, awake))
    found += list(_growth(evidence, awake))
    found += list(_closing_words(awake))
    found += list(_told_of(awake))
    found += list(_passed(evidence))
    found += list(_typed(evidence))
    found += list(_shortened(evidence))
    found += list(_unseen(evidence, awake))
    found += list(_tools(evidence, awake))
    found += list(_headers(evidence))
    found += list(_money(evidence, rounds))
    if evidence.kept is not None:
        found += list(_stored(evidence, awake, evidence.kept))
    return found


@dataclass(frozen=True)
class Round:
    asked: ClientTurn
    sent: UpstreamRequest
    body: Body


def _related(evidence: Evidence) -> Iterator[tuple[ClientTurn, UpstreamRequest]]:
    by_number = {asked.number: asked for asked in evidence.asked}
    for sent in evidence.left:
        if sent.of in by_number and by_number[sent.of].status not in ("bypass", "unknown"):
            yield by_number[sent.of], sent


def _line_laws(evidence: Evidence, each: Round, began: Body) -> Iterator[str]:
    """`began` is the line of the request's first round: a frame that was left since, and resumed in the same message or
    as another attempt, is another one."""
    yield from pairing(each.body)
    client = Body.read(each.asked.body)
    (frame, (_, returns, attempt)), (_, (_, before, first)) = each.body.place(), began.place()
    is_on_line = evidence.on_the_line_of(each.asked.frame, frame, each.asked.number)
    is_first = is_on_line and returns <= before and attempt == first
    yield from verbatim(client, each.body, is_first=is_first)
    yield from order(client, each.body)


def pairing(line: Body) -> Iterator[str]:
    """L1: right behind a message with calls stand their results, each once; no result stands elsewhere."""
    waiting: list[str] = []
    for message in line.messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"L1: a result of {message['tool_call_id']} without its call"
            else:
                waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            yield f"L1: no result of {waiting}"
        waiting = [id_ for id_, _ in calls_of(message)]
    if waiting:
        yield f"L1: no result of {waiting}"


def verbatim(client: Body, line: Body, *, is_first: bool) -> Iterator[str]:
    """L4: what the client sent behind its last assistant turn is on the line as it was written, in its order. Once a
    frame was left in mid-turn, its results have left with it; what the user said stays."""
    written = list(line.written)
    typed = set(_typed_at(client.messages))
    for at in (at for at in client.tail() if at not in typed):
        if not is_first and client.messages[at]["role"] != "user":
            continue
        if client.written[at] in written:
            del written[: written.index(client.written[at]) + 1]
        elif not any(
            _is_cut(client.messages[at], m)
            or _is_tidied(client.messages[at], m)
            or _is_without_repeats(client.messages[at], m, line)
            or _is_more(client.messages[at], m)
            for m in line.messages
        ):
            yield f"L4: not on the line as it was sent: {client.written[at][:80]}"


def _is_cut(whole: Json, shown: Json) -> bool:
    """One output that alone is too long: its beginning and its end, and a ref between them."""
    head, _, tail = text_of(shown).partition(cut[0]) if (cut := CUT.search(text_of(shown))) else ("", "", "")
    same = whole["role"] == "tool" and shown.get("tool_call_id") == whole["tool_call_id"]
    return same and bool(tail) and text_of(whole).startswith(head) and text_of(whole).endswith(tail)


def _is_tidied(whole: Json, shown: Json) -> bool:
    """An output less what says nothing, with its ref: every line of it stands in the original, blanks apart."""
    said, tidied, _ = text_of(shown).partition(TIDIED)
    if whole["role"] != "tool" or shown.get("tool_call_id") != whole["tool_call_id"] or not tidied:
        return False
    theirs = "".join(ESCAPE.sub("", text_of(whole)).split())
    return all("".join(line.split()) in theirs for line in REPEATED.sub("", said).splitlines())


def _is_without_repeats(whole: Json, shown: Json, line: Body) -> bool:
    """An output less lines that other results on the line have, in one piece, with its ref."""
    said, repeats, _ = text_of(shown).partition(REPEATS)
    if whole["role"] != "tool" or shown.get("tool_call_id") != whole["tool_call_id"] or not repeats:
        return False
    others = [text_of(m) for m in line.messages if m["role"] == "tool" and m is not shown]
    rest = text_of(whole).split("\n")
    for told in said.split("\n"):
        number = int(found[1]) if (found := LINES_ABOVE.fullmatch(told)) else 0
        piece, rest = rest[: number or 1], rest[number or 1 :]
        if not any("\n".join(piece) in other for other in others) if number else piece != [told]:
            return False
    return not rest


def _is_more(whole: Json, shown: Json) -> bool:
    """A note that points at what left the line: it stands as it was, and what it points at behind it. So do the words
    of a person, for a model that takes none behind a result."""
    if whole["role"] == "user" and shown["role"] == "user":  # a text of ours joined it, where roles must alternate
        return bool(said := text_of(whole)) and said in text_of(shown)
    same = whole["role"] == "tool" and shown.get("tool_call_id") == whole["tool_call_id"]
    behind = text_of(shown).removeprefix(text_of(whole)) if text_of(shown).startswith(text_of(whole)) else ""
    return same and (GIVEN_AGAIN in behind or behind.strip().startswith((SAID, TRACE)))


ANSWER_LEFT_OUT = "(The answer that stood here has left this conversation; what was done is summarized above.)"
WORK_LEFT_OUT = "(What was done here has left this conversation; it is summarized below.)"
MOST_TOOLS = 128
"""What models take that are not known to take more."""


def _is_retold(message: Json) -> bool:
    """A result in words of ours: cut, cleared, told in a line, with what its note points at, or with a person's words
    at its end."""
    said = text_of(message)
    if said in (ANSWER_LEFT_OUT, WORK_LEFT_OUT):
        return True
    ours = said.startswith(CLEARED) or any(told in said for told in (GIVEN_AGAIN, f"\n\n{SAID}", f"\n\n{TRACE}"))
    ours = ours or TIDIED in said or REPEATS in said
    return message["role"] == "tool" and (ours or bool(CUT.search(said) or IN_A_LINE.fullmatch(said)))


def order(client: Body, line: Body) -> Iterator[str]:
    """L4: no message of the client stands twice, or out of order."""
    for role in ("user", "tool"):
        theirs = [_mark(m) for m in client.messages if m["role"] == role]
        ours = [_mark(m) for m in line.messages if m["role"] == role and not _added(line, m, theirs)]
        if (misplaced := _not_in_order(ours, theirs)) is not None:
            yield f"L4: twice, out of order or never sent: {misplaced[:80]}"
    theirs = [id_ for m in client.messages for id_, _ in calls_of(m)]
    kept = refused(line) - set(theirs)
    ours = [id_ for m in line.messages for id_, name in calls_of(m) if not is_ours(name) and id_ not in kept]
    if (misplaced := _not_in_order(ours, theirs)) is not None:
        yield f"L4: a call twice or out of order: {misplaced}"


def _mark(message: Json) -> str:
    """What a message is known by: clients tidy old results, so a result is known by its call."""
    return str(message["tool_call_id"]) if message["role"] == "tool" else text_of(message).strip()


def _added(line: Body, message: Json, theirs: Sequence[str]) -> bool:
    """A message of ours: the result of a stack call or of a call that was never answered, a block, a trace, what a
    person said beside the client."""
    if message["role"] == "tool":
        stack = {id_ for m in line.messages for id_, name in calls_of(m) if is_ours(name)}
        return message["tool_call_id"] in stack or message["tool_call_id"] not in theirs
    return (TRACE in text_of(message) or text_of(message).startswith(SAID)) and _mark(message) not in theirs


def _not_in_order(some: Sequence[str], whole: Sequence[str]) -> str | None:
    """The first of `some` that does not follow the one before it in `whole`."""
    rest = iter(whole)
    return next((each for each in some if not any(each == other for other in rest)), None)


def _closing_words(awake: Sequence[Round]) -> Iterator[str]:
    """L10, on every line until the window had no room for all of them, or the work went on on another branch."""
    parted: set[str] = set()
    for each in awake:
        if {"trim", SWITCHED} & each.asked.breaks:
            parted.add(each.asked.conversation)
        if each.asked.conversation not in parted:
            lost = closing_words(Body.read(each.asked.body), each.body)
            yield from (f"request {each.asked.number}, {said}" for said in lost)


def closing_words(client: Body, line: Body) -> Iterator[str]:
    """L10: what the user was shown last before a message of theirs is on the line, or quoted there word for word. The
    texts of hidden rounds are parts of one message to the client, so it is looked for by its paragraphs; of several the
    earlier ones may belong to a frame that ended within the answer."""
    shown = "\n".join(map(text_of, line.messages))
    typed = set(_typed_at(client.messages))
    for at, message in enumerate(client.messages):
        if message["role"] != "assistant" or calls_of(message) or at in typed or not _user_speaks_after(client, at):
            continue
        paragraphs = [part.strip() for part in text_of(message).split("\n\n") if part.strip()]
        lost = [part for part in paragraphs if part not in shown and _in_an_element(part) not in shown]
        if lost and (lost[-1] is paragraphs[-1] or len(paragraphs) == 1):
            yield f"L10: closing words are gone: {lost[-1][:80]}"


def _user_speaks_after(client: Body, at: int) -> bool:
    """Whether words of the user's own stand next."""
    following = next((m for m in client.messages[at + 1 :] if m["role"] not in HEADS), None)
    return following is not None and following["role"] == "user" and bool(ADDED.sub("", text_of(following)).strip())


def _in_an_element(text: str) -> str:
    """Words as a text of ours quotes them."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _places(evidence: Evidence, awake: Sequence[Round]) -> Iterator[str]:
    """The first line of a request is the line of the frame that the client was told."""
    seen: set[int] = set()
    for each in awake:
        stands = each.body.place()[0]
        if each.asked.number not in seen and not evidence.on_the_line_of(each.asked.frame, stands, each.asked.number):
            yield f"request {each.asked.number} stands in {stands}, the client was told {each.asked.frame}"
        seen.add(each.asked.number)


def _growth(evidence: Evidence, awake: Sequence[Round]) -> Iterator[str]:
    """L2: of two consecutive requests of one frame, the first is a prefix of the second, tools and head equal. Where
    the receipt tells of a break, the second is the first less what left and with what stands for it."""
    newest: dict[tuple[str, str, str, BlockPosition], Round] = {}
    roots: dict[str, str] = {}
    ever: dict[tuple[str, str], set[str]] = {}
    earlier: dict[tuple[str, str], list[Body]] = {}
    for each in awake:
        path = (each.asked.conversation, each.asked.thread)
        if each.asked.number in evidence.excused:
            newest = {key: value for key, value in newest.items() if key[:2] != path}
        root = roots.setdefault(each.asked.conversation, evidence.with_a_line(each.asked.frame, each.asked.number))
        place = (*path, *each.body.place(root))
        before = newest.get(place)
        if before is None and each.asked.breaks:  # what stood before its block has become shorter, or longer
            before = next((newest[key] for key in reversed(newest) if key[:3] == place[:3]), None)
        newest.pop(place, None)
        newest[place] = each
        stood = ever.setdefault(path, set())
        earlier.setdefault(path, [])
        if before is not None and before.body.model == each.body.model:
            at = f"request {each.asked.number}, L2: the line of {place[2]}"
            ends = len(before.body.written)
            if each.body.written[:ends] == before.body.written:
                pass
            elif SWITCHED in each.asked.breaks:
                yield from (f"{at} {said}" for said in _turned(each, earlier[path], stood))
            elif not each.asked.breaks and not _goes_on(before.body, each):
                difference = _first_difference(before.body.written, each.body.written)
                yield f"{at} changed in its past at message {difference}"
            elif each.asked.breaks:
                yield from (f"{at} {said}" for said in _rewritten(before.body, each, stood))
        stood |= set(each.body.written)
        earlier[path].append(each.body)


def _goes_on(before: Body, each: Round) -> bool:
    """Where roles must alternate, what the user says next stands in the newest message, behind a text of ours."""
    after, last = each.body, len(before.messages) - 1
    if before.written[:last] != after.written[:last] or not last < len(after.messages):
        return False
    old, new = before.messages[last], after.messages[last]
    added = text_of(new).removeprefix(text_of(old)).strip()
    said = [text_of(m).strip() for m in Body.read(each.asked.body).messages if m["role"] == "user"]
    return old["role"] == new["role"] == "user" and text_of(new).startswith(text_of(old)) and added in said


def _turned(each: Round, earlier: Sequence[Body], stood: set[str]) -> Iterator[str]:
    """Another line: an earlier one as it was sent, or the beginning of one, the answer to it, and behind that nothing
    that stood before: words of ours, and what the client says now. Where more came with the switch, what stays of that
    earlier line is held to what the other events allow."""
    after = each.body
    begins, base = max(((_shared(body, after), body) for body in earlier), key=lambda pair: pair[0])
    if each.asked.breaks != {SWITCHED}:
        yield from _rewritten(
            replace(base, messages=base.messages[:begins], written=base.written[:begins]), each, stood
        )
        return
    if after.messages[0]["role"] in HEADS and not begins:
        yield "has another head"
    client = Body.read(each.asked.body)
    now = {client.written[at] for at in client.tail()}
    behind = list(zip(after.messages, after.written, strict=True))[begins:]
    told = [written for message, written in behind if written not in now and not _is_trace(message)]
    answers = [m for m, written in behind if written in told and m["role"] == "assistant"]
    if len(told) > len(answers) or len(answers) > 1:
        yield f"is no earlier line with the answer to it: {told[0][:160]}"


def _shared(before: Body, after: Body) -> int:
    """How many messages two lines begin with in common."""
    pairs = zip(before.written, after.written, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _rewritten(before: Body, each: Round, stood: set[str]) -> Iterator[str]:
    """What no event explains: of what stays, other bytes or another order; a head that changed; a word of the user's
    that left; or a message in between that is neither ours nor, where something came back, one that stood before."""
    after, breaks = each.body, each.asked.breaks
    if (
        not {"woken", "block renewed"} & breaks
        and before.written[0] != after.written[0]
        and before.messages[0]["role"] in HEADS
    ):
        yield "has another head"
    at = 0
    strange: list[str] = []
    between: list[str] = []
    for message, written in zip(after.messages, after.written, strict=True):
        same = _same_at(before, message, written, at, less_thoughts="reasoning removed" in breaks or "folded" in breaks)
        if same is not None:
            strange, between, at = [*strange, *between], [], same + 1
        elif not (
            _is_trace(message)
            or _is_retold(message)
            or ("unfolded" in breaks and _stood(message, written, stood))
            or ("block renewed" in breaks and (message["role"] in HEADS or _is_block(message)))
            or ("trim" in breaks and text_of(message).startswith(WITHHELD))
        ):
            between.append(written)  # behind all that stays it is simply new
    if strange:
        yield f"has in its past what no event tells of: {strange[0][:160]}"
    theirs = {_mark(m) for m in Body.read(each.asked.body).messages if m["role"] == "user"}
    said = [(m, w) for m, w in zip(before.messages, before.written, strict=True) if _mark_of_user(m) in theirs]
    # A trace may join what the user said before it: then the words are all there, in a message that goes on.
    shown = [text_of(m) for m in after.messages if m["role"] == "user"]
    gone = ((m, w) for m, w in said if w not in after.written)
    if lost := [w for m, w in gone if not any(text_of(m) in text for text in shown)]:
        yield f"lost what the user said: {lost[0][:160]}"


def _same_at(before: Body, message: Json, written: str, start: int, *, less_thoughts: bool) -> int | None:
    """Where this message stands on the line before, from `start` on; an answer may have lost its reasoning."""
    for at in range(start, len(before.written)):
        if before.written[at] == written:
            return at
        if less_thoughts and message["role"] == "assistant" and _thoughtless(before.messages[at]) == message:
            return at
    return None


def _is_block(message: Json) -> bool:
    """A block, as the result of the call that opened its frame."""
    return message["role"] == "tool" and BLOCK.search(text_of(message)) is not None


def _stood(message: Json, written: str, stood: set[str]) -> bool:
    """Whether this came back as it stood, an answer perhaps less its reasoning."""
    return written in stood or (message["role"] == "assistant" and _among(message, frozenset(stood)))


def _is_trace(message: Json) -> bool:
    return message["role"] == "user" and TRACE in text_of(message)


def _mark_of_user(message: Json) -> str | None:
    return _mark(message) if message["role"] == "user" and not _is_trace(message) else None


def _told_of(awake: Sequence[Round]) -> Iterator[str]:
    """L3, L7: where a frame left, a ref on the line says what to ask for."""
    lines: dict[int, list[str]] = {}
    for each in awake:
        lines.setdefault(each.asked.number, []).extend(map(text_of, each.body.messages))
    for asked in {each.asked.number: each.asked for each in awake}.values():
        for frame in asked.folded:
            if not any(f'ref="{frame}"' in text for text in lines[asked.number]):
                yield f"request {asked.number}, L7: {frame} left the line, and no ref tells of it"


def _first_difference(before: Sequence[str], after: Sequence[str]) -> str:
    pairs = enumerate(zip(before, after, strict=False))
    return next((f"{at}: {a[:160]} -> {b[:160]}" for at, (a, b) in pairs if a != b), f"{len(after)} (shorter)")


def _passed(evidence: Evidence) -> Iterator[str]:
    """L5: whatever is not rendered passes byte for byte, once."""
    for asked in evidence.asked:
        if asked.status in (AWAKE, STATELESS, "error", "unknown"):
            continue
        left = [sent for sent in evidence.left if sent.of == asked.number]
        if asked.status == ANSWERED:
            yield from (
                f"request {asked.number}: the proxy answered it, and asked the provider all the same" for _ in left
            )
            continue
        if asked.status == "bypass":
            left = left[-1:]  # we may have stood aside after rounds of which the client saw nothing
        same = [sent.raw or sent.body for sent in left] == [asked.raw or asked.body]
        if (
            not same
            and not _less_thoughts(evidence, asked.body, [s.body for s in left])
            and not _less_typed(asked, left)
        ):
            yield f"request {asked.number}, L5: {asked.status}, yet {len(left)} bodies left that are not the client's"


def _less_typed(asked: ClientTurn, left: Sequence[UpstreamRequest]) -> bool:
    """The client's own request less what was typed to the proxy, and nothing else."""
    if len(left) != 1 or asked.status in UNTOUCHED:
        return False
    theirs, sent = Body.read(asked.body), Body.read(left[0].body)
    around = [{n: raw for n, raw in members(b.decode()).items() if n != "messages"} for b in (asked.body, left[0].body)]
    gone = set(_typed_at(theirs.messages))
    rest = tuple(written for at, written in enumerate(theirs.written) if at not in gone)
    return bool(gone) and rest == sent.written and around[0] == around[1]


def _typed_at(messages: Sequence[Json]) -> Iterator[int]:
    """Where commands to the proxy stand, and its answers behind them; no words behind results are one."""
    results = False
    for at, message in enumerate(messages):
        results = message["role"] == "tool" or (results and message["role"] != "assistant")
        if _is_typed(message) and not results:
            answer = next((n for n in range(at + 1, len(messages)) if not _is_added_by_client(messages[n])), at)
            if answer == at or messages[answer]["role"] != "assistant":
                yield at
            elif text_of(messages[answer]).startswith(OWN):
                yield from (at, answer)


def _is_typed(message: Json) -> bool:
    return message["role"] == "user" and TYPED.fullmatch(ADDED.sub("", text_of(message)).strip()) is not None


def _is_added_by_client(message: Json) -> bool:
    said = text_of(message)
    return message["role"] in HEADS or (message["role"] == "user" and bool(said) and not ADDED.sub("", said).strip())


def _typed(evidence: Evidence) -> Iterator[str]:
    """What a person typed to the proxy never goes upstream where it is on, nor what was answered."""
    status = {asked.number: asked.status for asked in evidence.asked}
    for sent in evidence.left:
        if status.get(sent.of, "unknown") not in ("unknown", *UNTOUCHED) and list(
            _typed_at(Body.read(sent.body).messages)
        ):
            yield f"request {sent.of}: what was typed to the proxy went upstream"


def _shortened(evidence: Evidence) -> Iterator[str]:
    """Exempt from L3 and L7: what left last for a request that could not fit is a selection of it, in its order, with
    every word of the user's and results with their calls."""
    for asked in (a for a in evidence.asked if a.status == STATELESS):
        at = f"request {asked.number}"
        theirs = Body.read(asked.body)
        left = Body.read(next(left.body for left in reversed(evidence.left) if left.of == asked.number))
        sent = _with_quotes(evidence, asked, theirs, left)
        yield from (f"{at}, {said}" for said in (*pairing(sent), *order(theirs, sent)))
        said = [text_of(m) for m in sent.messages]
        if lost := [m for m in theirs.messages if m["role"] in ("user", *HEADS) and text_of(m) not in said]:
            yield f"{at}, stateless: lost {text_of(lost[0])[:80]}"


def _with_quotes(evidence: Evidence, asked: ClientTurn, theirs: Body, sent: Body) -> Body:
    """What left, with the user's own message again where something stands for the history that it quotes."""
    if asked.number not in evidence.too_long:
        return sent
    long = [m for m in theirs.messages if m["role"] == "user"]
    own = [next((m for m in long if _stands_for(evidence, m, shown)), shown) for shown in sent.messages]
    return replace(sent, messages=tuple(own))


def _stands_for(evidence: Evidence, message: Json, shown: Json) -> bool:
    """Whether `shown` is the user's message with nothing changed but a stored conversation that it quotes: most of the
    message, and for the most part stored texts, character for character."""
    whole, told = text_of(message), text_of(shown)
    place = REQUOTED.search(told)
    if place is None or shown["role"] != "user":
        return False
    before, behind = told[: place.start()], told[place.end() :]
    gone = len(whole) - len(before) - len(behind)
    if gone * 2 < len(whole) or not (whole.startswith(before) and whole.endswith(behind)):
        return False
    return place[1] == f"{gone:,}" and _is_a_quote(evidence, whole[len(before) : len(whole) - len(behind)])


def _is_a_quote(evidence: Evidence, part: str) -> bool:
    for wires in (evidence.kept or {}).values():
        texts = {text_of(json.loads(wire)).strip() for wire in wires}
        long = (text for text in texts if QUOTED_TEXT <= len(text) <= len(part))
        found = [text for text in long if text in part or json.dumps(text)[1:-1] in part]
        if len(found) >= QUOTED_TEXTS and sum(map(len, found)) * 2 >= len(part):
            return True
    return False


def _among(message: Json, stored: frozenset[str]) -> bool:
    """A message less the reasoning it is stored with."""
    return any(_thoughtless(json.loads(kept)) == message for kept in stored if '"reasoning' in kept)


def _as_kept(message: Json, stored: frozenset[str], client: Body) -> bool:
    """The words of an answer that is stored with calls, where the client's history has the words and not the calls:
    the answer broke off, and it kept no more."""
    if message["role"] != "assistant" or calls_of(message) or not (said := text_of(message)):
        return False
    theirs = {call for m in client.messages for call, _ in calls_of(m)}
    whole = (json.loads(kept) for kept in stored if '"tool_calls"' in kept)
    left = [one for one in whole if one["role"] == "assistant" and text_of(one) == said]
    return any(theirs.isdisjoint(call for call, _ in calls_of(one)) for one in left)


def _less_calls_inside(message: Json, stored: frozenset[str]) -> bool:
    """An answer that opened a frame, less calls of the client behind the one that did: they left with the frame."""
    own = [id_ for id_, name in calls_of(message) if is_ours(name)]
    if message["role"] != "assistant" or not own:
        return False
    for whole in (json.loads(kept) for kept in stored if f'"{own[0]}"' in kept and '"tool_calls"' in kept):
        made, left = calls_of(whole), calls_of(message)
        begun = next((at for at, (id_, _) in enumerate(made) if id_ == own[0]), len(made))
        stays = [each for each in made if each in left]
        gone = [each for each in made if each not in left]
        behind = all(made.index(each) > begun and not is_ours(each[1]) for each in gone)
        if gone and behind and stays == left and text_of(whole) == text_of(message):
            return True
    return False


def _less_thoughts(evidence: Evidence, asked: bytes, bodies: Sequence[bytes]) -> bool:
    """L8: of a model that binds reasoning to its prefix, the client's own request less some of its reasoning."""
    if len(bodies) != 1 or not evidence.bound(Body.read(asked).model):
        return False
    theirs, left = Body.read(asked), Body.read(bodies[0])
    pairs = zip(theirs.messages, left.messages, strict=False)
    same = all(a == b or _thoughtless(a) == b for a, b in pairs)
    return same and len(theirs.messages) == len(left.messages) and theirs.tools == left.tools


def _thoughtless(message: Json) -> Json:
    return {name: value for name, value in message.items() if name not in THOUGHTS}


def _unseen(evidence: Evidence, awake: Sequence[Round]) -> Iterator[str]:
    """L6: nothing of ours is in what the client got."""
    made = {call for each in awake for m in each.body.messages for call in calls_of(m)}
    kept = {id_ for each in awake for id_ in refused(each.body)}
    ids = {id_ for id_, name in made if is_ours(name)} - {id_ for id_, name in made if not is_ours(name)} | kept
    marks = {each.body.nonce for each in awake if each.body.nonce} | {TRACE, SAID.partition(":")[0], "stack_"} | ids
    for asked in evidence.asked:
        if asked.status == AWAKE:
            for mark in sorted(m for m in marks if m.encode() in asked.answer):
                yield f"request {asked.number}, L6: the client saw {mark!r}"


def _tools(evidence: Evidence, awake: Sequence[Round]) -> Iterator[str]:
    """L7, and L2 of the array: an awake thread is offered the client's tools and behind them always the same of ours,
    recall among them; others only from a request on that may change the past."""
    constant: dict[str, tuple[str, ...]] = {}
    for each in awake:
        at = f"request {each.asked.number}"
        theirs = Body.read(each.asked.body).tools
        if not _are_offered(theirs, each.body.tools[: len(theirs)]):
            yield f"{at}, L2: the client's tools changed on the way"
        ours = each.body.tools[len(theirs) :]
        names = [json.loads(tool)["function"]["name"] for tool in ours]
        if "stack_recall" not in names and len(theirs) < MOST_TOOLS:
            yield f"{at}, L7: recall is not offered"
        if not all(map(is_ours, names)) or len(set(names)) != len(names):
            yield f"{at}, L2: tools behind the client's that are not ours, or twice: {names}"
        if (
            each.asked.number in evidence.excused
            or len(theirs) + len(constant.get(each.asked.conversation, ())) > MOST_TOOLS
        ):
            constant[each.asked.conversation] = ours  # changed on purpose, or fewer fit beside those of the client
        if constant.setdefault(each.asked.conversation, ours) != ours:
            yield f"{at}, L2: our tools changed"


def _are_offered(theirs: Sequence[str], sent: Sequence[str]) -> bool:
    """Whether the client's tools are sent as they came, but for descriptions of which only the first line is left."""
    if list(theirs) == list(sent):
        return True
    if len(theirs) != len(sent):
        return False
    pairs = zip(map(_definition, theirs), map(_definition, sent), strict=True)
    return all(
        came | {"description": ""} == left | {"description": ""}
        and left.get("description", "")
        in (whole := came.get("description", ""), whole.strip().partition("\n")[0].rstrip())
        for came, left in pairs
    )


def _definition(tool: str) -> Json:
    """What a neutral tool defines, as its own dialect writes it."""
    told = json.loads(tool)
    definition: Json = json.loads(told["written"]) if "written" in told else told
    inner: Json = definition.pop("function", {})
    return definition | inner


def _headers(evidence: Evidence) -> Iterator[str]:
    for sent in evidence.left:
        for name in sent.headers:
            if name.lower().startswith("x-stack-"):
                yield f"request {sent.of}: {name} went upstream"


def _money(evidence: Evidence, rounds: Sequence[Round]) -> Iterator[str]:
    """L9: nobody is told a saving that is none. A request without a whole answer has saved nothing, nor has one that
    sends more than its client and leaves nothing out, unless its head was kept in the cache for longer."""
    left: dict[int, list[Round]] = {}
    for each in rounds:
        left.setdefault(each.asked.number, []).append(each)
    for asked in (asked for asked in evidence.asked if asked.saved > 0):
        if not asked.is_answered:
            yield f"request {asked.number}, L9: without a whole answer it is told to have saved {asked.saved:.6f}"
        sent = left.get(asked.number, [])
        sends_more = sum(len(each.sent.raw) for each in sent) > len(asked.raw)
        theirs = Body.read(asked.body).messages
        is_kept = any(HOUR in each.sent.raw and HOUR not in asked.raw for each in sent)
        if sent and sends_more and not is_kept and all(_leaves_nothing_out(theirs, each.body) for each in sent):
            yield f"request {asked.number}, L9: it cuts nothing, sends more and is told to have saved {asked.saved:.6f}"


def _leaves_nothing_out(theirs: Sequence[Json], line: Body) -> bool:
    sent = Counter(map(_content_of, line.messages))
    return not Counter(_content_of(message) for message in theirs if message["role"] not in HEADS) - sent


def _content_of(message: Json) -> str:
    return f"{_mark(message)} {text_of(message).strip()}"


def _stored(evidence: Evidence, awake: Sequence[Round], kept: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """L3: what the client sent anew, and everything on a line that is not ours, is stored byte for byte. A line of all
    the client's messages, and no tool of ours, may have several stored rounds as one message."""
    for each in awake:
        stored = kept.get(each.asked.conversation, frozenset())
        client = Body.read(each.asked.body)
        theirs = {_mark(m) for m in client.messages}
        is_unfolded = each.body.tools == client.tools and len(each.body.written) == len(client.written)
        typed = set(_typed_at(client.messages))
        for at in (at for at in client.tail() if at not in typed):
            if client.written[at] not in stored:
                yield f"request {each.asked.number}, L3: not stored: {client.written[at][:80]}"
        for at, (message, written) in enumerate(zip(each.body.messages, each.body.written, strict=True)):
            ours = message["role"] in HEADS or _is_retold(message)
            ours = ours or (message["role"] != "assistant" and _added(each.body, message, sorted(theirs)))
            bound = evidence.bound(each.body.model) and message["role"] == "assistant"
            less = (bound and _among(message, stored)) or _as_kept(message, stored, client)
            less = less or _less_calls_inside(message, stored)
            less = less or (is_unfolded and written == client.written[at])
            if not ours and written not in stored and not less:
                yield f"request {each.asked.number}, L3: on the line and not stored: {written[:80]}"
