"""Reads what a request of a limited key asks for: its endpoint, its model, and what it may cost at most.

What is checked here is what is sent. So a request that another program could read differently is refused (a member
that comes twice, or in another letter case), and with a list of models only paths and members pass of which is known
where they name a model. Raises ModelNotAllowed and NotCounted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal
from urllib.parse import parse_qsl

from proxy.auth.budgets import UsageLimits
from proxy.auth.tenancy import Headers
from proxy.core.word_lists import read_table
from proxy.dialects import raw_json
from proxy.errors import ModelNotAllowed, NotCounted, ProxyError

EndpointKind = Literal["generates", "free", "other"]
"""Whether a model writes or embeds there, whether nobody pays for it, or neither is known."""

_PREFIX = r"(?:/(?:openai|anthropic|api|compatible-mode))?(?:/v\d+(?:beta)?)?"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._~:@-]*"
_GENERATING = re.compile(
    rf"{_PREFIX}(?:/(?:chat/completions|messages|responses|responses/compact|completions|embeddings)"
    rf"|/deployments/(?P<deployment>{_NAME})/(?:chat/completions|completions|embeddings))/?"
)
_FREE_POSTS = re.compile(
    rf"{_PREFIX}/(?:messages/count_tokens|responses/input_tokens|responses/{_NAME}/cancel"
    rf"|(?:messages/)?batches/{_NAME}/cancel|files|conversations(?:/{_NAME}(?:/items)?)?)/?"
)
_LOOKS = re.compile(
    rf"{_PREFIX}/(?:models(?:/{_NAME}(?:(?:/|%2[Ff]){_NAME}){{0,2}})?"
    rf"|responses/{_NAME}(?:/input_items)?|files(?:/{_NAME}(?:/content)?)?"
    rf"|(?:messages/)?batches(?:/{_NAME}(?:/results)?)?|conversations/{_NAME}(?:/items(?:/{_NAME})?)?"
    rf"|key|credits|generation|chat/completions(?:/{_NAME}(?:/messages)?)?)/?"
)
_COMPRESS = "/v1/compress"
_RETRIEVE = re.compile(rf"/v1/retrieve/{_NAME}")
"""With `_COMPRESS` the proxy's own: nothing is sent upstream."""
LOOKING_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
"""With them a client looks or clears away; no model answers, as long as there is no body."""
FILE_ENDPOINTS = re.compile(rf"{_PREFIX}/files/?")
"""Their bodies are forms, and name no model."""

MODEL = "model"
OTHER_MODEL_MEMBERS = frozenset(
    {"models", "route", "fallbacks", "fallback", "fallback_models", "engine", "extra_body", "plugins", "deployment"}
)
"""By these a gateway takes another model than the one that `model` names."""
_MEMBERS_BY_API = read_table(__package__, "known_members.toml", dict[str, str])
KNOWN_MEMBERS = frozenset(" ".join(_MEMBERS_BY_API.values()).split())
"""Members whose meaning is known: none of them names a model, but what `tools` and `prompt` hold. Others pass if their
value is a number or a truth value."""
TEXT_MEMBERS = frozenset(
    {"messages", "input", "system", "instructions", "metadata", "tools", "functions", "prompt", "suffix", "stop"}
    | {"response_format", "text", "items", "client_metadata", "output_format", "format", "guided_json"}
    | {"chat_template_kwargs"}
)
"""Not searched for names of models: they hold words and schemas. `tools` and `prompt` are looked at by themselves."""
_NAMING = re.compile(r"model|fallback|engine|deployment|extra_?body|plugins", re.IGNORECASE)
"""In the name of a member, a parameter or a header whose text names a model."""
FUNCTION_TYPES = ("function", "custom")
_TOOLS_WITHOUT_A_MODEL = re.compile(
    r"search|fetch|code_|computer|bash|shell|apply_patch|text_edit|memory|mcp|namespace|date|browser|retrieval|url_|library"
)
"""In the types of hosted tools that run no model. Any other one has to name a model of the list."""
OUTPUT_MEMBERS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
DEARER_MEMBERS = {
    "service_tier": ("auto", "default", "flex", "batch", "standard", "standard_only"),
    "speed": ("standard",),
}
"""Members by which a request costs more than its model's price, with the values for which it does not."""
COUNT_MEMBERS = ("n", "best_of")
MAX_ANSWERS = 1_000
MEMBERS_OF_COST = frozenset({MODEL, *OUTPUT_MEMBERS, *COUNT_MEMBERS, "background", "stream", *OTHER_MODEL_MEMBERS})


