"""Writes the sections of a trace, each within its share of the tokens; empty ones are left out.

Code stays readable: only what could open or close an element of ours is escaped, so a trace is no XML.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from proxy.core.compaction.trace.span_facts import (
    ERRORS_LEFT_OUT,
    ITEM_CHARACTERS,
    MENDED,
    READ_AGAIN,
    STEPS_LEFT_OUT,
    UNDONE_LATER,
    SpanFacts,
    item_path,
)
from proxy.core.definitions import language_of
from proxy.core.frames import (
    CHANGED_TEMPORARY,
    file_name_of,
    one_spelling,
    outcome_part,
    telling_names,
    temporary_among,
)
from proxy.core.observers import WrittenText
from proxy.core.text import (
    GAP_MARKER,
    CountTokens,
    cut_for_display,
    cut_middle,
    escape_own_tags,
    join_shown,
    remove_illegal_xml,
)

RESULTS_SHARE = 0.20
SAID_SHARE = 0.35
FILES_SHARE = 0.50
EDITS_SHARE = 0.25
NEXT_SHARE = 0.16
DECISIONS_SHARE = 0.12
ERRORS_SHARE = 0.07
BROKEN_SHARE = 0.10
STEPS_SHARE = 0.30
NAMES_SHARE = 0.16
"""Maximum share of each section, in the order in which they take their room; what one leaves is the next one's."""
MIN_SECTION_TOKENS = 30
"""Minimum tokens of a section in a small trace: a line or two."""
MAX_LAST_STEP_TOKENS = 60
"""The last step has its place whatever stands beside it, if it is no longer."""
MIN_EDITS_TOKENS = 70
"""The same for edits: one with the old and the new text."""
MIN_ERRORS_TOKENS = 80
"""The same for errors, if the steps keep theirs: the names of two or three failed tests."""
MIN_BROKEN_TOKENS = 60
"""The same for what does not work: four programs that are not there."""
MIN_NAMES_TOKENS = 200
"""Tokens that names may take in a small trace, if nothing else needs them."""
FAILED_FACTOR = 2
"""A failed frame may say more about attempts and errors."""
MAX_WRITTEN_TOKENS = 1_200
"""Tokens of the texts that edits left in files, at most, in each trace and beyond its budget. Of 73 recorded edits for
which a fold took the old text, 26 replaced what an earlier edit had written (docs/quality.md)."""
MIN_WRITTEN_CHARACTERS = 40
"""A shorter text is told by the line of its edit."""
MAX_CHARACTERS_PER_TOKEN = 8
LINE_BREAKS = "\r\n"
FILES_ALWAYS_TOLD = 5
"""The newest files changed, and the newest files read, that no budget leaves out: the next step mostly needs one."""
MIN_RESULT_LINE = 12
"""Characters of a line of results from which on it is not said once more."""
MAX_EDITS = 6
EARLIER_EDITS_TOKENS = 10
"""Least tokens of the line that names the files of edits that are not listed."""
FILES_ALWAYS_NAMED = 5
"""The newest of these files, which no budget leaves out."""
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
NO_CONTENT = "none"
EMPTY_SECTIONS = (NO_CONTENT, "as its closing message says")
"""What empty sections of earlier versions say."""
OPEN_PLAN_HEADING = "open in the plan then:"
PARAGRAPH = "\n\n"
_LIST_ITEM = re.compile(r"^\s*(?:\d+[.)]|[-*])\s+\S", re.MULTILINE)
MAX_ANNOUNCEMENTS = 3
"""The newest texts that only say what would be done next: the steps say what was done."""
PLAN_ITEMS = 3
"""List items from which on a text counts as a plan."""


class SectionSources(msgspec.Struct, frozen=True):
    results: str
    planned: tuple[str, ...]
    facts: SpanFacts
    failed: bool
    broken: tuple[str, ...] = ()
    read_again: tuple[str, ...] = ()
    goes_on: bool = False
    texts: str = ""
    """What the trace tells word for word of what edits left."""


