"""Writes a trace: the text that replaces the messages of an inferred frame, or of a part of one.

It is a note that a colleague could work from, written without a model: what was said, what came of it, the steps,
decisions, edits, files, errors and what was open, and last a few names. It begins with whose work it is and how to get
it back, by its one `ref`; empty sections are left out. The same values give the same bytes, all in the past tense, so
that the model does not answer old messages again. A trace that replaces an older one takes over its items. Code stays
readable: only what could open or close an element of ours is escaped, so a trace is no XML.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, zip_longest

import msgspec
from msgspec.structs import replace

from proxy.core.frames import USER_ORIGIN, Frame, Status, marked_results, one_spelling, outcome_part
from proxy.core.ledger import Message
from proxy.core.observers import (
    WrittenText,
    clean_name,
    decode_json_or_text,
    files_touched_by,
    names_in_arguments,
    names_in_messages,
    names_in_text,
    rank_names,
    with_later_outcome,
)
from proxy.core.text import (
    GAP_MARKER,
    TRUNCATION_MARKER,
    CountTokens,
    cut_for_display,
    cut_middle,
    element,
    escape_own_tags,
    quoted,
    remove_illegal_xml,
    unescape_own_tags,
)

TRACE_SHARE = 0.08
"""Share of the removed tokens that a trace may have. On the recordings 5, 8, 10 and 15 % keep 98.0, 99.3, 99.6 and 99.8
% of the facts that are used again ten or more requests later."""
MIN_TRACE_TOKENS = 120
"""Minimum tokens of the content; tags and fixed words come on top."""
MAX_TRACE_TOKENS = 2_000
"""Maximum tokens of a trace without the texts that its edits left."""

MAX_WRITTEN_TOKENS = 1_200
"""Tokens of the texts that edits left in files, at most, in each trace and beyond its budget. Of 73 recorded edits for
which a fold took the old text, 26 replaced what an earlier edit had written (docs/quality.md)."""
MIN_WRITTEN_CHARACTERS = 40
"""A shorter text is told by the line of its edit."""
MAX_CHARACTERS_PER_TOKEN = 8
LINE_BREAKS = "\r\n"

RESULTS_SHARE = 0.20
SAID_SHARE = 0.35
FILES_SHARE = 0.50
EDITS_SHARE = 0.25
NEXT_SHARE = 0.16
DECISIONS_SHARE = 0.12
ERRORS_SHARE = 0.07
BROKEN_SHARE = 0.10
STEPS_SHARE = 0.30
NAMES_SHARE = 0.25
"""Maximum share of each section, in the order in which they take their room; what one leaves is the next one's."""
MIN_SECTION_TOKENS = 30
"""Minimum tokens of a section in a small trace: a line or two."""
MIN_EDITS_TOKENS = 70
"""The same for edits: one with the old and the new text."""
MIN_ERRORS_TOKENS = 80
"""The same for errors, if the steps keep theirs: the names of two or three failed tests."""
FILES_ALWAYS_TOLD = 5
"""The newest files changed, and the newest files read, that no budget leaves out: the next step mostly needs one."""
MIN_NAMES_TOKENS = 330
"""Tokens that names may take in a small trace, if nothing else needs them."""
MIN_NUMBER_DIGITS = 5
MIN_RESULT_LINE = 12
"""Characters of a line of results from which on it is not said once more."""
MAX_EDITS = 6
EARLIER_EDITS_TOKENS = 10
"""Least tokens of the line that names the files of edits that are not listed."""
FILES_ALWAYS_NAMED = 3
"""The newest of these files, which no budget leaves out."""
UNDONE_LATER = " (undone later)"
"""Behind an edit that git undid."""
FAILED_FACTOR = 2
"""A failed frame may say more about attempts and errors."""
NAMES_PER_COUNT = 64
"""Names counted at once: counting each alone takes ten times as long."""
ITEM_CHARACTERS = 110
DECISION_CHARACTERS = 240

NAMES_SECTION = "names-you-can-query"
WRITTEN_SECTION = "text-after-edits"
BROKEN_SECTION = "does-not-work-here"
TRACE_SECTIONS = (
    "said",
    "results",
    "steps",
    "decisions",
    "edits",
    WRITTEN_SECTION,
    "files",
    "errors",
    BROKEN_SECTION,
    "next",
    NAMES_SECTION,
)
READ_AGAIN = " (read again later)"
NO_CONTENT = "none"
EMPTY_SECTIONS = (NO_CONTENT, "as its closing message says")
"""What empty sections of earlier versions say."""
TRACE_NOTE = "earlier work"
TRACE_START = f'<stack-context note="{TRACE_NOTE}"'
_EMPTY_NAMES = f"<{NAMES_SECTION}></{NAMES_SECTION}>\n"
OPEN_PLAN_HEADING = "open in the plan then:"
PARAGRAPH = "\n\n"
_LIST_ITEM = re.compile(r"^\s*(?:\d+[.)]|[-*])\s+\S", re.MULTILINE)
MAX_ANNOUNCEMENTS = 3
"""The newest texts that only say what would be done next: the steps say what was done."""
PLAN_ITEMS = 3
"""List items from which on a text counts as a plan."""