@dataclass(frozen=True)
class LimitedRequest:
    """A request of a key with limits. `path` is raw, as it is sent; `body` is decompressed."""

    method: str
    path: str
    query: bytes
    body: bytes
    headers: Headers = ()

    @property
    def looks(self) -> bool:
        """Whether the client only looks or clears away."""
        return self.method in LOOKING_METHODS and not self.body

    @property
    def kind(self) -> EndpointKind:
        if self.looks:
            return "free"
        if self.method == "POST" and _GENERATING.fullmatch(self.path):
            return "generates"
        is_free = self.is_answered_here or _FREE_POSTS.fullmatch(self.path)
        return "free" if self.method == "POST" and is_free else "other"

    @property
    def is_answered_here(self) -> bool:
        """Whether the proxy itself answers."""
        return self.path == _COMPRESS or bool(_RETRIEVE.fullmatch(self.path))

    @property
    def cancels(self) -> bool:
        return self.kind == "free" and self.path.rstrip("/").endswith("/cancel")

    @property
    def deployment(self) -> str:
        """The deployment that the path names, as on Azure; or empty."""
        found = _GENERATING.fullmatch(self.path)
        return (found["deployment"] or "") if found else ""

    @cached_property
    def members(self) -> Mapping[str, bytes]:
        """Of the body; empty where it is no JSON object."""
        try:
            return raw_json.members(self.body) if self.body else {}
        except raw_json.JsonSplitError:
            return {}

    @property
    def model(self) -> str | None:
        named = self.value(MODEL)
        return named if isinstance(named, str) else None

    @property
    def runs_in_background(self) -> bool:
        """Also where it says so in another way than the API asks for: some servers read "true" and 1 as true."""
        return self.value("background") not in (None, False)

    def value(self, name: str) -> Any:
        """The value of a member; None if it is missing or no parser takes it."""
        try:
            return raw_json.parse(self.members.get(name, b"null"))
        except raw_json.JsonSplitError:
            return None

    @property
    def answer_count(self) -> int:
        """So many answers are asked for."""
        return min(MAX_ANSWERS, max(1, *(_count_of(self.value(name)) for name in COUNT_MEMBERS)))

    @property
    def most_output(self) -> int | None:
        """Tokens that the client allows for one answer; None where it names no bound that its API knows."""
        known = OUTPUT_MEMBERS[2:] if "/responses" in self.path else OUTPUT_MEMBERS[:2]
        known = OUTPUT_MEMBERS[:1] if self.path.rstrip("/").endswith("/messages") else known
        bounds = [value for name in known if type(value := self.value(name)) is int and value > 0]
        return max(bounds) if bounds else None


def _count_of(value: object) -> int:
    """Some servers read 5.0 and "5" as 5."""
    try:
        return int(float(value)) if isinstance(value, int | float | str) else 1
    except (ValueError, OverflowError):
        return 1


