"""Changes one value in the text of a settings file, and takes the change back, without touching anything else: order,
comments and white space are the user's. JSON may have the comments and trailing commas that some agents allow. Each
change is checked by reading the whole text again; raises `CannotChange` where that says something else."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Keys = tuple[str, ...]
"""Where a value stands: the names from the outside in."""

_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/|[{}\[\]:,]|[^\s{}\[\]:,"/]+|/', re.DOTALL)
_TOML_HEADER = re.compile(r"^[ \t]*\[([^\[\]]+)\][ \t]*(?:#[^\r\n]*)?\r?$", re.MULTILINE)
_TOML_VALUE = r'''"""[^\r\n]*?"""|\'{3}[^\r\n]*?\'{3}|"(?:\\.|[^"\\\r\n])*"|\'[^\'\r\n]*\'|[^\s#]+'''
"""A value on a line of its own, without a comment behind it."""


class CannotChange(Exception):
    """The text is not what its name says, or the value cannot be changed in it. The message ends a sentence."""


@dataclass(frozen=True, slots=True)
class Format:
    """`read` raises ValueError; `write` sets a value, `remove` takes a value away with what it alone needed."""

    read: Callable[[str], dict[str, Any]]
    write: Callable[[str, Keys, str], str]
    remove: Callable[[str, Keys], str]


def set_value(form: Format, text: str, keys: Keys, value: str) -> str:
    """The text with the value, and all else as it was."""
    before = read(form, text)
    changed = form.write(text, keys, value)
    if read(form, changed) != _with(before, keys, value):
        raise CannotChange(f"{'.'.join(keys)} cannot be set in it")
    return changed


def unset_value(form: Format, text: str, keys: Keys, before: str | None) -> str:
    """The text with what stood there before, None for nothing."""
    if before is not None:
        return set_value(form, text, keys, before)
    changed = form.remove(text, keys)
    if read(form, changed) not in (without := _without(read(form, text), keys), _pruned(without, keys)):
        raise CannotChange(f"{'.'.join(keys)} cannot be taken out of it")
    return changed


def value_at(form: Format, text: str, keys: Keys) -> object:
    """None where nothing stands there."""
    found: object = read(form, text)
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def text_at(form: Format, text: str, keys: Keys) -> str | None:
    """The same for a value that has to be a text."""
    found = value_at(form, text, keys)
    if found is not None and not isinstance(found, str):
        raise CannotChange(f"{'.'.join(keys)} is no text in it")
    return found


def read(form: Format, text: str) -> dict[str, Any]:
    try:
        return form.read(text)
    except (ValueError, RecursionError) as error:
        raise CannotChange(f"it cannot be read: {error}") from None


def _with(settings: Mapping[str, Any], keys: Keys, value: str) -> dict[str, Any]:
    name, *rest = keys
    if not rest:
        return {**settings, name: value}
    below = settings.get(name, {})
    if not isinstance(below, dict):
        raise CannotChange(f"{name} is no table in it")
    return {**settings, name: _with(below, tuple(rest), value)}


def _without(settings: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    name, *rest = keys
    if not rest:
        return {key: value for key, value in settings.items() if key != name}
    return {**settings, name: _without(settings[name], tuple(rest))}


def _pruned(settings: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    """Without the tables on the way that are empty."""
    name, *rest = keys
    if not rest or name not in settings:
        return dict(settings)
    below = _pruned(settings[name], tuple(rest))
    kept = {key: value for key, value in settings.items() if key != name}
    return {**settings, name: below} if below else kept


# ---------------------------------------------------------------------------------------------------------------- JSON
@dataclass(frozen=True, slots=True)
class _Member:
    """Offsets of a member of an object: its name and its value."""

    begin: int
    value: int
    end: int
    inside: _Object | None


@dataclass(frozen=True, slots=True)
class _Object:
    """Offsets behind `{` and of `}`, and the members by name."""

    begin: int
    end: int
    members: Mapping[str, _Member]


def read_json(text: str) -> dict[str, Any]:
    """Raises ValueError."""
    pieces = [found[0] for found in _TOKEN.finditer(text) if not found[0].startswith("/")]
    plain = [
        piece
        for at, piece in enumerate(pieces)
        if not (piece == "," and at + 1 < len(pieces) and pieces[at + 1] in ("}", "]"))
    ]
    if _TOKEN.sub("", text).strip():
        raise ValueError("a text in it has no end")
    if not plain:
        return {}
    value = json.loads(" ".join(plain))
    if not isinstance(value, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - of a text, not of an argument
    return value


def _objects(text: str) -> _Object:
    pieces = [(found.start(), found[0]) for found in _TOKEN.finditer(text) if not found[0].startswith("/")]

    def value_at_piece(at: int) -> tuple[int, _Object | None]:
        """The number of the piece behind the value, and the object if it is one."""
        start, piece = pieces[at]
        if piece == "{":
            return _object_at(at, start)
        if piece != "[":
            return at + 1, None
        at += 1
        while pieces[at][1] != "]":
            at = at + 1 if pieces[at][1] == "," else value_at_piece(at)[0]
        return at + 1, None

    def _object_at(at: int, start: int) -> tuple[int, _Object]:
        members: dict[str, _Member] = {}
        at += 1
        while pieces[at][1] != "}":
            if pieces[at][1] == ",":
                at += 1
                continue
            begin, name = pieces[at]
            behind, inside = value_at_piece(at + 2)
            last = pieces[behind - 1]
            members[json.loads(name)] = _Member(begin, pieces[at + 2][0], last[0] + len(last[1]), inside)
            at = behind
        return at + 1, _Object(start + 1, pieces[at][0], members)

    _, whole = value_at_piece(0)
    if whole is None:
        raise CannotChange("it is no object")
    return whole


def write_json(text: str, keys: Keys, value: str) -> str:
    if not text.strip():
        return f"{json.dumps(_nested(keys, value), indent=2)}\n"
    place, depth = _objects(text), 0
    while keys[depth] in place.members:
        member = place.members[keys[depth]]
        if depth == len(keys) - 1:
            return text[: member.value] + json.dumps(value) + text[member.end :]
        if member.inside is None:
            raise CannotChange(f"{'.'.join(keys[: depth + 1])} is no object in it")
        place, depth = member.inside, depth + 1
    return _insert_json(text, place, keys[depth], _nested(keys[depth + 1 :], value))


def _nested(keys: Sequence[str], value: str) -> object:
    return {keys[0]: _nested(keys[1:], value)} if keys else value


def _insert_json(text: str, place: _Object, name: str, value: object) -> str:
    """Behind `{`, in the manner of the first member that is there."""
    inside = text[place.begin : place.end]
    lead = inside[: len(inside) - len(inside.lstrip())]
    if not place.members or "\n" in lead:
        line = text[text.rfind("\n", 0, place.begin) + 1 :]
        outer = line[: len(line) - len(line.lstrip(" \t"))]
        gap = "\n" + (lead.rpartition("\n")[2] if place.members else f"{outer}  ")
        member = gap + json.dumps(name) + ": " + json.dumps(value, indent=2).replace("\n", gap)
        rest = f",{inside}" if place.members else inside if inside.strip() else f"\n{outer}"
        return text[: place.begin] + member + rest + text[place.end :]
    member = f"{lead}{json.dumps(name)}: {json.dumps(value)},{lead or ' '}"
    return text[: place.begin] + member + inside.lstrip() + text[place.end :]


def remove_json(text: str, keys: Keys) -> str:
    """Takes the member away with its comma, and then each object on the way that is empty."""
    for depth in range(len(keys), 0, -1):
        place = _objects(text)
        for key in keys[: depth - 1]:
            inside = place.members[key].inside
            if inside is None:
                raise CannotChange(f"{key} is no object in it")
            place = inside
        member = place.members[keys[depth - 1]]
        if depth < len(keys) and (member.inside is None or text[member.inside.begin : member.inside.end].strip()):
            break
        text = _cut_json(text, place, member)
    return text


def _cut_json(text: str, place: _Object, member: _Member) -> str:
    """From the end of what stands before to the end of the member, with one comma."""
    before, behind = text[: member.begin].rstrip(), text[member.end :]
    if comma := re.match(r"\s*,", behind):
        return before + behind[comma.end() :]
    is_alone = len(before) == place.begin
    return before.removesuffix(",") + (behind.lstrip() if is_alone else behind)


JSON = Format(read_json, write_json, remove_json)


# ---------------------------------------------------------------------------------------------------------------- TOML
def write_toml(text: str, keys: Keys, value: str) -> str:
    """A line in the table of the outer keys, which has to be there; at the top where there are none."""
    begin, end = _toml_table(text, keys[:-1])
    if found := _toml_line(keys[-1]).search(text, begin, end):
        return text[: found.start(1)] + json.dumps(value) + text[found.end() :]
    line = f"{keys[-1]} = {json.dumps(value)}"
    gap = "" if begin == 0 or text[begin - 1 : begin] == "\n" else "\n"
    return f"{text[:begin]}{gap}{line}\n{text[begin:]}"


def remove_toml(text: str, keys: Keys) -> str:
    """Takes the line away; a comment behind the value stays as a line."""
    begin, end = _toml_table(text, keys[:-1])
    found = _toml_line(keys[-1]).search(text, begin, end)
    if found is None:
        raise CannotChange(f"{'.'.join(keys)} has no line of its own in it")
    return text[: found.start()] + text[found.end() :].lstrip(" \t").removeprefix("\r").removeprefix("\n")


def _toml_table(text: str, keys: Sequence[str]) -> tuple[int, int]:
    """Where the lines of a table begin and end."""
    headers = list(_TOML_HEADER.finditer(text))
    starts = [each.start() for each in re.finditer(r"^[ \t]*\[", text, re.MULTILINE)]
    if not keys:
        return 0, min(starts, default=len(text))
    for header in headers:
        if tuple(part.strip().strip("\"'") for part in header[1].split(".")) == tuple(keys):
            begin = min(header.end() + 1, len(text))
            return begin, min((start for start in starts if start >= begin), default=len(text))
    raise CannotChange(f"there is no table [{'.'.join(keys)}] in it")


def _toml_line(name: str) -> re.Pattern[str]:
    return re.compile(rf"^[ \t]*{re.escape(name)}[ \t]*=[ \t]*({_TOML_VALUE})", re.MULTILINE)


TOML = Format(tomllib.loads, write_toml, remove_toml)