class SpanFacts(msgspec.Struct, frozen=True):
    """Exact facts of a span, each once, in order.

    `changed` are paths with the kind of change if known (`src/b.py (created)`), `commands` end with their newest
    outcome (`pytest -q: failed`), `errors` with what the last run said of them. `steps` counts call groups. `said` are
    the texts of the assistant, `told_steps` and `edits` a line each. With `lists_plan` a call of the span listed the
    client's whole plan. `outcomes` has how the last run of each kind of check ended, if known, `shared_names` by path
    how a file is told of which another has the name too.
    """

    changed: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    steps: int = 0
    said: tuple[str, ...] = ()
    told_steps: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    lists_plan: bool = False
    outcomes: Mapping[str, bool] = msgspec.field(default_factory=dict)
    shared_names: Mapping[str, str] = msgspec.field(default_factory=dict)


class ParsedTrace(msgspec.Struct, frozen=True):
    """The content of an earlier trace, parsed from its text."""

    facts: SpanFacts = msgspec.field(default_factory=SpanFacts)
    results: str = ""
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
    items: Sequence[str] = (),
    noted: str = "",
    broken: Sequence[str] = (),
    begun_by: str = "",
    orders: Sequence[str] = (),
    read_again: Sequence[str] = (),
    written: Sequence[WrittenText] = (),
) -> str:
    """The trace of `messages` (oldest first) of `frame`, within `trace_budget`, give or take a token.

    `results` are summaries that a model wrote. Without them the frame's own results are used (failed frames, plan
    items, frames started by a person or stopped in place), or lines marked as results; results of `earlier` follow. The
    closing message of a request stands behind its trace, and is not told once more. `part` means that the frame goes
    on. `known` are names still visible elsewhere. `earlier` is the text of the replaced traces, of `earlier_tokens`.
    `planned` are open plan items that the removed messages listed, `items` what came of those that ended in them:
    beside the closing message of a request their texts are told as said. `noted` is added in full, beyond the budget.
    `broken` are lines about what did not work here and has not been mended. `begun_by` titles the user's message above
    the trace, where another one titles the frame. `orders` are messages of the user that stay behind the trace while
    work for them is in the trace; without a word of it that work would look undone. `read_again` are files that were
    read again behind what is removed. `written` are texts that its edits left in files, oldest first: the newest are
    told word for word, beyond the budget, because most edits change what an earlier one wrote.
    """
    previous = _without_repeats(parse_traces(earlier), noted)
    facts = merge_facts(previous.facts, facts)
    around = _TraceEnvelope(frame, parent_title, nonce, facts.steps, part, begun_by, tuple(orders))
    bare = count(around.to_xml(dict.fromkeys(TRACE_SECTIONS, NO_CONTENT)))
    budget = trace_budget(messages, bare - count(around.covers), earlier_tokens)
    failed = frame.status is Status.FAILED
    is_item = frame.origin == "plan"
    own_results = (
        frame.results.strip() if failed or frame.was_stopped_in_place or is_item or frame.origin == USER_ORIGIN else ""
    )
    marked = marked_results(m.text for m in messages if m.role == "assistant")
    closes = frame.origin in ("request", "root") and not part
    before = "\n".join(filter(None, (previous.results, *(() if closes else items))))
    texts = _written_section(written, count)
    sources = _SectionSources(
        results=results.strip() or _with_earlier_results(own_results or marked, before),
        # A call that lists the whole plan ended this item, and stands behind it.
        planned=() if is_item and facts.lists_plan and not part else tuple(planned),
        facts=facts,
        failed=failed,
        broken=tuple(broken),
        read_again=tuple(read_again),
        goes_on=part,
        has_texts=bool(texts),
    )
    if not (noted or earlier or facts.steps) and _tells_nothing(sources, around):
        return around.to_line()
    if not noted and (step := _only_step(sources, around)):
        return around.to_line(f": {step}")
    around = replace(around, has_texts=bool(texts))
    parts = _write_sections(sources, budget - bare, count)
    if noted:
        parts["results"] = "\n".join(filter(None, (parts["results"], remove_illegal_xml(noted))))
        budget += count(noted)
    if texts:
        parts[WRITTEN_SECTION] = texts
        budget += count(texts)
    shown = around.to_xml(parts)
    of_tools = _words_of_calls(messages)
    ranked = (name for name in rank_names(messages, known) if name not in of_tools)
    candidates = _interleave(previous.names, ranked)
    kept_names = min(count(" ".join(previous.names)) + MIN_SECTION_TOKENS, int(MAX_TRACE_TOKENS * NAMES_SHARE))
    name_tokens = max(MIN_NAMES_TOKENS, int((budget - bare) * NAMES_SHARE), kept_names if previous.names else 0)
    name_limit = min(budget, count(shown) + name_tokens) - count(_EMPTY_NAMES)
    numbers = _own_numbers(messages).union(filter(_is_long_number, previous.names))
    cleaned = dict.fromkeys(filter(None, (name if name in numbers else clean_name(name) for name in candidates)))
    names = _names_that_fit(cleaned, shown, name_limit, count)
    return around.to_xml({**parts, NAMES_SECTION: _names_by_file(names, messages, facts.shared_names)})


