"""`callstack doctor`: what is wrong with this installation, each with what to do about it.

A check is `ok`, a `finding` (exit code 1), or `unsure` where it cannot be judged from here. Nothing is changed: a
damaged store is reported, not set aside, and a running proxy is only asked.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
import typer
from prometheus_client.parser import text_string_to_metric_families

from callstack_proxy.cli.context import (
    AsJson,
    ConfigFile,
    DataDirectory,
    ServerInfo,
    config_file_of,
    fetch_page,
    find_running_proxy,
    load_settings,
)
from callstack_proxy.cli.output import align_columns, pluralize, print_json, print_line
from callstack_proxy.cli.store_access import opened_store
from callstack_proxy.cli.tariffs import is_stale, today
from callstack_proxy.management.find_by_id import all_conversations
from callstack_proxy.management.reports import reason_meaning
from callstack_proxy.management.views import ConversationRow, decode_receipt, recent_conversation_rows
from proxy.accounting import Receipt, Tariff, TokenCounter, age_days
from proxy.config import Config, UpstreamSettings
from proxy.errors import InvalidConfiguration, ProxyError
from proxy.server import bind
from proxy.store import RequestRecord, Store
from proxy.store.database_errors import as_store_error
from proxy.upstream import ConnectionPool, HttpUpstream, outgoing_headers, unavailable_reason

MAX_REQUESTS_CHECKED = 1_000
"""The newest requests are checked, at most so many."""
MAX_CONVERSATIONS_CHECKED = 50
"""Conversations checked for readability: those worked in last."""
MAX_BYPASS_SHARE = 0.01
"""A larger share of bypassed requests is a finding."""
REFUSED_FORM_TEXT = (
    "{0} at {1} refused requests with all of our texts and tools; {2} were sent in the form {3}. If its chat template "
    "or its cap on tools is the cause, say so in its tariff row (roles, most_tools)"
)
MAX_ERROR_SHARE = 0.05
"""A larger share of failed requests is a finding; providers fail now and then."""
MAX_TOOLS = 40
"""More tools of the messages API in one request, none of them deferred, are a finding."""
DISTANCE_READS = 5
NEAR_READ_MS = 30.0
"""A small read of a server in the same data centre takes 1 to 5 ms."""
MAX_BODIES_CHECKED = 20
"""The newest requests are checked for their tools, at most so many."""
TOOLS_TEXT = (
    "{0} tools in each request of {1}, and none is deferred; Claude Code searches tools behind a base URL only with "
    "ENABLE_TOOL_SEARCH=true, which `callstack wrap claude` sets"
)
SET_ASIDE_HINT = "serve will set it aside and begin a new one"
"""Said of damaged files only: a locked or unreadable file stays where it is."""
HARMLESS_REASONS = ("client_left", "cancelled", "shutdown")
"""Reasons of errors that are no fault: somebody ended the request."""
UPSTREAM_TIMEOUT_S = 5.0
CheckState = Literal["ok", "finding", "unsure"]
COLORS: dict[CheckState, str] = {"ok": "green", "finding": "red", "unsure": "yellow"}


@dataclass(frozen=True, slots=True)
class Check:
    state: CheckState
    about: str
    text: str


def doctor(
    config: ConfigFile = None,
    data: DataDirectory = None,
    upstream: Annotated[str | None, typer.Option(help="Base URL of the provider, as given to serve.")] = None,
    port: Annotated[int | None, typer.Option(help="Port, as given to serve.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check port, upstream, store, tokenizer and configuration. Exit code 1: something was found."""
    flags = {"data": str(data) if data else None, "upstream": upstream, "port": port}
    settings = load_settings(config, flags)  # a wrong configuration ends here, with one line for each fault
    checks = list(run_checks(settings, config_file_of(config)))
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        for check, line in zip(checks, align_columns([(c.state, c.about, c.text) for c in checks]), strict=True):
            print_line(line, COLORS[check.state])
    raise typer.Exit(int(any(check.state == "finding" for check in checks)))


def run_checks(config: Config, file: Path | None) -> Iterator[Check]:
    """All checks, in the order in which a person would look."""
    yield _check_configuration(file)
    try:
        server = find_running_proxy(config.data)
    except ProxyError as error:
        server = None
        yield Check("finding", "proxy", str(error))
    yield _check_port(config, server)
    if server is not None:
        yield _check_recent_bypasses(server)
        yield from _check_refused_forms(server)
    yield from asyncio.run(_check_upstreams(config, server))
    yield _check_tokenizer()
    yield from _check_data_directory(config)
    yield from _check_store(config)


def _check_configuration(file: Path | None) -> Check:
    variables = sorted(name for name in os.environ if name.startswith("STACK_"))
    sources = [str(file)] if file else ["no file"]
    sources += [f"environment: {', '.join(variables)}"] if variables else ["no STACK_ variables"]
    return Check("ok", "configuration", f"valid; {'; '.join(sources)}")


