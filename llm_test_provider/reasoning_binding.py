"""Reasoning that is tied to what stood before it, seen from the provider's side. Two checks, both pure.

**Bound** (`seal`, `examine`, `verdict`): an item carries a token that names the head (system text and tools),
everything visible before it, the item before it and what was made with it. A later request is examined item by item.
Requests come in as neutral values, so any wire format can use it.

**Required** (`Required`): over chat completions some vendors demand that `reasoning_content` or the signature of a
call come back with the call they were made with.

Its one law: what is wrong is said by kind, and the kinds mean the same in both modes. `prefix`: something before the
item changed. `gap`: the item it was made behind is not the one before it. `tampered`: token or content are not what
was sent. `orphan`: what was made with it does not follow. The last two are refused in either mode.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from llm_test_provider.answer import JsonObject, ScriptedAnswer
from llm_test_provider.apis.json import mapping, mappings

Kind = Literal["prefix", "gap", "tampered", "orphan"]
Mode = Literal["error", "drop", "none"]
"""What a model does about reasoning that no longer fits: refuse, leave it out and say so, or take no notice."""
ALWAYS_REFUSED: frozenset[Kind] = frozenset({"tampered", "orphan"})
TOKEN_PREFIX = "c2NyaXB0ZWQ6"  # noqa: S105  the beginning of a token, no secret
"""How every token begins. It is base64 too, so that a token looks like any other."""
STAND_IN = "skip_thought_signature_validator"
"""What Gemini accepts as the signature of a call it did not make."""


# ---------------------------------------------------------------------------------------------------------------- bound
@dataclass(frozen=True, slots=True)
class ReasoningItem:
    """One reasoning item as it stands in a request: readable content and opaque token. `path` names its place."""

    content: str
    token: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class BoundRequest:
    """A request as binding sees it: head, then visible parts (bytes, less cache markers) and items, in order."""

    head: bytes
    parts: tuple[bytes | ReasoningItem, ...] = ()


@dataclass(frozen=True, slots=True)
class BindingFault:
    kind: Kind
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found. `last` is the token of the last item that holds, which the next one is sealed behind."""

    faults: tuple[BindingFault, ...] = ()
    held: tuple[ReasoningItem, ...] = ()
    last: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the provider does: refuse with these words, or answer and report what it dropped."""

    refusal: str = ""
    input_transformations: tuple[Mapping[str, str], ...] = ()


def seal(
    secret: bytes, content: str, before: BoundRequest, predecessor: str = "", together: bytes = b""
) -> ReasoningItem:
    """The item a model makes behind `before`. `predecessor` is a token, `together` the part made right after it."""
    bound_to = {
        "prefix": _prefix(before.head, [part for part in before.parts if isinstance(part, bytes)]),
        "behind": _digest(predecessor.encode()) if predecessor else "",
        "with": _digest(together) if together else "",
    }
    return ReasoningItem(content, _token(secret, content, bound_to))


def examine(secret: bytes, request: BoundRequest, known_as: Callable[[bytes], bytes] = bytes) -> Examination:
    """Hold every item of `request` against what stands around it now, oldest first. `known_as` tells what a part is
    known by to the item that was made with it, where that is not all of its bytes."""
    faults: list[BindingFault] = []
    held: list[ReasoningItem] = []
    seen: list[bytes] = []
    first = True
    for position, part in enumerate(request.parts):
        if isinstance(part, bytes):
            seen.append(part)
            continue
        predecessor = None if first else (held[-1].token if held else "")
        visible = next((known_as(other) for other in request.parts[position + 1 :] if isinstance(other, bytes)), b"")
        fault = _fault(secret, part, _prefix(request.head, seen), predecessor, visible)
        first = False
        if fault:
            faults.append(fault)
        else:
            held.append(part)
    return Examination(tuple(faults), tuple(held), held[-1].token if held else "")


def without_foreign_items(request: BoundRequest) -> BoundRequest:
    """The request less the items that another provider made: a model that binds nothing passes over them."""
    return replace(
        request, parts=tuple(p for p in request.parts if isinstance(p, bytes) or p.token.startswith(TOKEN_PREFIX))
    )


WORDS: Mapping[Kind, str] = {
    "prefix": "{path}: The thinking block is bound to a different conversation: {why}",
    "gap": "{path}: The thinking block is bound to a different conversation: {why}",
    "tampered": "{path}: Invalid `signature` in `thinking` block: {why}",
    "orphan": "{path}: reasoning item was provided without its required following item.",
}
"""How the messages API refuses each kind, which has no orphans."""


def verdict_on(found: Examination, mode: Mode, words: Mapping[Kind, str] = WORDS) -> Verdict:
    """`error` refuses at the first fault; `drop` leaves the items out and says so; `none` lets them pass. Hard faults
    are refused in any mode."""
    refused = next((fault for fault in found.faults if mode == "error" or fault.kind in ALWAYS_REFUSED), None)
    if refused is not None:
        return Verdict(words[refused.kind].format(path=refused.path, why=refused.why))
    if mode == "none":
        return Verdict()
    return Verdict(
        input_transformations=tuple(
            {"type": "thinking_dropped", "path": fault.path, "reason": "prefix_binding_mismatch"}
            for fault in found.faults
        )
    )


def _fault(
    secret: bytes, item: ReasoningItem, prefix: str, predecessor: str | None, visible: bytes
) -> BindingFault | None:
    """`predecessor` is `None` for the first item of a request: leaving out from the start is allowed. `visible` is what
    follows."""
    bound_to = _opened(secret, item)
    if bound_to is None:
        return BindingFault("tampered", item.path, "token or content are not what was sent")
    if bound_to["with"] and bound_to["with"] != _digest(visible):
        return BindingFault("orphan", item.path, "what was made with it does not follow")
    if bound_to["prefix"] != prefix:
        return BindingFault("prefix", item.path, "something before it changed")
    if predecessor is not None and bound_to["behind"] != (_digest(predecessor.encode()) if predecessor else ""):
        return BindingFault("gap", item.path, "it was produced behind another item")
    return None


def _token(secret: bytes, content: str, bound_to: Mapping[str, str]) -> str:
    readable = json.dumps(bound_to, sort_keys=True).encode()
    mark = hmac.new(secret, readable + b"\0" + content.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
    return TOKEN_PREFIX + base64.b64encode(mark + readable).decode()


def _opened(secret: bytes, item: ReasoningItem) -> dict[str, str] | None:
    try:
        bound_to: dict[str, str] = json.loads(
            base64.b64decode(item.token.removeprefix(TOKEN_PREFIX), validate=True)[32:]
        )
    except ValueError:
        return None
    genuine = hmac.compare_digest(_token(secret, item.content, bound_to), item.token)
    return bound_to if genuine else None


def _prefix(head: bytes, parts: Sequence[bytes]) -> str:
    running = hashlib.sha256()
    for part in (head, *parts):
        running.update(len(part).to_bytes(8, "big") + part)
    return running.hexdigest()[:32]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


# ------------------------------------------------------------------------------------------------------------- required
Field = Literal["reasoning_content", "thought_signature"]
REQUIRED_FIELDS: tuple[Field, ...] = ("reasoning_content", "thought_signature")
REFUSALS: Mapping[Field, str] = {
    "reasoning_content": "The `reasoning_content` in the thinking mode must be passed back to the API. (messages.{at})",
    "thought_signature": "Function call is missing a thought_signature in functionCall parts. "
    "This is required for tools to work correctly. Function call `{name}`, position {at}.",
}


class RequiredReasoning:
    """What must come back with the calls this provider made. Calls it never made are not checked."""

    def __init__(self) -> None:
        self._given: dict[tuple[Field, str], set[str]] = defaultdict(set)

    def give(self, answer: ScriptedAnswer, fields: Sequence[Field]) -> None:
        """Remember what an answer with numbered calls carries. Ids may repeat; any value given for one is accepted."""
        if not answer.calls:
            return
        if "reasoning_content" in fields and answer.reasoning:
            for call in answer.calls:
                self._given["reasoning_content", call.id].add(answer.reasoning)
        if "thought_signature" in fields:
            first = answer.calls[0]
            self._given["thought_signature", first.id].add(first.signature)

    def refuse(self, messages: Sequence[JsonObject], fields: Sequence[Field]) -> str | None:
        """The provider's words where something required is missing or changed; `None` where all is there."""
        for field in fields:
            for at, message in _messages_in_scope(field, messages):
                for call in mappings(message.get("tool_calls")):
                    given = self._given.get((field, str(call.get("id"))))
                    if given and _carried(field, message, call) not in given | _stand_ins(field):
                        name = mapping(call.get("function")).get("name")
                        return REFUSALS[field].format(at=at, name=name)
        return None


def _messages_in_scope(field: Field, messages: Sequence[JsonObject]) -> Iterator[tuple[int, JsonObject]]:
    """Signatures are wanted in the current turn only, behind the last user message; reasoning in the whole request."""
    users = [at for at, message in enumerate(messages) if message.get("role") == "user"]
    start = users[-1] if users and field == "thought_signature" else 0
    return ((at, message) for at, message in enumerate(messages) if at >= start and message.get("role") == "assistant")


def _carried(field: Field, message: JsonObject, call: Mapping[str, Any]) -> str:
    if field == "reasoning_content":
        return str(message.get("reasoning_content"))
    return str(mapping(mapping(call.get("extra_content")).get("google")).get("thought_signature"))


def _stand_ins(field: Field) -> set[str]:
    return {STAND_IN} if field == "thought_signature" else set()
