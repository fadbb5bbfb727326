"""Writes a trace: how it begins, its sections, and the names that still fit behind them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain, islice, zip_longest

import msgspec
from msgspec.structs import replace

from proxy.core.compaction.trace.parse_trace import ParsedTrace, parse_traces
from proxy.core.compaction.trace.sections import (
    MIN_NAMES_TOKENS,
    MIN_SECTION_TOKENS,
    NAMES_SECTION,
    NAMES_SHARE,
    NO_CONTENT,
    TRACE_SECTIONS,
    WRITTEN_SECTION,
    SectionSources,
    escape_section,
    write_sections,
    written_section,
)
from proxy.core.compaction.trace.span_facts import READ_AGAIN, SpanFacts, item_path, merge_facts
from proxy.core.frames import USER_ORIGIN, Frame, Status, file_name_of, is_same_file, marked_results, outcome_part
from proxy.core.ledger import Message
from proxy.core.observers import (
    WrittenText,
    clean_name,
    decode_json_or_text,
    files_touched_by,
    names_in_arguments,
    names_in_messages,
    names_in_text,
    passing_names,
    rank_names,
)
from proxy.core.text import TRUNCATION_MARKER, CountTokens, cut_for_display, element, quoted, remove_illegal_xml

TRACE_SHARE = 0.08
"""Share of the removed tokens that a trace may have. On the recordings 5, 8, 10 and 15 % keep 98.0, 99.3, 99.6 and 99.8
% of the facts that are used again ten or more requests later."""
MIN_TRACE_TOKENS = 120
"""Minimum tokens of the content; tags and fixed words come on top."""
MAX_TRACE_TOKENS = 2_000
"""Maximum tokens of a trace without the texts that its edits left."""
MIN_NUMBER_DIGITS = 5
NAMES_PER_COUNT = 64
"""Names counted at once: counting each alone takes ten times as long."""
TRACE_NOTE = "earlier work"
TRACE_START = f'<stack-context note="{TRACE_NOTE}"'
_EMPTY_NAMES = f"<{NAMES_SECTION}></{NAMES_SECTION}>\n"


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

    `results` are summaries that a model wrote. `part`: the frame goes on. `known` are names still visible elsewhere.
    `earlier` is the text of the replaced traces, of `earlier_tokens`. `planned` are open plan items that the removed
    messages listed, `items` what came of those that ended in them. `noted` is added in full, beyond the budget, and so
    are the newest of `written`, the texts that edits left in files (oldest first). `broken` are lines about what did
    not work here and has not been mended. `begun_by` titles the user's message above the trace, where another one
    titles the frame. `orders` are messages of the user that stay behind the trace while work for them is in it; without
    a word of it that work would look undone. `read_again` are files that were read again behind what is removed."""
    previous = _without_repeats(parse_traces(earlier), noted)
    facts = merge_facts(previous.facts, facts)
    around = _TraceEnvelope(frame, parent_title, nonce, facts.steps, part, begun_by, tuple(orders))
    bare = count(around.to_xml(dict.fromkeys(TRACE_SECTIONS, NO_CONTENT)))
    budget = trace_budget(messages, bare - count(around.covers), earlier_tokens)
    texts = written_section(written, count)
    sources = SectionSources(
        results=results.strip() or _results_without_model(frame, messages, previous, items, is_part=part),
        # A call that lists the whole plan ended this item, and stands behind it.
        planned=() if frame.origin == "plan" and facts.lists_plan and not part else tuple(planned),
        facts=facts,
        failed=frame.status is Status.FAILED,
        broken=tuple(broken),
        read_again=tuple(read_again),
        goes_on=part,
        texts=texts,
    )
    if not (noted or earlier or facts.steps) and _tells_nothing(sources, around):
        return around.to_line()
    if not noted and (step := _only_step(sources, around)):
        return around.to_line(f": {step}")
    around = replace(around, has_texts=bool(texts))
    parts = write_sections(sources, budget - bare, count)
    if noted:
        parts["results"] = "\n".join(filter(None, (parts["results"], remove_illegal_xml(noted))))
        budget += count(noted)
    if texts:
        parts[WRITTEN_SECTION] = texts
        budget += count(texts)
    names = _names_to_tell(messages, previous, known)
    kept_names = min(count(" ".join(previous.names)) + MIN_SECTION_TOKENS, int(MAX_TRACE_TOKENS * NAMES_SHARE))
    name_tokens = max(MIN_NAMES_TOKENS, int((budget - bare) * NAMES_SHARE), kept_names if previous.names else 0)
    shown = around.to_xml(parts)
    name_limit = min(budget, count(shown) + name_tokens) - count(_EMPTY_NAMES)
    fitting = _names_that_fit(names, shown, name_limit, count)
    return around.to_xml({**parts, NAMES_SECTION: _names_by_file(fitting, messages, facts.shared_names)})


def _results_without_model(
    frame: Frame, messages: Iterable[Message], previous: ParsedTrace, items: Sequence[str], *, is_part: bool
) -> str:
    """The results of a frame of which no model wrote a summary, then those of earlier traces."""
    tells_own = frame.status is Status.FAILED or frame.was_stopped_in_place or frame.origin in ("plan", USER_ORIGIN)
    own = frame.results.strip() if tells_own else ""
    marked = marked_results(m.text for m in messages if m.role == "assistant")
    # The closing message of a request stands behind its trace, and tells of its items.
    closes = frame.origin in ("request", "root") and not is_part
    before = "\n".join(filter(None, (previous.results, *(() if closes else items))))
    return _with_earlier_results(own or marked, before)