def _check_port(config: Config, server: ServerInfo | None) -> Check:
    where = f"{config.host}:{config.port}"
    if server is not None:
        return Check("ok", "port", f"a proxy runs on this data at {server.url} (process {server.pid})")
    try:
        bind(config.host, config.port).close()
    except InvalidConfiguration as error:
        return Check("finding", "port", str(error))
    return Check("ok", "port", f"{where} is free; no proxy runs on this data")


def _check_recent_bypasses(server: ServerInfo) -> Check:
    """Asks the running proxy for the bypasses of its last five minutes, and for its alarm."""
    try:
        families = {f.name: f.samples for f in text_string_to_metric_families(fetch_page(server, "/metrics"))}
        [requests], [alarm] = families["callstack_recent_requests"], families["callstack_bypass_alarm"]
        around = {s.labels["reason"]: int(s.value) for s in families["callstack_recent_bypasses"]}
    except ProxyError as error:
        return Check("unsure", "last 5 minutes", str(error))
    except (KeyError, ValueError):
        return Check("unsure", "last 5 minutes", f"the proxy at {server.url} is of another version")
    text = f"{sum(around.values())} of {int(requests.value)} requests were passed on because our own work failed"
    words = "; ".join(f"{reason} {count}: {reason_meaning(reason)}" for reason, count in sorted(around.items()))
    state: CheckState = "finding" if alarm.value else "ok"
    return Check(state, "last 5 minutes", f"{text} ({words})" if words else text)


def _check_refused_forms(server: ServerInfo) -> Iterator[Check]:
    """Names the models whose provider refused the full form of a request since the proxy began."""
    try:
        families = {f.name: f.samples for f in text_string_to_metric_families(fetch_page(server, "/metrics"))}
    except (ProxyError, ValueError):
        return  # the check before told of it
    samples = families.get("callstack_milder_requests", ())
    for sample in (s for s in samples if s.name.endswith("_total") and s.value):
        upstream, model, form = (sample.labels[name] for name in ("upstream", "model", "form"))
        yield Check("finding", "request form", REFUSED_FORM_TEXT.format(model, upstream, int(sample.value), form))


# ----------------------------------------------------------------------------------------------------------- upstream
async def _check_upstreams(config: Config, server: ServerInfo | None) -> list[Check]:
    if not config.upstreams and server is not None:
        text = f"not checked: the proxy at {server.url} has it from its own options; name it with --upstream URL"
        return [Check("unsure", "upstream", text)]
    if not config.upstreams:
        return [
            Check(
                "unsure", "upstream", "not checked: none is configured; name one with --upstream URL or in proxy.yaml"
            )
        ]
    pool = ConnectionPool()
    try:
        return [await _check_upstream(name, settings, pool) for name, settings in config.upstreams.items()]
    finally:
        await pool.aclose()


async def _check_upstream(name: str, settings: UpstreamSettings, pool: ConnectionPool) -> Check:
    about = f"upstream {name}"
    if settings.kind == "litellm":
        return _check_litellm(about, settings)
    return await _check_url(about, settings, HttpUpstream(name, settings, pool))


def _check_litellm(about: str, settings: UpstreamSettings) -> Check:
    """Checks that litellm is installed. The provider is not asked, because a request may cost money."""
    if reason := unavailable_reason():
        return Check("finding", about, f"kind litellm: {reason}")
    credential = "the configured key" if settings.key is not None else "whatever key litellm finds by itself"
    return Check("ok", about, f"litellm is installed, and asks with {credential}; the provider was not asked")


async def _check_url(about: str, settings: UpstreamSettings, upstream: HttpUpstream) -> Check:
    """Asks for the list of models, which costs nothing and which every compatible provider has."""
    headers = outgoing_headers([], settings, readable=False)
    try:
        async with asyncio.timeout(UPSTREAM_TIMEOUT_S):
            answer = await upstream.send("GET", "/v1/models", b"", headers, b"")
            await answer.aclose()
    except TimeoutError:
        return Check("finding", about, f"{settings.url} did not answer in {UPSTREAM_TIMEOUT_S:.0f} s")
    except ProxyError as error:
        return Check("finding", about, f"{settings.url}: {error}")
    if answer.status < 400:
        return Check("ok", about, f"{settings.url} answers")
    if answer.status in (401, 403) and settings.key is None:
        return Check("ok", about, f"{settings.url} answers and wants a key; the clients' own keys pass")
    if answer.status in (401, 403):
        text = f"{settings.url} refuses the configured key ({answer.status}), sent in {settings.key_header}"
        return Check("finding", about, f"{text}; Anthropic wants key_header: x-api-key")
    text = f"{settings.url} answers GET models with {answer.status}; some providers have no such list"
    return Check("finding" if answer.status >= 500 else "unsure", about, text)


