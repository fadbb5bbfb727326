"""Every setting of the proxy: one frozen model, each field explained beneath it.

The law: **what a `Config` holds is allowed**; a value that is not is refused when one is made. `proxy.yaml` at the
project's root is this page as a file; a test holds the two together. How settings are read from flags, the environment
and that file is told by `config_sources`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from proxy.stack.economics import Prices
from proxy.stack.observe.names import NAMES
from proxy.stack.observe.names import Names as ToolNames
from proxy.tariffs import UNKNOWN, AfterTool, Appendable, Binding, ConfiguredRow, Tariff, Tariffs, ThinkingInLoop

Mode = Literal["off", "shadow", "passive", "active"]
Tenancy = Literal["single", "key", "credential"]
Spoken = Literal["chat", "messages", "responses"]
"""Dialects, as the configuration names them."""


def _listed(value: object) -> object:
    """`a, b` as written in a flag or the environment, as a list; anything else is left for the field to judge."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True, validate_default=True
    )


class UpstreamSettings(_Model):
    """One provider, and how it is reached."""

    kind: Literal["http", "litellm"] = "http"
    """`http`: a URL that gets what the client sends. `litellm`: any provider that litellm knows, asked through it
    (`pip install 'callstack-proxy[litellm]'`)."""

    url: str = ""
    """Base URL as the provider prints it, with or without `/v1`: `https://api.openai.com/v1`.
    With `litellm` only where the provider's own is not meant."""

    speaks: Annotated[tuple[Spoken, ...], BeforeValidator(_listed)] = get_args(Spoken)
    """Dialects it is asked in; a request in another one goes to an upstream that has it."""

    key: SecretStr | None = None
    """The operator's key; replaces whatever the client sent. `env:NAME` reads it from the environment.
    Without it the client's own key passes; with `litellm` that stays here, and what litellm finds by itself counts."""

    key_header: Literal["authorization", "x-api-key", "api-key"] = "authorization"
    """The header the operator's key travels in; `authorization` sends it as `Bearer`, `x-api-key` is Anthropic's."""

    models: Names = ()
    """Model names or globs (`gpt-*`) served here. Empty: whatever no other upstream names."""

    aliases: dict[str, str] = {}
    """Name the client asks for -> name sent to this upstream. An alias is also a name served here."""

    model_prefix: str = ""
    """Put before names that have no alias when they are sent: `anthropic/`, `gemini/`, `bedrock/`."""

    options: dict[str, Any] = {}
    """Arguments for every call of litellm: `aws_region_name: eu-west-1`."""

    connect_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds to open a connection."""

    idle_timeout_s: float = Field(default=300.0, gt=0)
    """Seconds without a byte of the answer, before its first byte and between any two."""

    proxy: str | None = None
    """HTTP proxy to leave through: `http://proxy.internal:3128`. The environment's proxy variables are not read."""

    ca_file: Path | None = None
    """Certificates to trust instead of the system's, as a PEM file."""

    verify: bool = True
    """Check the upstream's certificate. `false` is for a test bench."""

    def serves(self, model: str) -> bool:
        """Whether `models` has it, by name or glob."""
        return any(model == name or fnmatchcase(model, name) for name in self.models)

    def sent_as(self, model: str) -> str:
        """The provider's name for a model that goes here."""
        own = self.aliases.get(model)
        return own or (model if model.startswith(self.model_prefix) else self.model_prefix + model)

    @field_validator("url", "proxy")
    @classmethod
    def _plain_http_url(cls, value: str | None, told: ValidationInfo) -> str | None:
        if not value:
            if told.field_name == "url" and told.data.get("kind") == "http":
                raise ValueError("is required")
            return value
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("must be an http:// or https:// URL")
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError("must not carry a query, a fragment or a password")
        return value

    @field_validator("speaks")
    @classmethod
    def _something_spoken(cls, value: tuple[Spoken, ...]) -> tuple[Spoken, ...]:
        if not value:
            raise ValueError(f"must name one of {', '.join(get_args(Spoken))}")
        return value

    @field_validator("key_header", "proxy", "ca_file", "verify")
    @classmethod
    def _for_a_url(cls, value: object, told: ValidationInfo) -> object:
        if told.data.get("kind") == "litellm" and value not in ("authorization", None, True):
            raise ValueError("is for kind http; litellm goes by HTTPS_PROXY and SSL_CERT_FILE in the environment")
        return value

    @field_validator("options")
    @classmethod
    def _for_litellm(cls, value: dict[str, Any], told: ValidationInfo) -> dict[str, Any]:
        if value and told.data.get("kind") == "http":
            raise ValueError("are for kind litellm")
        return value

    @model_validator(mode="after")
    def _says_what_is_served(self) -> UpstreamSettings:
        if self.kind == "litellm" and not (self.models or self.aliases or self.model_prefix):
            raise ValueError(
                "needs models, aliases or model_prefix: the name of a model chooses the provider in litellm, "
                "and that is not the client's to choose"
            )
        return self


