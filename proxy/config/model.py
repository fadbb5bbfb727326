"""Every setting of the proxy: one frozen model, with each field explained beneath it.

A value that is not allowed is refused when a `Config` is made, so reading one never fails. `proxy.yaml` at the
project's root shows the same settings with their sections from `sections`; a test compares the two. `sources` reads
flags, the environment and that file.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace
from pydantic import Field, PrivateAttr, field_validator, model_validator

from proxy.accounting import UNKNOWN_TARIFF, ConfiguredTariff, Tariff, Tariffs, updated_rows
from proxy.config.sections import (
    BlockFormat,
    Budgets,
    CacheKeepAliveSettings,
    ClientTools,
    EmbeddingSettings,
    FrontSettings,
    Mode,
    ModelSettings,
    NameList,
    NetworkSettings,
    ObservedTool,
    OtelSettings,
    OutputRuleSettings,
    SettableNames,
    StrictModel,
    SubagentSettings,
    SummarySettings,
    Switch,
    TariffRow,
    TariffSettings,
    Threshold,
    UpstreamSettings,
    View,
)
from proxy.core.compaction import CachePrices, FoldingLevel, OutputRule, OutputRules
from proxy.core.context import GuidanceWording
from proxy.core.memo import memoize
from proxy.core.observers import DEFAULT_TOOL_ROLES, ToolRoles
from proxy.core.policy import HEURISTIC_NAMES, AutonomyLevel, AutonomyRules, ScoreCombiner

Tenancy = Literal["single", "key", "header", "credential"]
_NO_EXCEPTIONS = ModelSettings()
MAX_CACHED_MODELS = 1024
"""Cached upstream names of models."""


class Config(StrictModel):
    """The whole configuration. Reading it never fails later: what is in here has been checked."""

    host: str = "127.0.0.1"
    """Address to listen on. Beyond loopback only with `tenancy: key` or `header`."""

    port: int = Field(default=8787, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""

    data: Path = Path("~/.local/share/callstack")
    """Directory of everything on disk: store, client keys. Created with mode 0700."""

    store: str = "sqlite"
    """`sqlite` (one file in `data`), `sqlite:/a/path.db`, `postgresql://user:password@host:5432/name` (several proxies
    may share it), or `memory:` (lost at exit)."""

    mode: Mode = "active"
    """`off` forwards bytes; `shadow` computes and reports but forwards the original; `passive` rewrites with frames
    that it sees by itself, and offers the model recall alone; `active` rewrites."""

    holdout: float = Field(default=0.0, ge=0, le=0.5, allow_inf_nan=False)
    """Share of new conversations that pass untouched, as in mode `shadow`, so that `callstack report --proof` can
    compare the others with them; 0: none. 0.05 is a good share."""

    slash_commands: Switch = "on"
    """Whether a message like `/stack status` is a command to the proxy. `callstack key add NAME --slash-commands off`
    turns that off for one key, and the header `x-stack-slash-commands: off` for one client."""

    upstreams: dict[str, UpstreamSettings] = {}
    """Providers by name. `--upstream URL` is short for `upstreams.default.url`.
    `default` serves every model that no other one names."""

    network: NetworkSettings = NetworkSettings()
    """Proxies and certificates of the network that upstreams are reached through."""

    models: dict[str, ModelSettings] = {}
    """Exceptions by model name or glob."""

    tariffs: dict[str, TariffRow] = {}
    """Rows before the built-in table of prices, windows and traits, by any name. `callstack inspect tariffs` lists
    all."""

    default_tariff: TariffSettings = TariffSettings()
    """What stands in for a model that is in no table. Its requests are flagged as not priced."""

    tenancy: Tenancy = "single"
    """`single`: all requests are one user's. `key`: client keys issued by `callstack key add`.
    `header`: by the name that a proxy in front writes. `credential`: by the provider key each client sends."""

    front: FrontSettings = FrontSettings()
    """With `tenancy: header`, the proxy in front that says whose a request is."""

    stack_access: Literal["all", "own", "token"] = "own"
    """With `tenancy: single`, who may use `/stack`: every user of this machine; the proxy's own user (where the system
    tells, which Linux does) and whoever sends the token in `server.json` of `data` as `x-stack-key`; or the token
    alone."""

    key_access: Literal["own", "all"] = "own"
    """With `tenancy: single`, for whose programs on this machine the keys of upstreams are spent: those of the proxy's
    own user and of root (where the system tells, which Linux does), or everybody's."""

    allowed_hosts: NameList = ()
    """Names clients may use in `Host`, besides loopback names and `host`. Ports do not matter."""

    allowed_origins: NameList = ()
    """Origins of web pages that may use the API, besides desktop applications, which always may:
    `https://chat.example`, `chrome-extension://*`. None of them may use `/stack`."""

    wake_at_tokens: int | None = Field(default=None, ge=0)
    """Size of a request from which its thread wakes at the user's words, whatever it costs. Unset: a thread is offered
    our tools with its first request where they are small beside it, and wakes later only where that pays."""

    folding: FoldingLevel = "careful"
    """How much leaves the context: ended requests and frames of the model (`requests`); also unfinished work past
    `frame_max_tokens`, but its newest steps (`careful`); also each item of the client's plan when it ends (`full`)."""

    frame_max_tokens: int = Field(default=32_000, ge=1_000)
    """Work that grows past this without an end is cut at a border between two of its steps."""

    mirror_plans: bool = True
    """Whether items of the client's own plan (todo lists and the like) become frames."""

    guidance: GuidanceWording = "mirror"
    """In mode `active`, what the model is told of its client's plan tools as its thread wakes: to keep using them
    (`mirror`), or to plan with the stack tools alone (`replace`). The client's tools are offered either way."""

    infer_requests: bool = True
    """Whether a request of the user that starts something else ends the frame before it."""

    pressure_warning: float = Field(default=0.75, ge=0, le=1, allow_inf_nan=False)
    """In mode `active`, the share of a known window from which the model is told that it fills up, once for each rise;
    0: never."""

    loops: Literal["off", "warn", "block"] = "warn"
    """In mode `active`, `warn` tells the model when its calls run in a loop: the same call with the same result, steps
    that take turns, a task that failed again. `block` also answers the next of these calls itself."""

    loop_repeats: int = Field(default=3, ge=2)
    """Times in direct succession that the same call gave the same result before that is a loop."""

    loop_window: int = Field(default=20, ge=2, le=200)
    """So many of the newest calls are looked at for loops."""

    loop_period: int = Field(default=3, ge=1, le=3)
    """Steps that take turns, at most, to be a loop; 1: none are."""

    autonomy: AutonomyLevel = "suggest"
    """In mode `active`, how much the proxy decides about frames: `manual` nothing, `suggest` tells the model when a
    push or a pop seems due, `auto` also parts off work by itself. Also `STACK_AUTONOMY_LEVEL`."""

    push_threshold: Threshold = 70
    """Confidence, 0 to 100, from which a push is suggested or made."""

    pop_threshold: Threshold = 80
    """Confidence, 0 to 100, from which a pop is suggested or made."""

    combine: ScoreCombiner = "max"
    """How the scores of several heuristics make one: the highest (`max`), `noisy_or`, or their `mean`."""

    suggest_in_context: bool = True
    """Whether the model reads suggestions; without it they are only listed."""

    enabled_heuristics: NameList = HEURISTIC_NAMES
    """Heuristics that count."""

    model_may_set: SettableNames = ()
    """What of these the model may change by `stack_autonomy`: level, thresholds, suggestions, heuristics, stats."""

    subagent: SubagentSettings = SubagentSettings()
    """Conversations that another one began."""

    embeddings: EmbeddingSettings = EmbeddingSettings()
    """An embedding model, by which finished frames are also found by their meaning."""

    summaries: SummarySettings = SummarySettings()
    """A model that writes, off the request path, what folded work came to."""

    cache_keep_alive: CacheKeepAliveSettings = CacheKeepAliveSettings()
    """Requests that keep the provider's prompt cache through a pause of the client."""

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

    checkpoint_at_push: bool = False
    """Whether the point before each frame that the model pushes gets a name, so that a branch can begin there."""

    output_cap: int = Field(default=0, ge=0)
    """Tokens from which a single output is cut on its way to the model; the whole of it can be recalled.
    0: half of the model's window, where that is known."""

    tidy_outputs: Literal["off", "on", "repeats"] = "off"
    """`on`: outputs of commands, and JSON, are written shorter before they are first sent: without escape codes,
    overwritten text of progress bars, needless blanks and runs of equal lines. `repeats`: all outputs also without
    blocks of lines that stand in the context already. The whole of each can be recalled."""

    outputs: dict[str, OutputRuleSettings] = {}
    """How much is told of the outputs of certain tools, by name, glob or role: `outputs: {grep: {head: 200}}`; or the
    path of a YAML file with that, `outputs: rules.yaml`, beside this one."""

    tools: Literal["core", "full"] = "core"
    """Offer the core tools and one dispatcher, or every stack tool by its own name."""

    client_tools: ClientTools = "full"
    """`brief`: in threads that begin with our tools, or wake later, the client's tools that are neither for files,
    commands nor plans are sent with the first line of their description; the whole of it stands once beside the result
    of the tool's first call. `models` may say otherwise of one model."""

    long_head_cache: bool = False
    """Whether tools and system text are cached for an hour, where the API sells that and the client asks for five
    minutes (messages API): from the first pause of a conversation on after which its cache was gone, if the dearer
    write costs at most 3 % of what was paid for the conversation so far."""

    budgets: Budgets = Budgets()
    """Token budgets of the frame block."""

    view: View = "full"
    """`minimal` is for models with a small window: a frame is told its goal, its task, what comes next and how things
    stand, in at most 2,000 characters; it sees no other frame, and older results are told in a line each."""

    block_format: BlockFormat = "flat"
    """How the frame block is written in view `full`: as lists, or `nested` as one tree."""

    block_figures: bool = False
    """Whether the flat block also tells its budgets and what they left out."""

    probes: dict[str, NameList] = {}
    """More commands whose newest end the minimal view shows, by name, as globs: `probes: {e2e: "npx playwright *"}`.
    Tests, linters, builds and type checks are known by themselves."""

    max_depth: int = Field(default=10, ge=1)
    """How deep frames may nest."""

    recall_page_tokens: int = Field(default=2000, ge=100)
    """Tokens of one page of `stack_recall`."""

    recall_across: bool = False
    """Whether `stack_recall` with a query, and without a ref, also finds what finished frames of the same tenant's
    other conversations came to. People can always search theirs: `callstack search`."""

    retention_days: int = Field(default=30, ge=0)
    """Days after its last request that a conversation is kept; 0 keeps it for ever. Also written `retention`."""

    queue_hours: float = Field(default=24.0, gt=0, le=8760)
    """Hours that what a person says into a conversation waits for a request that can be told; then it expires."""

    body_limit_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    """Largest request body, decompressed; above it 413. On `/stack` never more than 1 MiB."""

    bodies_limit_bytes: int = Field(default=256 * 1024 * 1024, ge=1024)
    """Bytes of all request bodies that are being read at one time; what comes above that gets 503 and may come again.
    Never less than `body_limit_bytes`. One tenant takes at most half, except with `tenancy: single`. Bodies above 1 MiB
    that are being answered may take four times as much."""

    answer_limit_bytes: int = Field(default=128 * 1024 * 1024, ge=1024)
    """Bytes of one answer of a model, after which it ends with an error. 128,000 tokens are about 45 MB as a stream."""

    api_requests_per_minute: int = Field(default=600, ge=0)
    """Requests a minute of one tenant on `/stack`, beyond which it is told 429 and when to ask again; 0: any number.
    Operators are not counted, so neither is anybody with `tenancy: single`."""

    assembly_budget_ms: int = Field(default=2000, ge=1)
    """Milliseconds the rewriting of one request may take; then the original goes upstream. With a database that several
    proxies share, a request waits for that up to two seconds longer."""

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

    otel: OtelSettings = OtelSettings()
    """Live traces of requests and frames for an OpenTelemetry receiver."""

    events_file: bool = False
    """Whether what happens (frames, folds, requests, by ids and figures) is also written to `events.jsonl` in `data`.
    """

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """How much is logged. Message content and keys never are."""

    log_format: Literal["auto", "text", "json"] = "auto"
    """`text`: a line to read; `json`: an object a line; `auto`: text on a terminal, json elsewhere."""

    @field_validator("data", mode="after")
    @classmethod
    def _expand_home(cls, value: Path) -> Path:
        return value.expanduser()

    @field_validator("store")
    @classmethod
    def _check_store(cls, value: str) -> str:
        names_place = value.startswith("postgresql://") or (value.startswith("sqlite:") and len(value) > len("sqlite:"))
        if value in {"sqlite", "memory:"} or names_place:
            return value
        raise ValueError("allowed: sqlite, sqlite:/a/path.db, postgresql://user@host/name, memory:")

    @field_validator("allowed_hosts")
    @classmethod
    def _normalize_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if "*" in host or not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\]", host):
                raise ValueError(f"{host!r} is not a host name; write it without scheme, port or wildcard")
        return tuple(host.lower() for host in value)

    @field_validator("allowed_origins")
    @classmethod
    def _normalize_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            scheme, _, host = origin.partition("://")
            any_host = host == "*" and scheme not in ("http", "https")
            if not any_host and not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._\[\]:-]*", origin):
                raise ValueError(
                    f"{origin!r} is not an origin; write scheme://host or scheme://host:port, without a path. "
                    "`*` is a host for schemes of programs alone, and null is what any page can send"
                )
        return tuple(origin.lower() for origin in value)

    @model_validator(mode="after")
    def _check_consistency(self) -> Config:
        if not is_loopback(self.host) and self.tenancy not in ("key", "header"):
            raise ValueError(
                f"tenancy: is {self.tenancy!r}, but host {self.host!r} is reachable from other machines and needs "
                "client keys; set tenancy to key and issue keys with `callstack key add NAME`, or host to 127.0.0.1"
            )
        if self.tenancy == "header" and not self.front.addresses:
            raise ValueError(
                "front.addresses: with tenancy header, name the addresses that the proxy in front sends from; a user's "
                "name counts from there alone"
            )
        for name, model in self.models.items():
            if model.upstream is not None and model.upstream not in self.upstreams:
                known = ", ".join(sorted(self.upstreams)) or "none is configured"
                raise ValueError(f"models.{name}.upstream: there is no upstream {model.upstream!r}; known: {known}")
        if self.subagent.model_may_configure and self.tenancy != "single":
            raise ValueError(
                "subagent.model_may_configure: what a model sets holds for everybody, and with tenancy "
                f"{self.tenancy!r} that is more than one user; leave it out, and set things by `callstack config`"
            )
        if self.cache_keep_alive.client_keys and self.tenancy != "single":
            raise ValueError(
                f"cache_keep_alive.client_keys: with tenancy {self.tenancy!r} each client gives its own key "
                "for that, by the header x-stack-cache-keep-alive: on; leave it out"
            )
        self._refuse_duplicate_tariffs()
        if self.summaries.is_enabled:
            self._check_summarizer()
        if self.embeddings.model:
            self._check_embeddings()
        return self

    def _check_embeddings(self) -> None:
        """Raises ValueError if the model could not be asked, or its vectors not be kept."""
        name = self.embeddings.upstream
        if name not in self.upstreams or self.upstreams[name].kind != "http":
            raise ValueError(f"embeddings.upstream: there is no upstream {name!r} of kind http")
        if self.is_store_in_memory:
            raise ValueError("embeddings.model: a store in memory keeps no vectors; name another `store`")

    def _check_summarizer(self) -> None:
        """Raises ValueError if the summarizer has no key of its own or its price is unknown."""
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

    def _refuse_duplicate_tariffs(self) -> None:
        """Raises ValueError if two rows of `tariffs` have the same name."""
        rows: dict[str, str] = {}
        for key, row in self.tariffs.items():
            for name in row.names or (key.strip().lower(),):
                if rows.setdefault(name, key) != key:
                    raise ValueError(f"tariffs.{key}.names: {name!r} stands in tariffs.{rows[name]} too")

    _sources: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def sources(self) -> Mapping[str, str]:
        """Where each configured value was found, by dotted key."""
        return self._sources

    def with_sources(self, sources: Mapping[str, str]) -> Config:
        self._sources = sources
        return self

    @cached_property
    def tariff_table(self) -> Tariffs:
        """The configured rows, followed by those of an update and the built-in ones."""
        configured = [
            ConfiguredTariff(f"tariffs.{key}", row.names or (key.strip().lower(),), _configured_fields(row))
            for key, row in self.tariffs.items()
        ]
        default = replace(UNKNOWN_TARIFF, **self.default_tariff.model_dump())
        return Tariffs(configured, default, updated=updated_rows(self.updated_models_path))

    @field_validator("observe")
    @classmethod
    def _check_roles(cls, value: dict[str, ObservedTool]) -> dict[str, ObservedTool]:
        _tool_names(value)
        return value

    @property
    def observed_tools(self) -> ToolRoles:
        """Roles of clients' tools."""
        return _tool_names(self.observe)

    @cached_property
    def output_rules(self) -> OutputRules:
        """Rules for tool outputs. Cached, because every request asks."""
        rules = (
            OutputRule(name, bool(settings.keep), settings.cap, settings.head, settings.tail)
            for name, settings in self.outputs.items()
        )
        return OutputRules(tuple(rules), self.observed_tools)

    @property
    def autonomy_rules(self) -> AutonomyRules:
        """Autonomy rules, for conversations without their own."""
        return AutonomyRules(
            self.autonomy,
            self.push_threshold,
            self.pop_threshold,
            self.combine,
            self.suggest_in_context,
            tuple(name for name in HEURISTIC_NAMES if name in self.enabled_heuristics),
        )

    @property
    def unknown_heuristics(self) -> tuple[str, ...]:
        """Enabled names that are no heuristics: typing errors, or from another version."""
        return tuple(name for name in self.enabled_heuristics if name not in HEURISTIC_NAMES)

    def tariff_of(self, model: str) -> Tariff:
        """Prices and traits of a model, by its name at the upstream."""
        return self.tariff_table.tariff_of(model)

    @cached_property
    def upstream_model_of(self) -> Callable[[str], str]:
        """The upstream's name of a client's model, for `tariff_of` before a route is chosen. Cached, because every
        request asks repeatedly."""
        return memoize(MAX_CACHED_MODELS)(self._upstream_model_of)

    def _upstream_model_of(self, model: str) -> str:
        own = self.model_settings_of(model)
        wanted = own.alias or model
        asked = [self.upstreams[own.upstream]] if own.upstream else list(self.upstreams.values())
        aliased = (upstream for upstream in asked if wanted in upstream.aliases)
        named = (upstream for upstream in asked if own.upstream or upstream.serves(wanted))
        serving = next(aliased, None) or next(named, None) or self.upstreams.get("default")
        return serving.upstream_model_of(wanted) if serving else wanted

    def prices_of(self, model: str) -> CachePrices:
        """USD per token read from and written to the provider's cache, by the client's name of the model."""
        tariff = self.tariff_of(self.upstream_model_of(model))
        return CachePrices(tariff.read, tariff.write)

    def model_settings_of(self, name: str) -> ModelSettings:
        """Settings of a model: its own entry, else the first matching glob, else the defaults."""
        if not self.models:
            return _NO_EXCEPTIONS
        exact = self.models.get(name)
        if exact is not None:
            return exact
        return next((model for glob, model in self.models.items() if fnmatchcase(name, glob)), _NO_EXCEPTIONS)

    def mode_of(self, name: str) -> Mode:
        """Mode for requests of this model, unless the request or its conversation has another."""
        return self.model_settings_of(name).mode or self.mode

    def is_brief_for(self, name: str) -> bool:
        """Whether threads of this model get brief descriptions of the client's rarely used tools."""
        return (self.model_settings_of(name).client_tools or self.client_tools) == "brief"

    @property
    def is_store_in_memory(self) -> bool:
        return self.store == "memory:"

    @property
    def is_store_shared(self) -> bool:
        """Whether several proxies may use the store at once."""
        return self.store.startswith("postgresql://")

    @property
    def store_place(self) -> str:
        """Where the store is, for people, without the user and password of a server."""
        if self.is_store_shared:
            return f"postgresql://{self.store.removeprefix('postgresql://').rpartition('@')[2].partition('?')[0]}"
        return "in memory, lost at exit" if self.store_path is None else str(self.store_path.resolve())

    @property
    def store_path(self) -> Path | None:
        """The database file, or None for a store in memory or on a server."""
        if self.is_store_in_memory or self.is_store_shared:
            return None
        return self.data / "callstack.db" if self.store == "sqlite" else Path(self.store.removeprefix("sqlite:"))

    @property
    def updated_models_path(self) -> Path:
        """File of the prices that `callstack inspect tariffs --update` took over."""
        return self.data / "models.json"

    @property
    def keys_path(self) -> Path:
        """File of the issued client keys (hashed)."""
        return self.data / "keys.json"

    @property
    def users_path(self) -> Path:
        """File of the limits of users, with `tenancy: header`."""
        return self.data / "users.json"


def _configured_fields(row: TariffRow) -> dict[str, Any]:
    said = row.model_dump(exclude={"names"}, exclude_unset=True)
    if "as_of" in said:
        said["as_of"] = row.as_of.isoformat() if row.as_of else ""
    return said


@memoize(256)
def is_loopback(host: str) -> bool:
    """Whether `host` is reachable from this machine only. Names that need a lookup are not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _tool_names(tools: Mapping[str, ObservedTool]) -> ToolRoles:
    entries = {name: "none" if tool.role == "none" else tool.model_dump() for name, tool in tools.items()}
    return DEFAULT_TOOL_ROLES.with_entries(entries)