# ---------------------------------------------------------------------------------------------------------- this host
def _check_tokenizer() -> Check:
    counter = TokenCounter()
    if counter.count("one two three") and counter.name.startswith("o200k"):
        return Check("ok", "tokenizer", f"{counter.name} counts")
    return Check("finding", "tokenizer", f"{counter.name}: counts are estimates; install tiktoken for exact ones")


def _check_data_directory(config: Config) -> Iterator[Check]:
    if not config.data.is_dir():
        yield Check("ok", "data", f"{config.data} is not there yet; serve makes it")
        return
    files = (path for path in config.data.iterdir() if path.is_file())
    loose = [path for path in (config.data, *files) if stat.S_IMODE(path.stat().st_mode) & 0o077]
    if loose:
        yield Check("finding", "data", f"others may read {', '.join(map(str, loose))}; chmod go= them")
    else:
        yield Check("ok", "data", f"{config.data} is readable by its owner alone")
    aside = sorted(path.name for path in config.data.glob("*.corrupt-*") if not path.name.endswith(("-wal", "-shm")))
    if aside:
        yield Check("finding", "quarantine", f"a damaged store was set aside: {', '.join(aside)}; look, then remove it")


# -------------------------------------------------------------------------------------------------------------- store
def _check_store(config: Config) -> Iterator[Check]:
    path = config.store_path
    if config.is_store_in_memory:
        yield Check("unsure", "store", "it is kept in memory; ask the running proxy, at /health")
    elif path is None:
        yield from asyncio.run(_check_contents(config))
    elif not path.is_file():
        yield Check("ok", "store", f"{path} is not there yet; serve makes it")
    elif fault := integrity_fault(path):
        yield Check("finding", "store", f"{path}: {fault}")
    else:
        yield from asyncio.run(_check_contents(config))


def integrity_fault(path: Path) -> str:
    """What is wrong with the file and what `serve` will do about it, or empty. Opens the file read-only."""
    try:
        connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
        try:
            found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error as caught:
        error = as_store_error(caught)
        return f"{error}; {SET_ASIDE_HINT}" if error.code == "store_corrupt" else str(error)
    return "" if found == "ok" else f"{found}; {SET_ASIDE_HINT}"


async def _check_contents(config: Config) -> list[Check]:
    try:
        async with opened_store(config) as store:
            records = await store.requests(None, "", MAX_REQUESTS_CHECKED)
            rows = await recent_conversation_rows(store, None, MAX_CONVERSATIONS_CHECKED)
            async for _ in all_conversations(store, None):
                pass  # reading their names finds damaged ones
            newest = [await store.request(None, record.id) for record in records[:MAX_BODIES_CHECKED]]
            health = store.health()
            distance = [await _check_store_distance(store)] if config.is_store_shared else []
    except ProxyError as error:
        return [Check("finding", "store", f"{error} ({error.code})")]
    size = f"{health.where}: {pluralize(health.conversations, 'conversation')}, {health.size_bytes:,} bytes"
    return [
        Check("ok", "store", size),
        *distance,
        *_check_damage(health.damaged),
        _check_readable(rows),
        *check_requests(records, config.tariff_of),
        *check_tools(b"".join(stored.record.body) for stored in newest if stored is not None),
    ]


async def _check_store_distance(store: Store) -> Check:
    """Measures the shortest of a few small reads, which are three round trips each."""
    took = []
    for _ in range(DISTANCE_READS):
        began = time.perf_counter()
        await store.newest_record_time()
        took.append(time.perf_counter() - began)
    read_ms = min(took) * 1000
    told = f"a small read takes {read_ms:.0f} ms"
    if read_ms <= NEAR_READ_MS:
        return Check("ok", "store distance", told)
    text = f"{told}, so each request waits for the store for about {2 * read_ms:.0f} ms before it leaves, and as long"
    return Check("unsure", "store distance", f"{text} at its end; run the proxy nearer to its database")


def _check_damage(damaged: int) -> Iterator[Check]:
    if damaged:
        text = "a record is damaged (a disk or memory fault?): requests of its conversation are passed on, of no other"
        yield Check("finding", "store", text)


def _newest(count: int) -> str:
    """`the newest conversation`, `the newest 3 conversations`."""
    return "the newest conversation" if count == 1 else f"the newest {pluralize(count, 'conversation')}"


def _check_readable(rows: Sequence[ConversationRow]) -> Check:
    """Checks that the newest conversations can be read; requests of one that cannot are bypassed."""
    broken = [row["id"] for row in rows if "unreadable" in row]
    if not broken:
        return Check("ok", "conversations", f"{_newest(len(rows))} can be read")
    text = (
        f"{len(broken)} of {_newest(len(rows))} cannot be read ({', '.join(broken)}), so their requests are passed on"
    )
    todo = "damaged, or of a newer callstack; `callstack forget ID` would delete one"
    return Check("finding", "conversations", f"{text}: {todo}")


