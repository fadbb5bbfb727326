"""Renders the text that replaces a finished frame in its parent's context.

It needs no LLM: the model's own results, unabridged up to a budget, and known facts beside them: files that its calls
touched, its decisions, the frames below it, and what the user said inside it. The sections are fixed, and an empty one
says so. The `ref` recalls everything else, which stays stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

import msgspec

from proxy.core.frames.announcements import announced_part, outcome_part
from proxy.core.frames.same_paths import one_spelling, temporary_among
from proxy.core.frames.tree import CONVERSATION, Frame, Status, Tree, children, next_planned
from proxy.core.text import (
    TRUNCATION_MARKER,
    CountTokens,
    cut_for_display,
    element,
    escape_xml,
    join_shown,
    prose_element,
    remove_illegal_xml,
    truncate_to_tokens,
)

MIN_RESULTS_TOKENS = 4_000
"""Results of up to so many tokens are never cut: the model wrote them for the parent."""
COMPACTION_TOKENS = 350
"""Tokens of a derived short form (S0-15)."""
NAMES_SHARE = 0.3
"""Share of a derived short form for names from the part that was cut off."""
MAX_FILES_TOKENS = 1_000
"""Tokens for the paths a frame touched."""
MAX_TITLE_WORDS = 8
MAX_TITLE_CHARACTERS = 60
MAX_CRITERION_CHARACTERS = 20_000
"""Characters of a user message that count as a frame's criterion; a message may be a file of 60 MiB."""

REPLAN_ADVICE = (
    "Re-plan before you go on. Still planned beside it: {named}. Keep or invalidate them, or plan others; another "
    "attempt is a push of the same title."
)
NEXT_PLANNED = "Planned next: {frame} ({title})."
PUSH_NEXT = " Push it by its title."
NEXT_PLANNED_SECTION = re.compile(rf"<next>{NEXT_PLANNED.partition('{')[0]}.*?</next>\n", re.DOTALL)
PLAN_FINISHED = "Nothing is left of this plan."
POP_PARENT_ADVICE = "If the criteria of {frame} ({title}) are met, pop it with results; else plan what is missing."
ANSWER_USER_ADVICE = "If the overall goal is reached, answer the user; else plan what is missing."

READ, CHANGED, CHANGED_BY_COMMAND = "read", "changed", "changed by command"
CHANGED_TEMPORARY = "changed in a temporary folder"
"""Of scratch files: they are told apart from the changes that the user asked for."""
_HOW = re.compile(rf" \(({READ}|{CHANGED}|{CHANGED_BY_COMMAND})\)$")


# --------------------------------------------------------------------------------------------------------------- paths
class FileAccess(msgspec.Struct, frozen=True):
    """A file and how it was accessed."""

    path: str
    how: str

    def __str__(self) -> str:
        return f"{self.path} ({self.how})"


class PastSpeech(msgspec.Struct, frozen=True):
    """What was said inside a frame that has ended: by the user, or the last words that the user read before their next
    message."""

    text: str
    is_users: bool = True


# -------------------------------------------------------------------------------------------------- what a pop returns
def frame_results_text(  # noqa: PLR0913  what a frame returns is these facts; each has one source and one section
    tree: Tree,
    frame: Frame,
    status: Status,
    results: str,
    *,
    count: CountTokens,
    budget: int,
    paths: Sequence[str],
    past_speech: Sequence[PastSpeech],
    below: Sequence[Frame],
    broken: Sequence[str] = (),
) -> str:
    """The value that a pop returns, as the result of the frame's opening call.

    `paths` are files of its calls (each with how) and its artifacts. `past_speech` are user messages that were answered
    inside the frame, quoted so that the model does not answer them again, and the closing words that the user read
    there; those that are the results are not repeated. `broken` are lines about what did not work there and has not
    been mended. Results longer than `budget` tokens (at least `MIN_RESULTS_TOKENS`) are cut, and the marker says where
    the rest is.
    """
    parent = tree.frames.get(frame.parent)
    marker = f'{TRUNCATION_MARKER} The rest is in the pop call: stack_recall with ref "{frame.id}".'
    limit = max(budget, MIN_RESULTS_TOKENS)
    shown_results = truncate_to_tokens(remove_illegal_xml(results).strip(), limit, count, marker)
    return element(
        "frame-results",
        {"ref": frame.id, "status": status, **({"parent": parent.id} if parent else {})},
        prose_element("title", cut_for_display(frame.title)),
        prose_element("results", shown_results),
        _section("files", _files(paths, count)),
        _section("decisions", _bullet_list(dict.fromkeys((*frame.decisions, *decisions_in(results))))),
        *(_section(kind, _bullet_list(texts)) for kind, texts in frame.notes_by_kind().items()),
        _section(
            "children", _bullet_list(f"{c.id} {c.status}: {cut_for_display(c.title)}" for c in below if not c.is_part)
        ),
        _section("does-not-work-here", _bullet_list(broken)),
        past_speech_text([s for s in past_speech if s.is_users or s.text.strip() not in shown_results]),
        _next_step_advice(tree, frame, status),
        prose_element("details", f'All of its messages and outputs: stack_recall with ref "{frame.id}".'),
    )


