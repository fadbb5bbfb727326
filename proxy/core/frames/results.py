"""A compaction: what stands for a frame once it is off the line.

It needs no LLM. It is the text the model returned, whole, and beside it what is known exactly: the files its calls
touched, its decisions, what became of the frames below it, and what the user said meanwhile. The sections are fixed,
and one without content says so (S2-20, C11). It ends with the `ref` under which everything else is recalled.

The law: **a compaction adds, it never replaces**; what it stands for stays stored as it was (S0-10).

What this module does not do: it finds no place to cut and moves nothing, and it does not look into calls for their
files (`observe.files` does); it renders text from values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from proxy.core.frames.tree import Frame, Status, Tree
from proxy.core.text import (
    TRUNCATION_MARKER,
    CountTokens,
    cut_for_display,
    element,
    escape_xml,
    remove_illegal_xml,
    text_element,
    truncate_to_tokens,
)

MIN_RESULTS_TOKENS = 4_000
"""Tokens of a returned text that are never cut: the model wrote it for its parent."""
COMPACTION_TOKENS = 350
"""Tokens of a derived short form (S0-15)."""
NAMES_SHARE = 0.3
"""Of a derived short form, for the names that the part cut off mentions."""
MAX_FILES_TOKENS = 1_000
"""Tokens for the paths a frame touched."""
MAX_TITLE_WORDS = 8
MAX_TITLE_CHARACTERS = 60
MAX_CRITERION_CHARACTERS = 20_000
"""Characters of what a user said that count as a frame's criterion: more than any block has room for, and bounded,
because a message may be a file of 60 MiB."""
EMPTY_SECTION = "none"

REPLAN_ADVICE = (
    "Re-plan before you go on. Still planned beside it: {named}. Keep, change (stack_frame_plan with frameID) "
    "or invalidate them; another attempt is a push with retry_of={frame}."
)
PLAN_FINISHED = "Nothing is left of this plan."
POP_PARENT_ADVICE = "If the criteria of {frame} ({title}) are met, pop it with results; else plan what is missing."
ANSWER_USER_ADVICE = "If the overall goal is reached, answer the user; else plan what is missing."

READ, CHANGED = "read", "changed"
_HOW = re.compile(rf" \(({READ}|{CHANGED})\)$")


# --------------------------------------------------------------------------------------------------------------- paths
class FileAccess(msgspec.Struct, frozen=True):
    """A file and what was done to it."""

    path: str
    how: str

    def __str__(self) -> str:
        return f"{self.path} ({self.how})"


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
    past_speech: Sequence[str],
    children: Sequence[Frame],
) -> str:
    """The value a pop returns, as the result of the call that opened the frame (S0-04, S0-18).

    `paths` are those of its calls with how, and its artifacts; `past_speech` are user messages that were answered
    inside the frame, quoted so that nobody answers them again. Results longer than `budget` tokens (never less than
    `RESULTS_KEPT`) are cut, and the marker says where the rest stands.
    """
    parent = tree.frames.get(frame.parent)
    return element(
        "frame-results",
        {"ref": frame.id, "status": status, **({"parent": parent.id} if parent else {})},
        text_element("title", cut_for_display(frame.title)),
        text_element("results", _truncated_results(results, max(budget, MIN_RESULTS_TOKENS), count, frame.id)),
        text_element("files", _files(paths, count)),
        text_element("decisions", _bullet_list(dict.fromkeys((*frame.decisions, *decisions_in(results))))),
        text_element("children", _bullet_list(f"{c.id} {c.status}: {cut_for_display(c.title)}" for c in children)),
        past_user_messages_text(past_speech) or text_element("user-said", EMPTY_SECTION),
        _next_step_advice(tree, frame, status),
        text_element("details", f'All of its messages and outputs: stack_recall with ref "{frame.id}".'),
    )


def invalidation_text(frame: Frame) -> str:
    """What its parent is told of an invalidated frame."""
    reason = frame.invalidation_reason
    return f'Frame {frame.id} ({frame.title}) was invalidated: {reason}. What it did is behind ref="{frame.id}".'


def _next_step_advice(tree: Tree, frame: Frame, status: Status) -> str:
    """What the model may do now that something failed beside steps that it has planned, or the last step has ended
    (S2-11, S3-33). A plan of the client's is managed there."""
    parent = tree.frames.get(frame.parent)
    if parent is None or frame.is_inferred:
        return ""
    beside = (f for f in tree.frames.values() if f.parent == parent.id and f.id != frame.id)
    others = [f for f in beside if not f.is_inferred]
    waiting = [f for f in others if f.status is Status.PLANNED]
    if status is Status.FAILED and waiting:
        named = ", ".join(f"{f.id} ({cut_for_display(f.title)})" for f in waiting)
        return text_element("next", REPLAN_ADVICE.format(frame=frame.id, named=named))
    if not frame.was_planned or waiting or any(f.status is Status.IN_PROGRESS for f in others):
        return ""
    done = (
        ANSWER_USER_ADVICE
        if not parent.parent
        else POP_PARENT_ADVICE.format(frame=parent.id, title=cut_for_display(parent.title))
    )
    return text_element("next", f"{PLAN_FINISHED} {done}")


