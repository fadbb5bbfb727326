"""The sections of the configuration: upstream, observed tool, output rule, model, tariff, budgets, subagents,
front,
summarizer.

A section checks itself when it is made; `Config` checks what concerns several of them, such as the name of an upstream
that does not exist.
"""

from __future__ import annotations

import ipaddress
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from proxy.accounting import UNKNOWN_TARIFF, AfterTool, Appendable, ReasoningBinding, RoleOrder, ThinkingInLoop
from proxy.core.policy import ModelSettable, clamp_threshold

Mode = Literal["off", "shadow", "passive", "active"]
Switch = Literal["on", "off"]
View = Literal["full", "minimal"]
ClientTools = Literal["full", "brief"]
BlockFormat = Literal["flat", "nested"]
WireFormat = Literal["chat", "messages", "responses"]
"""Dialects by their names in the configuration."""


def _split_list(value: object) -> object:
    """`a, b` from a flag or the environment as a list; other values are left for the field to check."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


NameList = Annotated[tuple[str, ...], BeforeValidator(_split_list)]
Threshold = Annotated[int, AfterValidator(clamp_threshold)]
"""From 0 to 100; values beyond are moved to the nearer end."""
CREDENTIAL_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key", "x-stack-key", "cookie"})
MAX_COUNT = 10**12
"""Upper bound of a time in ms (thirty years) or a count that can be set."""
SettableNames = Annotated[tuple[ModelSettable, ...], BeforeValidator(_split_list)]
"""Settings of autonomy that the model may change."""


class StrictModel(BaseModel):
    """Frozen; refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)


ENDPOINT_PATHS = ("/chat/completions", "/completions", "/messages", "/responses", "/models")
"""Paths of the APIs, which people copy along with the base URL."""


