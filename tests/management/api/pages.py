"""Every page of the management API, asked for as its owner would: what the matrices of access and of bad input are
made of.

The law: **a route cannot be added without being asked here**. The table is made from the description that the running
API gives of itself; a page that is only read is asked as it stands, and one that takes a body, or an id of a new kind,
needs a line in `ASKED`, or the tests fail with a sentence that says which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.management.api.conftest import Answer, Served
from tests.management.api.small_ledger import Written

SLOT = re.compile(r"{(\w+)}")
NAMES = {"conversation": "conversation", "frame": "child", "request": "request"}
"""What stands for an id in a path: the member of `Written` that holds a real one."""


@dataclass(frozen=True)
class How:
    """How a page is asked so that it works. `ids` beside or instead of the usual ones, members of `Written` or words;
    `before` are pages that are asked first; `status` is what the owner is told, the reason beside it where it is a
    refusal."""

    body: Any = None
    query: str = ""
    ids: Mapping[str, str] | None = None
    before: tuple[str, ...] = ()
    status: int = 200


PLANNED = {"frame": "planned"}
POINT = {"name": "point"}

ASKED: dict[str, How] = {
    "DELETE /stack/conversations": How(query="?before=1"),
    "PUT /stack/conversations/{conversation}/mode": How({"mode": "off"}),
    "PATCH /stack/conversations/{conversation}/autonomy": How({"level": "manual"}),
    "POST /stack/conversations/{conversation}/messages": How({"text": "use tabs"}, status=202),
    "DELETE /stack/conversations/{conversation}/messages/{message}": How(
        before=("POST /stack/conversations/{conversation}/messages",)
    ),
    "POST /stack/conversations/{conversation}/cancel": How({"tree": True}),
    "POST /stack/conversations/{conversation}/frames": How({"title": "Lexer"}),
    "PATCH /stack/frames/{frame}": How({"title": "Parser"}, ids=PLANNED),
    "POST /stack/frames/{frame}/activate": How(ids=PLANNED),
    "POST /stack/frames/{frame}/pop": How(
        {"status": "failed"}, ids=PLANNED, before=("POST /stack/frames/{frame}/activate",)
    ),
    "POST /stack/frames/{frame}/retry": How(ids=PLANNED, before=("POST /stack/frames/{frame}/pop",)),
    "POST /stack/frames/{frame}/invalidate": How({"reason": "not wanted"}, ids=PLANNED),
    "POST /stack/frames/{frame}/unfold": How(status=409),  # it was pushed, so it was never folded
    "POST /stack/frames/{frame}/complete": How({"summary": "done"}, status=409),  # no subagent's frame
    "POST /stack/conversations/{conversation}/checkpoints": How(POINT),
    "GET /stack/conversations/{conversation}/checkpoints/{name}": How(
        ids=POINT, before=("POST /stack/conversations/{conversation}/checkpoints",)
    ),
    "GET /stack/conversations/{conversation}/branches/{name}": How(ids={"name": "main"}),
    "POST /stack/conversations/{conversation}/branches": How(
        {"name": "other"}, before=("POST /stack/conversations/{conversation}/checkpoints",)
    ),
    "POST /stack/conversations/{conversation}/switch": How(
        {"branch": "main"}, before=("POST /stack/conversations/{conversation}/branches",)
    ),
    "POST /stack/conversations/{conversation}/inject": How(
        {"branch": "main", "messages": [1], "to": "other"},
        before=("POST /stack/conversations/{conversation}/branches",),
    ),
    "PATCH /stack/config": How({"minMessageCount": 4}),  # the owner is an operator
    "GET /stack/search": How(query="?q=rounding"),
    "GET /stack/recall": How(query="?ref=rounding"),
    "GET /stack/events": How(query="?follow=false"),  # else it never ends
}


@dataclass(frozen=True)
class Page:
    """`method` and `path` as described; `how` it is asked."""

    method: str
    path: str
    how: How

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def named(self) -> bool:
        """Whether it is about one thing that belongs to somebody."""
        return "{" in self.path

    def filled(self, ids: Written, made: str = "made") -> str:
        """Where somebody's real ids stand in the path; `made` for an id that the pages before told."""
        own = {slot: vars(ids)[member] for slot, member in NAMES.items()} | {"message": made}
        own |= {slot: vars(ids).get(word, word) for slot, word in (self.how.ids or {}).items()}
        return SLOT.sub(lambda slot: own[slot[1]], self.path) + self.how.query


def pages_in(described: Mapping[str, Any]) -> list[Page]:
    """All of a description (`paths` of OpenAPI), what deletes at the end. Fails where one cannot be asked."""
    found = [
        Page(method.upper(), path, _how(f"{method.upper()} {path}", operation))
        for path, operations in described.items()
        for method, operation in operations.items()
        if path.startswith("/stack")
    ]
    return sorted(found, key=lambda page: page.method == "DELETE")


async def pages_of(served: Served) -> list[Page]:
    return pages_in((await served.ask("/stack/openapi.json")).json["paths"])


def _how(name: str, operation: Mapping[str, Any]) -> How:
    known = ASKED.get(name, How())
    missing = [slot for slot in SLOT.findall(name) if slot not in {*NAMES, "message", *(known.ids or {})}]
    wanted = "requestBody" in operation and known.body is None
    assert (missing, wanted) == ([], False), (
        f"{name} is a new route: add it to ASKED in tests/management/api/pages.py, with a body that works"
        f"{' and a value for ' + ', '.join(missing) if missing else ''}, and the status its owner gets."
    )
    return known


async def ask(served: Served, page: Page, ids: Written, key: str | None, **more: Any) -> Answer:
    """One page, about what `ids` names, with what has to be there first."""
    made = await prepared(served, page, ids, key) if page.how.before and key else "made"
    return await asked(served, page, page.filled(ids, made), key, **more)


async def prepared(served: Served, page: Page, ids: Written, key: str | None) -> str:
    """Ask what comes before a page; the id that was told last."""
    made = "made"
    for name in page.how.before:
        method, path = name.split(" ")
        told = await ask(served, Page(method, path, ASKED[name]), ids, key)
        made = told.json.get("id", made) if told.status < 300 else made
    return made


async def asked(served: Served, page: Page, where: str, key: str | None, **more: Any) -> Answer:
    body = {} if page.how.body is None else {"json": page.how.body}
    return await served.ask(where, key, page.method, **{**body, **more})
