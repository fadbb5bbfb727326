"""What the responses API remembers: the responses it was allowed to store, their items, and what was made with what.

`Kept.resolve` completes a request that only refers to things, `Kept.keep` takes in an answer, `Kept.answer` serves the
paths below `/responses/`. Its one law: what was answered with `store: false` cannot be referred to; only which
reasoning belongs to an item is known of it, as the real API sees that from the ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from llm_test_provider.answer import ApiError, FixedReply, JsonObject, error_reply
from llm_test_provider.apis.json import encoded, mapping
from llm_test_provider.apis.responses_request import JsonItem, items_of, kind_of
from llm_test_provider.script import ReceivedRequest

MOST_KEPT = 50_000
"""Responses, and items, that are remembered; the oldest go first."""
PATH = re.compile(r"/responses/(?P<id>[^/]+)(?P<rest>/cancel|/input_items)?/?$")


@dataclass(slots=True)
class StoredResponse:
    """One response: as it was given, the input it was asked with, and the items of all turns up to it."""

    response: JsonObject
    asked: list[JsonObject]
    items: list[JsonObject]


class ResponseStore:
    """The memory of one provider."""

    def __init__(self) -> None:
        self._stored: dict[str, StoredResponse] = {}
        self._items: dict[str, JsonObject] = {}
        self._reasoning: dict[str, tuple[str, str]] = {}
        """For an item that was made with reasoning: id and encrypted content of that."""

    # ------------------------------------------------------------------------------------------------------- a request
    def resolve(self, received: ReceivedRequest) -> FixedReply | None:
        """Put in what the request refers to; a refusal where that is not there."""
        body = mapping(received.body)
        previous = body.get("previous_response_id")
        earlier = self._stored.get(str(previous)) if previous else None
        if previous and earlier is None:
            words = f"Previous response with id '{previous}' not found."
            error = ApiError(words, code="previous_response_not_found", param="previous_response_id")
            return error_reply(400, error)
        own = [self._found(item) for item in items_of(body)]
        missing = next((item for item in own if kind_of(item) == "item_reference" or _is_bare(item)), None)
        if missing is not None:
            words = (
                f"Item with id '{missing.get('id')}' not found. Items are not persisted when `store` is set to false."
            )
            return error_reply(404, ApiError(words, param="input"))
        received.items = [*(earlier.items if earlier else ()), *own]
        return None

    def _found(self, item: JsonObject) -> JsonObject:
        """The item itself, or what it stands for as far as that is known."""
        if kind_of(item) == "item_reference" or _is_bare(item):
            return self._items.get(str(item.get("id")), item)
        return item

    def misplaced(self, items: Sequence[JsonItem]) -> str:
        """The refusal of an item that has its id but not the reasoning it was made with; empty where all have it."""
        before: set[str] = set()
        for item in items:
            name = str(item.get("id") or "")
            if kind_of(item) == "reasoning":
                before |= {name, str(item.get("encrypted_content"))}
            elif name in self._reasoning and not before & set(self._reasoning[name]):
                wanted, kind = self._reasoning[name][0], kind_of(item)
                return f"Item '{name}' of type '{kind}' was provided without its required 'reasoning' item: '{wanted}'."
        return ""

    # ------------------------------------------------------------------------------------------------------- an answer
    def keep(self, received: ReceivedRequest, response: JsonObject, output: Sequence[JsonObject]) -> None:
        """Remember an answer: the response as it was given, and its items with all that is in them."""
        made_with: tuple[str, str] | None = None
        for item in output:
            if kind_of(item) == "reasoning":
                made_with = (item["id"], item["encrypted_content"])
            elif made_with:
                self._reasoning[item["id"]] = made_with
        self._forget()
        if received.body.get("store") is False:
            return
        asked = [
            item if item.get("id") else {"id": f"item_{received.chat}_{at}", **item}
            for at, item in enumerate(map(self._found, items_of(received.body)))
        ]
        self._items |= {str(item["id"]): dict(item) for item in (*asked, *output)}
        self._stored[response["id"]] = StoredResponse(response, asked, [*(received.items or ()), *output])

    def _forget(self) -> None:
        """A provider may run for days."""
        for memory in (self._stored, self._items, self._reasoning):
            while len(memory) > MOST_KEPT:
                del memory[next(iter(memory))]

    # ----------------------------------------------------------------------------------------------------- other paths
    def answer(self, method: str, path: str, query: str) -> FixedReply | None:
        """What a path below `/responses/` gives; `None` where this is none."""
        match = PATH.search(path)
        if match is None:
            return None
        stored = self._stored.get(match["id"])
        if stored is None:
            return error_reply(404, ApiError(f"Response with id '{match['id']}' not found."))
        match method, match["rest"]:
            case ("GET", None):
                return _json(stored.response)
            case ("DELETE", None):
                del self._stored[match["id"]]
                return _json({"id": match["id"], "object": "response", "deleted": True})
            case ("GET", "/input_items"):
                return _json(_listed(stored.asked, query))
            case ("POST", "/cancel"):
                return self._cancelled(stored)
            case _:
                return None

    def _cancelled(self, stored: StoredResponse) -> FixedReply:
        if not stored.response["background"]:
            return error_reply(400, ApiError("Cannot cancel a synchronous response."))
        stored.response |= {"status": "cancelled", "output": []}
        return _json(stored.response)


def _is_bare(item: Mapping[str, Any]) -> bool:
    """Reasoning without its content, which only its id can lead to."""
    return kind_of(item) == "reasoning" and not item.get("encrypted_content")


def _listed(items: Sequence[JsonObject], query: str) -> JsonObject:
    """A page of items: newest first unless asked otherwise, 20 unless asked otherwise."""
    asked = {name: values[-1] for name, values in parse_qs(query).items()}
    ordered = list(items) if asked.get("order") == "asc" else list(reversed(items))
    names = [item["id"] for item in ordered]
    start = names.index(asked["after"]) + 1 if asked.get("after") in names else 0
    limit = asked.get("limit", "")
    page = ordered[start : start + (int(limit) if limit.isdecimal() else 20)]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + len(page) < len(ordered),
    }


def _json(value: JsonObject) -> FixedReply:
    return FixedReply(200, encoded(value))