def write_sections(sources: SectionSources, room: int, count: CountTokens) -> dict[str, str]:
    """All sections except names, each within its share of `room` tokens. Of work that does not go on, the steps say
    what was done of what was only announced."""
    factor = FAILED_FACTOR if sources.failed else 1
    facts = _marked_as_read_again(sources.facts, sources.read_again)
    said = [text for text in (_without_results(told, sources.results) for told in facts.said) if text]
    if facts.told_steps and not (sources.goes_on or sources.failed):
        said = [text for text in said if outcome_part(text) or _is_plan(text)]
    floors = {"edits": MIN_SECTION_TOKENS if sources.texts else MIN_EDITS_TOKENS, "errors": MIN_ERRORS_TOKENS}
    floors[BROKEN_SECTION] = MIN_BROKEN_TOKENS
    for_steps = sum(min(MAX_LAST_STEP_TOKENS, count(f"- {step}") + 1) for step in facts.told_steps[-1:])
    for_steps = max(for_steps, MIN_SECTION_TOKENS if facts.told_steps else 0)
    parts: dict[str, str] = {}
    writers: dict[str, tuple[float, Callable[[int], str]]] = {
        "results": (
            RESULTS_SHARE,
            lambda left: cut_middle(remove_illegal_xml(sources.results), partial(_fits, count, left)),
        ),
        BROKEN_SECTION: (BROKEN_SHARE, lambda left: _list_section(sources.broken, left, count)),
        "files": (FILES_SHARE, lambda left: _files_section(facts, left, left // 2, count)),
        "said": (SAID_SHARE, lambda left: _said_section(said, left, count)),
        "edits": (EDITS_SHARE, lambda left: _edits_section(facts.edits, left, count, sources.texts)),
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
        is_last = name == "steps"
        least = for_steps if is_last else min(floors.get(name, MIN_SECTION_TOKENS), left - MIN_SECTION_TOKENS)
        most = max(left, for_steps) if is_last else left - for_steps
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
    lines = [line.removeprefix("- ") for line in broken.splitlines()]
    words = [(line.partition(': "')[2].rpartition('"')[0] or line).rstrip("…") for line in lines]
    return [error for error in errors if not any(each in error for each in words)]


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
    shown: dict[int, str] = {}
    worth = [(_is_plan(text), bool(outcome_part(text)), at) for at, text in enumerate(texts)]
    announcements = [at for plan, outcome, at in worth if not (plan or outcome)]
    for *_, at in sorted(worth, reverse=True):
        if at in announcements[:-MAX_ANNOUNCEMENTS]:
            continue
        text = cut_middle(remove_illegal_xml(texts[at]), partial(_fits, count, budget - 1))
        if not text or (GAP_MARKER in text and count(text) < MIN_SECTION_TOKENS):
            continue
        shown[at] = text
        budget -= count(text) + 1
    return PARAGRAPH.join(shown[at] for at in sorted(shown))


def written_section(written: Sequence[WrittenText], count: CountTokens) -> str:
    """The newest texts that fit, oldest first, each behind its file, a path once: those of code before those of tests
    and documents, and last those of temporary files, which stand in front. One that would be escaped is none."""
    room, fitting = MAX_WRITTEN_TOKENS, dict[int, tuple[str, str]]()
    temporary = temporary_among(each.path for each in written)
    names = {each.path: file_name_of(each.path) for each in written}
    names |= telling_names(names)
    in_order = sorted(written, key=lambda each: each.path not in temporary)
    by_need = sorted(enumerate(in_order), key=lambda each: (each[1].path not in temporary, _is_code(each[1].path)))
    for at, each in reversed(by_need):
        block = f"[{', '.join(filter(None, (each.path, each.place)))}]\n{each.text.strip(LINE_BREAKS)}"
        if (
            len(each.text.strip()) < MIN_WRITTEN_CHARACTERS
            or len(block) > room * MAX_CHARACTERS_PER_TOKEN
            or escape_section(block) != block
        ):
            continue
        if (tokens := count(block) + 1) <= room:
            room -= tokens
            fitting[at] = each.path, block
    blocks, named = list[str](), set[str]()
    for _, (path, block) in sorted(fitting.items()):
        blocks.append(block.replace(path, names.get(path, path), 1) if path in named else block)
        named.add(path)
    return "\n".join(blocks)


def _is_code(path: str) -> bool:
    """Whether a file holds a program, by its name, and no test of one."""
    return bool(language_of(path)) and not _OF_TESTS.search(path)


_OF_TESTS = re.compile(r"(?:^|/)(?:tests?|specs?|__tests__)/|(?:^|/)(?:test_|conftest)[^/]*$|[._](?:test|spec)s?\.\w+$")


def _fits(count: CountTokens, budget: int, text: str) -> bool:
    return count(text) <= budget


def _is_plan(text: str) -> bool:
    return len(_LIST_ITEM.findall(text)) >= PLAN_ITEMS


def _steps_section(lines: Sequence[str], budget: int, count: CountTokens) -> str:
    """The newest steps that fit, of the others those that say how a check ended, failed ones first, and whether some
    are left out. An earlier trace may have left out some."""
    items = [f"- {line}" for line in lines if line != STEPS_LEFT_OUT]
    heading = [STEPS_LEFT_OUT] if len(items) < len(lines) else []
    newest = len(_newest_items(items, budget, count))
    if newest == len(items):
        return "\n".join([*heading, *items])
    checks = sorted(filter(_CHECK_ENDED.search, items), key=lambda item: ": failed (" in item)
    kept_checks = _newest_items(checks, budget // 2, count) if newest and checks else ()
    newest = len(_newest_items(items, budget - sum(count(item) + 1 for item in kept_checks), count))
    behind = len(items) - newest
    before = [item for item in items[:behind] if item in kept_checks]
    if len(before) < behind:
        heading = [STEPS_LEFT_OUT]
    return "\n".join([*heading, *before, *items[behind:]]) if newest or before else ""


_CHECK_ENDED = re.compile(r": (?:ok|failed) \(")
"""Only of checks such as tests the summary is told."""


def _errors_section(lines: Sequence[str], budget: int, count: CountTokens) -> str:
    """The errors that fit, those that nothing has mended before the others, and whether some are left out."""
    items = [f"- {line}" for line in lines]
    by_need = sorted(items, key=lambda item: not MENDED.search(item))  # the last ones stay
    shown = _newest_items(by_need, budget, count)
    if shown and len(shown) < len(items):
        shown = _newest_items(by_need, budget - EARLIER_EDITS_TOKENS, count) or shown
    heading = [ERRORS_LEFT_OUT] if 0 < len(shown) < len(items) else []
    return "\n".join([*heading, *(item for item in items if item in shown)])


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
    return [f"<{name}>{escape_section(text)}</{name}>" for name, text in sections.items() if text]


def _files_section(facts: SpanFacts, for_changed: int, for_read: int, count: CountTokens) -> str:
    """Changed files first: later work builds on them."""
    changed_paths = {item_path(item) for item in facts.changed}
    read = [item for item in facts.read if item_path(item) not in changed_paths]
    temporary = temporary_among(map(item_path, (*facts.changed, *read)))
    changed = [item for item in facts.changed if item_path(item) not in temporary]
    scratch = [item for item in facts.changed if item_path(item) in temporary]
    groups = (("changed", changed, for_changed), (CHANGED_TEMPORARY, scratch, for_read), ("read", read, for_read))
    return "\n".join(f"{how}: {_paths_that_fit(paths, budget, count)}" for how, paths, budget in groups if paths)


def _marked_as_read_again(facts: SpanFacts, read_again: Sequence[str]) -> SpanFacts:
    """The facts with a mark behind the files of which a newer text stands behind the trace."""
    if not read_again:
        return facts
    spelled = one_spelling((*map(item_path, (*facts.changed, *facts.read)), *read_again))
    again = {spelled[path] for path in read_again}
    changed, read = (
        tuple(f"{item}{READ_AGAIN}" if spelled[item_path(item)] in again else item for item in items)
        for items in (facts.changed, facts.read)
    )
    return replace(facts, changed=changed, read=read)


def _paths_that_fit(paths: Sequence[str], budget: int, count: CountTokens) -> str:
    """The newest paths that fit, at least the last five, in order, and the number of the others."""
    kept = _newest_items(paths, budget, count)
    if len(kept) < FILES_ALWAYS_TOLD:
        kept = paths[-FILES_ALWAYS_TOLD:]
    return join_shown(kept, len(paths))


def _list_section(items: Iterable[str], budget: int, count: CountTokens) -> str:
    """The newest items that fit, one per line, oldest first."""
    return "\n".join(_newest_items([f"- {item}" for item in items], budget, count))


def _edits_section(edits: Sequence[str], budget: int, count: CountTokens, texts: str) -> str:
    """The newest edits that fit, those first whose code does not stand in `texts`, behind a line with the files of the
    others."""
    before = [edit for edit in edits if _EDITED_BEFORE.match(edit)]
    in_order = [edit for edit in edits if not _EDITED_BEFORE.match(edit)]
    made = sorted(range(len(in_order)), key=lambda at: _is_untold(texts, in_order[at]))
    lines = [f"- {in_order[at]}" for at in made[-MAX_EDITS:]]
    shown: Sequence[str] = lines
    heading = ""
    if len(lines) < len(edits) or len(_newest_items(lines, budget, count)) < len(lines):
        for _ in range(2):  # with fewer lines the heading names more
            shown = _newest_items(lines, budget - max(count(heading), EARLIER_EDITS_TOKENS), count)
            others = [*before, *(in_order[at] for at in sorted(made[: len(made) - len(shown)]))]
            heading = _edited_before(others, "- also edited: " if shown else "- edited: ", budget, count)
    in_place = (f"- {in_order[at]}" for at in sorted(made[len(made) - len(shown) :]))
    return "\n".join(filter(None, (heading, *in_place)))


_CODE_OF_EDIT = re.compile(r"(?: -> |: added )((?:(?! -> ).)*?)(?: \(and \d+ more lines?\))?(?: \(then [^)]*\))?\Z")


def _is_untold(texts: str, edit: str) -> bool:
    """Whether the code of the line of an edit does not stand among `texts`."""
    code = _CODE_OF_EDIT.search(edit)
    return code is None or code[1].removesuffix("…") not in texts


def _edited_before(edits: Iterable[str], words: str, budget: int, count: CountTokens) -> str:
    """`- also edited: parser.py (3 changes), lexer.py`: each file once, in the order of its newest edit. One call may
    make several changes."""
    times: dict[str, int] = {}
    for edit in edits:
        if edit.endswith(UNDONE_LATER):
            continue
        before = _EDITED_BEFORE.match(edit)
        for listed in edit[before.end() :].split(", ") if before else (edit.partition(":")[0].partition(",")[0],):
            if not MORE_PATTERN.fullmatch(listed) and (found := _FILE_WITH_CHANGES.match(listed)):
                times[found[1]] = times.pop(found[1], 0) + int(found[2] or 1)
    files = [f"{file} ({number} changes)" if number > 1 else file for file, number in times.items()]
    fitting = _newest_items(files, budget - EARLIER_EDITS_TOKENS, count)
    named = files[-max(len(fitting), FILES_ALWAYS_NAMED) :]
    more = [f"+{len(files) - len(named)} more"] if len(named) < len(files) else []
    return f"{words}{', '.join([*more, *named])}" if files else ""


_EDITED_BEFORE = re.compile(r"(?:also )?edited(?: before)?: (?!.* -> )")
_FILE_WITH_CHANGES = re.compile(r"(.+?)(?: \((\d+) changes\))?\Z")
MORE_PATTERN = re.compile(r"\+\d+ more")


def _newest_items(items: Sequence[str], budget: int, count: CountTokens) -> Sequence[str]:
    for position in range(len(items) - 1, -1, -1):
        budget -= count(items[position]) + 1  # one for the border between two of them
        if budget < 0:
            return items[position + 1 :]
    return items


_REF_ATTRIBUTE = "ref="
_REF_PATTERN = re.compile(rf"\b{_REF_ATTRIBUTE}")


def escape_section(text: str) -> str:
    """A trace has exactly one `ref`, so others in commands or titles are defused."""
    return escape_own_tags(_REF_PATTERN.sub("ref =", text) if _REF_ATTRIBUTE in text else text)