class UpstreamSettings(StrictModel):
    """One provider, and how it is reached."""

    kind: Literal["http", "litellm"] = "http"
    """`http`: a URL that gets what the client sends. `litellm`: any provider that litellm knows, asked through it
    (`pip install 'callstack-proxy[litellm]'`)."""

    url: str = ""
    """Base URL as the provider prints it, with or without `/v1`: `https://api.openai.com/v1`.
    With `litellm` only where the provider's own is not meant."""

    speaks: Annotated[tuple[WireFormat, ...], BeforeValidator(_split_list)] = get_args(WireFormat)
    """Dialects it is asked in; a request in another one goes to an upstream that has it."""

    key: SecretStr | None = None
    """The operator's key; replaces whatever the client sent. `env:NAME` reads it from the environment.
    Without it the client's own key passes; with `litellm` that stays here, and what litellm finds by itself counts."""

    key_header: Literal["authorization", "x-api-key", "api-key"] = "authorization"
    """The header of the operator's key; `authorization` sends it as "Bearer KEY", `x-api-key` is Anthropic's."""

    models: NameList = ()
    """Model names or globs (`gpt-*`) served here. Empty: whatever no other upstream names."""

    aliases: dict[str, str] = {}
    """Name the client asks for -> name sent to this upstream. An alias is also a name served here."""

    fallbacks: NameList = ()
    """Models, or upstreams for the same model, that are asked in this order where this one answers 429, 529 or another
    5xx, cannot be reached, or refuses a context that cannot be made to fit."""

    model_prefix: str = ""
    """Put before names that have no alias when they are sent: `anthropic/`, `gemini/`, `bedrock/`."""

    options: dict[str, Any] = {}
    """Arguments for every call of litellm: `aws_region_name: eu-west-1`."""

    connect_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds to open a connection."""

    idle_timeout_s: float = Field(default=900.0, gt=0)
    """Seconds without a byte of the answer before its first one, and without a line of it (or 4 KiB) from then on.
    Clients wait ten minutes (Claude Code, the SDKs of OpenAI and Anthropic); a shorter limit here ends answers that
    they would have waited for. A client that reads nothing of an answer is let go after as long."""

    proxy: str | None = None
    """HTTP proxy to leave through instead of the network's: `http://proxy.internal:3128`. Empty: none."""

    ca_file: Path | None = None
    """Certificates to trust instead of the system's and the network's, as a PEM file."""

    verify: bool = True
    """Check the upstream's certificate. `false` is for a test bench."""

    def serves(self, model: str) -> bool:
        """Whether `models` contains the name, also by glob."""
        return any(model == name or fnmatchcase(model, name) for name in self.models)

    def upstream_model_of(self, model: str) -> str:
        """The provider's name of a model."""
        own = self.aliases.get(model)
        return own or (model if model.startswith(self.model_prefix) else self.model_prefix + model)

    @field_validator("url", "proxy")
    @classmethod
    def _check_url(cls, value: str | None, info: ValidationInfo) -> str | None:
        if not value:
            if info.field_name == "url" and info.data.get("kind") == "http":
                raise ValueError("is required")
            return value
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("must be an http:// or https:// URL, such as https://api.example.com/v1")
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError("must not carry a query, a fragment or a password")
        if endpoint := next((each for each in ENDPOINT_PATHS if parts.path.rstrip("/").endswith(each)), ""):
            raise ValueError(f"must be the base URL, to which the proxy adds the path: leave out {endpoint}")
        return value

    @field_validator("speaks")
    @classmethod
    def _check_speaks(cls, value: tuple[WireFormat, ...]) -> tuple[WireFormat, ...]:
        if not value:
            raise ValueError(f"must name one of {', '.join(get_args(WireFormat))}")
        return value

    @field_validator("key_header", "proxy", "ca_file", "verify")
    @classmethod
    def _check_http_option(cls, value: object, info: ValidationInfo) -> object:
        if info.data.get("kind") == "litellm" and value not in ("authorization", None, True):
            raise ValueError("is for kind http; litellm goes by HTTPS_PROXY and SSL_CERT_FILE in the environment")
        return value

    @field_validator("options")
    @classmethod
    def _check_litellm_option(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if value and info.data.get("kind") == "http":
            raise ValueError("are for kind litellm")
        return value

    @model_validator(mode="after")
    def _check_kind(self) -> UpstreamSettings:
        if self.kind == "litellm" and not (self.models or self.aliases or self.model_prefix):
            raise ValueError(
                "needs models, aliases or model_prefix: the name of a model chooses the provider in litellm, "
                "and that is not the client's to choose"
            )
        return self


class NetworkSettings(StrictModel):
    """How upstreams of kind http are reached from this network. litellm reads the same variables by itself."""

    https_proxy: SecretStr | None = None
    """HTTP proxy to `https://` upstreams, with a name and password where it wants them. Also `HTTPS_PROXY`."""

    http_proxy: SecretStr | None = None
    """HTTP proxy to `http://` upstreams. Also `HTTP_PROXY`. Both also `ALL_PROXY`."""

    no_proxy: NameList = ()
    """Hosts, domains, addresses and networks to reach directly; `*` for all. Also `NO_PROXY`. An upstream on this
    machine is reached directly anyway, unless the proxy is on this machine too."""

    ca_files: Annotated[tuple[Path, ...], BeforeValidator(_split_list)] = ()
    """PEM files of certificates to trust beside the system's. Also `SSL_CERT_FILE` and `NODE_EXTRA_CA_CERTS`."""


class OtelSettings(StrictModel):
    """Live traces for an OpenTelemetry receiver. The variables of the OpenTelemetry SDK hold too, for example
    `OTEL_EXPORTER_OTLP_HEADERS` for a receiver that wants a key."""

    endpoint: str = Field(default="", pattern=r"^(https?://[^\s/]+.*)?$")
    """Base URL of a receiver of OTLP over HTTP, for example `http://localhost:4318`; empty: no traces. Needs the extra
    `otel` (`pip install 'callstack-proxy[otel]'`)."""

    titles: bool = False
    """Whether spans of frames have the frames' titles, which are words of the conversation. Nothing else that was said
    is in a span."""


class ObservedTool(StrictModel):
    """A client's tool and what it is for."""

    role: str
    """read, write, edit, delete, move, editor, patch, shell, plan, item_create, item_update, goal; or none."""

    arguments: NameList = ()
    """Arguments that hold what the role is about, before the usual ones."""


class OutputRuleSettings(StrictModel):
    """How much of the outputs of some tools is told on the line."""

    keep: Literal["", "whole"] = ""
    """`whole`: they are neither cut by `output_cap` nor cleared when they grow old. A window still bounds them."""

    cap: int = Field(default=0, ge=0)
    """Tokens from which a new output is cut, instead of `output_cap`; 0: that one counts."""

    head: int = Field(default=0, ge=0)
    """Tokens of its beginning that stay when an old output is cleared."""

    tail: int = Field(default=0, ge=0)
    """Tokens of its end that stay then."""

    @model_validator(mode="after")
    def _check_single_rule(self) -> OutputRuleSettings:
        shortens = self.cap or self.head or self.tail
        if self.keep and shortens:
            raise ValueError("keep: whole leaves nothing to cut, so cap, head and tail say nothing beside it")
        if not self.keep and not shortens:
            raise ValueError("says nothing; set keep, cap, head or tail")
        return self


class ModelSettings(StrictModel):
    """What one model does differently. The name in the key may be a glob; an exact name goes first."""

    mode: Mode | None = None
    """Overrides `mode` for this model."""

    upstream: str | None = None
    """Name of the upstream that serves it."""

    alias: str | None = None
    """Name sent upstream instead of the one the client asked for."""

    fallbacks: NameList = ()
    """Overrides the `fallbacks` of the upstream for this model."""

    view: View | None = None
    """Overrides `view` for this model."""

    block_format: BlockFormat | None = None
    """Overrides `block_format` for this model."""

    client_tools: ClientTools | None = None
    """Overrides `client_tools` for this model."""


Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=1)]


