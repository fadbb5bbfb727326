"""The whole proxy against its own description: whatever may be asked by it, and much that may not, is answered as it
says; nothing is a fault of ours.

The requests are generated from the description that the running proxy gives, so a new route is in here by itself. They
are the same in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import ScriptedProvider, calls, says
from proxy.config.model import Config
from tests.harness import does, pop, push
from tests.wire.proxied import ServedProxy
from tests.wire.talking import ask, body_of

EXAMPLES = 8
"""Requests to each operation for each kind of id and each kind of data: some 1,300, in 15 to 30 seconds."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
SLOTS = ("conversation", "frame", "request", "name", "message")


@dataclass(frozen=True)
class Filled:
    """A proxy with work of two tenants in it. `ids` are real ones, by their name in a path."""

    origin: str
    keys: dict[str, str]
    ids: dict[str, str]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    data = tmp_path_factory.mktemp("openapi") / "data"
    file = Config(data=data).keys_path
    keys = {who: issue_key(file, who, admin=who == "admin") for who in ("first", "second", "admin")}
    with (
        ScriptedProvider() as provider,
        ServedProxy(provider.url, data, tenancy="key", api_requests_per_minute=0) as proxy,
    ):
        worked(provider, proxy.origin, keys["second"])
        ids = worked(provider, proxy.origin, keys["first"])
        yield Filled(proxy.origin, keys, ids)


def worked(provider: ScriptedProvider, origin: str, key: str) -> dict[str, str]:
    """A conversation with a frame that ended, one that goes on, a loop, a checkpoint and a message that waits."""
    headers = {"authorization": f"Bearer {key}"}
    body: dict[str, Any] = body_of(f"add login for {key[-6:]}", awake=True)
    provider.will(
        does(push("Auth")),
        *[calls("read_file", path="a") for _ in range(4)],
        does(pop("It works.")),
    )
    provider.will(does(push("Docs")), says("begun"))
    for _ in range(4):
        told = ask(origin, body, headers=headers)
        made = told.json["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": made["tool_calls"][0]["id"], "content": "the same file"}
        body["messages"] += [made, result]
    last = ask(origin, body, headers=headers)
    assert (last.status, last.text) == (200, "begun")
    here = f"/stack/conversations/{last.conversation}"
    point = ask(origin, {"name": "point"}, path=f"{here}/checkpoints", headers=headers)
    waits = ask(origin, {"text": "use tabs"}, path=f"{here}/messages", headers=headers)
    assert (point.status, waits.status) == (200, 202)
    frame = last.header("x-stack-frame")
    found = (last.conversation, frame, last.request, "point", waits.json["id"])
    return dict(zip(SLOTS, found, strict=True))


@pytest.mark.long
def test_every_answer_is_as_described(filled: Filled) -> None:
    url = f"{filled.origin}/stack/openapi.json"
    described = requests.get(url, headers={"x-stack-key": filled.keys["admin"]}, timeout=10).json()
    described["paths"] = {path: of for path, of in described["paths"].items() if not path.startswith("/v1")}
    schema = schemathesis.openapi.from_dict(described)
    operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    assert len(operations) == sum(len(of) for of in described["paths"].values())

    with requests.Session() as session:
        # What deletes is asked last, or there would soon be nothing left to ask about.
        for operation in sorted(operations, key=lambda each: each.method.upper() == "DELETE"):
            slots = {slot: filled.ids[slot] for slot in SLOTS if f"{{{slot}}}" in operation.path}
            for known in [slots, {}] if slots else [{}]:
                for mode in modes(operation, known):
                    examined(
                        filled, session, operation.as_strategy(generation_mode=mode, path_parameters=known or None)
                    )


def modes(operation: APIOperation[Any, Any, Any, Any], known: dict[str, str]) -> list[GenerationMode]:
    """What is as described, and what is not, where there is anything that could be otherwise."""
    free = [*operation.query, *operation.body, *(() if known else operation.path_parameters)]
    return [GenerationMode.POSITIVE, *([GenerationMode.NEGATIVE] if free else [])]


def examined(filled: Filled, session: requests.Session, cases: st.SearchStrategy[Case[Any]]) -> None:
    """Send some of these requests, each with the key of one who sees what is asked for, or of one who does not."""

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, key=st.sampled_from([filled.keys[who] for who in ("first", "admin", "second")]))
    def sent(case: Case[Any], key: str) -> None:
        if case.path == "/stack/events":
            case.query = {**(case.query or {}), "follow": "false"}  # else it never ends
        told = case.call(filled.origin, session=session, headers={"x-stack-key": key}, timeout=10)
        case.validate_response(told, checks=CHECKS)

    sent()
