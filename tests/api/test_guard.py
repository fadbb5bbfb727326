"""Who may see what: the matrices are made from the router, so a new route cannot escape them."""

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from proxy.api import routes
from tests.api.conftest import Served
from tests.api.small_ledger import Written

BODIES: dict[str, Any] = {"PUT": {"json": {"mode": "off"}}}
PAGES = [route for route in routes.router.routes if isinstance(route, APIRoute)]
ROUTES = sorted(
    ((method, page.path) for page in PAGES for method in page.methods or ()),
    key=lambda route: route[0] == "DELETE",  # last: what they ask for is gone then
)
NAMED = [(method, path) for method, path in ROUTES if "{" in path]
REFUSED = {"/stack/frames/{frame}/unfold": 409}
"""What is answered with another status than 200 to whom it belongs: the frame was pushed, so it was never folded."""
ODD_IDS = ["..%2f..%2fetc", "%00", "a" * 5000, "%ff%fe", "';--", "-", "%F0%9F%98%80"]


def filled(path: str, ids: Written) -> str:
    """The path with somebody's real ids in it."""
    names = {"conversation": ids.conversation, "frame": ids.child, "request": ids.request}
    query = "?before=1" if path == "/stack/conversations" else ""
    return re.sub(r"{(\w+)}", lambda found: names[found[1]], path) + query


def test_the_router_is_not_empty() -> None:
    assert len(ROUTES) >= 15


async def statuses(served: Served, key: str | None, asked: list[tuple[str, str]], **more: Any) -> dict[int, list[str]]:
    """Which of the (method, path) were answered with which status."""
    found: dict[int, list[str]] = {}
    for method, path in asked:
        answer = await served.ask(path, key, method, **BODIES.get(method, {}), **more)
        found.setdefault(answer.status, []).append(f"{method} {path}")
    return found


async def test_without_a_key_no_route_answers(served: Served) -> None:
    """A5."""
    every = [(method, filled(path, served.ours)) for method, path in ROUTES]

    assert set(await statuses(served, None, every)) == {401}
    assert set(await statuses(served, None, every, headers={"x-stack-key": "csk_guessed"})) == {401}
    assert set(await statuses(served, None, [("GET", "/stack/nothing"), ("GET", "/docs")])) == {401}


async def test_no_route_answers_a_page_of_somebody_else(served: Served) -> None:
    """A4: a foreign Host, and a foreign Origin, as a browser sends them."""
    every = [(method, filled(path, served.ours)) for method, path in ROUTES] + [("GET", "/health")]

    for header in ({"host": "evil.example"}, {"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert set(await statuses(served, "ours", every, headers=header)) == {403}


@pytest.mark.rows("X-25")
async def test_what_belongs_to_another_tenant_is_answered_like_what_never_was(served: Served) -> None:
    """A6, X-25: one tenant with the exact ids of another."""
    for method, path in NAMED:
        body = BODIES.get(method, {})
        foreign = await served.ask(filled(path, served.theirs), "ours", method, **body)
        missing = await served.ask(re.sub(r"{\w+}", "nothing", path), "ours", method, **body)
        own = await served.ask(filled(path, served.theirs), "theirs", method, **body)

        answered = (foreign.status, missing.status, own.status)
        assert (method, path, answered) == (method, path, (404, 404, REFUSED.get(path, 200)))
        assert without_ids(foreign.body) == without_ids(missing.body)


def without_ids(told: bytes) -> bytes:
    return re.sub(rb"'\w+'", b"", told)


async def test_a_list_holds_nothing_of_another_tenant(served: Served) -> None:
    """A6."""
    names = [name for name in vars(served.theirs).values() if isinstance(name, str)]
    for method, path in (route for route in ROUTES if route[0] == "GET" and route not in NAMED):
        told = (await served.ask(path, "ours", method)).body.decode()

        assert not [name for name in names if name in told]


@pytest.mark.parametrize("key", ["admin", "token"])
async def test_an_operator_sees_every_tenant(served: Served, key: str) -> None:
    for status in (409, 200):  # what deletes is asked last
        pages = [(method, path) for method, path in ROUTES if REFUSED.get(path, 200) == status]
        asked = [(method, filled(path, ids)) for ids in (served.ours, served.theirs) for method, path in pages]

        assert set(await statuses(served, key, asked)) == {status}


async def test_an_operator_forgets_for_all(served: Served) -> None:
    gone = await served.ask("/stack/conversations?before=9000000000000", "token", "DELETE")

    assert gone.json["conversations"] == 2
    assert served.changed == [(None, "")]


async def test_an_odd_id_is_unknown_and_no_file_comes_of_it(served: Served, tmp_path: Path) -> None:
    """A9."""
    before = names_in(tmp_path)
    asked = [(method, re.sub(r"{\w+}", odd, path)) for odd in ODD_IDS for method, path in NAMED]

    # What hides a slash or a zero byte is refused before it is an id.
    assert set(await statuses(served, "ours", asked)) == {400, 404}
    assert names_in(tmp_path) == before


def names_in(folder: Path) -> set[str]:
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
    ("GET", "/docs", 404),
]


async def test_what_is_asked_wrongly_is_told_in_the_one_shape(served: Served) -> None:
    for method, path, status in WRONG:
        answer = await served.ask(path, "ours", method, allow_redirects=False)

        assert (path, answer.status) == (path, status)
        assert set(answer.json["error"]) == {"message", "type", "code"}


async def test_a_mode_that_is_none_changes_nothing(served: Served) -> None:
    path = f"/stack/conversations/{served.ours.conversation}/mode"
    for body in (b"", b"{", b'{"mode":"loud"}', b'{"mode":"off","more":1}', b"[]", b"\xff"):
        answer = await served.ask(path, method="PUT", data=body, headers={"content-type": "application/json"})

        assert (body, answer.status, served.changed) == (body, 400, [])


async def test_the_description_names_every_route_and_only_statuses_that_are_answered(served: Served) -> None:
    described = (await served.ask("/stack/openapi.json")).json["paths"]

    assert {(method, path) for method, path in ROUTES} <= {(m.upper(), p) for p, one in described.items() for m in one}
    assert "/health" in described
    managed = [one for path, one in described.items() if not path.startswith("/v1")]
    statuses = {status for one in managed for operation in one.values() for status in operation["responses"]}
    assert statuses == {"200", "202", "400", "401", "403", "404", "409", "429", "500", "503"}


async def test_every_answer_is_described_as_an_object(served: Served) -> None:
    described = (await served.ask("/stack/openapi.json")).json
    told = ((path, one) for path, one in described["paths"].items() if path not in ("/metrics", "/stack/events"))
    operations = [(f"{m} {p}", o) for p, one in told for m, o in one.items()]
    done = [(name, next(told for status, told in o["responses"].items() if status < "300")) for name, o in operations]
    schemas = {name: told["content"]["application/json"]["schema"] for name, told in done}

    assert [name for name, schema in schemas.items() if not ("$ref" in schema or schema["type"] == "object")] == []


async def test_a_method_that_is_not_served_is_told_those_that_are(served: Served) -> None:
    answer = await served.ask(f"/stack/conversations/{served.ours.conversation}", method="PATCH")

    assert (answer.status, answer.json["error"]["message"]) == (405, "This path answers DELETE, GET.")