class TariffSettings(StrictModel):
    """Prices, cache rules, window and traits of models. The defaults are those of a model nobody knows."""

    input: Price = UNKNOWN_TARIFF.input
    """USD per million input tokens."""

    output: Price | None = UNKNOWN_TARIFF.output
    """USD per million output tokens; null: not known, output then costs nothing in any sum, and receipts say so."""

    read: Price = UNKNOWN_TARIFF.read
    """What a cached token costs, as a multiple of `input`: 0.1."""

    write: Price = UNKNOWN_TARIFF.write
    """What a newly cached token costs, as a multiple of `input`: 1.25."""

    minimum: int = Field(default=UNKNOWN_TARIFF.minimum, ge=0)
    """Tokens from which a prefix is cached."""

    step: Tokens = UNKNOWN_TARIFF.step
    """Cached tokens are a multiple of this."""

    ttl_s: Tokens = UNKNOWN_TARIFF.ttl_s
    """Seconds a cached prefix lives after its last use."""

    long_write: Price = UNKNOWN_TARIFF.long_write
    """As `write`, for a cache that shall live `long_ttl_s`: 2."""

    long_ttl_s: Tokens = UNKNOWN_TARIFF.long_ttl_s
    """Seconds of the longer one of two lifetimes that a provider sells: 3600."""

    window: Tokens = UNKNOWN_TARIFF.window
    """Tokens the model can hold."""

    max_output: Tokens = UNKNOWN_TARIFF.max_output
    """Tokens it can answer with."""

    long_context: int = Field(default=UNKNOWN_TARIFF.long_context, ge=0)
    """Tokens of input above which a whole request costs more; 0 where none does."""

    long_input: Price = UNKNOWN_TARIFF.long_input
    """What input costs in such a request, as a multiple of `input`: 2."""

    long_output: Price = UNKNOWN_TARIFF.long_output
    """What its answer costs, as a multiple of `output`: 1.5."""

    binding: ReasoningBinding = UNKNOWN_TARIFF.binding
    """What happens to reasoning whose prefix changed: `none`, `drop` (it is dropped) or `error` (it is refused)."""

    after_tool: AfterTool = UNKNOWN_TARIFF.after_tool
    """`message`: a user message may stand behind tool results. `suffix`: it must be appended to the last one."""

    thinking_in_loop: ThinkingInLoop = UNKNOWN_TARIFF.thinking_in_loop
    """`required`: inside a tool loop the last assistant message must open with its reasoning."""

    required: NameList = UNKNOWN_TARIFF.required
    """Fields that must come back with the calls they were made with: `thought_signature`."""

    append: Annotated[tuple[Appendable, ...], BeforeValidator(_split_list)] = UNKNOWN_TARIFF.append
    """What can be added in mid-conversation without touching the prefix: `system`, `tools`."""

    roles: RoleOrder = UNKNOWN_TARIFF.roles
    """`any`, or `alternate`: between two user messages there must be an answer; then texts of ours join a message."""

    most_tools: int = Field(default=UNKNOWN_TARIFF.most_tools, ge=0)
    """Most tools that a request may offer, the client's and ours together; 0: no limit."""

    @model_validator(mode="after")
    def _check_window(self) -> TariffSettings:
        if {"window", "max_output"} <= self.model_fields_set and self.max_output >= self.window:
            raise ValueError("max_output must be smaller than window")
        return self


class TariffRow(TariffSettings):
    """A row before the built-in table. What it leaves out is as the built-in row of the model has it, else as
    `default_tariff`."""

    names: NameList = ()
    """Models this is the row of, as names or globs (`llama-3*`, `openrouter/*`). Empty: the row's own key is the name.
    The longest name that fits wins; of two as long, one written here beats a built-in one."""

    as_of: date | None = None
    """The day the prices were seen: 2026-11-21."""

    @field_validator("names")
    @classmethod
    def _normalize_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(name.strip() for name in value):
            raise ValueError("a name must not be empty")
        return tuple(name.strip().lower() for name in value)

    @model_validator(mode="after")
    def _check_not_empty(self) -> TariffRow:
        if self.model_fields_set <= {"names", "as_of"}:
            raise ValueError("says nothing of the model; set a price, a window or a trait")
        return self


