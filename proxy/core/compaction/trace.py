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

from proxy.core.frames.results import marked_results
from proxy.core.frames.tree import BY_HAND, Frame, Status
from proxy.core.ledger.messages import Message
from proxy.core.observers.keywords import names_in_text, ranked_names
from proxy.core.text import TRUNCATED, Count, clean, cut_for_display, element, leaf, truncate_to_tokens

SHARE = 0.10
"""Of the tokens that leave, what a trace may take. On the recordings 5, 8, 10 and 15 % keep 98.0, 99.3, 99.6 and 99.8 %
of the facts that are used again ten or more requests later."""
LEAST = 120
"""Tokens that a trace has for what it says, however little leaves; its tags and fixed words come on top."""
MOST = 2_500
"""Tokens of a whole trace, however much leaves."""

RESULTS_SHARE = 0.20
FILES_CHANGED_SHARE = 0.50
FILES_READ_SHARE = 0.06
DECISIONS_SHARE = 0.12
LIST_SHARE = 0.07
SPOKEN_SHARE = 0.08
NEXT_SHARE = 0.16
"""Of that room, what each part may take at most: all the rest is for names."""
PART_LEAST = 30
"""Tokens that each of them may take in a small trace: a line or two."""
FAILED_FACTOR = 2
"""A failed frame may say more of what was tried and of its errors."""
BLOCK = 64
"""Names counted at once: counting each by itself takes ten times as long."""
LINE = 110
"""Characters of one item of a list."""
SPOKEN = 200
"""Characters of one thing the assistant said under way."""

SECTIONS = ("results", "progress", "files", "commands", "decisions", "errors", "names", "next")
NONE = "none"
CLOSED = "as its closing message says"
PLANNED_THEN = "open in the plan then:"
SAID_THEN = "said then:"
TAKEN_UP = "begun then, taken up since: "


class Facts(msgspec.Struct, frozen=True):
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


class Told(msgspec.Struct, frozen=True):
    """What an earlier trace says, read back from its text."""

    facts: Facts = msgspec.field(default_factory=Facts)
    results: str = ""
    progress: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------------- writing
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
    told = _without(read_trace(earlier), noted)
    facts = merged(told.facts, facts)
    around = _Around(frame, parent_title, nonce, facts.steps, part)
    bare = count(around.wrapped({}))
    budget = budget_of(messages, bare, earlier_tokens)
    failed = frame.status is Status.FAILED
    own = frame.results.strip() if failed or frame.stays or frame.origin in ("plan", BY_HAND) else ""
    marked = marked_results(m.text for m in messages if m.role == "assistant")
    sources = _Sources(
        results=results.strip() or _with_earlier(own or marked, told.results),
        closes=frame.origin in ("request", "root") and not part,
        planned=tuple(planned),
        told=told.progress,
        spoken=_spoken(messages),
        facts=facts,
        failed=failed,
        part=part,
    )
    parts = _parts(sources, budget - bare, count)
    if noted:
        known_results = parts["results"] if parts["results"] not in (NONE, CLOSED) else ""
        parts["results"] = "\n".join(filter(None, (known_results, clean(noted))))
        budget += count(noted)
    candidates = _alternating(told.names, ranked_names(messages, known))
    names = _fitting_names(candidates, around.wrapped(parts), budget, count)
    return around.wrapped({**parts, "names": " ".join(names)})


def _without(told: Told, noted: str) -> Told:
    """What an earlier trace says, less the lines that are noted again."""
    again = set(clean(noted).splitlines())
    return replace(told, results="\n".join(line for line in told.results.splitlines() if line not in again))


def budget_of(messages: Iterable[Message], bare: int, earlier: int = 0) -> int:
    """Tokens of the trace of `messages`. `bare` are those of a trace that says nothing; `earlier` are those of the one
    it replaces, which says what it said."""
    share = int(SHARE * sum(m.tokens for m in messages))
    return min(MOST, max(bare + LEAST, earlier + share))


class _Around(msgspec.Struct, frozen=True):
    """Everything of a trace that is not one of its sections."""

    frame: Frame
    parent_title: str
    nonce: str
    steps: int
    part: bool

    def wrapped(self, parts: Mapping[str, str]) -> str:
        """The whole text, every section in its place. Quotes need no escape between tags, and would hide a command
        from whoever searches for it."""
        status = Status.IN_PROGRESS if self.part else self.frame.status
        attributes = {"ref": self.frame.id, "status": str(status), "steps": str(self.steps)}
        title = leaf("title", cut_for_display(_unpointed(self.frame.title)))
        sections = (f"<{name}>{_escaped(parts.get(name) or NONE)}</{name}>" for name in SECTIONS)
        siblings = element(
            "completed-siblings", {"count": "1", "filtered": "0"}, element("frame", attributes, title, *sections)
        )
        parent = leaf("parent", cut_for_display(_unpointed(self.parent_title))) if self.parent_title else ""
        wrapper = {"frame": self.frame.parent or self.frame.id, "nonce": self.nonce}
        return element("stack-context", wrapper, parent, siblings, LAST_WORDS)