def invalidation_text(frame: Frame) -> str:
    """Tells the parent about an invalidated frame."""
    reason = frame.invalidation_reason
    return f'Frame {frame.id} ({frame.title}) was invalidated: {reason}. What it did is behind ref="{frame.id}".'


def _next_step_advice(tree: Tree, frame: Frame, status: Status) -> str:
    """What is planned next beside the frame; after a failure that the plan may have to change, and after the last
    planned step that it was the last. The client manages its own plans, so inferred frames are named without advice."""
    parent = tree.frames.get(frame.parent)
    if parent is None:
        return ""
    others = [f for f in children(tree, parent.id) if f.id != frame.id]
    waiting = [f for f in others if f.status is Status.PLANNED and not f.is_inferred]
    if status is Status.FAILED and waiting and not frame.is_inferred:
        named = ", ".join(f.label for f in waiting)
        return prose_element("next", REPLAN_ADVICE.format(frame=frame.id, named=named))
    if following := next_planned_text(tree, frame):
        return prose_element("next", following)
    if frame.is_inferred or not frame.was_planned or any(f.status is Status.IN_PROGRESS for f in others):
        return ""
    if not parent.parent:
        return prose_element("next", f"{PLAN_FINISHED} {ANSWER_USER_ADVICE}")
    advice = POP_PARENT_ADVICE.format(frame=parent.id, title=cut_for_display(parent.title))
    return prose_element("next", PLAN_FINISHED if parent.is_inferred else f"{PLAN_FINISHED} {advice}")


def next_planned_text(tree: Tree, frame: Frame) -> str:
    """Names the planned sibling that comes after `frame`; empty without one."""
    following = next_planned(frame, children(tree, frame.parent)) if frame.parent else None
    if following is None:
        return ""
    named = NEXT_PLANNED.format(frame=following.id, title=cut_for_display(following.title))
    return named if following.is_inferred else f"{named}{PUSH_NEXT}"


def _files(paths: Sequence[str], count: CountTokens) -> str:
    """Changed files come first, because later work builds on them."""
    access_by_path: dict[str, str] = {}
    spelled = one_spelling(_HOW.sub("", path) for path in paths)
    for path in paths:
        how = match[1] if (match := _HOW.search(path)) else ""
        plain_path = spelled[_HOW.sub("", path)]
        access_by_path[plain_path] = access_by_path.get(plain_path) or how or "noted"
    for path in temporary_among(access_by_path):
        if access_by_path[path] in (CHANGED, CHANGED_BY_COMMAND):
            access_by_path[path] = CHANGED_TEMPORARY
    groups = []
    remaining_tokens = MAX_FILES_TOKENS
    for how in (CHANGED, CHANGED_BY_COMMAND, "noted", CHANGED_TEMPORARY, READ):
        named = [path for path, access in access_by_path.items() if access == how]
        shown: list[str] = []
        for path in named:
            remaining_tokens -= count(escape_xml(path)) + 2
            if remaining_tokens < 0:
                break
            shown.append(path)
        groups += [f"{how}: {join_shown(shown, len(named))}"] if named else []
    return "; ".join(groups)


def _bullet_list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _section(name: str, text: str) -> str:
    """Empty without a text: an empty section says nothing."""
    return prose_element(name, text) if text else ""


