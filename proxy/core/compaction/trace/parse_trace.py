"""Reads traces of this and of earlier versions back from their text, and joins them."""

from __future__ import annotations

import re

import msgspec

from proxy.core.compaction.trace.sections import EMPTY_SECTIONS, MORE_PATTERN, NAMES_SECTION, PARAGRAPH, TRACE_SECTIONS
from proxy.core.compaction.trace.span_facts import READ_AGAIN, STEPS_LEFT_OUT, SpanFacts, merge_facts
from proxy.core.frames import CHANGED_TEMPORARY, file_name_of
from proxy.core.text import unescape_own_tags

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
_ELEMENT_START = "<stack-context"


class ParsedTrace(msgspec.Struct, frozen=True):
    """The content of an earlier trace, parsed from its text."""

    facts: SpanFacts = msgspec.field(default_factory=SpanFacts)
    results: str = ""
    names: tuple[str, ...] = ()


def parse_traces(text: str) -> ParsedTrace:
    """Parse one or several traces, oldest first, and merge them; empty if `text` has none."""
    merged = ParsedTrace()
    for part in text.split(_ELEMENT_START)[1:]:
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
    names = sections.get(NAMES_SECTION, sections.get("names", "")).split()
    return ParsedTrace(
        SpanFacts(
            changed=(*_split_paths(files.get("changed", "")), *_split_paths(files.get(CHANGED_TEMPORARY, ""))),
            read=_split_paths(files.get("read", "")),
            commands=lists.get("commands", ()),
            decisions=lists.get("decisions", ()),
            errors=lists.get("errors", ()),
            steps=int(match[1]) if match else int(old_match[1] or old_match[2]) if old_match else 0,
            said=(*lists.get("progress", ()), *(said.split(PARAGRAPH) if said else ())),
            told_steps=(*lists.get("commands", ()), *_lines_of_steps(sections.get("steps", ""))),
            edits=lists.get("edits", ()),
        ),
        sections.get("results", ""),
        tuple(name for word in names if not word.endswith(":") and (name := word.removesuffix(";"))),
    )


def _unescape_old_section(text: str) -> str:
    """Earlier versions escaped as XML does, and the first ones `>` too."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _lines_of_steps(section: str) -> list[str]:
    listed = _ITEM_PATTERN.findall(section)
    return [STEPS_LEFT_OUT, *listed] if section.startswith("(") else listed


def _facts_of_step(told: str) -> SpanFacts:
    """The facts that the line of a single step tells."""
    verb, _, rest = told.partition(" ")
    path = re.split(r"[,:] ", rest, maxsplit=1)[0]
    name = file_name_of(path)
    if verb == "edited" and path != rest:
        return SpanFacts((path,), steps=1, told_steps=(f"edited {name}",), edits=(rest.replace(path, name, 1),))
    if verb == "read" and path == rest:
        return SpanFacts(read=(path,), steps=1, told_steps=(f"read {name}",))
    mark = {"edited": "", "wrote": " (created)", "deleted": " (deleted)"}.get(verb)
    if mark is None:
        return SpanFacts(steps=1, told_steps=(told,))
    return SpanFacts((path + mark,), steps=1, told_steps=(f"{verb} {name}",))


def _join_traces(old: ParsedTrace, new: ParsedTrace) -> ParsedTrace:
    """Merge section by section."""
    return ParsedTrace(
        merge_facts(old.facts, new.facts),
        "\n".join(text for text in (old.results, new.results) if text),
        tuple(dict.fromkeys((*old.names, *new.names))),
    )


def _split_paths(listed: str) -> tuple[str, ...]:
    paths = (path.removesuffix(READ_AGAIN) for path in listed.split(", "))
    return tuple(path for path in paths if path and not MORE_PATTERN.fullmatch(path))