def check_requests(records: Iterable[RequestRecord], tariff_of: Callable[[str], Tariff]) -> Iterator[Check]:
    """Checks on the newest requests. `records` are newest first."""
    listed = list(records)
    around = [r for r in listed if r.status.startswith("bypass")]
    share = len(around) / len(listed) if listed else 0.0
    text = f"{len(around)} of the newest {len(listed)} requests were passed on because our own work failed"
    yield Check("finding" if share > MAX_BYPASS_SHARE else "ok", "passed on", f"{text}{_reasons(around)}")
    yield _check_errors(listed)
    yield from _check_windows(listed, tariff_of)
    yield from _check_prices(listed, tariff_of)


def _check_errors(records: Sequence[RequestRecord]) -> Check:
    receipts = [(r, decode_receipt(r)) for r in records if r.status == "error"]
    failed = [record for record, receipt in receipts if receipt is None or receipt.reason not in HARMLESS_REASONS]
    text = f"{len(failed)} of the newest {len(records)} requests failed"
    many = bool(records) and len(failed) / len(records) > MAX_ERROR_SHARE
    return Check("finding" if many else "ok", "errors", f"{text}{_reasons(failed)}")


def _reasons(records: Iterable[RequestRecord]) -> str:
    words = sorted(
        {r.status.partition("reason=")[2] or receipt.reason for r in records if (receipt := decode_receipt(r))}
    )
    return f" ({'; '.join(f'{word}: {reason_meaning(word)}' for word in words if word)})" if any(words) else ""


def _check_windows(records: Iterable[RequestRecord], tariff_of: Callable[[str], Tariff]) -> Iterator[Check]:
    """A client sees the size of the shortened context, so its own history may outgrow the window unnoticed: without
    the proxy its next request would be refused."""
    newest: dict[str, Receipt] = {}
    for record in records:
        receipt = decode_receipt(record)
        if receipt is not None and receipt.conversation:
            newest.setdefault(receipt.conversation, receipt)
    beyond = [(r, row) for r in newest.values() if r.tokens_in > (row := tariff_of(r.model)).window]
    for receipt, row in beyond:
        text = f"{receipt.conversation}: the client's history is {receipt.tokens_in - row.window:,} tokens longer than"
        if row.window_known:
            words = f"{text} the window of {receipt.model}; it cannot go on without the proxy"
            yield Check("finding", "history", words)
        else:
            words = f"{text} the {row.window:,} assumed for {receipt.model}; set its window under `tariffs`"
            yield Check("unsure", "history", words)
    if not beyond:
        yield Check("ok", "history", f"{_newest(len(newest))} would fit the model's window without us too")


def _check_prices(records: Iterable[RequestRecord], tariff_of: Callable[[str], Tariff]) -> Iterator[Check]:
    """The price row of each model, most recently used first."""
    models = dict.fromkeys(receipt.model for r in records if (receipt := decode_receipt(r)) is not None)
    for model in models:
        row = tariff_of(model)
        if row.known and is_stale(row, day := today()):
            text = f"{row.input:g} USD per million input tokens, checked {age_days(row, day)} days ago ({row.as_of})"
            yield Check("unsure", "price", f"{model}: {text}; `callstack inspect tariffs --update` brings newer prices")
        elif row.known:
            price = f"{row.input:g} USD per million input tokens ({', '.join(filter(None, (row.source, row.as_of)))})"
            yield Check("ok", "price", f"{model}: {price}")
        else:
            like = f" ({row.source})" if row.source.startswith("family") else ""
            text = f"in no price table, {row.input:g} USD per million{like} stands in; set its price under `tariffs`"
            yield Check("unsure", "price", f"{model}: {text}")


def check_tools(bodies: Iterable[bytes]) -> Iterator[Check]:
    """Names each model whose client sends so many tools with every request. `bodies` are newest first, and the newest
    of a model counts."""
    seen: set[str] = set()
    for body in bodies:
        try:
            request = msgspec.json.decode(body, type=_OfferedTools)
        except msgspec.MsgspecError:
            continue  # no tools, or a body that is not stored
        tools = [tool for tool in request.tools if "input_schema" in tool]  # not so in the other dialects
        is_deferring = any(tool.get("defer_loading") for tool in tools)
        if request.model not in seen and len(tools) > MAX_TOOLS and not is_deferring:
            yield Check("finding", "tools", TOOLS_TEXT.format(len(tools), request.model))
        seen.add(request.model)


class _OfferedTools(msgspec.Struct):
    model: str
    tools: list[dict[str, Any]]