# ----------------------------------------------------------------------------------------------------- lists of models
def check_models(limits: UsageLimits, asked: LimitedRequest, holder: str) -> None:
    """Raises ModelNotAllowed unless every model that the request can reach is on the list. `holder` is `key` or
    `user`."""
    check = _ListCheck(limits.models, holder)
    for name, value in parse_qsl(asked.query.decode("latin-1").replace(";", "&"), keep_blank_values=True):
        if _NAMING.search(name):
            check.allow(value)
    check.headers(asked.headers)
    if asked.looks:
        if not (_LOOKS.fullmatch(asked.path) or (asked.method == "GET" and _RETRIEVE.fullmatch(asked.path))):
            raise check.error("this path is not one of those that are known to run no model")
        return
    if asked.method in LOOKING_METHODS:
        raise check.error(f"a {asked.method} with a body may be read as a request to a model; send it without one")
    if asked.kind == "other":
        raise check.error("this endpoint is not one of those where it is known which model answers")
    if FILE_ENDPOINTS.fullmatch(asked.path) or (asked.kind == "free" and not asked.body):
        return
    _refuse_ambiguous_members(asked, check.error)
    needs_model = asked.kind == "generates" or asked.path.rstrip("/").endswith("_tokens") or asked.path == _COMPRESS
    if needs_model or MODEL in asked.members:
        check.allow(asked.model)
    if asked.deployment:
        check.allow(asked.deployment)
        _refuse_other_deployment(asked, check.error)
    if not asked.is_answered_here:  # of whose members no other names a model
        check.members(asked)


class _ListCheck:
    def __init__(self, patterns: tuple[str, ...], holder: str) -> None:
        self._patterns = patterns
        self._holder = holder

    def error(self, why: str) -> ProxyError:
        return ModelNotAllowed(
            f"This {self._holder} may ask for {', '.join(self._patterns)}; {why}. Whoever runs this proxy can "
            f"change the list with `callstack {self._holder} limit`."
        )

    def allow(self, model: str | None) -> None:
        if model is None:
            raise self.error("the request names no model")
        if not any(fnmatchcase(model, pattern) for pattern in self._patterns):
            raise self.error(f"the request asks for {model[:80]!r}")

    def headers(self, headers: Headers) -> None:
        """Gateways take models from headers too, some of them from JSON there."""
        for name, value in headers:
            if _NAMING.search(name.decode("latin-1")):
                self.allow(value.decode("latin-1"))
            elif value.strip()[:1] == b"{":
                self._named_in(value.strip())

    def members(self, asked: LimitedRequest) -> None:
        for name, raw in asked.members.items():
            if name in OTHER_MODEL_MEMBERS and raw != b"null":
                raise self.error(f"by its member {name!r} another model may answer; leave it out")
            if name not in KNOWN_MEMBERS and raw[:1] not in b"-0123456789tfn":
                raise self.error(f"its member {name[:60]!r} may name another model; leave it out")
            if name not in TEXT_MEMBERS and name != MODEL:
                self._named_in(raw)
        prompt = asked.members.get("prompt", b"null")
        if prompt != b"null" and ("/responses" in asked.path or prompt[:1] == b"{"):
            raise self.error("a stored prompt may name another model; send the text of the prompt instead")
        try:
            if (tools := asked.members.get("tools", b"null")) != b"null":
                self._tools(tools)
            for name in ("input", "messages"):
                self._added_tools(asked.members.get(name, b""))
        except (raw_json.JsonSplitError, RecursionError):
            raise self.error("the tools of the request cannot be read") from None

    def _added_tools(self, raw: bytes) -> None:
        """Tools that items and messages bring, also in their blocks."""
        for item in raw_json.items(raw) if raw[:1] == b"[" else ():
            for name, value in raw_json.all_members(item) if item[:1] == b"{" else ():
                if name == "tools" and value[:1] == b"[":
                    self._tools(value)
                elif name == "definition":
                    self._tool(value)
                elif name in ("content", "tool"):
                    self._added_tools(value if value[:1] == b"[" else b"[%b]" % value)

    def _tools(self, raw: bytes) -> None:
        for tool in raw_json.items(raw):
            self._tool(tool)

    def _tool(self, raw: bytes) -> None:
        members = [(name.strip().casefold(), value) for name, value in raw_json.all_members(raw)]
        by_name = dict(members)
        if len(by_name) != len(members):
            raise self.error("a tool of the request has a member twice, and it is not known which of them counts")
        kind = raw_json.parse(by_name.get("type", b"null"))
        if kind is None or kind in FUNCTION_TYPES:
            return
        named = False
        for name, value in members:
            if name == "tools" and value[:1] == b"[":  # a namespace
                self._tools(value)
            else:
                named = self._named_in(raw_json.join_object({name: value})) or named
        if not named and not _TOOLS_WITHOUT_A_MODEL.search(str(kind).lower()):
            raise self.error(f"the tool {str(kind)[:60]!r} may run a model of its own; name one of the list in it")

    def _named_in(self, raw: bytes) -> bool:
        """Whether a value names a model, at any depth. Each must be on the list."""
        try:
            named = list(_models_in(raw))
        except (raw_json.JsonSplitError, RecursionError):
            raise self.error("a part of the request cannot be read, and may name another model") from None
        for model in named:
            self.allow(model)
        return bool(named)


