"""What the tools answer, as text for a model, made from answers of the management API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

MAX_TITLE = 100
FILES_TOLD = ("changed", "read")
READ_IT_ALL = 'stack_recall with ref="ID" reads everything that was said in one of them.'


def search_reply(found: Mapping[str, Any], words: str, place: str) -> str:
    """The frames that were found, each with its evidence."""
    rows = found["frames"]
    failed = " The model that finds by meaning does not answer; words were looked for alone."
    failed = failed if found["meaning"] == "unavailable" else ""
    if not rows:
        return f"No finished frame of {place} has any of these words: {words}.{failed}{_elsewhere(place)}"
    near = " or are near in meaning" if any(row["by"] == "meaning" for row in rows) else ""
    which = f"have all of these words{near}" if found["all_words"] else f"come close{near}; none has all of these words"
    head = f"{_count(len(rows), 'finished frame')} of {place} {which}, the best first.{failed}"
    return "\n\n".join([head, *("\n".join(_frame_lines(row)) for row in rows), READ_IT_ALL])


def _frame_lines(row: Mapping[str, Any]) -> Iterator[str]:
    yield f"{row['frame']}  {one_line(row['title'])}"
    yield f"  {row['status']} {when(row['ended'])}, in conversation {row['conversation']}"
    if results := row.get("results", "").strip() or row["excerpt"]:
        yield f"  came to: {one_line(results, len(results))}"
    evidence = row.get("evidence")
    if evidence is None:
        return
    for how in FILES_TOLD:
        if paths := [file["path"] for file in evidence["files"] if file["how"] == how]:
            yield f"  {how}: {', '.join(map(one_line, paths))}"
    if evidence["commands"]:
        yield f"  ran: {'; '.join(_command_text(run) for run in evidence['commands'])}"


def _command_text(run: Mapping[str, Any]) -> str:
    ended = {"ok": "went well", "failed": "failed"}.get(run["outcome"], "nobody knows how it ended")
    return f"`{one_line(run['command'])}` {ended}"


def tree_reply(rows: Sequence[Mapping[str, Any]], tree: str, place: str) -> str:
    """The newest conversations of a place, and the frames of the first of them."""
    if not rows:
        return f"No agent has worked in {place} yet.{_elsewhere(place)}"
    lines = [
        f"{row['id']}  {when(row['last_active'])}  {_count(row['frames'], 'frame')}  {one_line(row['title'])}"
        for row in rows
    ]
    return "\n".join([f"Conversations of {place}, the newest first:", *lines, "", f"Frames of {rows[0]['id']}:", tree])


def say_reply(queued: Mapping[str, Any], *, follow_up: bool) -> str:
    told = "when its model has nothing more to do" if follow_up else "with its next request"
    return f"Queued as number {queued['position']}: the agent is told {told}."


def one_line(text: str, most: int = MAX_TITLE) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def when(milliseconds: int) -> str:
    """In the time zone of this machine."""
    return datetime.fromtimestamp(milliseconds / 1000).astimezone().strftime("%Y-%m-%d %H:%M")


def printable(text: str) -> str:
    """Stored text may hold half of a surrogate pair, which no message can carry."""
    return text.encode("utf-8", "backslashreplace").decode()


def _elsewhere(place: str) -> str:
    return "" if place == ALL_PROJECTS else ' project="*" looks in all projects.'


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


ALL_PROJECTS = "all projects"