def _truncated_results(results: str, limit: int, count: CountTokens, ref: str) -> str:
    marker = f'{TRUNCATION_MARKER} The rest is in the pop call: stack_recall with ref "{ref}".'
    return truncate_to_tokens(remove_illegal_xml(results).strip(), limit, count, marker)


def _files(paths: Sequence[str], count: CountTokens) -> str:
    """What was changed first: it is what later work builds on."""
    known: dict[str, str] = {}
    for path in paths:
        how = match[1] if (match := _HOW.search(path)) else ""
        bare = _HOW.sub("", path)
        known[bare] = known.get(bare) or how or "noted"
    groups = []
    left = MAX_FILES_TOKENS
    for how in (CHANGED, "noted", READ):
        named = [path for path, done in known.items() if done == how]
        shown: list[str] = []
        for path in named:
            left -= count(escape_xml(path)) + 2
            if left < 0:
                break
            shown.append(path)
        more = [f"+{len(named) - len(shown)} more"] if len(shown) < len(named) else []
        groups += [f"{how}: {', '.join([*shown, *more])}"] if named else []
    return "; ".join(groups) or EMPTY_SECTION


def _bullet_list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items) or EMPTY_SECTION


def past_user_messages_text(speech: Sequence[str]) -> str:
    """Words the user said inside the frame and was answered there, as they were; empty where there are none."""
    if not speech:
        return ""
    return element(
        "user-said", {"when": "inside this frame; answered there"}, *(text_element("said", s) for s in speech)
    )


# ---------------------------------------------------------------------------------------------------------- short forms
_DECISION = re.compile(r"^[^\w\n]*decisions?\s*:\s*(\S.*)$", re.IGNORECASE | re.MULTILINE)
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
    """A short form for a text that came without one (C4): its beginning, and the names that the rest mentions (S2-12,
    S2-13), within `limit` tokens."""
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
    """What a frame returns that nobody popped, of its texts in their order: the lines marked `RESULT:`, else the last
    text (S2-08)."""
    last = next((text.strip() for text in reversed(texts) if text.strip()), "")
    return marked_results(texts) or last


def marked_results(texts: Iterable[str]) -> str:
    """What the lines that begin with `RESULT:` say, each once."""
    found = (line.strip() for text in texts for line in _RESULT.findall(text))
    return "\n".join(dict.fromkeys(found))


def decisions_in(text: str) -> tuple[str, ...]:
    """What lines that begin with "decision:" say (S0-17)."""
    return tuple(match.strip() for match in _DECISION.findall(text))


def title_of(text: str) -> str:
    """A title for work that was given none: the first words of the user's message (S1-36). Lines of mark-up that
    clients put around it are no title."""
    lines = [stripped for line in text.splitlines() if (stripped := line.strip().lstrip("#>*- ").strip())]
    said = next((line for line in lines if not line.startswith("<")), lines[0] if lines else "")
    words = said.split()
    short = " ".join(words[:MAX_TITLE_WORDS]) + ("…" if len(words) > MAX_TITLE_WORDS else "")
    return cut_for_display(short, MAX_TITLE_CHARACTERS) or "Conversation"
