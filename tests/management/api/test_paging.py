"""Lists of a tenant come in pages, whatever is stored: one request never reads all there is."""

from typing import Any

from tests.management.api.conftest import Served
from tests.management.api.small_ledger import written

MOST = 1_000
LISTS = {
    "/stack/conversations": "conversations",
    "/stack/requests": "requests",
    "/stack/totals?by=request": "rows",
}
BOUNDED = {"/stack/subagents/stats", "/stack/config", "/stack/search", "/stack/proof"}
"""Beside its figures the first tells those at work, of the newest 1,000; the second has at most 20 patterns; the third
tells the best that were found, 100 at most; the fourth always has the same seven measures."""


async def test_every_list_of_a_tenant_has_a_limit_and_an_offset(served: Served) -> None:
    """From the description, so a new list is in here by itself."""
    described = (await served.ask("/stack/openapi.json")).json
    every = ((path, of.get("get", {})) for path, of in described["paths"].items() if "{" not in path)
    found = [path for path, operation in every if lists(described, operation) and path not in BOUNDED]

    assert {path.partition("?")[0] for path in LISTS} <= set(found)
    for path in found:
        parameters = {each["name"]: each["schema"] for each in described["paths"][path]["get"]["parameters"]}
        assert {"limit", "offset"} <= set(parameters), f"{path} lists without end: let it take Limit and Offset"
        assert parameters["limit"]["maximum"] == MOST
        for query in ("limit=0", f"limit={MOST + 1}", "offset=-1", f"offset={2**70}", "limit=x"):
            assert (query, (await served.ask(f"{path}?{query}")).status) == (query, 400)


def lists(described: Any, operation: Any) -> bool:
    """Whether a page answers an object that has a list in it."""
    answered = operation.get("responses", {}).get("200", {}).get("content", {}).get("application/json", {})
    name = answered.get("schema", {}).get("$ref", "").rpartition("/")[2]
    members = described["components"]["schemas"].get(name, {}).get("properties", {})
    return any(member.get("type") == "array" for member in members.values())


async def test_pages_put_together_are_the_list(served: Served) -> None:
    for number in range(4):
        await written(served.store, "key-ours", f"c{number}")
    for path, name in LISTS.items():
        more = "&" if "?" in path else "?"
        whole = (await served.ask(path)).json[name]
        pages = [(await served.ask(f"{path}{more}limit=2&offset={offset}")).json[name] for offset in (0, 2, 4, 6)]

        assert [len(page) for page in pages] == [2, 2, 1, 0]
        put_together = pages if name != "rows" else reversed(pages)  # totals have the newest at the end
        assert [row for page in put_together for row in page] == whole


async def test_a_page_of_totals_has_the_sum_of_all(served: Served) -> None:
    await written(served.store, "key-ours", "c1")
    whole = (await served.ask("/stack/totals?by=request")).json
    page = (await served.ask("/stack/totals?by=request&limit=1")).json

    assert (len(whole["rows"]), len(page["rows"])) == (2, 1)
    assert page["total"] == whole["total"]
