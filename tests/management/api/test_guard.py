"""Who may see what, on every page there is (`pages`), so a new route cannot escape the matrix."""

import re
from pathlib import Path
from typing import Any

import pytest

import callstack_proxy.management.api.app
from tests.management.api.conftest import Answer, Served
from tests.management.api.pages import ASKED, SLOT, Page, ask, asked, pages_of, prepared
from tests.management.api.small_ledger import Written, written

ODD_IDS = ["..%2f..%2fetc", "%00", "a" * 5000, "%ff%fe", "';--", "-", "%F0%9F%98%80"]
UNKNOWN = "x"
"""An id that nothing has."""


async def test_every_page_that_is_asked_in_a_way_of_its_own_is_there(served: Served) -> None:
    names = {page.name for page in await pages_of(served)}

    assert len(names) >= 50
    assert [name for name in ASKED if name not in names] == []


def test_no_route_is_left_out_of_the_description() -> None:
    """It would be in no matrix."""
    sources = sorted(Path(callstack_proxy.management.api.__file__).parent.glob("*.py"))

    assert len(sources) > 10
    assert [source.name for source in sources if "include_in_schema" in source.read_text()] == []


async def test_every_path_tells_what_it_answers(served: Served) -> None:
    answered: dict[str, set[str]] = {}
    for page in await pages_of(served):
        answered.setdefault(page.path, set()).add(page.method)

    for path, methods in answered.items():
        answer = await served.ask(SLOT.sub(UNKNOWN, path), method="OPTIONS")
        told = f"This path answers {', '.join(sorted(methods))}."
        assert (path, answer.status, answer.json["error"]["message"]) == (path, 405, told)


async def statuses(served: Served, key: str | None, pages: list[Page], **more: Any) -> dict[int, list[str]]:
    """Which pages were answered with which status, asked for what is ours."""
    found: dict[int, list[str]] = {}
    for page in pages:
        answer = await asked(served, page, page.filled(served.ours), key, **more)
        found.setdefault(answer.status, []).append(page.name)
    return found


async def test_without_a_key_no_page_answers(served: Served) -> None:
    """A5."""
    pages = await pages_of(served)

    assert set(await statuses(served, None, pages)) == {401}
    assert set(await statuses(served, None, pages, headers={"x-stack-key": "csk_guessed"})) == {401}
    for nowhere in ("/stack/nothing", "/docs"):
        assert (await served.ask(nowhere, None)).status == 401