class ObservedTool(_Model):
    """A client's tool and what it is for."""

    role: str
    """read, write, edit, delete, move, editor, patch, shell, plan, item_create, item_update, goal; or none."""

    arguments: Names = ()
    """Arguments that hold what the role is about, before the usual ones."""


class ModelSettings(_Model):
    """What one model does differently. The name in the key may be a glob; an exact name goes first."""

    mode: Mode | None = None
    """Overrides `mode` for this model."""

    upstream: str | None = None
    """Name of the upstream that serves it."""

    alias: str | None = None
    """Name sent upstream instead of the one the client asked for."""


_NOTHING_ELSE = ModelSettings()

Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=1)]


class TariffSettings(_Model):
    """Prices, cache rules, window and traits of models. The defaults are those of a model nobody knows."""

    input: Price = UNKNOWN.input
    """USD per million input tokens."""

    output: Price | None = UNKNOWN.output
    """USD per million output tokens; null: not known, output then costs nothing in any sum, and receipts say so."""

    read: Price = UNKNOWN.read
    """What a cached token costs, as a multiple of `input`: 0.1."""

    write: Price = UNKNOWN.write
    """What a newly cached token costs, as a multiple of `input`: 1.25."""

    minimum: int = Field(default=UNKNOWN.minimum, ge=0)
    """Tokens from which a prefix is cached."""

    step: Tokens = UNKNOWN.step
    """Cached tokens are a multiple of this."""

    ttl_s: Tokens = UNKNOWN.ttl_s
    """Seconds a cached prefix lives after its last use."""

    window: Tokens = UNKNOWN.window
    """Tokens the model can hold."""

    max_output: Tokens = UNKNOWN.max_output
    """Tokens it can answer with."""

    binding: Binding = UNKNOWN.binding
    """What happens to reasoning whose prefix changed: `none`, `drop` (it is dropped) or `error` (it is refused)."""

    after_tool: AfterTool = UNKNOWN.after_tool
    """`message`: a user message may stand behind tool results. `suffix`: it must be appended to the last one."""

    thinking_in_loop: ThinkingInLoop = UNKNOWN.thinking_in_loop
    """`required`: inside a tool loop the last assistant message must open with its reasoning."""

    required: Names = UNKNOWN.required
    """Fields that must come back with the calls they were made with: `thought_signature`."""

    append: Annotated[tuple[Appendable, ...], BeforeValidator(_listed)] = UNKNOWN.append
    """What can be added in mid-conversation without touching the prefix: `system`, `tools`."""

    @model_validator(mode="after")
    def _room_for_a_question(self) -> TariffSettings:
        if {"window", "max_output"} <= self.model_fields_set and self.max_output >= self.window:
            raise ValueError("max_output must be smaller than window")
        return self


