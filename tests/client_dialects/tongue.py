"""What a tongue is: all that a scripted client and the judge need to speak one wire format.

Scenarios are told in one neutral form, that of chat completions. A `Tongue` is a client's side of one dialect: it
writes a neutral request as a real client of that API does, and reads the answer as strictly as the strictest of them.
For the judge it tells what left for the provider in the neutral form again.

The law: **nothing of the proxy is used here**, so that no mistake can be shared with it. What is told of a request
keeps its bytes: a message told in the neutral form has a member `written`, the bytes it came as (cache markers, which
belong to a request, and the space between members left out), and `reasoning`, which is what may be left out of it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from tests.laws import elements, members

Json = dict[str, Any]
JOINT = "\n\n"
"""Between the texts of an answer that came in several blocks or items."""
AS_CLIENTS_DO = (",", ":")
"""Clients of the newer APIs send compact JSON."""
ONLY_CHAT = ("stream_options",)
"""Members of a chat request that have no counterpart."""


@dataclass(frozen=True)
class ClientAnswer:
    """An answer as a client took it: the neutral message, and `made`, what the API itself calls it, beside it. `ended`
    says that it came to a regular end; finishes are in the words of chat completions."""

    message: Json
    finishes: list[str] = field(default_factory=list)
    usage: Json | None = None
    ended: bool = False


class TestDialect(ABC):
    """One dialect, by the name the proxy has for it."""

    name: str
    short: str
    path: str
    headers: Mapping[str, str] = MappingProxyType({})
    opening: int
    """Events of a stream before its first words."""
    terminator: bytes
    """What stands once at the end of a stream that ends regularly, and nowhere else."""
    signs: bool = False
    """Its reasoning is signed, so it may be left out of a history for any model."""

    # ------------------------------------------------------------------------------------------------------ the client
    @abstractmethod
    def body(self, asked: Json) -> bytes:
        """The body of a neutral request."""

    @abstractmethod
    def plain(self, answer: Json) -> ClientAnswer:
        """An unstreamed answer."""

    @abstractmethod
    def streamed(self, events: Sequence[Json]) -> ClientAnswer:
        """A streamed one, perhaps without its end. Raises AssertionError where no event may stand as it does."""

    # ------------------------------------------------------------------------------------------------------- the judge
    @abstractmethod
    def neutral(self, body: bytes) -> bytes:
        """The chat request that says the same as a body."""

    @abstractmethod
    def kept(self, wire: str) -> Iterable[str]:
        """A stored message as the messages of `neutral`."""

    def breaches(self, asked: bytes, left: bytes) -> Iterator[str]:
        """What this API forbids beyond the laws in a body that left for the client's."""
        yield from ()


@lru_cache(maxsize=2048)
def neutral(tongue: TestDialect, body: bytes) -> bytes:
    """The same as `tongue.neutral`, once for each body: a line is looked at many times."""
    return tongue.neutral(body)


def parted(asked: Json, otherwise: Collection[str]) -> tuple[list[Json], list[Json], Json]:
    """A neutral request as a client takes it apart: the system messages at its head, the messages behind them, and its
    other members, less those that are told `otherwise` or not at all."""
    rest = {name: value for name, value in asked.items() if name not in (*ONLY_CHAT, *otherwise)}
    said = list(rest.pop("messages"))
    head = list(takewhile(lambda message: message["role"] == "system", said))
    return head, said[len(head) :], rest


# ---------------------------------------------------------------------------------------------- text as it was written
def object_in(raw: str, *, but: Sequence[str] = ()) -> str:
    """An object with its members as they were written, less some of them."""
    kept = (f"{json.dumps(name)}:{value}" for name, value in members(raw).items() if name not in but)
    return "{" + ",".join(kept) + "}"


def elements_in(fields: Mapping[str, str], name: str) -> list[str]:
    """The elements of an array among the members; none where it is absent, or no array."""
    return elements(fields[name]) if fields.get(name, "").startswith("[") else []


def value_in(fields: Mapping[str, str], name: str) -> Any:
    return json.loads(fields.get(name, "null"))


def call(id_: str, name: str, arguments: str) -> Json:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def told(role: str, text: str, written: str, **more: Any) -> Json:
    """A neutral message of the judge."""
    return {"role": role, "content": text, "written": written, **more}


def answer(
    texts: Iterable[str],
    calls: Sequence[Json],
    written: Iterable[str],
    thoughts: Iterable[str],
    reasoning: Sequence[str],
) -> Json:
    """A neutral answer of the judge. `reasoning` is what of it may be left out, `thoughts` are the words of that."""
    more: Json = {"tool_calls": calls} if calls else {}
    if reasoning:
        more |= {"reasoning_content": JOINT.join(thoughts), "reasoning": reasoning}
    return told("assistant", JOINT.join(texts), ",".join(written), **more)


def offered(name: str, written: str) -> Json:
    """A neutral tool of the judge."""
    return {"type": "function", "function": {"name": name}, "written": written}


def request(fields: Mapping[str, str], messages: Sequence[Json], tools: Sequence[Json]) -> bytes:
    """A neutral request of the judge."""
    model = value_in(fields, "model")
    return json.dumps({"model": model, "messages": messages, "tools": tools}, ensure_ascii=True).encode()


def spoken(texts: Iterable[str], thoughts: Iterable[str], calls: Sequence[Json], made: Sequence[Json]) -> Json:
    """A neutral answer as a client keeps it; `made` is what the API itself calls it."""
    message: Json = {"role": "assistant", "content": JOINT.join(texts), "made": list(made)}
    if thought := JOINT.join(thoughts):
        message["reasoning_content"] = thought
    if calls:
        message |= {"tool_calls": list(calls), "content": message["content"] or None}
    return message


def input_of(arguments: str) -> Any:
    """Arguments as a value; text that no parser takes stays a text."""
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments
