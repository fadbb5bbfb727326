"""Bad input on every page of the management API: missing, extra, wrong-typed, huge, hostile. Whatever is sent, the
answer is a sentence that says what to do, in the one shape, and what is refused changes nothing.

The input is made from the description, so a new route is in here by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

from tests.management.api.conftest import Answer, Served
from tests.management.api.pages import Page, pages_of, prepared
from tests.management.api.small_ledger import written

AS_JSON = {"content-type": "application/json"}
LARGEST = 1024 * 1024
LONGEST_ANSWER = 2_000
"""Bytes of a refusal, whatever was sent."""
NO_BODY = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"7",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"9" * 10_000,
    b'{"\\ud83d": 1}',
    b"\x00",
    b"a=b&c=d",
]
"""No page takes these as its body. Deeper than readers go, longer than numbers are."""
WRONG_TYPED: list[Any] = [None, True, 7, -1.5, [], {}, [[]], "", "no such word", "x" * 500_000, ["x"] * 50_000, 10**400]
HOSTILE = [
    "\x00",
    "half a pair \ud83d",
    "\x1b[31mred \u202e",
    "';DROP TABLE entries;--",
    "../../etc/passwd",
    "<script>alert(1)</script>",
    "{{7*7}} ${jndi:ldap://x} %s%n",
    "</stack-context>",
    "\uffff\U0010ffff",
    " \t\n",
    "\u0000\u0000" * 1000,
]
NO_PARAMETER = [
    *("", "-1", "1e999", "nan", "9" * 5_000, "x" * 10_000),
    *(text.encode("utf-8", "replace").decode() for text in HOSTILE),  # an address cannot carry half of a pair
]


async def test_a_body_that_is_none_is_refused_with_a_sentence(served: Served) -> None:
    for page in await pages_with_a_body(served):
        for body in NO_BODY:
            answer = await served.ask(page.filled(served.ours), method=page.method, data=body, headers=AS_JSON)

            assert (page.name, body[:20], answer.status) == (page.name, body[:20], 400)
            assert is_a_sentence(answer), answer.body
        plain = await served.ask(page.filled(served.ours), method=page.method, data=json.dumps(page.how.body))
        assert (page.name, plain.status) == (page.name, 400), "not sent as JSON"
    assert served.changed == []


async def test_members_that_are_missing_or_made_up_are_named(served: Served) -> None:
    described = await description(served)
    for page in await pages_with_a_body(served):
        schema = schema_of(described, page)
        more = await sent(served, page, {**page.how.body, "surprise\ud83d" * 100: "x" * 10_000})
        many = await sent(served, page, {**page.how.body, **{f"m{number}": 1 for number in range(20_000)}})
        assert (page.name, more.status, many.status) == (page.name, 400, 400)
        assert is_a_sentence(more), more.body
        assert is_a_sentence(many), many.body
        for name in schema.get("required", []):
            less = await sent(served, page, {key: value for key, value in page.how.body.items() if key != name})
            assert (page.name, less.status) == (page.name, 400)
            assert name in less.json["error"]["message"]
    assert served.changed == []


async def test_members_of_a_wrong_type_are_no_fault_of_ours(served: Served) -> None:
    """Some are right for some member; then the page answers as ever."""
    described = await description(served)
    for number, page in enumerate(await pages_with_a_body(served)):
        ids = await written(served.store, "key-ours", f"c{number}")
        made = await prepared(served, page, ids, "ours")
        for name in schema_of(described, page)["properties"]:
            for value in [*WRONG_TYPED, *HOSTILE]:
                body = json.dumps({**page.how.body, name: value})
                answer = await served.ask(page.filled(ids, made), method=page.method, data=body, headers=AS_JSON)

                assert answer.status < 500, (page.name, name, value)
                assert answer.status < 400 or is_a_sentence(answer), (page.name, name, answer.body)


async def test_parameters_of_a_query_are_no_way_in(served: Served) -> None:
    described = await description(served)
    for page in (page for page in await pages_of(served) if page.method == "GET"):
        path = page.filled(served.ours).partition("?")[0]
        for name in queried(described, page):
            for value in NO_PARAMETER:
                answer = await served.ask(path, params={"follow": "false", name: value})

                assert answer.status < 500, (page.name, name, value)
                assert answer.status < 400 or is_a_sentence(answer), (page.name, name, answer.body)


def queried(described: Mapping[str, Any], page: Page) -> list[str]:
    """The parameters of a page, less the one without which its answer has no end."""
    parameters = described["paths"][page.path]["get"].get("parameters", [])
    return [each["name"] for each in parameters if each["in"] == "query" and each["name"] != "follow"]


async def test_a_body_that_is_too_large_is_not_read(served: Served) -> None:
    """With its size told before, and without; the sentence says how much is read."""
    for page in await pages_with_a_body(served):
        body = b'{"text": "' + b"x" * LARGEST + b'"}'

        async def in_pieces(body: bytes = body) -> Any:
            for start in range(0, len(body), 65_536):
                yield body[start : start + 65_536]

        for data in (BytesIO(body), in_pieces()):
            answer = await served.ask(page.filled(served.ours), method=page.method, data=data, headers=AS_JSON)
            assert (page.name, answer.status) == (page.name, 413)
            assert is_a_sentence(answer)
            assert str(LARGEST) in answer.json["error"]["message"]
    assert served.changed == []


async def description(served: Served) -> Any:
    return (await served.ask("/stack/openapi.json")).json


async def pages_with_a_body(served: Served) -> list[Page]:
    found = [page for page in await pages_of(served) if page.how.body is not None]
    assert len(found) >= 10
    return found


def schema_of(described: Mapping[str, Any], page: Page) -> Any:
    """What a body is, by the description."""
    operation = described["paths"][page.path][page.method.lower()]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    return described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]


async def sent(served: Served, page: Page, body: Any) -> Answer:
    return await served.ask(page.filled(served.ours), method=page.method, data=json.dumps(body), headers=AS_JSON)


def is_a_sentence(answer: Answer) -> bool:
    """An error in the one shape, in words, and no longer than somebody reads."""
    error = answer.json["error"]
    words = error["message"]
    shape = set(error) == {"message", "type", "param", "code"} and answer.kind == "application/json"
    return shape and " " in words and words.rstrip()[-1:] in ".?!" and len(answer.body) <= LONGEST_ANSWER