class TariffRow(TariffSettings):
    """A row before the built-in table. What it leaves out is as the built-in row of the model has it, else as
    `default_tariff`."""

    names: Names = ()
    """Models this is the row of, as names or globs (`llama-3*`, `openrouter/*`). Empty: the row's own key is the name.
    The longest name that fits wins; of two as long, one written here beats a built-in one."""

    as_of: date | None = None
    """The day the prices were seen: 2026-11-21."""

    @field_validator("names")
    @classmethod
    def _as_looked_up(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(name.strip() for name in value):
            raise ValueError("a name must not be empty")
        return tuple(name.strip().lower() for name in value)

    @model_validator(mode="after")
    def _something_said(self) -> TariffRow:
        if self.model_fields_set <= {"names", "as_of"}:
            raise ValueError("says nothing of the model; set a price, a window or a trait")
        return self


class Budgets(_Model):
    """Token budgets of the frame block. `total` bounds the whole of it, the rest are shares inside."""

    total: int = Field(default=4000, ge=100)
    """The whole block. Also `STACK_TOKEN_BUDGET_TOTAL`."""

    ancestors: int = Field(default=1500, ge=0)
    """The frames above the active one. Also `STACK_TOKEN_BUDGET_ANCESTORS`."""

    siblings: int = Field(default=1500, ge=0)
    """Finished frames beside the path. Also `STACK_TOKEN_BUDGET_SIBLINGS`."""

    current: int = Field(default=800, ge=0)
    """The active frame: criteria, plan, artifacts, decisions. Also `STACK_TOKEN_BUDGET_CURRENT`."""


class SummarySettings(_Model):
    """The optional summariser. It is off as long as no model is named."""

    model: str = ""
    """Model that writes summaries of what was folded, as clients would name it. Empty: none are written."""

    upstream: str = "default"
    """Upstream it is asked at, with the operator's key: a client's own key is never used for it."""

    usd_per_day: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """What it may cost in a day (UTC), all users together; 0: none are written."""

    timeout_s: float = Field(default=60.0, gt=0)
    """Seconds one summary may take."""

    input_tokens: int = Field(default=20_000, ge=1_000)
    """Tokens of one question at most; of a longer span the newest messages are shown."""

    output_tokens: int = Field(default=1_000, ge=50)
    """Tokens of one answer at most, thoughts included."""

    output_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """How the upstream wants to be told that."""

    template: str = ""
    """Instructions instead of the built-in ones; `{sections}` and `{words}` are filled in."""

    @property
    def on(self) -> bool:
        return bool(self.model) and self.usd_per_day > 0


class Config(_Model):
    """The whole configuration. Reading it never fails later: what is in here has been checked."""

    host: str = "127.0.0.1"
    """Address to listen on. Beyond loopback only with `tenancy: key`."""

    port: int = Field(default=8787, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""

    data: Path = Path("~/.local/share/callstack")
    """Directory of everything on disk: store, client keys. Created with mode 0700."""

    store: str = "sqlite"
    """`sqlite` (one file in `data`), `sqlite:/a/path.db`, or `memory:` (lost at exit)."""

    mode: Mode = "active"
    """`off` forwards bytes; `shadow` computes and reports but forwards the original; `passive` rewrites with frames
    that it sees by itself, and offers the model recall alone; `active` rewrites."""

    upstreams: dict[str, UpstreamSettings] = {}
    """Providers by name. `--upstream URL` is short for `upstreams.default.url`.
    `default` serves every model that no other one names."""

    models: dict[str, ModelSettings] = {}
    """Exceptions by model name or glob."""

    tariffs: dict[str, TariffRow] = {}
    """Rows before the built-in table of prices, windows and traits, by any name. `callstack tariffs` lists them all."""

    default_tariff: TariffSettings = TariffSettings()
    """What stands in for a model that is in no table. Its requests are flagged as not priced."""

    tenancy: Tenancy = "single"
    """`single`: all requests are one user's. `key`: client keys issued by `callstack key add`.
    `credential`: by the provider key each client sends."""

    allowed_hosts: Names = ()
    """Names clients may use in `Host`, besides loopback names and `host`. Ports do not matter."""

    wake_at_tokens: int = Field(default=20_000, ge=0)
    """Size of a request from which its thread gets frames. Below it requests pass byte for byte."""

    frame_max_tokens: int = Field(default=16_000, ge=1_000)
    """Work that grows past this without an end is cut at a border between two of its steps."""

    mirror_plans: bool = True
    """Whether items of the client's own plan (todo lists and the like) become frames."""

    infer_requests: bool = True
    """Whether a request of the user that starts something else ends the frame before it."""

    loops: Literal["off", "warn", "block"] = "warn"
    """In mode `active`, `warn` tells the model when its calls run in a loop: the same call with the same result, steps
    that take turns, a task that failed again. `block` also answers the next of these calls itself."""

    loop_repeats: int = Field(default=3, ge=2)
    """Times in direct succession that the same call gave the same result before that is a loop."""

    loop_window: int = Field(default=20, ge=2, le=200)
    """So many of the newest calls are looked at for loops."""

    loop_period: int = Field(default=3, ge=1, le=3)
    """Steps that take turns, at most, to be a loop; 1: none are."""

    summaries: SummarySettings = SummarySettings()
    """A model that writes, off the request path, what folded work came to."""

    observe: dict[str, ObservedTool] = {}
    """What tools of other clients are for, by name: `observe: {apply_change: {role: edit, arguments: [target]}}`."""

    stack_rounds: int = Field(default=8, ge=1)
    """How many times one client turn may go back to the model for stack calls."""

    stack_seconds: float = Field(default=60.0, gt=0)
    """After this many seconds no further stack call of the turn is served."""

    child_view: str = Field(default="fork", pattern=r"^(fork|isolate|auto|last:[1-9][0-9]*)$")
    """What a child frame sees of its parent: `fork` (all of it), `isolate` (task and block),
    `last:K` (also the last K call groups), `auto` (isolate where the parent is long and that pays)."""

    isolate_above: int = Field(default=60_000, ge=0)
    """With `child_view: auto`: tokens of the parent's line above which isolating is weighed."""

    output_cap: int = Field(default=0, ge=0)
    """Tokens from which a single output is cut on its way to the model; the whole of it can be recalled.
    0: half of the model's window, where that is known."""

    tools: Literal["core", "full"] = "core"
    """Offer the core tools and one dispatcher, or every stack tool by its own name."""

    budgets: Budgets = Budgets()
    """Token budgets of the frame block."""

    max_depth: int = Field(default=10, ge=1)
    """How deep frames may nest."""

    recall_page_tokens: int = Field(default=2000, ge=100)
    """Tokens of one page of `stack_recall`."""

    retention_days: int = Field(default=30, ge=0)
    """Days after its last request that a conversation is kept; 0 keeps it for ever. Also written `retention`."""

    body_limit_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    """Largest request body; above it 413."""

    assembly_budget_ms: int = Field(default=1000, ge=1)
    """Milliseconds the rewriting of one request may take; then the original goes upstream."""

    keep_alive_s: float = Field(default=15.0, gt=0)
    """Seconds of silence in a stream of ours before a comment keeps the connection open."""

    header_deadline_s: float = Field(default=5.0, gt=0)
    """Seconds a client has to finish its request headers."""

    body_deadline_s: float = Field(default=60.0, gt=0)
    """Seconds in which a request body has to make real progress."""

    drain_s: int = Field(default=30, ge=0)
    """Seconds that running streams get to finish after SIGTERM."""

    fail_policy: Literal["open", "closed"] = "open"
    """When our own bookkeeping fails: `open` sends the original upstream, `closed` answers with an error."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """How much is logged. Message content and keys never are."""

    log_format: Literal["auto", "text", "json"] = "auto"
    """`text`: a line to read; `json`: an object a line; `auto`: text on a terminal, json elsewhere."""

    @field_validator("data", mode="after")
    @classmethod
    def _home_expanded(cls, value: Path) -> Path:
        return value.expanduser()

    @field_validator("store")
    @classmethod
    def _known_store(cls, value: str) -> str:
        if value in {"sqlite", "memory:"} or (value.startswith("sqlite:") and len(value) > len("sqlite:")):
            return value
        raise ValueError("allowed: sqlite, sqlite:/a/path.db, memory:")

    @field_validator("allowed_hosts")
    @classmethod
    def _bare_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if "*" in host or not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\]", host):
                raise ValueError(f"{host!r} is not a host name; write it without scheme, port or wildcard")
        return tuple(host.lower() for host in value)

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Config:
        if not is_loopback(self.host) and self.tenancy != "key":
            raise ValueError(
                f"tenancy: is {self.tenancy!r}, but host {self.host!r} is reachable from other machines and needs "
                "client keys; set tenancy to key and issue keys with `callstack key add NAME`, or host to 127.0.0.1"
            )
        for name, model in self.models.items():
            if model.upstream is not None and model.upstream not in self.upstreams:
                known = ", ".join(sorted(self.upstreams)) or "none is configured"
                raise ValueError(f"models.{name}.upstream: there is no upstream {model.upstream!r}; known: {known}")
        self._no_name_twice()
        if self.summaries.on:
            self._can_summarise()
        return self

    def _can_summarise(self) -> None:
        """Raises ValueError where the summariser would spend somebody else's money, or nobody knows how much."""
        name, upstream = self.summaries.upstream, self.upstreams.get(self.summaries.upstream)
        if upstream is None:
            known = ", ".join(sorted(self.upstreams)) or "none is configured"
            raise ValueError(f"summaries.upstream: there is no upstream {name!r}; known: {known}")
        if upstream.key is None:
            raise ValueError(
                f"summaries.upstream: {name!r} has no key of its own, and a client's key is not used for summaries; "
                f"set upstreams.{name}.key, or leave summaries.model empty"
            )
        tariff = self.tariff_of(upstream.aliases.get(self.summaries.model, self.summaries.model))
        if not tariff.known or tariff.output is None:
            raise ValueError(
                f"summaries.model: what {self.summaries.model!r} costs is not known, so usd_per_day could not be kept; "
                "add a row with its input and output prices to tariffs"
            )

    def _no_name_twice(self) -> None:
        """Raises ValueError for a name that stands in two rows of `tariffs`: which of them counts would be luck."""
        rows: dict[str, str] = {}
        for key, row in self.tariffs.items():
            for name in row.names or (key.strip().lower(),):
                if rows.setdefault(name, key) != key:
                    raise ValueError(f"tariffs.{key}.names: {name!r} stands in tariffs.{rows[name]} too")

    @cached_property
    def tariff_table(self) -> Tariffs:
        """The configured rows before the built-in ones."""
        configured = [
            ConfiguredRow(f"tariffs.{key}", row.names or (key.strip().lower(),), _said(row))
            for key, row in self.tariffs.items()
        ]
        return Tariffs(configured, replace(UNKNOWN, **self.default_tariff.model_dump()))

    @field_validator("observe")
    @classmethod
    def _known_roles(cls, value: dict[str, ObservedTool]) -> dict[str, ObservedTool]:
        _observed(value)
        return value

    @property
    def observed_tools(self) -> ToolNames:
        """Which tool of which client is for what."""
        return _observed(self.observe)

    def tariff_of(self, model: str) -> Tariff:
        """What a model costs and how it behaves, by the name it is asked for at the upstream."""
        return self.tariff_table.of(model)

    def sent_as(self, model: str) -> str:
        """The upstream's name for a model as a client names it: what `tariff_of` takes where no route is known yet."""
        own = self.for_model(model)
        wanted = own.alias or model
        asked = [self.upstreams[own.upstream]] if own.upstream else list(self.upstreams.values())
        aliased = (upstream for upstream in asked if wanted in upstream.aliases)
        named = (upstream for upstream in asked if own.upstream or upstream.serves(wanted))
        serving = next(aliased, None) or next(named, None) or self.upstreams.get("default")
        return serving.sent_as(wanted) if serving else wanted

    def prices_of(self, model: str) -> Prices:
        """What a token of a model, by the client's name for it, costs that is read from the provider's cache, or
        written to it."""
        tariff = self.tariff_of(self.sent_as(model))
        return Prices(tariff.read, tariff.write)

    def for_model(self, name: str) -> ModelSettings:
        """The exceptions for a model: its own entry, else the first glob that fits, else none."""
        exact = self.models.get(name)
        if exact is not None:
            return exact
        return next((model for glob, model in self.models.items() if fnmatchcase(name, glob)), _NOTHING_ELSE)

    def mode_of(self, name: str) -> Mode:
        """The mode requests for this model run in, unless the request or its conversation says otherwise."""
        return self.for_model(name).mode or self.mode

    @property
    def store_path(self) -> Path | None:
        """The database file, or None for a store in memory."""
        if self.store == "memory:":
            return None
        return self.data / "callstack.db" if self.store == "sqlite" else Path(self.store.removeprefix("sqlite:"))

    @property
    def keys_path(self) -> Path:
        """Where the issued client keys lie, hashed."""
        return self.data / "keys.json"


def _said(row: TariffRow) -> dict[str, Any]:
    """The fields that stand in the configuration."""
    said = row.model_dump(exclude={"names"}, exclude_unset=True)
    if "as_of" in said:
        said["as_of"] = row.as_of.isoformat() if row.as_of else ""
    return said


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. A name we would have to look up is not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _observed(tools: Mapping[str, ObservedTool]) -> ToolNames:
    entries = {name: "none" if tool.role == "none" else tool.model_dump() for name, tool in tools.items()}
    return NAMES.extended(entries)