def _models_in(raw: bytes) -> Iterator[str]:
    """Names of models at any depth of a value. Of members with the same name each counts: servers differ in which they
    take."""
    if raw[:1] == b"[":
        for item in raw_json.items(raw):
            yield from _models_in(item)
    elif raw[:1] == b"{":
        for name, inner in raw_json.all_members(raw):
            if _NAMING.search(name):
                said = raw_json.parse(inner)
                yield from (each for each in (said if isinstance(said, list) else [said]) if isinstance(each, str))
            yield from _models_in(inner)


def _refuse_ambiguous_members(asked: LimitedRequest, error: Callable[[str], ProxyError]) -> None:
    """Of a member that comes twice one program takes the first, another the last; some read `Model` as `model`."""
    try:
        names = [name for name, _ in raw_json.all_members(asked.body)]
    except raw_json.JsonSplitError:
        raise error("its body is no JSON object that can be read here, so it is not known what it asks for") from None
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise error(f"the request has the member {name[:60]!r} twice, and it is not known which of them counts")
        seen.add(name)
        folded = name.strip().casefold()
        if folded != name and folded in MEMBERS_OF_COST:
            raise error(f"the request has the member {name[:60]!r}, which some programs read as {folded!r}")


def _refuse_other_deployment(asked: LimitedRequest, error: Callable[[str], ProxyError]) -> None:
    if MODEL in asked.members and asked.model != asked.deployment:
        raise error(f"the path names {asked.deployment!r}, and the body another model; name the same in both")


# -------------------------------------------------------------------------------------------------------------- budgets
def check_countable(limits: UsageLimits, asked: LimitedRequest, holder: str) -> None:
    """Raises NotCounted for a request whose cost nobody here could count against a budget."""

    def error(why: str) -> ProxyError:
        return NotCounted(f"This {holder} has a budget, and what this request costs cannot be counted here: {why}.")

    if asked.looks:
        return
    if asked.method in LOOKING_METHODS:
        raise error(f"a {asked.method} with a body may be read as a request to a model; send it without one")
    if asked.kind == "other":
        raise error(
            "batches, images, sounds and endpoints that are not known here tell their figures elsewhere or not at all. "
            "Use chat completions, messages, responses, completions or embeddings, or a key without a budget"
        )
    if FILE_ENDPOINTS.fullmatch(asked.path) or not asked.body:
        return
    _refuse_ambiguous_members(asked, error)
    if asked.deployment:
        _refuse_other_deployment(asked, error)
    if limits.usd is not None:
        for name in sorted(OTHER_MODEL_MEMBERS & asked.members.keys()):
            raise error(f"by the member {name!r} another model may answer, at another price; leave it out")
        for name, values in DEARER_MEMBERS.items():
            if (said := asked.value(name)) is not None and said not in values:
                raise error(f"with {name} {str(said)[:60]!r} a model costs more than its price; leave it out")