def _without_repeats(previous: ParsedTrace, noted: str) -> ParsedTrace:
    """The earlier trace without result lines that `noted` repeats."""
    repeated = set(remove_illegal_xml(noted).splitlines())
    return replace(previous, results="\n".join(line for line in previous.results.splitlines() if line not in repeated))


def _with_earlier_results(new: str, earlier: str) -> str:
    """The new results, then lines of the earlier ones that they do not repeat."""
    if not new:
        return earlier
    other_lines = (line for line in earlier.splitlines() if line.removesuffix(TRUNCATION_MARKER).strip() not in new)
    return "\n".join([new, *other_lines])


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
        sections = (f"<{name}>{escape_section(text)}</{name}>" for name in TRACE_SECTIONS if (text := parts.get(name)))
        wrapper = {"note": TRACE_NOTE, "frame": self.frame.parent or self.frame.id, "nonce": self.nonce}
        return element("stack-context", wrapper, self._opening(), *sections)

    def to_line(self, told: str = "") -> str:
        """The whole trace, where all that there is to tell fits behind its title."""
        wrapper = {"note": TRACE_NOTE, "frame": self.frame.parent or self.frame.id, "nonce": self.nonce}
        what = self._what(escape_section(told))
        return element("stack-context", wrapper, f"{what} {STEP_RECALL.format(ref=self.frame.id)}")

    def _opening(self) -> str:
        """Whose work it was, and how to get it back."""
        more = MORE_THAN_TOLD if self.has_texts else "it"
        return f"{self._what()} {TRACE_RECALL.format(ref=self.frame.id, what=more)}{self.covers}"

    def _what(self, told: str = "") -> str:
        parent, title = (escape_section(cut_for_display(text)) for text in (self.parent_title, self.frame.title))
        if self.frame.is_part:  # a cut of ours is no task: the work is that of the frame that goes on
            title, parent = parent or title, ""
        steps = f", {self.steps} step{'' if self.steps == 1 else 's'}" if self.steps else ""
        ended = "" if self.frame.status is Status.COMPLETED else f", {self.frame.status_text}"
        whole = parent or title if self.is_part else title
        named = (
            f"{quoted(escape_section(self.begun_by))}, a part of {quoted(whole)}" if self.begun_by else quoted(whole)
        )
        return (
            f"Your earlier work on {named}{steps}{told}."
            if self.is_part
            else f"Your finished work: {named}{steps}{ended}{told}."
        )

    @property
    def covers(self) -> str:
        """A line about the later orders, which takes its room from the sections."""
        named = [f'"{cut_for_display(escape_section(order), ORDER_CHARACTERS)}"' for order in self.orders]
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


def _has_more_than_steps(sources: SectionSources, around: _TraceEnvelope) -> bool:
    """Whether there is to tell more than what was done to which files."""
    facts = sources.facts
    more = (sources.results, sources.planned, sources.broken, sources.failed, facts.decisions, facts.errors)
    return any((*more, around.orders, *map(outcome_part, facts.said)))


def _tells_nothing(sources: SectionSources, around: _TraceEnvelope) -> bool:
    facts = sources.facts
    return not (facts.told_steps or facts.edits or facts.changed or facts.read or _has_more_than_steps(sources, around))


def _only_step(sources: SectionSources, around: _TraceEnvelope) -> str:
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
    path = item_path(files[0]) if files else ""
    again = READ_AGAIN if path and any(is_same_file(path, other) for other in sources.read_again) else ""
    line = _with_whole_path(step, path, facts.shared_names.get(path, "")) if path else step
    return line + again if line else ""


def _with_whole_path(step: str, path: str, shared_name: str) -> str:
    """The step with the path of the only file that it read or changed; empty where a command changed that, whose line
    may spell the path in its own way. `shared_name`: how the file is told if another has its name too."""
    verb, _, rest = step.partition(" ")
    name = shared_name or file_name_of(path)
    is_named = verb in _FILE_VERBS and rest.startswith(name) and rest[len(name) : len(name) + 1] in ("", ",", ":")
    return f"{verb} {path}{rest[len(name) :]}" if is_named else ""


_FILE_VERBS = frozenset({"read", "wrote", "edited", "deleted"})


def _names_to_tell(messages: Sequence[Message], previous: ParsedTrace, known: Container[str]) -> Iterable[str]:
    """Names of the work that are not `known`, the best first, with those of the earlier traces among them."""
    others = _words_of_calls(messages) | passing_names(messages)
    ranked = (name for name in rank_names(messages, known) if name not in others)
    numbers = _own_numbers(messages).union(filter(_is_long_number, previous.names))
    candidates = filter(None, chain.from_iterable(zip_longest(previous.names, ranked)))  # neither crowds out the other
    return dict.fromkeys(filter(None, (name if name in numbers else clean_name(name) for name in candidates)))


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
                path = calls[call.id] = shared_names.get(whole) or file_name_of(whole)
                file_of = dict.fromkeys(wanted & names_in_arguments(call), path) | file_of
        if path := calls.get(message.answers, ""):
            file_of = dict.fromkeys(wanted & set(map(clean_name, names_in_messages((message,)))), path) | file_of
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(file_of.get(name, ""), []).append(name)
    bare = groups.pop("", [])
    listed = [f"{path}: {' '.join(group)}" for path, group in groups.items()]
    return "; ".join(listed + ([" ".join(bare)] if bare else []))