def past_speech_text(speech: Sequence[PastSpeech]) -> str:
    """What was said inside the frame, verbatim and in order; empty if nothing was."""
    if not speech:
        return ""
    if not any(s.is_users for s in speech):
        return element("you-said", {"to": "the user"}, *(prose_element("said", s.text) for s in speech))
    return element(
        "user-said",
        {"when": "inside this frame; answered there"},
        *(prose_element("said" if s.is_users else "your-answer", s.text) for s in speech),
    )


# ---------------------------------------------------------------------------------------------------------- short forms
_DECISION = re.compile(
    r"(?:^[^\w\n]*|(?P<inside>(?<=[.!?;:)])[ \t]+[^\w\s]*))decisions?\s*:\s*(?=\S)", re.IGNORECASE | re.MULTILINE
)
"""Begins a line, or a sentence inside one."""
_SENTENCE_END = re.compile(r"(?<=[.!?])[ \t]+(?=[^a-z\s])")
_RESULT = re.compile(r"^[ \t>*_#-]*RESULT:[*_]*[ \t]*(\S.*)$", re.MULTILINE)
_NAME = re.compile(
    r"""(?<![\w.~-])(?:[\w.~-]{1,200}/)+[\w.-]{0,200}\w  # a path, from its beginning: or long words take minutes
      | \b[\w-]{1,200}\.[a-z][a-z0-9]{0,4}\b  # a file
      | \b\w+\(\)                      # a call
      | \b[a-z0-9]+(?:_[a-z0-9]+)+\b   # snake_case
      | \b[A-Za-z][a-z0-9]+[A-Z]\w*\b  # camelCase
    """,
    re.VERBOSE,
)


def derive_compaction(text: str, count: CountTokens, limit: int = COMPACTION_TOKENS) -> str:
    """A short form of a text, within `limit` tokens: its start, and the names in the rest."""
    text = remove_illegal_xml(text).strip()
    if count(text) <= limit:
        return text
    beginning = truncate_to_tokens(text, int(limit * (1 - NAMES_SHARE)), count)
    cut_off = text[len(beginning.removesuffix(TRUNCATION_MARKER).rstrip()) :]
    names = [name for name in dict.fromkeys(_NAME.findall(cut_off)) if name not in beginning]
    if not names:
        return truncate_to_tokens(text, limit, count)
    return truncate_to_tokens(f"{beginning}\nAlso names: {', '.join(names)}", limit, count, "…")


def results_from_texts(texts: Sequence[str]) -> str:
    """Results of a frame that was not popped, from its texts in order: the lines marked `RESULT:`, else the last
    text."""
    last = next((text.strip() for text in reversed(texts) if text.strip()), "")
    return marked_results(texts) or last


_PROBLEM = re.compile(
    r"\b(?:bugs?|problems?|issues?|errors?|wrong|broken|fails?|failing|failed|missing|cause|culprit|mistake|"
    r"incorrect(?:ly)?|crash(?:es)?)\b",
    re.IGNORECASE,
)
_SETTLED = re.compile(
    r"\b(?:fixed|mended|solved|resolved|changed|replaced|added|removed|renamed|updated|corrected|moved|implemented|done|"
    r"now|pass(?:es|ed)?|works?|green|succeeds?|no\s(?:\w+\s)?(?:bugs?|problems?|issues?|errors?))\b",
    re.IGNORECASE,
)


_ACHIEVED = re.compile(
    r"(?<!not )(?<!n't )(?<!be )\b(?:fixed|mended|solved|passed|passes|green|succeeds|succeeded"
    r"|(?:all|both|they|everything|tests?|suite|lint(?:er)?|builds?|checks?)(?:\s(?!not\b|to\b|never\b)\w+){0,2}?\spass)\b",
    re.IGNORECASE,
)
_STILL_OPEN = re.compile(
    r"\b(?:still|yet)\s(?:\w+\s){0,2}?(?:fail|broken|wrong|missing|crash|error)\w*|\b(?:fail|crash)\w*\s(?:still|again)\b"
    r"|(?:\bnot|n['\u2019]t)\s(?:yet\s|be\s|been\s){0,2}(?:fixed|mended|solved|resolved)\b|\b(?:un(?:solved|resolved|fixed))\b",
    re.IGNORECASE,
)
_PARTS = re.compile(r"[.!?;]\s|\n|,?\s(?:but|however|except|although)\s", re.IGNORECASE)
MAX_RESULT_PARTS = 6
MAX_ACHIEVED_CHARACTERS = 300
"""A longer text that announces the next step too is mostly the plan."""
_REMARK = re.compile(
    r"\W*(?:good|great|perfect|nice|excellent|ok(?:ay)?|alright|right|interesting|hm+|ah|oh|yes|no)\b[,.!:;\s—\u2013-]",
    re.IGNORECASE,
)
"""Begins what is said to an output: "Good, it is still needed"."""