class Budgets(StrictModel):
    """Token budgets of the frame block. `total` bounds the whole of it, the rest are shares inside."""

    total: int = Field(default=4000, ge=100)
    """The whole block. Also `STACK_TOKEN_BUDGET_TOTAL`."""

    ancestors: int = Field(default=1500, ge=0)
    """The frames above the active one. Also `STACK_TOKEN_BUDGET_ANCESTORS`."""

    siblings: int = Field(default=1500, ge=0)
    """Finished frames beside the path. Also `STACK_TOKEN_BUDGET_SIBLINGS`."""

    current: int = Field(default=800, ge=0)
    """The active frame: criteria, plan, artifacts, decisions. Also `STACK_TOKEN_BUDGET_CURRENT`."""

    map: int = Field(default=0, ge=0)
    """A map of the files that were seen and what they define, in what the rest leaves of `total`; 0: none. 1024 is a
    good size. Also `STACK_TOKEN_BUDGET_MAP`."""


class SubagentSettings(StrictModel):
    """Conversations that another one began: which of them count as a subagent's work. `callstack config` sets all but
    the last of these while the proxy runs."""

    enabled: bool = True
    """Off: each is a conversation of its own, and no frame stands for it where it came from. Also by
    `STACK_SUBAGENT_ENABLED`, as the others."""

    idle_delay: int = Field(default=300_000, ge=100, le=MAX_COUNT)
    """Milliseconds without a request after which any conversation counts as idle."""

    min_duration: int = Field(default=60_000, ge=0, le=MAX_COUNT)
    """A session that names its parent, but no call of it, gets a frame once it is idle, if it lasted so many ms."""

    min_messages: int = Field(default=3, ge=0, le=MAX_COUNT)
    """And if it has so many messages, answers included."""

    auto_complete: bool = True
    """That frame ends with the last words of the session. Off: it stays at work until somebody ends it."""

    patterns: NameList = ()
    """Regular expressions of titles. A conversation that nothing else links, and whose title or first line of system
    text fits one, is a subagent of the newest one of the same user that waits for a call. One that cannot be used is
    passed over, with a line in the log."""

    parent_context: bool = False
    """In mode `active` a subagent that a call began is told, once, of the frames above the one in which it was
    called: titles, criteria and results so far, of at most `budgets.ancestors` tokens. Its thread wakes for that,
    however small, at its first message. Off, for most clients isolate their subagents on purpose."""

    model_may_configure: bool = False
    """Whether the model may change these by `stack_config`, for everybody; only with `tenancy: single`."""


class FrontSettings(StrictModel):
    """The proxy in front that signs people in, with `tenancy: header`."""

    addresses: NameList = ()
    """Addresses or networks (10.0.0.0/8) that it sends from. The header counts from there alone."""

    header: str = Field(default="x-forwarded-user", pattern=r"^[A-Za-z0-9][A-Za-z0-9-]*$")
    """Header with the name of the user. It never goes to a provider."""

    admins: NameList = ()
    """Users who see all tenants on `/stack` and in the console."""

    @field_validator("addresses")
    @classmethod
    def _check_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for address in value:
            try:
                ipaddress.ip_network(address)
            except ValueError as error:
                raise ValueError(f"{address!r} is no address and no network: {error}") from None
        return value

    @field_validator("header")
    @classmethod
    def _check_header(cls, value: str) -> str:
        if value.lower() in CREDENTIAL_HEADERS:
            raise ValueError(f"{value!r} holds the provider's key; name the one in which the front writes the user")
        return value.lower()


class CacheKeepAliveSettings(StrictModel):
    """The optional keep-alive of the provider's prompt cache. It is off as long as no ping is allowed."""

    pings: int = Field(default=0, ge=0, le=4)
    """Requests that may be sent in one pause of a client, shortly before the provider's cache expires; 0: none. They
    are sent where they are likely to save more than they cost, which the conversation has to have saved before."""

    client_keys: bool = False
    """Whether they may carry the key that the client's request came with, with `tenancy: single`. Else they need
    the upstream's own `key`, or `x-stack-cache-keep-alive: on` on the request, by which its client gives the key."""


class EmbeddingSettings(StrictModel):
    """The search of finished frames by meaning. It is off as long as no model is named: nothing is sent then."""

    model: str = ""
    """Embedding model, such as `text-embedding-3-small`. It gets title, criteria, results, files and decisions of
    finished frames, and the words of searches. Empty: words are searched for alone."""

    upstream: str = "default"
    """Upstream of kind `http` that has it at `/v1/embeddings`, asked with the operator's key or none: a client's own
    key is never used for it."""

    least_similarity: float = Field(default=0.3, ge=-1, le=1, allow_inf_nan=False)
    """Cosine from which a frame is near a query. Models differ: 0.3 is for OpenAI's third generation, with others
    everything is between 0.6 and 1."""


class SummarySettings(StrictModel):
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
    def is_enabled(self) -> bool:
        return bool(self.model) and self.usd_per_day > 0