def _without_repeats(previous: ParsedTrace, noted: str) -> ParsedTrace:
    """The earlier trace without result lines that `noted` repeats."""
    repeated = set(remove_illegal_xml(noted).splitlines())
    return replace(previous, results="\n".join(line for line in previous.results.splitlines() if line not in repeated))


def trace_budget(messages: Iterable[Message], bare: int, earlier: int = 0) -> int:
    """Token limit of a trace. `bare` are the tokens of one without content, `earlier` those of the one it replaces."""
    share = int(TRACE_SHARE * sum(m.tokens for m in messages))
    return min(MAX_TRACE_TOKENS, max(bare + MIN_TRACE_TOKENS, earlier + share))


class _TraceEnvelope(msgspec.Struct, frozen=True):
    """Everything in a trace except its sections."""

    frame: Frame
    parent_title: str
    nonce: str
    steps: int
    is_part: bool
    begun_by: str = ""
    orders: tuple[str, ...] = ()
    has_texts: bool = False

    def to_xml(self, parts: Mapping[str, str]) -> str:
        sections = (f"<{name}>{_escape_section(text)}</{name}>" for name in TRACE_SECTIONS if (text := parts.get(name)))
        wrapper = {"note": TRACE_NOTE, "frame": self.frame.parent or self.frame.id, "nonce": self.nonce}
        return element("stack-context", wrapper, self._opening(), *sections)

    def to_line(self, told: str = "") -> str:
        """The whole trace, where all that there is to tell fits behind its title."""
        wrapper = {"note": TRACE_NOTE, "frame": self.frame.parent or self.frame.id, "nonce": self.nonce}
        what = self._what(_escape_section(told))
        return element("stack-context", wrapper, f"{what} {STEP_RECALL.format(ref=self.frame.id)}")

    def _opening(self) -> str:
        """Whose work it was, and how to get it back."""
        more = MORE_THAN_TOLD if self.has_texts else "it"
        return f"{self._what()} {TRACE_RECALL.format(ref=self.frame.id, what=more)}{self.covers}"

    def _what(self, told: str = "") -> str:
        parent, title = (_escape_section(cut_for_display(text)) for text in (self.parent_title, self.frame.title))
        if self.frame.is_part:  # a cut of ours is no task: the work is that of the frame that goes on
            title, parent = parent or title, ""
        steps = f", {self.steps} step{'' if self.steps == 1 else 's'}" if self.steps else ""
        ended = "" if self.frame.status is Status.COMPLETED else f", {self.frame.status_text}"
        whole = parent or title if self.is_part else title
        named = (
            f"{quoted(_escape_section(self.begun_by))}, a part of {quoted(whole)}" if self.begun_by else quoted(whole)
        )
        return (
            f"Your earlier work on {named}{steps}{told}."
            if self.is_part
            else f"Your finished work: {named}{steps}{ended}{told}."
        )

    @property
    def covers(self) -> str:
        """A line about the later orders, which takes its room from the sections."""
        named = [f'"{cut_for_display(_escape_section(order), ORDER_CHARACTERS)}"' for order in self.orders]
        if len(named) > MAX_ORDERS:
            named = [*named[:2], f"{len(named) - MAX_ORDERS + 1} more", *named[3 - MAX_ORDERS :]]
        listed = " and ".join(filter(None, (", ".join(named[:-1]), *named[-1:])))
        return f"\n{TRACE_COVERS.format(s='s' if len(named) > 1 else '', orders=listed)}" if named else ""


TRACE_RECALL = (
    "The texts of its files and outputs are gone from here. Read a file again before you edit {what}; "
    'stack_recall(ref="{ref}", query="a word in it") shows what was.'
)
MORE_THAN_TOLD = f"more of it than {WRITTEN_SECTION} has"
STEP_RECALL = 'Gone from here; stack_recall(ref="{ref}") shows it.'
TRACE_COVERS = "It also has your work for the user's message{s} {orders} below."
ORDER_CHARACTERS = 45
MAX_ORDERS = 5
"""Messages of the user that are named; of more the first two and the last ones."""


class _SectionSources(msgspec.Struct, frozen=True):
    """What the sections are written from."""

    results: str
    planned: tuple[str, ...]
    facts: SpanFacts
    failed: bool
    broken: tuple[str, ...] = ()
    read_again: tuple[str, ...] = ()
    goes_on: bool = False
    has_texts: bool = False
    """The trace tells texts that edits left, word for word."""


def _has_more_than_steps(sources: _SectionSources, around: _TraceEnvelope) -> bool:
    """Whether there is to tell more than what was done to which files."""
    facts = sources.facts
    more = (sources.results, sources.planned, sources.broken, sources.failed, facts.decisions, facts.errors)
    return any((*more, around.orders, *map(outcome_part, facts.said)))


def _tells_nothing(sources: _SectionSources, around: _TraceEnvelope) -> bool:
    facts = sources.facts
    return not (facts.told_steps or facts.edits or facts.changed or facts.read or _has_more_than_steps(sources, around))


