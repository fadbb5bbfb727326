"""A trace: the text that stands on the line where an inferred frame, or a part of one, left it.

It is written from what is known exactly (files, commands, decisions, errors) and from the names that the messages hold,
ranked by what later work comes back to. Nothing is invented and no model is asked. The sections are fixed and one
without content says so; there is one `ref` in it, under which the messages themselves come back.

The law: **a trace is frozen text and speaks of the past**. The same values give the same bytes; what was said in the
frame is marked as said then, so nobody answers it again. A trace that replaces an earlier one takes over what that one
says, item by item, and never tells it anew.

What this module does not do: it finds no place to cut, moves nothing, and keeps no messages; user messages and closing
texts stay on the line as they were, whoever cuts sees to that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest

import msgspec
from msgspec.structs import replace

from proxy.core.frames import USER_ORIGIN, Frame, Status, marked_results
from proxy.core.ledger import Message
from proxy.core.observers import names_in_text, rank_names
from proxy.core.text import (
    TRUNCATION_MARKER,
    CountTokens,
    cut_for_display,
    element,
    remove_illegal_xml,
    text_element,
    truncate_to_tokens,
)

TRACE_SHARE = 0.10
"""Of the tokens that leave, what a trace may take. On the recordings 5, 8, 10 and 15 % keep 98.0, 99.3, 99.6 and 99.8 %
of the facts that are used again ten or more requests later."""
MIN_TRACE_TOKENS = 120
"""Tokens that a trace has for what it says, however little leaves; its tags and fixed words come on top."""
MAX_TRACE_TOKENS = 2_500
"""Tokens of a whole trace, however much leaves."""

RESULTS_SHARE = 0.20
FILES_CHANGED_SHARE = 0.50
FILES_READ_SHARE = 0.06
DECISIONS_SHARE = 0.12
LIST_SHARE = 0.07
PROGRESS_SHARE = 0.08
NEXT_SHARE = 0.16
"""Of that room, what each part may take at most: all the rest is for names."""
MIN_SECTION_TOKENS = 30
"""Tokens that each of them may take in a small trace: a line or two."""
FAILED_FACTOR = 2
"""A failed frame may say more of what was tried and of its errors."""
NAMES_PER_COUNT = 64
"""Names counted at once: counting each by itself takes ten times as long."""
ITEM_CHARACTERS = 110
"""Characters of one item of a list."""
PROGRESS_CHARACTERS = 200
"""Characters of one thing the assistant said under way."""

TRACE_SECTIONS = ("results", "progress", "files", "commands", "decisions", "errors", "names", "next")
NO_CONTENT = "none"
CLOSING_MESSAGE_HINT = "as its closing message says"
OPEN_PLAN_HEADING = "open in the plan then:"
PROGRESS_HEADING = "said then:"
BEGUN_PREFIX = "begun then, taken up since: "


class SpanFacts(msgspec.Struct, frozen=True):
    """What is known exactly of what left: each in order, each once.

    `changed` are paths with how, where it is known: `src/b.py (created)`; `commands` end in their newest state:
    `pytest -q: failed`; `errors` in what became of them: `KeyError: 'x' (fixed)`. `steps` counts call groups.
    """

    changed: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    steps: int = 0


class ParsedTrace(msgspec.Struct, frozen=True):
    """What an earlier trace says, read back from its text."""

    facts: SpanFacts = msgspec.field(default_factory=SpanFacts)
    results: str = ""
    progress: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------------- writing
def trace_text(  # noqa: PLR0913  a trace is these values; each has one source and one place in the text
    frame: Frame,
    parent_title: str,
    messages: Sequence[Message],
    facts: SpanFacts,
    *,
    nonce: str,
    count: CountTokens,
    results: str = "",
    part: bool = False,
    known: Container[str] = (),
    earlier: str = "",
    earlier_tokens: int = 0,
    planned: Sequence[str] = (),
    noted: str = "",
) -> str:
    """The text that stands for `messages` of `frame`, oldest first, within `budget_of` them, give or take a token.

    `results` is the closing text where it does not stay on the line (the frame's own are told where it failed, was an
    item of a plan, was begun by a person or has no call whose result tells them: a request's are its closing text, and
    lines in it marked as results; what `earlier` told of them follows);
    `part` says that the frame goes on; `known` are names that stay visible beside this text; `earlier` is the trace
    that this one replaces, of `earlier_tokens`; `planned` are items of the client's plan that are open now and were
    told of in what leaves; `noted` is what the model wrote to stand here: all of it does, and it takes nothing from the
    rest.
    """
    told = _without_repeats(parse_traces(earlier), noted)
    facts = merge_facts(told.facts, facts)
    around = _TraceEnvelope(frame, parent_title, nonce, facts.steps, part)
    bare = count(around.to_xml({}))
    budget = trace_budget(messages, bare, earlier_tokens)
    failed = frame.status is Status.FAILED
    own = frame.results.strip() if failed or frame.was_stopped_in_place or frame.origin in ("plan", USER_ORIGIN) else ""
    marked = marked_results(m.text for m in messages if m.role == "assistant")
    sources = _SectionSources(
        results=results.strip() or _with_earlier_results(own or marked, told.results),
        has_closing_message=frame.origin in ("request", "root") and not part,
        planned=tuple(planned),
        earlier_progress=told.progress,
        assistant_texts=_assistant_texts(messages),
        facts=facts,
        failed=failed,
        is_part=part,
    )
    parts = _write_sections(sources, budget - bare, count)
    if noted:
        known_results = parts["results"] if parts["results"] not in (NO_CONTENT, CLOSING_MESSAGE_HINT) else ""
        parts["results"] = "\n".join(filter(None, (known_results, remove_illegal_xml(noted))))
        budget += count(noted)
    candidates = _interleave(told.names, rank_names(messages, known))
    names = _names_that_fit(candidates, around.to_xml(parts), budget, count)
    return around.to_xml({**parts, "names": " ".join(names)})


def _without_repeats(told: ParsedTrace, noted: str) -> ParsedTrace:
    """What an earlier trace says, less the lines that are noted again."""
    again = set(remove_illegal_xml(noted).splitlines())
    return replace(told, results="\n".join(line for line in told.results.splitlines() if line not in again))


def trace_budget(messages: Iterable[Message], bare: int, earlier: int = 0) -> int:
    """Tokens of the trace of `messages`. `bare` are those of a trace that says nothing; `earlier` are those of the one
    it replaces, which says what it said."""
    share = int(TRACE_SHARE * sum(m.tokens for m in messages))
    return min(MAX_TRACE_TOKENS, max(bare + MIN_TRACE_TOKENS, earlier + share))


class _TraceEnvelope(msgspec.Struct, frozen=True):
    """Everything of a trace that is not one of its sections."""

    frame: Frame
    parent_title: str
    nonce: str
    steps: int
    is_part: bool

    def to_xml(self, parts: Mapping[str, str]) -> str:
        """The whole text, every section in its place. Quotes need no escape between tags, and would hide a command
        from whoever searches for it."""
        status = Status.IN_PROGRESS if self.is_part else self.frame.status
        attributes = {"ref": self.frame.id, "status": str(status), "steps": str(self.steps)}
        title = text_element("title", cut_for_display(_without_refs(self.frame.title)))
        sections = (f"<{name}>{_escape_section(parts.get(name) or NO_CONTENT)}</{name}>" for name in TRACE_SECTIONS)
        siblings = element(
            "completed-siblings", {"count": "1", "filtered": "0"}, element("frame", attributes, title, *sections)
        )
        parent = text_element("parent", cut_for_display(_without_refs(self.parent_title))) if self.parent_title else ""
        wrapper = {"frame": self.frame.parent or self.frame.id, "nonce": self.nonce}
        return element("stack-context", wrapper, parent, siblings, TRACE_FOOTER)


TRACE_FOOTER = (
    "Past work: its messages left the context. stack_recall with the ref, or ref and query, brings them back."
)
"""They stand last, so that a trace ends on what is, not on what was asked or begun."""


class _SectionSources(msgspec.Struct, frozen=True):
    """What the sections are written from."""

    results: str
    has_closing_message: bool
    """A closing message of the frame stays on the line."""
    planned: tuple[str, ...]
    earlier_progress: tuple[str, ...]
    assistant_texts: tuple[str, ...]
    facts: SpanFacts
    failed: bool
    is_part: bool


def _write_sections(said: _SectionSources, room: int, count: CountTokens) -> dict[str, str]:
    """The sections but for the names, each within its share of `room` tokens; all of them together fit it."""
    under_way = said.assistant_texts[:-1] if said.is_part else said.assistant_texts if said.failed else ()
    newest = said.assistant_texts[-1] if said.is_part and said.assistant_texts else ""
    more = FAILED_FACTOR if said.failed else 1
    facts = said.facts
    read_share, changed_share = max(MIN_SECTION_TOKENS, int(room * FILES_READ_SHARE)), int(room * FILES_CHANGED_SHARE)
    writers: dict[str, tuple[float, Callable[[int], str]]] = {
        "results": (
            RESULTS_SHARE,
            lambda left: _results_section(said.results, left, count, closes=said.has_closing_message),
        ),
        "files": (1.0, lambda left: _files_section(facts, min(changed_share, left), min(read_share, left), count)),
        "errors": (LIST_SHARE * more, lambda left: _list_section(facts.errors, left, count)),
        "commands": (LIST_SHARE * more, lambda left: _list_section(facts.commands, left, count)),
        "decisions": (DECISIONS_SHARE, lambda left: _list_section(facts.decisions, left, count)),
        "next": (NEXT_SHARE, lambda left: _next_section(newest, said.planned, left, count)),
        "progress": (
            PROGRESS_SHARE * more,
            lambda left: _list_section((*said.earlier_progress, *under_way), left, count, PROGRESS_HEADING),
        ),
    }
    parts: dict[str, str] = {}
    left = room
    for name, (share, write) in writers.items():
        parts[name] = write(min(max(MIN_SECTION_TOKENS, int(room * share)), left))
        left -= count(parts[name])
    return parts


def _with_earlier_results(now: str, earlier: str) -> str:
    """What came of the work, and behind it what the trace before says of that and is not said now."""
    if not now:
        return earlier
    kept = (line for line in earlier.splitlines() if line.removesuffix(TRUNCATION_MARKER).strip() not in now)
    return "\n".join([now, *kept])


def _results_section(text: str, budget: int, count: CountTokens, *, closes: bool) -> str:
    if not text:
        return CLOSING_MESSAGE_HINT if closes else NO_CONTENT
    return truncate_to_tokens(remove_illegal_xml(text), budget, count)


def _next_section(begun: str, planned: Sequence[str], budget: int, count: CountTokens) -> str:
    """What was begun, and what the client's plan had open then, the next items first."""
    said = truncate_to_tokens(BEGUN_PREFIX + begun, budget // 2 if planned else budget, count, "…") if begun else ""
    left = budget - count(said)
    items = []
    for item in planned:
        left -= count(f"- {cut_for_display(item, ITEM_CHARACTERS)}") + 1
        if left < count(OPEN_PLAN_HEADING):
            break
        items.append(f"- {cut_for_display(item, ITEM_CHARACTERS)}")
    return "\n".join([*([said] if said else []), *([OPEN_PLAN_HEADING, *items] if items else [])])


def _assistant_texts(messages: Iterable[Message]) -> tuple[str, ...]:
    """What the assistant said beside its calls: the beginning of each text, once, oldest first."""
    said = (cut_for_display(m.text, PROGRESS_CHARACTERS) for m in messages if m.role == "assistant" and m.text.strip())
    return tuple(dict.fromkeys(said))


def _files_section(facts: SpanFacts, for_changed: int, for_read: int, count: CountTokens) -> str:
    """What was changed first: it is what later work builds on."""
    written = {_item_path(item) for item in facts.changed}
    read = [item for item in facts.read if _item_path(item) not in written]
    groups = (("changed", facts.changed, for_changed), ("read", read, for_read))
    return "\n".join(f"{how}: {_paths_that_fit(paths, budget, count)}" for how, paths, budget in groups if paths)


def _paths_that_fit(paths: Sequence[str], budget: int, count: CountTokens) -> str:
    """The newest paths that fit, in order, and how many more there were."""
    kept = _newest_items(paths, budget, count)
    more = [f"+{len(paths) - len(kept)} more"] if len(kept) < len(paths) else []
    return ", ".join([*kept, *more])


def _list_section(items: Iterable[str], budget: int, count: CountTokens, heading: str = "") -> str:
    """The newest items that fit, one a line, oldest first."""
    lines = _newest_items([f"- {item}" for item in items], budget, count)
    return "\n".join([heading, *lines] if heading and lines else lines)


def _newest_items(items: Sequence[str], budget: int, count: CountTokens) -> Sequence[str]:
    for at in range(len(items) - 1, -1, -1):
        budget -= count(items[at]) + 1  # one for the border between two of them
        if budget < 0:
            return items[at + 1 :]
    return items


# --------------------------------------------------------------------------------------------------------------- names
def _interleave(earlier: Iterable[str], now: Iterable[str]) -> Iterator[str]:
    """Both were ranked, each by what was known then: neither crowds out the other."""
    return filter(None, dict.fromkeys(chain.from_iterable(zip_longest(earlier, now))))


def _names_that_fit(candidates: Iterable[str], shown: str, budget: int, count: CountTokens) -> list[str]:
    """The first names that fit beside what is shown and do not stand there already. A space between them is part of
    the token that follows it: a comma would cost every fifth name."""
    left = budget - count(shown)
    placement = names_in_text(shown)
    wanted = (name for name in candidates if name not in placement and not ("/" in name and name in shown))
    chosen: list[str] = []
    while block := list(islice(wanted, NAMES_PER_COUNT)):
        tokens = count(" " + " ".join(block))
        if tokens > left:
            return [*chosen, *_first_names_that_fit(block, left, count)]
        chosen += block
        left -= tokens
    return chosen


def _first_names_that_fit(names: Sequence[str], budget: int, count: CountTokens) -> Sequence[str]:
    """As many of the first names as fit. What is known to fit is not counted again."""
    low, high = 0, len(names)
    while low < high:
        middle = (low + high + 1) // 2
        tokens = count(" " + " ".join(names[low:middle]))
        if tokens <= budget:
            low, budget = middle, budget - tokens
        else:
            high = middle - 1
    return names[:low]


# ------------------------------------------------------------------------------------------------------------- escapes
_REF_ATTRIBUTE = "ref="
_REF_PATTERN = re.compile(rf"\b{_REF_ATTRIBUTE}")


def _without_refs(text: str) -> str:
    """One text, one `ref`: what looks like another one in a command or a title is none of ours."""
    return _REF_PATTERN.sub("ref =", text) if _REF_ATTRIBUTE in text else text


def _escape_section(text: str) -> str:
    return remove_illegal_xml(_without_refs(text)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _unescape_section(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


# ------------------------------------------------------------------------------------------------------------- merging
_SECTION_PATTERN = re.compile(rf"<({'|'.join(TRACE_SECTIONS)})>([^<]*)</\1>")
_STEPS_PATTERN = re.compile(r'<frame ref="[^"]*" status="[^"]*" steps="(\d+)">')
_ITEM_PATTERN = re.compile(r"^- (.*)$", re.MULTILINE)
_MORE_PATTERN = re.compile(r"\+\d+ more")


_TRACE_START = "<stack-context"


def parse_traces(text: str) -> ParsedTrace:
    """What traces of ours say, one or several of them, oldest first; nothing where `text` is none."""
    told = ParsedTrace()
    for one in text.split(_TRACE_START)[1:]:
        told = _join_traces(told, _parse_trace(one))
    return told


def _parse_trace(text: str) -> ParsedTrace:
    found = {
        name: _unescape_section(said)
        for name, said in _SECTION_PATTERN.findall(text)
        if said not in (NO_CONTENT, CLOSING_MESSAGE_HINT)
    }
    lists = {name: tuple(_ITEM_PATTERN.findall(found.get(name, ""))) for name in ("commands", "decisions", "errors")}
    files = dict(line.partition(": ")[::2] for line in found.get("files", "").splitlines())
    steps = int(match[1]) if (match := _STEPS_PATTERN.search(text)) else 0
    return ParsedTrace(
        SpanFacts(_split_paths(files.get("changed", "")), _split_paths(files.get("read", "")), **lists, steps=steps),
        found.get("results", ""),
        tuple(_ITEM_PATTERN.findall(found.get("progress", ""))),
        tuple(found.get("names", "").split()),
    )


def _join_traces(old: ParsedTrace, new: ParsedTrace) -> ParsedTrace:
    """Two traces as one, set by set (S2-21)."""
    return ParsedTrace(
        merge_facts(old.facts, new.facts),
        "\n".join(text for text in (old.results, new.results) if text),
        (*old.progress, *new.progress),
        tuple(dict.fromkeys((*old.names, *new.names))),
    )


def _split_paths(listed: str) -> tuple[str, ...]:
    return tuple(path for path in listed.split(", ") if path and not _MORE_PATTERN.fullmatch(path))


def merge_facts(old: SpanFacts, new: SpanFacts) -> SpanFacts:
    """Each thing once, with the newest that is known of it, at the place where it was last spoken of (S2-21)."""
    return replace(
        new,
        changed=_merge_items(old.changed, new.changed, _item_path),
        read=_merge_items(old.read, new.read, _item_path),
        commands=_merge_items(old.commands, (_cut_item(item, _item_command) for item in new.commands), _item_command),
        decisions=_merge_items(old.decisions, (_cut_item(item, str) for item in new.decisions), str),
        errors=_merge_items(old.errors, (_cut_item(item, _item_path) for item in new.errors), _item_path),
        steps=old.steps + new.steps,
    )


def _merge_items(old: Iterable[str], new: Iterable[str], key: Callable[[str], str]) -> tuple[str, ...]:
    newest = {key(item): item for item in new}
    return (*(item for item in old if key(item) not in newest), *newest.values())


def _cut_item(item: str, key: Callable[[str], str]) -> str:
    """An item on one line, what became of it kept."""
    head = key(item)
    return cut_for_display(head, ITEM_CHARACTERS) + item[len(head) :].replace("\n", " ")


_CHANGE_MARK = re.compile(r" \((?:created|deleted|fixed|still failing)\)\Z")
_COMMAND_STATE = re.compile(r": (?:ok|failed)\Z")
"""Nothing but these words: a path may end in brackets, and a colon may stand in a command whose end is not known."""


def _item_path(item: str) -> str:
    """`src/b.py` of `src/b.py (created)`; an error without what became of it."""
    return _CHANGE_MARK.sub("", item)


def _item_command(item: str) -> str:
    """`pytest -q` of `pytest -q: failed`."""
    return _COMMAND_STATE.sub("", item)
