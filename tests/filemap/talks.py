"""Conversations that read, write and edit files, made in a line."""

from __future__ import annotations

from typing import Any

from callstack_proxy.filemap.contents import SeenContents, SeenFile, collect_contents
from proxy.core.ledger.messages import Call
from proxy.core.observers.tool_roles import DEFAULT_TOOL_ROLES
from tests.core.forest import LedgerBuilder, call


class Files:
    """A talk in which a client's tools work on files."""

    def __init__(self) -> None:
        self.talk = LedgerBuilder()
        self.talk.client("user", "Work on the shop.")
        self._calls = 0

    def done(self, name: str, result: str = "ok", **arguments: Any) -> Files:
        return self.called(lambda ident: call(ident, name, **arguments), result)

    def raw(self, name: str, arguments: str, result: str = "ok") -> Files:
        """A call whose arguments are these bytes."""
        return self.called(lambda ident: Call(ident, name, arguments), result)

    def called(self, made: Any, result: str) -> Files:
        self._calls += 1
        ident = f"c{self._calls}"
        self.talk.model(("", (made(ident),)))
        self.talk.client("tool", result, answers=ident)
        return self

    @property
    def contents(self) -> SeenContents:
        return collect_contents(self.talk.story.entries, DEFAULT_TOOL_ROLES)

    @property
    def files(self) -> dict[str, SeenFile]:
        return {file.path: file for file in self.contents.files}

    def lines(self, path: str) -> dict[int, str]:
        """The lines of a file that have a known place."""
        file = self.files[path]
        return {number: line for number, line in zip(file.numbers, file.lines, strict=True) if number}

    def loose(self, path: str) -> list[str]:
        file = self.files[path]
        return [line for number, line in zip(file.numbers, file.lines, strict=True) if not number]


def seen(path: str, text: str, first: int = 1) -> SeenFile:
    """A file that was read."""
    lines = tuple(text.split("\n"))
    return SeenFile(path, tuple(range(first, first + len(lines))), lines, first == 1)