def _only_step(sources: _SectionSources, around: _TraceEnvelope) -> str:
    """What was done, where a single call is all that there is to tell; else empty. Names nobody needs then: recall
    without a query shows it all."""
    facts = sources.facts
    files = (*facts.changed, *facts.read)
    wrote = any(step.startswith("wrote ") for step in facts.told_steps)
    told = facts.told_steps if wrote else (facts.edits or facts.told_steps)
    if facts.steps != 1 or len(told) != 1 or len(facts.told_steps) > 1 or len(files) > 1:
        return ""
    if _has_more_than_steps(sources, around):
        return ""
    if "; " in "".join(facts.told_steps):
        return ""
    step = told[0] if wrote or not facts.edits else f"edited {told[0]}"
    path = _item_path(files[0]) if files else ""
    again = READ_AGAIN if sources.read_again else ""
    line = _with_whole_path(step, path, facts.shared_names.get(path, "")) if path else step
    return line + again if line else ""


def _with_whole_path(step: str, path: str, shared_name: str) -> str:
    """The step with the path of the only file that it read or changed; empty where a command changed that, whose line
    may spell the path in its own way. `shared_name`: how the file is told if another has its name too."""
    verb, _, rest = step.partition(" ")
    name = shared_name or path.replace("\\", "/").rpartition("/")[2]
    is_named = verb in _FILE_VERBS and rest.startswith(name) and rest[len(name) : len(name) + 1] in ("", ",", ":")
    return f"{verb} {path}{rest[len(name) :]}" if is_named else ""


_FILE_VERBS = frozenset({"read", "wrote", "edited", "deleted"})