async def test_no_page_answers_one_of_somebody_else(served: Served) -> None:
    """A4: a foreign Host, and a foreign Origin, as a browser sends them."""
    pages = await pages_of(served)

    for header in ({"host": "evil.example"}, {"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert set(await statuses(served, "ours", pages, headers=header)) == {403}
        assert (await served.ask("/health", headers=header)).status == 403


@pytest.mark.rows("X-25")
async def test_what_belongs_to_another_tenant_is_answered_like_what_never_was(served: Served) -> None:
    """A6, X-25: one tenant with the exact ids of another is told the same bytes as with ids of nobody, and nothing
    changes; the owner is answered as ever."""
    for number, page in enumerate(page for page in await pages_of(served) if page.named):
        theirs = await written(served.store, "key-theirs", f"c{number}")
        made = await prepared(served, page, theirs, "theirs")
        changed = list(served.changed)
        where = page.filled(theirs, made)
        foreign = await asked(served, page, where, "ours")
        missing = await asked(served, page, of_nobody(where, theirs), "ours")
        assert served.changed == changed
        own = await asked(served, page, where, "theirs")

        answered = (foreign.status, missing.status, own.status)
        assert (page.name, answered) == (page.name, (404, 404, page.how.status))
        assert without_ids(foreign, theirs) == without_ids(missing, theirs)


def of_nobody(where: str, ids: Written) -> str:
    """The same path with ids of the same length that nothing has."""
    return re.sub("|".join(names_in(ids)), lambda known: UNKNOWN * len(known[0]), where)


def without_ids(answer: Answer, ids: Written) -> bytes:
    return re.sub("|".join([*names_in(ids), f"{UNKNOWN}+"]).encode(), lambda known: b"?" * len(known[0]), answer.body)


def names_in(ids: Written) -> list[str]:
    """Whatever of somebody must not be told to anybody else."""
    return [name for name in vars(ids).values() if isinstance(name, str)]


async def test_a_list_holds_nothing_of_another_tenant(served: Served) -> None:
    """A6."""
    lists = [page for page in await pages_of(served) if page.method == "GET" and not page.named]
    assert len(lists) >= 6
    for page in lists:
        told = (await ask(served, page, served.ours, "ours")).body.decode()

        assert (page.name, [name for name in names_in(served.theirs) if name in told]) == (page.name, [])


async def test_a_list_of_a_foreign_conversation_is_that_of_none(served: Served) -> None:
    """A6: an id in the query is no way around."""
    described = (await served.ask("/stack/openapi.json")).json["paths"]
    narrowed = [
        path
        for path, of in described.items()
        if "{" not in path and any(each["name"] == "conversation" for each in of.get("get", {}).get("parameters", []))
    ]
    assert len(narrowed) >= 3
    for path in narrowed:
        told = [
            await served.ask(path, params={"conversation": conversation, "follow": "false"})
            for conversation in (served.theirs.conversation, UNKNOWN * len(served.theirs.conversation))
        ]
        assert told[0].status == told[1].status
        assert without_ids(told[0], served.theirs) == without_ids(told[1], served.theirs)


@pytest.mark.parametrize("key", ["admin", "token"])
async def test_an_operator_sees_every_tenant(served: Served, key: str) -> None:
    for number, page in enumerate(await pages_of(served)):
        tenant = ("key-ours", "key-theirs")[number % 2]
        answer = await ask(served, page, await written(served.store, tenant, f"c{number}"), key)

        assert (page.name, answer.status) == (page.name, page.how.status)


async def test_an_operator_forgets_for_all(served: Served) -> None:
    gone = await served.ask("/stack/conversations?before=9000000000000", "token", "DELETE")

    assert gone.json["conversations"] == 2
    assert served.changed == [(None, "")]


async def test_an_odd_id_is_unknown_and_no_file_comes_of_it(served: Served, tmp_path: Path) -> None:
    """A9."""
    before = files_in(tmp_path)
    for page in (page for page in await pages_of(served) if page.named):
        for odd in ODD_IDS:
            answer = await asked(served, page, SLOT.sub(odd, page.path), "ours")
            # What hides a slash or a zero byte is refused before it is an id.
            assert (page.name, odd, answer.status in (400, 404)) == (page.name, odd, True)
            assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    assert files_in(tmp_path) == before


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


WRONG = [
    ("GET", "/stack", 404),
    ("GET", "/stack/conversations/", 404),
    ("GET", "//stack/conversations", 404),
    ("GET", "/STACK/conversations", 404),
    ("POST", "/stack/conversations", 405),
    ("OPTIONS", "/stack/conversations", 405),
    ("GET", "/stack/conversations?limit=0", 400),
    ("GET", "/stack/conversations?offset=x", 400),
    ("DELETE", "/stack/conversations", 400),
    ("GET", "/stack/totals?by=mood", 400),
    ("GET", "/stack/totals?period=year", 400),
    ("GET", "/stack/totals?since=2026-02-30", 400),
    ("GET", "/docs", 404),
]


async def test_what_is_asked_wrongly_is_told_in_the_one_shape(served: Served) -> None:
    for method, path, status in WRONG:
        answer = await served.ask(path, "ours", method, allow_redirects=False)

        assert (path, answer.status) == (path, status)
        assert set(answer.json["error"]) == {"message", "type", "param", "code"}


async def test_a_mode_that_is_none_changes_nothing(served: Served) -> None:
    path = f"/stack/conversations/{served.ours.conversation}/mode"
    for body in (b"", b"{", b'{"mode":"loud"}', b'{"mode":"off","more":1}', b"[]", b"\xff"):
        answer = await served.ask(path, method="PUT", data=body, headers={"content-type": "application/json"})

        assert (body, answer.status, served.changed) == (body, 400, [])


async def test_the_description_names_only_statuses_that_are_answered(served: Served) -> None:
    described = (await served.ask("/stack/openapi.json")).json["paths"]

    assert "/health" in described
    managed = [one for path, one in described.items() if not path.startswith("/v1")]
    statuses = {status for one in managed for operation in one.values() for status in operation["responses"]}
    assert statuses == {"200", "202", "400", "401", "403", "404", "409", "413", "429", "500", "503"}


async def test_every_answer_is_described_as_an_object(served: Served) -> None:
    described = (await served.ask("/stack/openapi.json")).json
    told = ((path, one) for path, one in described["paths"].items() if path not in ("/metrics", "/stack/events"))
    operations = [(f"{m} {p}", o) for p, one in told for m, o in one.items()]
    done = [(name, next(told for status, told in o["responses"].items() if status < "300")) for name, o in operations]
    schemas = {name: told["content"]["application/json"]["schema"] for name, told in done}

    assert [name for name, schema in schemas.items() if not ("$ref" in schema or schema["type"] == "object")] == []