def results_of_item(texts: Sequence[str], closing: str = "", *, changed_files: bool = False) -> str:
    """Results of an item of a plan, from its own texts in order and the text that ended it (`closing`).

    They are the lines marked `RESULT:`; else what the closing text says came of it, or the last of its own texts that
    says so, behind what earlier ones say was achieved, since work may be told part by part. A text that also announces
    the next step counts only where it says that something was achieved, and nothing before a problem does, be it the
    closing one. A problem that was told before it was solved is no result either, nor a remark on an output where the
    item changed files. Of many parts the newest are told. Empty without any.
    """
    ended = outcome_part(closing)
    if marked := marked_results([*texts, closing]):
        return f"{marked}\n{ended}" if names_a_problem(ended) and not marked_results([closing]) else marked
    results = [ended] if ended and not (changed_files and _is_remark(ended)) else []
    has_problem = bool(results) and names_a_problem(ended)
    for text in reversed(texts):
        if len(results) >= MAX_RESULT_PARTS:
            break
        outcome, announces = outcome_part(text), bool(announced_part(text))
        if not outcome or (changed_files and _is_remark(outcome)):
            continue
        is_problem = _PROBLEM.search(outcome) is not None and not _SETTLED.search(outcome)
        is_achieved = len(outcome) <= MAX_ACHIEVED_CHARACTERS and _ACHIEVED.search(outcome) and not has_problem
        if not is_problem and (is_achieved or not (results or announces)):
            results.append(outcome if announces else text.strip())
        has_problem = has_problem or is_problem or names_a_problem(outcome)
    return "\n".join(dict.fromkeys(reversed(results)))  # each once, the oldest first


def names_a_problem(text: str) -> bool:
    """Whether the last word of a text on problems is that there is one: "All pass, but the linter fails"."""
    verdicts = [part for part in _PARTS.split(text) if _PROBLEM.search(part) or _SETTLED.search(part)]
    last = verdicts[-1] if verdicts else ""
    return any(map(_STILL_OPEN.search, verdicts)) or bool(_PROBLEM.search(last) and not _SETTLED.search(last))


def _is_remark(text: str) -> bool:
    """Whether a text only says what somebody thinks of an output: nothing that was made or checked."""
    return _REMARK.match(text) is not None and not _SETTLED.search(text)


def marked_results(texts: Iterable[str]) -> str:
    """The distinct lines marked `RESULT:`, without the marker."""
    lines = (line.strip() for text in texts for line in _RESULT.findall(text))
    return "\n".join(dict.fromkeys(lines))


def decisions_in(text: str) -> tuple[str, ...]:
    """What stands behind "decision:" at the beginning of a line (to its end) or of a sentence (that sentence)."""
    return tuple(filter(None, _texts_behind_decision(text)))


def _texts_behind_decision(text: str) -> Iterator[str]:
    matches = list(_DECISION.finditer(text))
    for match, following in zip_longest(matches, matches[1:]):
        line_end = text.find("\n", match.end())
        end = min(each for each in (line_end, following.start() if following else -1, len(text)) if each >= 0)
        decided = text[match.end() : end].strip()
        yield _SENTENCE_END.split(decided, maxsplit=1)[0] if match["inside"] is not None else decided


def title_of(text: str) -> str:
    """A title for a frame without one: the first words of the user's message, without the markup that clients add. A
    short line that only introduces the next one is told with that."""
    lines = [stripped for line in text.splitlines() if (stripped := line.strip().lstrip("#>*- ").strip())]
    own = [line for line in lines if not line.startswith("<")] or lines
    words = own[0].split() if own else []
    if own[1:] and own[0].endswith(":") and len(words) < MAX_TITLE_WORDS:
        words += own[1].split()
    shortened = " ".join(words[:MAX_TITLE_WORDS]) + ("…" if len(words) > MAX_TITLE_WORDS else "")
    return cut_for_display(shortened, MAX_TITLE_CHARACTERS) or CONVERSATION