def _write_sections(sources: _SectionSources, room: int, count: CountTokens) -> dict[str, str]:
    """All sections except names, each within its share of `room` tokens. Of work that does not go on, the steps say
    what was done of what was only announced."""
    factor = FAILED_FACTOR if sources.failed else 1
    facts = _marked_as_read_again(sources.facts, sources.read_again)
    said = [text for text in (_without_results(told, sources.results) for told in facts.said) if text]
    if facts.told_steps and not (sources.goes_on or sources.failed):
        said = [text for text in said if outcome_part(text) or _is_plan(text)]
    floors = {"edits": MIN_SECTION_TOKENS if sources.has_texts else MIN_EDITS_TOKENS, "errors": MIN_ERRORS_TOKENS}
    for_steps = MIN_SECTION_TOKENS if facts.told_steps else 0
    parts: dict[str, str] = {}
    writers: dict[str, tuple[float, Callable[[int], str]]] = {
        "results": (
            RESULTS_SHARE,
            lambda left: cut_middle(remove_illegal_xml(sources.results), partial(_fits, count, left)),
        ),
        BROKEN_SECTION: (BROKEN_SHARE, lambda left: _list_section(sources.broken, left, count)),
        "files": (FILES_SHARE, lambda left: _files_section(facts, left, left // 2, count)),
        "said": (SAID_SHARE, lambda left: _said_section(said, left, count)),
        "edits": (EDITS_SHARE, lambda left: _edits_section(facts.edits, left, count)),
        "next": (NEXT_SHARE, lambda left: _next_section(sources.planned, left, count)),
        "decisions": (DECISIONS_SHARE, lambda left: _list_section(facts.decisions, left, count)),
        "errors": (
            ERRORS_SHARE * factor,
            lambda left: _errors_section(_not_quoted(facts.errors, parts[BROKEN_SECTION]), left, count),
        ),
        "steps": (STEPS_SHARE, lambda left: _steps_section(facts.told_steps, left, count)),
    }
    given: dict[str, int] = {}
    left = room
    for name, (share, write) in writers.items():
        least = min(floors.get(name, MIN_SECTION_TOKENS), left - MIN_SECTION_TOKENS)
        most = max(left, for_steps) if name == "steps" else left - for_steps
        given[name] = max(0, min(max(MIN_SECTION_TOKENS, least, int(room * share)), most))
        parts[name] = write(given[name])
        left -= count(parts[name])
    # The tags of sections that stay empty were counted too.
    left += sum(count(f"<{name}>{NO_CONTENT}</{name}>\n") for name, text in parts.items() if not text)
    for_names = int(max(0, room - MIN_NAMES_TOKENS) * NAMES_SHARE)
    for name in ("said", "edits", "steps"):  # what others left is theirs before it is that of names
        used = count(parts[name])
        if (more := used + left - for_names) > given[name]:
            parts[name] = writers[name][1](more)
            left -= count(parts[name]) - used
    return parts


def _not_quoted(errors: Iterable[str], broken: str) -> Sequence[str]:
    """The errors of which no line on what does not work has the words: `ruff: "No module named ruff"`."""
    words = [line.partition(': "')[2].rpartition('"')[0].rstrip("…") for line in broken.splitlines()]
    return [error for error in errors if not any(each and each in error for each in words)]


def _with_earlier_results(new: str, earlier: str) -> str:
    """The new results, then lines of the earlier ones that they do not repeat."""
    if not new:
        return earlier
    other_lines = (line for line in earlier.splitlines() if line.removesuffix(TRUNCATION_MARKER).strip() not in new)
    return "\n".join([new, *other_lines])


def _without_results(text: str, results: str) -> str:
    """What was said, without the lines that the results tell."""
    if text in results:
        return ""
    known = [line for line in results.splitlines() if len(line) >= MIN_RESULT_LINE]
    return "\n".join(line for line in text.splitlines() if not any(result in line for result in known))


def _said_section(texts: Sequence[str], budget: int, count: CountTokens) -> str:
    """The texts of the assistant, oldest first, each whole, as many as fit: plans, then those that say more than what
    would be done next, then the others, the newest first. One that does not fit whole is told by its beginning and its
    last sentence."""
    kept: dict[int, str] = {}
    worth = [(_is_plan(text), bool(outcome_part(text)), at) for at, text in enumerate(texts)]
    announcements = [at for plan, outcome, at in worth if not (plan or outcome)]
    for *_, at in sorted(worth, reverse=True):
        if at in announcements[:-MAX_ANNOUNCEMENTS]:
            continue
        text = cut_middle(remove_illegal_xml(texts[at]), partial(_fits, count, budget - 1))
        if not text or (GAP_MARKER in text and count(text) < MIN_SECTION_TOKENS):
            continue
        kept[at] = text
        budget -= count(text) + 1
    return PARAGRAPH.join(kept[at] for at in sorted(kept))


def _written_section(written: Sequence[WrittenText], count: CountTokens) -> str:
    """The newest texts that fit, oldest first, each behind the path of its file. One that would be escaped is none."""
    room, told = MAX_WRITTEN_TOKENS, list[str]()
    for each in reversed(written):
        block = f"[{', '.join(filter(None, (each.path, each.place)))}]\n{each.text.strip(LINE_BREAKS)}"
        if (
            len(each.text.strip()) < MIN_WRITTEN_CHARACTERS
            or len(block) > room * MAX_CHARACTERS_PER_TOKEN
            or _escape_section(block) != block
        ):
            continue
        if (tokens := count(block) + 1) <= room:
            room -= tokens
            told.append(block)
    return "\n".join(reversed(told))


def _fits(count: CountTokens, budget: int, text: str) -> bool:
    return count(text) <= budget


def _is_plan(text: str) -> bool:
    return len(_LIST_ITEM.findall(text)) >= PLAN_ITEMS


def _steps_section(lines: Sequence[str], budget: int, count: CountTokens) -> str:
    """The newest steps that fit, of those left out the ones that say how a check ended, and how many are left out."""
    items = [f"- {line}" for line in lines]
    newest = len(_newest_items(items, budget, count))
    if newest == len(items):
        return "\n".join(items)
    checks = [item for item in items if _CHECK_ENDED.search(item)]
    kept_checks = _newest_items(checks, budget // 2, count) if newest and checks else ()
    newest = len(_newest_items(items, budget - sum(count(item) + 1 for item in kept_checks), count))
    behind = len(items) - newest
    before = [item for item in items[:behind] if item in kept_checks]
    left_out = behind - len(before)
    if not (newest or before):
        return ""
    heading = [f"({left_out} {'left out' if before else 'earlier'})"] if left_out else []
    return "\n".join([*heading, *before, *items[behind:]])


_CHECK_ENDED = re.compile(r": (?:ok|failed) \(")
"""Only of checks such as tests the summary is told."""


def _errors_section(lines: Sequence[str], budget: int, count: CountTokens) -> str:
    """The errors that fit, those that nothing has mended before the others, and how many are left out."""
    items = [f"- {line}" for line in lines]
    by_need = sorted(items, key=lambda item: not _MENDED.search(item))  # the last ones stay
    shown = _newest_items(by_need, budget, count)
    if shown and len(shown) < len(items):
        shown = _newest_items(by_need, budget - EARLIER_EDITS_TOKENS, count) or shown
    heading = [f"({len(items) - len(shown)} left out)"] if 0 < len(shown) < len(items) else []
    return "\n".join([*heading, *(item for item in items if item in shown)])


_MENDED = re.compile(r" \((?:fixed|a later [a-z ]{4,12} passed)\)\Z")


def _next_section(planned: Sequence[str], budget: int, count: CountTokens) -> str:
    """Plan items that were open, next ones first."""
    items = []
    for item in planned:
        budget -= count(f"- {cut_for_display(item, ITEM_CHARACTERS)}") + 1
        if budget < count(OPEN_PLAN_HEADING):
            break
        items.append(f"- {cut_for_display(item, ITEM_CHARACTERS)}")
    if items and len(items) < len(planned):
        items.append(f"- +{len(planned) - len(items)} more")
    return "\n".join([OPEN_PLAN_HEADING, *items]) if items else ""


def facts_elements(facts: SpanFacts, room: int, count: CountTokens) -> list[str]:
    """The facts of a span as elements, within `room` tokens; the newest stay."""
    sections = {
        "files": _files_section(facts, room // 2, room // 6, count),
        "commands": _list_section(facts.commands, room // 6, count),
        "decisions": _list_section(facts.decisions, room // 6, count),
        "errors": _errors_section(facts.errors, room // 6, count),
    }
    return [f"<{name}>{_escape_section(text)}</{name}>" for name, text in sections.items() if text]


def _files_section(facts: SpanFacts, for_changed: int, for_read: int, count: CountTokens) -> str:
    """Changed files first: later work builds on them."""
    changed_paths = {_item_path(item) for item in facts.changed}
    read = [item for item in facts.read if _item_path(item) not in changed_paths]
    groups = (("changed", facts.changed, for_changed), ("read", read, for_read))
    return "\n".join(f"{how}: {_paths_that_fit(paths, budget, count)}" for how, paths, budget in groups if paths)


def _marked_as_read_again(facts: SpanFacts, read_again: Sequence[str]) -> SpanFacts:
    """The facts with a mark behind the files of which a newer text stands behind the trace."""
    if not read_again:
        return facts
    spelled = one_spelling((*map(_item_path, (*facts.changed, *facts.read)), *read_again))
    again = {spelled[path] for path in read_again}
    changed, read = (
        tuple(f"{item}{READ_AGAIN}" if spelled[_item_path(item)] in again else item for item in items)
        for items in (facts.changed, facts.read)
    )
    return replace(facts, changed=changed, read=read)


def _paths_that_fit(paths: Sequence[str], budget: int, count: CountTokens) -> str:
    """The newest paths that fit, at least the last five, in order, and the number of the others."""
    kept = _newest_items(paths, budget, count)
    if len(kept) < FILES_ALWAYS_TOLD:
        kept = paths[-FILES_ALWAYS_TOLD:]
    more = [f"+{len(paths) - len(kept)} more"] if len(kept) < len(paths) else []
    return ", ".join([*kept, *more])


def _list_section(items: Iterable[str], budget: int, count: CountTokens) -> str:
    """The newest items that fit, one per line, oldest first."""
    return "\n".join(_newest_items([f"- {item}" for item in items], budget, count))


def _edits_section(edits: Sequence[str], budget: int, count: CountTokens) -> str:
    """The newest edits that fit, behind a line with the files of the others."""
    before = [edit for edit in edits if _EDITED_BEFORE.match(edit)]
    made = [edit for edit in edits if not _EDITED_BEFORE.match(edit)]
    lines = [f"- {edit}" for edit in made[-MAX_EDITS:]]
    shown: Sequence[str] = lines
    if len(lines) < len(edits) or len(_newest_items(lines, budget, count)) < len(lines):
        heading = ""
        for _ in range(2):  # with fewer lines the heading names more
            shown = _newest_items(lines, budget - max(count(heading), EARLIER_EDITS_TOKENS), count)
            others = [*before, *made[: len(made) - len(shown)]]
            heading = _edited_before(others, "- edited before: " if shown else "- edited: ", budget, count)
        shown = [heading, *shown] if heading else shown
    return "\n".join(shown)


def _edited_before(edits: Iterable[str], words: str, budget: int, count: CountTokens) -> str:
    """`- edited before: parser.py (3 changes), lexer.py`: each file once, in the order of its newest edit. One call may
    make several changes."""
    times: dict[str, int] = {}
    for edit in edits:
        if edit.endswith(UNDONE_LATER):
            continue
        before = _EDITED_BEFORE.match(edit)
        for listed in edit[before.end() :].split(", ") if before else (edit.partition(":")[0].partition(",")[0],):
            if not _MORE_PATTERN.fullmatch(listed) and (found := _FILE_WITH_CHANGES.match(listed)):
                times[found[1]] = times.pop(found[1], 0) + int(found[2] or 1)
    files = [f"{file} ({number} changes)" if number > 1 else file for file, number in times.items()]
    fitting = _newest_items(files, budget - EARLIER_EDITS_TOKENS, count)
    named = files[-max(len(fitting), FILES_ALWAYS_NAMED) :]
    more = [f"+{len(files) - len(named)} more"] if len(named) < len(files) else []
    return f"{words}{', '.join([*more, *named])}" if files else ""


_EDITED_BEFORE = re.compile(r"edited(?: before)?: (?!.* -> )")
_FILE_WITH_CHANGES = re.compile(r"(.+?)(?: \((\d+) changes\))?\Z")


def _newest_items(items: Sequence[str], budget: int, count: CountTokens) -> Sequence[str]:
    for position in range(len(items) - 1, -1, -1):
        budget -= count(items[position]) + 1  # one for the border between two of them
        if budget < 0:
            return items[position + 1 :]
    return items


# --------------------------------------------------------------------------------------------------------------- names
def _interleave(earlier: Iterable[str], new: Iterable[str]) -> Iterator[str]:
    """Alternate between two rankings, so that neither crowds out the other."""
    return filter(None, dict.fromkeys(chain.from_iterable(zip_longest(earlier, new))))


def _words_of_calls(messages: Iterable[Message]) -> frozenset[str]:
    """Names of tools and of their arguments: the client's words, in no file of the work."""
    calls = [call for message in messages for call in message.calls]
    decoded = (decode_json_or_text(call.arguments) for call in calls)
    keys = (key for value in decoded if isinstance(value, dict) for key in value)
    return frozenset(call.name for call in calls) | frozenset(keys)


def _names_that_fit(candidates: Iterable[str], shown: str, budget: int, count: CountTokens) -> list[str]:
    """As many names as fit that the trace does not show yet. They are separated by spaces, which tokenizers join to the
    next word; commas would cost every fifth name."""
    room = budget - count(shown)
    visible = names_in_text(shown)
    wanted = (name for name in candidates if name not in visible and not ("/" in name and name in shown))
    chosen: list[str] = []
    while block := list(islice(wanted, NAMES_PER_COUNT)):
        tokens = count(" " + " ".join(block))
        if tokens > room:
            return [*chosen, *_first_names_that_fit(block, room, count)]
        chosen += block
        room -= tokens
    return chosen


def _first_names_that_fit(names: Sequence[str], budget: int, count: CountTokens) -> Sequence[str]:
    """As many of the first names as fit; names known to fit are not counted again."""
    low, high = 0, len(names)
    while low < high:
        middle = (low + high + 1) // 2
        tokens = count(" " + " ".join(names[low:middle]))
        if tokens <= budget:
            low, budget = middle, budget - tokens
        else:
            high = middle - 1
    return names[:low]


def _own_numbers(messages: Iterable[Message]) -> frozenset[str]:
    """Long numbers that the assistant itself used (an id, a port, a limit); an output's are mostly lines and sizes."""
    own = names_in_messages(message for message in messages if message.role == "assistant")
    return frozenset(filter(_is_long_number, own))


def _is_long_number(name: str) -> bool:
    return name.isdecimal() and len(name) >= MIN_NUMBER_DIGITS


def _names_by_file(names: Sequence[str], messages: Iterable[Message], shared_names: Mapping[str, str]) -> str:
    """The names behind the file in whose calls they were first seen; those of no file last. `shared_names`: how files
    are told of which another has the name too."""
    wanted = set(names)
    file_of: dict[str, str] = {}
    calls: dict[str, str] = {}
    for message in messages:
        for call in message.calls:
            if touched := files_touched_by(call):
                whole = touched[0].path
                path = calls[call.id] = shared_names.get(whole) or whole.replace("\\", "/").rpartition("/")[2]
                file_of = dict.fromkeys(wanted & names_in_arguments(call), path) | file_of
        if path := calls.get(message.answers, ""):
            file_of = dict.fromkeys(wanted & set(map(clean_name, names_in_messages((message,)))), path) | file_of
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(file_of.get(name, ""), []).append(name)
    bare = groups.pop("", [])
    listed = [f"{path}: {' '.join(group)}" for path, group in groups.items()]
    return "; ".join(listed + ([" ".join(bare)] if bare else []))


# ------------------------------------------------------------------------------------------------------------- escapes
_REF_ATTRIBUTE = "ref="
_REF_PATTERN = re.compile(rf"\b{_REF_ATTRIBUTE}")


def _without_refs(text: str) -> str:
    """A trace has exactly one `ref`, so others in commands or titles are defused."""
    return _REF_PATTERN.sub("ref =", text) if _REF_ATTRIBUTE in text else text


def _escape_section(text: str) -> str:
    return escape_own_tags(_without_refs(text))


def _unescape_old_section(text: str) -> str:
    """Earlier versions escaped as XML does, and the first ones `>` too."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


# ------------------------------------------------------------------------------------------------------------- merging
_OLD_SECTIONS = ("progress", "commands", "names")
_SECTION_PATTERN = re.compile(rf"<({'|'.join((*TRACE_SECTIONS, *_OLD_SECTIONS))})>(.*?)</\1>", re.DOTALL)
_STEPS_PATTERN = re.compile(r"^Your (?:finished work:|earlier work on) .*, (\d+) steps?[,.:]", re.MULTILINE)
_ONE_STEP_PATTERN = re.compile(
    r', 1 step(?:, [\w ]+)?: (.*)\. Gone from here; stack_recall\(ref="[^"]*"\) shows it\.$', re.MULTILINE
)
_OLD_STEPS_PATTERN = re.compile(
    r"^This is your own (?:earlier work|work up to here), (\d+) steps?[,:]"
    r'|<frame ref="[^"]*" status="[^"]*" steps="(\d+)">',
    re.MULTILINE,
)
_ITEM_PATTERN = re.compile(r"^- (.*)$", re.MULTILINE)
_MORE_PATTERN = re.compile(r"\+\d+ more")


_TRACE_START = "<stack-context"


def parse_traces(text: str) -> ParsedTrace:
    """Parse one or several traces, oldest first, and merge them; empty if `text` has none."""
    merged = ParsedTrace()
    for part in text.split(_TRACE_START)[1:]:
        merged = _join_traces(merged, _parse_trace(part))
    return merged


def _parse_trace(text: str) -> ParsedTrace:
    if match := _ONE_STEP_PATTERN.search(text):
        return ParsedTrace(_facts_of_step(unescape_own_tags(match[1]).removesuffix(READ_AGAIN)))
    match = _STEPS_PATTERN.search(text)
    old_match = None if match else _OLD_STEPS_PATTERN.search(text)
    unescape = _unescape_old_section if old_match else unescape_own_tags
    sections = {
        name: unescape(content) for name, content in _SECTION_PATTERN.findall(text) if content not in EMPTY_SECTIONS
    }
    lists = {name: tuple(_ITEM_PATTERN.findall(content)) for name, content in sections.items()}
    files = dict(line.partition(": ")[::2] for line in sections.get("files", "").splitlines())
    said = sections.get("said", "")
    return ParsedTrace(
        SpanFacts(
            changed=_split_paths(files.get("changed", "")),
            read=_split_paths(files.get("read", "")),
            commands=lists.get("commands", ()),
            decisions=lists.get("decisions", ()),
            errors=lists.get("errors", ()),
            steps=int(match[1]) if match else int(old_match[1] or old_match[2]) if old_match else 0,
            said=(*lists.get("progress", ()), *(said.split(PARAGRAPH) if said else ())),
            told_steps=(*lists.get("commands", ()), *lists.get("steps", ())),
            edits=lists.get("edits", ()),
        ),
        sections.get("results", ""),
        _split_names(sections.get(NAMES_SECTION, sections.get("names", ""))),
    )


def _facts_of_step(told: str) -> SpanFacts:
    """The facts that the line of a single step tells."""
    verb, _, rest = told.partition(" ")
    path = re.split(r"[,:] ", rest, maxsplit=1)[0]
    name = path.replace("\\", "/").rpartition("/")[2]
    if verb == "edited" and path != rest:
        return SpanFacts((path,), steps=1, told_steps=(f"edited {name}",), edits=(rest.replace(path, name, 1),))
    if verb == "read" and path == rest:
        return SpanFacts(read=(path,), steps=1, told_steps=(f"read {name}",))
    mark = {"edited": "", "wrote": " (created)", "deleted": " (deleted)"}.get(verb)
    if mark is None:
        return SpanFacts(steps=1, told_steps=(told,))
    return SpanFacts((path + mark,), steps=1, told_steps=(f"{verb} {name}",))


def _split_names(listed: str) -> tuple[str, ...]:
    return tuple(name for part in listed.split() if not part.endswith(":") and (name := part.removesuffix(";")))


def _join_traces(old: ParsedTrace, new: ParsedTrace) -> ParsedTrace:
    """Merge section by section."""
    return ParsedTrace(
        merge_facts(old.facts, new.facts),
        "\n".join(text for text in (old.results, new.results) if text),
        tuple(dict.fromkeys((*old.names, *new.names))),
    )


def _split_paths(listed: str) -> tuple[str, ...]:
    paths = (path.removesuffix(READ_AGAIN) for path in listed.split(", "))
    return tuple(path for path in paths if path and not _MORE_PATTERN.fullmatch(path))


def merge_facts(old: SpanFacts, new: SpanFacts) -> SpanFacts:
    """Each fact once, in its newest state, at the place of its newest mention."""
    spelled = one_spelling(map(_item_path, (*old.changed, *new.changed, *old.read, *new.read)))
    respelled = partial(_respelled, spelled)
    return replace(
        new,
        changed=_merge_items(map(respelled, old.changed), map(respelled, new.changed), _item_path),
        read=_merge_items(map(respelled, old.read), map(respelled, new.read), _item_path),
        commands=_merge_items(old.commands, (_cut_item(item, _item_command) for item in new.commands), _item_command),
        decisions=_merge_items(
            old.decisions, (cut_for_display(item, DECISION_CHARACTERS) for item in new.decisions), str
        ),
        errors=_merge_items(
            _errors_left(old.errors, new), (_cut_item(item, _item_path) for item in new.errors), _item_path
        ),
        steps=old.steps + new.steps,
        said=tuple(dict.fromkeys((*old.said, *new.said))),
        told_steps=(*old.told_steps, *new.told_steps),
        edits=(*old.edits, *new.edits),
        lists_plan=old.lists_plan or new.lists_plan,
    )


def _errors_left(errors: Iterable[str], later: SpanFacts) -> Iterator[str]:
    """Errors with what a later part says of them: without refused edits (`cart.py: no such text`) of files that it
    changed."""
    names = {_item_path(item).replace("\\", "/").rpartition("/")[2] for item in later.changed}
    left = (error for error in errors if error.partition(": ")[0] not in names)
    return (with_later_outcome(error, later.outcomes) for error in left)


def _respelled(spelled: Mapping[str, str], item: str) -> str:
    path = _item_path(item)
    return spelled[path] + item[len(path) :]


def _merge_items(old: Iterable[str], new: Iterable[str], key: Callable[[str], str]) -> tuple[str, ...]:
    newest = {key(item): item for item in new}
    return (*{key(item): item for item in old if key(item) not in newest}.values(), *newest.values())


def _cut_item(item: str, key: Callable[[str], str]) -> str:
    """An item on one line; its outcome is never cut off."""
    head = key(item)
    return cut_for_display(head, ITEM_CHARACTERS) + item[len(head) :].replace("\n", " ")


_CHANGE_MARK = re.compile(
    r" \((?:created|(?:deleted )?by command|by command or earlier|deleted|undone"
    r"|fixed|still failing|(?:the [a-z ]{4,12} )?failed when this part ended|a later [a-z ]{4,12} passed)\)\Z"
)
"""The second line names what becomes of errors, in this version and in earlier ones."""
_COMMAND_STATE = re.compile(r": (?:ok|failed)\Z")
"""Only these outcomes: a path may end in brackets, and a command with unknown outcome may contain a colon."""


def _item_path(item: str) -> str:
    """`src/b.py` of `src/b.py (created)`; an error without its resolution."""
    return _CHANGE_MARK.sub("", item.removesuffix(READ_AGAIN))


def _item_command(item: str) -> str:
    """`pytest -q` of `pytest -q: failed`."""
    return _COMMAND_STATE.sub("", item)