LAST_WORDS = "Past work: its messages left the context. stack_recall with the ref, or ref and query, brings them back."
"""They stand last, so that a trace ends on what is, not on what was asked or begun."""


class _Sources(msgspec.Struct, frozen=True):
    """What the sections are written from."""

    results: str
    closes: bool
    """A closing message of the frame stays on the line."""
    planned: tuple[str, ...]
    told: tuple[str, ...]
    spoken: tuple[str, ...]
    facts: Facts
    failed: bool
    part: bool


def _parts(said: _Sources, room: int, count: Count) -> dict[str, str]:
    """The sections but for the names, each within its share of `room` tokens; all of them together fit it."""
    under_way = said.spoken[:-1] if said.part else said.spoken if said.failed else ()
    newest = said.spoken[-1] if said.part and said.spoken else ""
    more = FAILED_FACTOR if said.failed else 1
    facts = said.facts
    read_share, changed_share = max(PART_LEAST, int(room * FILES_READ_SHARE)), int(room * FILES_CHANGED_SHARE)
    writers: dict[str, tuple[float, Callable[[int], str]]] = {
        "results": (RESULTS_SHARE, lambda left: _outcome(said.results, left, count, closes=said.closes)),
        "files": (1.0, lambda left: _files(facts, min(changed_share, left), min(read_share, left), count)),
        "errors": (LIST_SHARE * more, lambda left: _listed(facts.errors, left, count)),
        "commands": (LIST_SHARE * more, lambda left: _listed(facts.commands, left, count)),
        "decisions": (DECISIONS_SHARE, lambda left: _listed(facts.decisions, left, count)),
        "next": (NEXT_SHARE, lambda left: _next(newest, said.planned, left, count)),
        "progress": (SPOKEN_SHARE * more, lambda left: _listed((*said.told, *under_way), left, count, SAID_THEN)),
    }
    parts: dict[str, str] = {}
    left = room
    for name, (share, write) in writers.items():
        parts[name] = write(min(max(PART_LEAST, int(room * share)), left))
        left -= count(parts[name])
    return parts


def _with_earlier(now: str, earlier: str) -> str:
    """What came of the work, and behind it what the trace before says of that and is not said now."""
    if not now:
        return earlier
    kept = (line for line in earlier.splitlines() if line.removesuffix(TRUNCATED).strip() not in now)
    return "\n".join([now, *kept])


def _outcome(text: str, budget: int, count: Count, *, closes: bool) -> str:
    if not text:
        return CLOSED if closes else NONE
    return truncate_to_tokens(clean(text), budget, count)


