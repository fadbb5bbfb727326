"""The facts of a span, and how those of a later span join them: each once, in its newest state."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import msgspec
from msgspec.structs import replace

from proxy.core.frames import file_name_of, one_spelling
from proxy.core.observers import has_passed_later, joined_lines, with_later_outcome
from proxy.core.text import cut_for_display

UNDONE_LATER = " (undone later)"
"""Behind an edit that git undid."""
STEPS_LEFT_OUT = "(not all earlier steps are listed)"
ERRORS_LEFT_OUT = "(not all errors are listed)"
READ_AGAIN = " (read again later)"
ITEM_CHARACTERS = 110
DECISION_CHARACTERS = 240


class SpanFacts(msgspec.Struct, frozen=True):
    """Exact facts of a span, each once, in order.

    `changed` are paths with the kind of change if known (`src/b.py (created)`), `commands` end with their newest
    outcome (`pytest -q: failed`), `errors` with what the last run said of them. `steps` counts call groups. `said` are
    the texts of the assistant, `told_steps` and `edits` a line each. With `lists_plan` a call of the span listed the
    client's whole plan. `outcomes` has how the last run of each kind of check ended, if known, `shared_names` by path
    how a file is told of which another has the name too, `worked` the programs that ran without a failure.
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
    worked: frozenset[str] = frozenset()


def merge_facts(old: SpanFacts, new: SpanFacts) -> SpanFacts:
    """Each fact once, in its newest state, at the place of its newest mention."""
    spelled = one_spelling(map(item_path, (*old.changed, *new.changed, *old.read, *new.read)))
    respelled = partial(_respelled, spelled)
    return replace(
        new,
        changed=_merge_items(map(respelled, old.changed), map(respelled, new.changed), item_path),
        read=_merge_items(map(respelled, old.read), map(respelled, new.read), item_path),
        commands=_merge_items(old.commands, (_cut_item(item, _item_command) for item in new.commands), _item_command),
        decisions=_merge_items(
            old.decisions, (cut_for_display(item, DECISION_CHARACTERS) for item in new.decisions), str
        ),
        errors=_merge_items(
            _errors_left(old.errors, new), (_cut_item(item, item_path) for item in new.errors), item_path
        ),
        steps=old.steps + new.steps,
        said=tuple(dict.fromkeys((*old.said, *new.said))),
        told_steps=_joined_at_their_border(old.told_steps, new.told_steps),
        edits=(*old.edits, *new.edits),
        lists_plan=old.lists_plan or new.lists_plan,
    )


def _joined_at_their_border(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    joined = joined_lines(old[-1], new[0]) if old and new else ""
    return (*old[:-1], joined, *new[1:]) if joined else (*old, *new)


def _errors_left(errors: Iterable[str], later: SpanFacts) -> Iterator[str]:
    """Errors with what a later part says of them: without those that were mended, refused edits (`cart.py: no such
    text`) of files that it changed, and errors of programs (`git commit: hook failed`) that worked in it."""
    changed = {file_name_of(item_path(item)) for item in later.changed}
    mended = changed | later.worked
    passed = [_item_command(item) for item in later.commands if item.endswith(": ok")]
    left = (error for error in errors if error.partition(": ")[0] not in mended and not MENDED.search(error))
    left = (error for error in left if not has_passed_later(error, passed))
    return (with_later_outcome(error, later.outcomes) for error in left)


def _respelled(spelled: Mapping[str, str], item: str) -> str:
    path = item_path(item)
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
MENDED = re.compile(r" \((?:fixed|a later [a-z ]{4,12} passed)\)\Z")
_COMMAND_STATE = re.compile(r": (?:ok|failed)\Z")
"""Only these outcomes: a path may end in brackets, and a command with unknown outcome may contain a colon."""


def item_path(item: str) -> str:
    """`src/b.py` of `src/b.py (created)`; an error without its resolution."""
    return _CHANGE_MARK.sub("", item.removesuffix(READ_AGAIN))


def _item_command(item: str) -> str:
    """`pytest -q` of `pytest -q: failed`."""
    return _COMMAND_STATE.sub("", item)
