"""A trace: the text that stands on the line where an inferred frame, or a part of one, left it.

It is written from what is known exactly (files, commands, decisions, errors) and from the names that the messages hold,
ranked by what later work comes back to. Nothing is invented and no model is asked. The sections are fixed and one
without content says so; it holds one `ref`, under which the messages themselves come back.

The law: **a trace is frozen text and speaks of the past**. The same values give the same bytes; what was said in the
frame is marked as said then, so nobody answers it again. A trace that replaces an earlier one takes over what that one
says, item by item, and never tells it anew.

What this module does not do: it finds no place to cut, moves nothing, and keeps no messages; user messages and closing
texts stay on the line as they were, whoever cuts sees to that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from proxy.stack.block import element, leaf
from proxy.stack.frames import Frame, Status
from proxy.stack.names import names_in_text, ranked_names
from proxy.stack.ranking import Count, clean, cut_for_display, truncate_to_tokens
from proxy.stack.transcript import Message

SHARE = 0.10
"""Of the tokens that leave, what a trace may take; DESIGN gives what other shares keep."""
LEAST = 200
MOST = 2_500
"""Tokens of a whole trace, whatever leaves."""
SECTIONS = ("results", "progress", "files", "commands", "decisions", "errors", "names", "next")
NONE = "none"
CLOSED = "as its closing message says"

ROOM = 100
"""Tokens that a trace has at least for what it says, whatever the tags around it take."""

RESULTS_SHARE = 0.20
PROGRESS_SHARE = 0.08
CHANGED_SHARE = 0.25
READ_SHARE = 0.06
LIST_SHARE = 0.06
"""Of that room, what each of these parts may take at most: all the rest is for names."""
FAILED_FACTOR = 2
"""A failed frame may say more of what was tried and of its errors."""
LINE = 110
"""Characters of one item of a list."""
SPOKEN = 200
"""Characters of one thing the assistant said under way."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known exactly of what left: each in order, each once.

    `changed` are paths with how, where it is known: `src/b.py (created)`; `commands` end in their newest state:
    `pytest -q: failed`; `errors` in what became of them: `KeyError: 'x' (gone)`. `steps` counts call groups.
    """

    changed: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """What an earlier trace says, read back from its text."""

    facts: Facts = field(default_factory=Facts)
    results: str = ""
    progress: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def trace_text(  # noqa: PLR0913  a trace is these values; each has one source and one place in the text
    frame: Frame,
    parent_title: str,
    messages: Sequence[Message],
    facts: Facts,
    *,
    nonce: str,
    count: Count,
    results: str = "",
    part: bool = False,
    known: Collection[str] = (),
    earlier: str = "",
) -> str:
    """The text that stands for `messages` of `frame`, oldest first, at most `budget_of` them.

    `results` is the closing text where it does not stay on the line; `part` says that the frame goes on; `known` are
    names that stay visible beside this text; `earlier` is the trace that this one replaces.
    """
    told = read_trace(earlier)
    around = _Around(frame, parent_title, nonce, told.facts.steps + facts.steps, part)
    bare = count(around.wrapped(dict.fromkeys(SECTIONS, "")))
    budget = max(budget_of(messages, count(earlier) if earlier else 0), bare + ROOM)
    parts = _parts(frame, messages, _merged(told.facts, facts), told, results, budget - bare, count, part=part)
    names = _names(around.wrapped(parts), budget, messages, told.names, known, count)
    text = around.wrapped({**parts, "names": " ".join(names) or NONE})
    while names and (over := count(text) - budget) > 0:
        names = names[: -max(1, over // 8)]
        text = around.wrapped({**parts, "names": " ".join(names) or NONE})
    return text


def budget_of(messages: Iterable[Message], earlier: int = 0) -> int:
    """Tokens of the trace of `messages`; `earlier` are those of the trace it replaces, which says what it said."""
    return min(MOST, earlier + max(LEAST, int(SHARE * sum(m.tokens for m in messages))))


# ------------------------------------------------------------------------------------------------------------- writing
@dataclass(frozen=True, slots=True)
class _Around:
    """Everything of a trace that is not one of its sections."""

    frame: Frame
    parent_title: str
    nonce: str
    steps: int
    part: bool

    def wrapped(self, parts: dict[str, str]) -> str:
        """The whole text, its sections in their order. Quotes need no escape between tags and would hide a command
        from whoever searches for it."""
        status = Status.IN_PROGRESS if self.part else self.frame.status
        attributes = {"ref": self.frame.id, "status": str(status), "steps": str(self.steps)}
        frame = element(
            "frame",
            attributes,
            leaf("title", cut_for_display(_unpointed(self.frame.title))),
            *(f"<{name}>{_escaped(text or NONE)}</{name}>" for name, text in parts.items()),
        )
        wrapper = {"frame": self.frame.parent or self.frame.id, "nonce": self.nonce}
        parent = leaf("parent", cut_for_display(_unpointed(self.parent_title))) if self.parent_title else ""
        siblings = element("completed-siblings", {"count": "1", "filtered": "0"}, frame)
        return element("stack-context", wrapper, parent, siblings, self._sentence())

    def _sentence(self) -> str:
        """Last, so that the text ends on what is, not on what was asked or begun."""
        went_on = "What it began was taken up in what follows. " if self.part else ""
        return f"Past work; its messages left the context. {went_on}stack_recall(ref or ref + query) brings them back."


def _parts(  # noqa: PLR0913  one value per section
    frame: Frame,
    messages: Sequence[Message],
    facts: Facts,
    told: Told,
    results: str,
    budget: int,
    count: Count,
    *,
    part: bool,
) -> dict[str, str]:
    """The sections by name, in order, `names` still empty; each within its share of the budget."""
    failed = FAILED_FACTOR if frame.status is Status.FAILED else 1
    spoken = _spoken(messages)
    under_way = spoken if part or failed > 1 else ()
    outcome = results.strip() or frame.results.strip()
    items = int(budget * LIST_SHARE)
    return {
        "results": _outcome(outcome or told.results, int(budget * RESULTS_SHARE), count, part=part),
        "progress": _newest((*told.progress, *under_way), int(budget * PROGRESS_SHARE * failed), count, SPOKEN),
        "files": _files(facts, budget, count),
        "commands": _newest(facts.commands, items * failed, count),
        "decisions": _newest(facts.decisions, items, count),
        "errors": _newest(facts.errors, items * failed, count),
        "names": "",
        "next": f"said then, taken up since: {spoken[-1]}" if part and spoken else NONE,
    }


def _outcome(text: str, budget: int, count: Count, *, part: bool) -> str:
    if not text:
        return NONE if part else CLOSED
    return truncate_to_tokens(clean(text), budget, count)


def _spoken(messages: Sequence[Message]) -> tuple[str, ...]:
    """What the assistant said beside its calls: the beginning of each text, once, oldest first."""
    said = (cut_for_display(m.text, SPOKEN) for m in messages if m.role == "assistant" and m.text.strip())
    return tuple(dict.fromkeys(said))


def _files(facts: Facts, budget: int, count: Count) -> str:
    """What was changed first: it is what later work builds on."""
    changed = _fitting(facts.changed, int(budget * CHANGED_SHARE), count)
    read = _fitting([p for p in facts.read if _key(p) not in changed], int(budget * READ_SHARE), count)
    groups = [f"{how}: {listed}" for how, listed in (("changed", changed), ("read", read)) if listed]
    return "\n".join(groups)


def _fitting(paths: Sequence[str], budget: int, count: Count) -> str:
    """The newest paths that fit, in order, and how many more there were."""
    kept = _last_fitting(paths, budget, count)
    more = [f"+{len(paths) - len(kept)} more"] if len(kept) < len(paths) else []
    return ", ".join([*kept, *more])


def _newest(items: Iterable[str], budget: int, count: Count, width: int = LINE) -> str:
    """The newest items that fit, one a line, oldest first."""
    lines = [f"- {cut_for_display(item, width)}" for item in items]
    return "\n".join(_last_fitting(lines, budget, count))


def _last_fitting(items: Sequence[str], budget: int, count: Count) -> Sequence[str]:
    for at in range(len(items) - 1, -1, -1):
        budget -= count(items[at]) + 1
        if budget < 0:
            return items[at + 1 :]
    return items


def _names(  # noqa: PLR0913  what is shown, what it may cost, and the four places names come from
    shown: str, budget: int, messages: Sequence[Message], told: Sequence[str], known: Collection[str], count: Count
) -> list[str]:
    """The names that fit behind what is shown, those of an earlier trace first: they were the best of their time."""
    left = budget - count(shown)
    chosen: list[str] = []
    said = set(names_in_text(shown))
    for name in (*told, *(named.name for named in ranked_names(messages, known))):
        if name in said or ("/" in name and name in shown):
            continue
        said.add(name)
        tokens = count(f" {name}")
        if tokens > left:
            break
        chosen.append(name)
        left -= tokens
    return chosen


_POINTER = re.compile(r"\bref=")


def _unpointed(text: str) -> str:
    """One text, one `ref`: what looks like another one in a command or a title is none of ours."""
    return _POINTER.sub("ref =", text)


def _escaped(text: str) -> str:
    plain = clean(_unpointed(text))
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# ------------------------------------------------------------------------------------------------------------- merging
_SECTION = re.compile(r"<(results|progress|files|commands|decisions|errors|names)>(.*?)</\1>", re.DOTALL)
_STEPS = re.compile(r'<frame ref="[^"]*" status="[^"]*" steps="(\d+)">')
_ITEM = re.compile(r"^- (.*)$", re.MULTILINE)
_MORE = re.compile(r"\+\d+ more")


def read_trace(text: str) -> Told:
    """What a trace of ours says; nothing where `text` is none."""
    found = {name: _plain(said) for name, said in _SECTION.findall(text) if said != NONE}
    lists = {name: tuple(_ITEM.findall(found.get(name, ""))) for name in ("commands", "decisions", "errors")}
    files = dict(line.partition(": ")[::2] for line in found.get("files", "").splitlines())
    steps = int(match[1]) if (match := _STEPS.search(text)) else 0
    return Told(
        Facts(_paths(files.get("changed", "")), _paths(files.get("read", "")), **lists, steps=steps),
        "" if found.get("results") == CLOSED else found.get("results", ""),
        tuple(_ITEM.findall(found.get("progress", ""))),
        tuple(found.get("names", "").split()),
    )


def _plain(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _paths(listed: str) -> tuple[str, ...]:
    return tuple(path for path in listed.split(", ") if path and not _MORE.fullmatch(path))


def _merged(old: Facts, new: Facts) -> Facts:
    """Each thing once, with the newest that is known of it, at the place where it was last spoken of (S2-21)."""
    return replace(
        new,
        changed=_union(old.changed, new.changed, _key),
        read=_union(old.read, new.read, _key),
        commands=_union(old.commands, new.commands, _command),
        decisions=_union(old.decisions, new.decisions, str),
        errors=_union(old.errors, new.errors, _key),
    )


def _union(old: Sequence[str], new: Sequence[str], key: Callable[[str], str]) -> tuple[str, ...]:
    newest = {key(item): item for item in new}
    return (*(item for item in old if key(item) not in newest), *newest.values())


def _key(item: str) -> str:
    """`src/b.py` of `src/b.py (created)`."""
    return item.rpartition(" (")[0] or item


def _command(item: str) -> str:
    """`pytest -q` of `pytest -q: failed`."""
    return item.rpartition(": ")[0] or item