def _next(begun: str, planned: Sequence[str], budget: int, count: Count) -> str:
    """What was begun, and what the client's plan had open then, the next items first."""
    said = truncate_to_tokens(TAKEN_UP + begun, budget // 2 if planned else budget, count, "…") if begun else ""
    left = budget - count(said)
    items = []
    for item in planned:
        left -= count(f"- {cut_for_display(item, LINE)}") + 1
        if left < count(PLANNED_THEN):
            break
        items.append(f"- {cut_for_display(item, LINE)}")
    return "\n".join([*([said] if said else []), *([PLANNED_THEN, *items] if items else [])])


def _spoken(messages: Iterable[Message]) -> tuple[str, ...]:
    """What the assistant said beside its calls: the beginning of each text, once, oldest first."""
    said = (cut_for_display(m.text, SPOKEN) for m in messages if m.role == "assistant" and m.text.strip())
    return tuple(dict.fromkeys(said))


def _files(facts: Facts, for_changed: int, for_read: int, count: Count) -> str:
    """What was changed first: it is what later work builds on."""
    written = {_path(item) for item in facts.changed}
    read = [item for item in facts.read if _path(item) not in written]
    groups = (("changed", facts.changed, for_changed), ("read", read, for_read))
    return "\n".join(f"{how}: {_paths_within(paths, budget, count)}" for how, paths, budget in groups if paths)


def _paths_within(paths: Sequence[str], budget: int, count: Count) -> str:
    """The newest paths that fit, in order, and how many more there were."""
    kept = _newest_fitting(paths, budget, count)
    more = [f"+{len(paths) - len(kept)} more"] if len(kept) < len(paths) else []
    return ", ".join([*kept, *more])


def _listed(items: Iterable[str], budget: int, count: Count, heading: str = "") -> str:
    """The newest items that fit, one a line, oldest first."""
    lines = _newest_fitting([f"- {item}" for item in items], budget, count)
    return "\n".join([heading, *lines] if heading and lines else lines)


def _newest_fitting(items: Sequence[str], budget: int, count: Count) -> Sequence[str]:
    for at in range(len(items) - 1, -1, -1):
        budget -= count(items[at]) + 1  # one for the border between two of them
        if budget < 0:
            return items[at + 1 :]
    return items


# --------------------------------------------------------------------------------------------------------------- names
def _alternating(earlier: Iterable[str], now: Iterable[str]) -> Iterator[str]:
    """Both were ranked, each by what was known then: neither crowds out the other."""
    return filter(None, dict.fromkeys(chain.from_iterable(zip_longest(earlier, now))))


def _fitting_names(candidates: Iterable[str], shown: str, budget: int, count: Count) -> list[str]:
    """The first names that fit beside what is shown and do not stand there already. A space between them is part of
    the token that follows it: a comma would cost every fifth name."""
    left = budget - count(shown)
    standing = names_in_text(shown)
    wanted = (name for name in candidates if name not in standing and not ("/" in name and name in shown))
    chosen: list[str] = []
    while block := list(islice(wanted, BLOCK)):
        tokens = count(" " + " ".join(block))
        if tokens > left:
            return [*chosen, *_beginning(block, left, count)]
        chosen += block
        left -= tokens
    return chosen


def _beginning(names: Sequence[str], budget: int, count: Count) -> Sequence[str]:
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
_POINTER = "ref="
_POINTING = re.compile(rf"\b{_POINTER}")


def _unpointed(text: str) -> str:
    """One text, one `ref`: what looks like another one in a command or a title is none of ours."""
    return _POINTING.sub("ref =", text) if _POINTER in text else text


def _escaped(text: str) -> str:
    return clean(_unpointed(text)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plain(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


# ------------------------------------------------------------------------------------------------------------- merging
_SECTION = re.compile(rf"<({'|'.join(SECTIONS)})>([^<]*)</\1>")
_STEPS = re.compile(r'<frame ref="[^"]*" status="[^"]*" steps="(\d+)">')
_ITEM = re.compile(r"^- (.*)$", re.MULTILINE)
_MORE = re.compile(r"\+\d+ more")


_BEGINNING = "<stack-context"


def read_trace(text: str) -> Told:
    """What traces of ours say, one or several of them, oldest first; nothing where `text` is none."""
    told = Told()
    for one in text.split(_BEGINNING)[1:]:
        told = _joined(told, _read(one))
    return told


def _read(text: str) -> Told:
    found = {name: _plain(said) for name, said in _SECTION.findall(text) if said not in (NONE, CLOSED)}
    lists = {name: tuple(_ITEM.findall(found.get(name, ""))) for name in ("commands", "decisions", "errors")}
    files = dict(line.partition(": ")[::2] for line in found.get("files", "").splitlines())
    steps = int(match[1]) if (match := _STEPS.search(text)) else 0
    return Told(
        Facts(_paths_in(files.get("changed", "")), _paths_in(files.get("read", "")), **lists, steps=steps),
        found.get("results", ""),
        tuple(_ITEM.findall(found.get("progress", ""))),
        tuple(found.get("names", "").split()),
    )


def _joined(old: Told, new: Told) -> Told:
    """Two traces as one, set by set (S2-21)."""
    return Told(
        merged(old.facts, new.facts),
        "\n".join(text for text in (old.results, new.results) if text),
        (*old.progress, *new.progress),
        tuple(dict.fromkeys((*old.names, *new.names))),
    )


def _paths_in(listed: str) -> tuple[str, ...]:
    return tuple(path for path in listed.split(", ") if path and not _MORE.fullmatch(path))


def merged(old: Facts, new: Facts) -> Facts:
    """Each thing once, with the newest that is known of it, at the place where it was last spoken of (S2-21)."""
    return replace(
        new,
        changed=_union(old.changed, new.changed, _path),
        read=_union(old.read, new.read, _path),
        commands=_union(old.commands, (_cut(item, _command) for item in new.commands), _command),
        decisions=_union(old.decisions, (_cut(item, str) for item in new.decisions), str),
        errors=_union(old.errors, (_cut(item, _path) for item in new.errors), _path),
        steps=old.steps + new.steps,
    )


def _union(old: Iterable[str], new: Iterable[str], key: Callable[[str], str]) -> tuple[str, ...]:
    newest = {key(item): item for item in new}
    return (*(item for item in old if key(item) not in newest), *newest.values())


def _cut(item: str, key: Callable[[str], str]) -> str:
    """An item on one line, what became of it kept."""
    head = key(item)
    return cut_for_display(head, LINE) + item[len(head) :].replace("\n", " ")


_MARK = re.compile(r" \((?:created|deleted|fixed|still failing)\)\Z")
_STATE = re.compile(r": (?:ok|failed)\Z")
"""Nothing but these words: a path may end in brackets, and a colon may stand in a command whose end is not known."""


def _path(item: str) -> str:
    """`src/b.py` of `src/b.py (created)`; an error without what became of it."""
    return _MARK.sub("", item)


def _command(item: str) -> str:
    """`pytest -q` of `pytest -q: failed`."""
    return _STATE.sub("", item)
