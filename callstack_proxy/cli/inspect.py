"""The commands that show conversations: `tree`, `log`, `diff`, `explain`, `resume`, `search` and `map`.

They read the store, whether a proxy runs or not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import typer

from callstack_proxy.cli.api_client import call
from callstack_proxy.cli.context import AsJson, ConfigFile, DataDirectory, project_folders, settings_at
from callstack_proxy.cli.output import (
    one_line,
    output_width,
    pluralize,
    print_balance,
    print_bytes,
    print_json,
    print_line,
    print_note,
    print_paged,
)
from callstack_proxy.cli.store_access import opened_store
from callstack_proxy.filemap import DEFAULT_MAP_TOKENS, PARTIAL_FILE_SUFFIX
from callstack_proxy.management import find_by_id
from callstack_proxy.management.reports import (
    TableColumn,
    decision_meaning,
    format_amounts,
    format_balance,
    format_columns,
    outcome_meaning,
    percent_saved,
    plan_lines,
)
from callstack_proxy.management.views import (
    CHANGES,
    FIRST_BYTES,
    INSERTED,
    KEPT,
    LEFT_OUT,
    MAX_RESULTS,
    AncestorView,
    ConversationRow,
    ExplanationView,
    FrameLog,
    LogItem,
    MessageChange,
    NamedChanges,
    RequestDiff,
    ResumeView,
    RoundDiff,
    SearchResults,
    SeenFilesView,
    SiblingView,
    conversations,
    explanation_view,
    ledger_at,
    local_time,
    logs,
    parse_timestamp,
    requests,
    resume_view,
    search_frames,
    seen_files_view,
    waiting_or_quiet,
)
from proxy.accounting import GateDecision, Receipt, Tariff, TokenCounter
from proxy.config import Config
from proxy.core.frames import Status
from proxy.core.text import cut_at_word
from proxy.core.tools import TREE_ICONS
from proxy.errors import BadRequest
from proxy.store import Store

MAX_CONVERSATIONS_LISTED = 10
"""Conversations listed above the newest one's tree."""
SHORT_ID = 12
MIN_LISTED_TITLE = 24
"""Cells of a title that stay on a narrow terminal."""
SIGNS = {KEPT: "  ", FIRST_BYTES: " ~", LEFT_OUT: " -", INSERTED: " +"}
COLORS = {LEFT_OUT: "red", INSERTED: "green", FIRST_BYTES: "yellow", KEPT: None}

AsOfOption = Annotated[
    str, typer.Option("--as-of", help="As it was known then: an ISO time (UTC without a zone), or ms since the epoch.")
]
ConversationArgument = Annotated[
    str, typer.Argument(help="Id, or its beginning (4 characters or more); default: the newest.")
]


def parse_as_of(as_of: str) -> int | None:
    """The time in ms since the epoch, or None where none is given. Raises typer.BadParameter."""
    try:
        return parse_timestamp(as_of)
    except BadRequest as error:
        raise typer.BadParameter(str(error)) from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# --------------------------------------------------------------------------------------------------------------- tree
def tree(
    conversation: ConversationArgument = "",
    details: Annotated[bool, typer.Option("--details", help="With criteria, results and artifacts.")] = False,
    as_of: AsOfOption = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """The frames of a conversation; without an argument the newest one's, below a list of the others."""
    asyncio.run(
        _print_tree(settings_at(config, data), conversation, parse_as_of(as_of), details=details, as_json=as_json)
    )


async def _print_tree(config: Config, reference: str, moment_ms: int | None, *, details: bool, as_json: bool) -> None:
    async with opened_store(config) as store:
        if not (reference or as_json):
            await _print_conversations(store)
        ledger = ledger_at(await find_by_id.find_ledger(store, None, reference), moment_ms)
        path_state = conversations.path_state_of(ledger, names=config.observed_tools)
        row = await conversations.conversation_row(store, ledger, moment_ms)
        if as_json:
            print_json({"conversation": row, "state": conversations.tree_state_view(ledger, path_state)})
            return
        state = waiting_or_quiet(row["last_active"], moment_ms or _now_ms()) if row["awake"] else "passed on"
        mode = f", mode {row['mode']}" if row["mode"] else ""
        print_line(f"{row['id']}  {pluralize(row['requests'], 'request')}, {state}{mode}", "cyan")
        if row["plan"] or row["plan_part"]:
            print_line(row["plan_part"] or f"it took {row['plan']}", "cyan")
        if not row["plan"]:
            text = format_balance(row["saved"], row["cost_untouched"], caused=row["cost_caused"])
            print_balance(row["saved"], text)
        print_line(conversations.tree_text(ledger, path_state, details=details))


async def _print_conversations(store: Store) -> None:
    """Lists the newest conversations, unless there is only one."""
    rows = await conversations.recent_conversation_rows(store, None, MAX_CONVERSATIONS_LISTED)
    if len(rows) < 2:
        return
    saved = [_saved(row) for row in rows]
    titles = [find_by_id.UNREADABLE_TITLE if "unreadable" in row else one_line(row["title"]) for row in rows]
    columns = (
        _text_column("conversation", (row["id"][:SHORT_ID] for row in rows)),
        _text_column("last active", (local_time(row["last_active"]) for row in rows)),
        TableColumn("requests", tuple(str(row["requests"]) for row in rows), rank=1),
        TableColumn("frames", tuple(str(row["frames"]) for row in rows), rank=3),
        TableColumn("saved $", tuple(amount for amount, _ in saved)),
        TableColumn("%", tuple(percent for _, percent in saved), rank=2),
        _text_column("title", titles, MIN_LISTED_TITLE),
    )
    for line in format_columns(columns, output_width()):
        print_line(line)
    print_line()


def _text_column(heading: str, cells: Iterable[str], min_width: int = 0) -> TableColumn:
    return TableColumn(heading, tuple(cells), min_width=min_width, is_number=False)


def _saved(row: ConversationRow) -> tuple[str, str]:
    percent = row["saved_percent"]
    return f"{row['saved']:.4f}", "" if percent is None else f"{percent:.1f}"


# ---------------------------------------------------------------------------------------------------------------- log
def log(
    frame: Annotated[str, typer.Argument(help="Id, its beginning (4 characters or more), or a title.")],
    raw: Annotated[bool, typer.Option("--raw", help="The stored bytes of each message, one a line.")] = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Everything a frame did, oldest first, also what is no longer sent."""
    view = asyncio.run(_load_log(settings_at(config, data), frame, raw=raw))
    if as_json:
        print_json(view)
    elif raw:
        print_bytes(
            message["wire"].encode("utf-8", "surrogateescape")
            for entry in view["entries"]
            for message in (entry, *entry["results"])
        )
    else:
        print_paged(log_text(view))


async def _load_log(config: Config, reference: str, *, raw: bool) -> FrameLog:
    async with opened_store(config) as store:
        ledger, path_state, frame = await find_by_id.find_frame_in_store(store, reference)
        return logs.frame_log(ledger, path_state, frame.id, raw=raw)


def log_text(log: FrameLog) -> str:
    """A header line, then each message with its calls and hidden results."""
    head = f"{log['frame']}  {log['title']}  ({log['status']})  of {log['conversation']}"
    return "\n\n".join([head, *(_entry_text(entry) for entry in log["entries"])])


def _entry_text(entry: LogItem) -> str:
    marks = [f"to {entry['answers']}"] if entry["answers"] else []
    marks += ["broken off"] if not entry["complete"] else []
    marks += ["on another branch"] if not entry["current"] else []
    identity, _, part = entry["id"].partition("/")
    known_as = f"{identity[:SHORT_ID]}{'/' if part else ''}{part}"
    head = f"--- {entry['role']}  {local_time(entry['created'])}  {entry['tokens']} tokens  {known_as}"
    lines = [head + "".join(f"  [{mark}]" for mark in marks)]
    lines += [entry["text"]] if entry["text"] else []
    lines += [f"-> {call['name']}({call['arguments']})  {call['id']}" for call in entry["calls"]]
    lines += [f"<- {result['answers']}: {result['text']}" for result in entry["results"]]
    return "\n".join(lines)


# --------------------------------------------------------------------------------------------------------------- diff
def diff(
    request: Annotated[str, typer.Argument(help="Id, or its beginning; `callstack report --by request` lists them.")],
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """The client's body against each body sent for it, message by message."""
    settings = settings_at(config, data)
    view = asyncio.run(_load_diff(settings, request))
    if as_json:
        print_json(view)
        return
    receipt = view["receipt"] if isinstance(view["receipt"], Receipt) else None
    print_line(f"request {view['id']}  {view['status']}", "cyan")
    if receipt:
        print_line(outcome_meaning(receipt.status, receipt.reason))
        for line in receipt_text(receipt, settings.tariff_of(receipt.model)):
            print_line(line)
    if any(not one["same"] and one["readable"] for one in view["rounds"]):
        print_line("- put away  + added by us  ~ sent as it first came  B bytes")
    if not view["rounds"]:
        print_line("It was sent as it came." if receipt and receipt.rounds else "Nothing was sent for it.")
    for one in view["rounds"]:
        _print_round(one)


async def _load_diff(config: Config, request: str) -> RequestDiff:
    async with opened_store(config) as store:
        return requests.request_diff(await requests.stored_request(store, None, request))


CHANGE_WORDS = {
    KEPT: "unchanged",
    FIRST_BYTES: "sent as they first came",
    LEFT_OUT: "put away",
    INSERTED: "added by us",
}
MIN_PRICE_DIFFERENCE = 0.005
"""Share by which bills must differ from the list to be told."""


def receipt_text(receipt: Receipt, tariff: Tariff) -> list[str]:
    """What the request cost, how that comes about, and decisions of the cost gate, refused ones included."""
    cost, untouched, saved = format_amounts([receipt.cost, receipt.cost_untouched, abs(receipt.saved)])
    percent = percent_saved(abs(receipt.saved), receipt.cost_untouched)
    share = "" if percent is None else f" ({percent:.1f} %)"
    balance = f"{'lost' if receipt.saved < 0 else 'saved'} ${saved}{share}" if float(saved) else "nothing saved"
    lost, gone = receipt.lost_reasoning, receipt.rereads_gone
    (again,) = format_amounts([receipt.cost_rereads])
    files = f"{gone:,} file{'' if gone == 1 else 's'}"
    priced = [f"without us ${untouched}, with us ${cost}: {balance}"]
    taken = plan_lines(receipt.plan) if receipt.plan else []
    prices = [_usage_text(receipt), *([] if receipt.plan else [_prices_text(receipt, tariff)])]
    return [
        *(taken or priced),
        f"{receipt.tokens_in:,} tokens from the agent, {receipt.tokens_sent:,} sent",
        *(prices if receipt.rounds else []),
        *([f"{files} that had been put away had to be read again: ${again}"] if gone else []),
        *([f"{lost:,} tokens of reasoning had to be left out"] if lost else []),
        *map(_decision_text, receipt.decisions),
    ]


def _usage_text(receipt: Receipt) -> str:
    """What the provider charges for, by its own figures where it told them."""
    usage, sent = receipt.usage, receipt.sent
    rounds = "" if receipt.rounds == 1 else f" in {receipt.rounds} rounds"
    answer = f"{usage.output:,} of the answer" if usage.output else "an answer it did not count"
    if receipt.basis == "reported":
        fresh = max(0, usage.input - usage.cached - usage.written)
        kinds = _kinds_text(usage.cached, usage.written, fresh)
        return f"the provider counted {usage.input:,} tokens{rounds}: {kinds}, and {answer}"
    kinds = _kinds_text(sent.cached, sent.written, sent.uncached)
    told = f"{usage.input:,} tokens" if usage.input else "no tokens"
    gap = "did not tell all of it" if usage.cached else "none from its cache yet"
    return f"the provider counted {told}{rounds} and {gap}; we estimate {kinds}, and {answer}"


def _kinds_text(cached: int, written: int, fresh: int) -> str:
    kinds = [(cached, "from its cache"), (written, "written to it"), (fresh, "at full price")]
    return ", ".join(f"{tokens:,} {kind}" for tokens, kind in kinds if tokens) or "0"


def _prices_text(receipt: Receipt, tariff: Tariff) -> str:
    output = "an answer of unknown price" if tariff.output is None else f"${tariff.output:g} for the answer"
    known = "" if receipt.priced else ", assumed for a model in no table"
    write = f", {tariff.write:g} times to write to it" if tariff.write != 1 else ""
    prices = f"${tariff.input:g} a million, {tariff.read:g} times that from the cache{write}, {output}"
    return f"prices of {receipt.model or 'the model'}{known}: {prices}{_bill_text(receipt)}"


def _bill_text(receipt: Receipt) -> str:
    """How far bills differ from the list; empty where they do not."""
    factor, where = receipt.price_factor, receipt.upstream or "this upstream"
    if abs(factor - 1) < MIN_PRICE_DIFFERENCE:
        return ""
    said = "the answer named its cost" if receipt.billed else "earlier answers named their cost"
    return f"; {said}, {factor:.3g} times that, and prices at {where} are corrected by it"


def _decision_text(decision: GateDecision) -> str:
    """One decision of the cost gate; cost and gain in input tokens."""
    if not decision.done and not decision.removed:
        return f"{decision.kind}: nothing that could leave is worth it yet"
    asked, why = f"{decision.kind} {decision.subject}".rstrip(), decision_meaning(decision.reason)
    leaves, stays = ("leave", "stand") if decision.done else ("would leave", "would stand")
    line = (
        f"{decision.removed:,} tokens {leaves}, {decision.compaction:,} {stays} for them, "
        f"{decision.behind:,} behind them"
    )
    worth = (
        f"worth {decision.gain:,.0f} tokens of input over {pluralize(decision.requests, 'request')} to come, which are "
        f"assumed, at a price of {decision.cost:,.0f} now"
    )
    if decision.band:
        worth += f", {decision.band:,.0f} of it for staying below the length from which all of a request costs more"
    return f"{asked}: {'done' if decision.done else 'not now'}, because {why}; {line}; {worth}"


def _print_round(one: RoundDiff) -> None:
    print_line()
    print_line(
        f"round {one['round']}: {one['client_bytes']:,} bytes from the agent, {one['sent_bytes']:,} sent", "cyan"
    )
    if one["same"]:
        print_line("byte for byte what the agent sent")
    elif not one["readable"]:
        print_line("not both are chat requests; compare the bodies: /stack/requests/ID")
    else:
        _print_changes(one)


def _print_changes(one: RoundDiff) -> None:
    counts = one["counts"]
    print_line(", ".join(f"{counts[what]} {CHANGE_WORDS[what]}" for what in CHANGES))
    print_line(f"tools: {_name_changes_text(one['tools'])}")
    print_line(f"fields: {_name_changes_text(one['fields'])}")
    shown = [(f"head {row['role']}", row) for row in one["head"]] + [(row["role"], row) for row in one["messages"]]
    role_width = max((len(role) for role, _ in shown), default=0)
    for role, row in shown:
        _print_message_change(row, f"{role:<{role_width}}")


def _name_changes_text(changes: NamedChanges) -> str:
    names_by_change = {"changed": changes["changed"], "added": changes["inserted"], "left out": changes["left_out"]}
    return "; ".join(f"{what} {', '.join(names)}" for what, names in names_by_change.items() if names) or "the same"


def _print_message_change(row: MessageChange, role: str) -> None:
    """One line, cut where the terminal ends."""
    calls = f"-> {', '.join(row['calls'])}{': ' if row['text'] else ''}" if row["calls"] else ""
    start, width = f"{SIGNS[row['change']]} {role} {row['bytes']:>7,} B  ", output_width()
    said = one_line(f"{calls}{row['text']}")
    shown = said if width is None else cut_at_word(said, width - len(start))
    print_line(f"{start}{shown}".rstrip(), COLORS[row["change"]])


MAX_TITLE_SHOWN = 40
"""Characters of a title in a row."""
MIN_TITLE_SHOWN = 34
"""On a narrow terminal, with the id in front of it."""
SCORE_RANKS = {
    "nearness": 1, "relevance": 1, "tokens": 2, "depth": 3, "level": 3, "status": 4, "recency": 5, "results": 6,
    "artifacts": 7,
}  # fmt: skip
"""The rank by which a narrow terminal drops columns: the highest goes first."""


def explain(
    conversation: ConversationArgument = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Why each frame stands in the block of the active frame, or does not: its score, part by part."""
    view = asyncio.run(_load_explanation(settings_at(config, data), conversation))
    if as_json:
        print_json(view)
        return
    for line in explanation_text(view):
        print_line(line)


async def _load_explanation(config: Config, reference: str) -> ExplanationView:
    async with opened_store(config) as store:
        ledger = await find_by_id.find_ledger(store, None, reference)
        path_state, now = conversations.path_state_of(ledger, names=config.observed_tools), _now_ms()
        return explanation_view(ledger, path_state, config, now, TokenCounter().count)


def explanation_text(view: ExplanationView) -> Iterator[str]:
    """A table of ancestors and a table of siblings, each with its score and the parts of it."""
    how = (
        "which the model has not read yet; as it would be now"
        if view["at"] is None
        else f"as the model read it at {local_time(view['at'])}"
    )
    yield f"The block of {view['frame']} ({one_line(view['title'])}), {how}"
    yield ""
    if view["ancestors"]:
        names = ("ancestor", "depth", "nearness", "recency", "status", "results", "artifacts", "score", "tokens", "")
        yield from _score_lines(names, map(_ancestor_cells, view["ancestors"]))
    else:
        yield "No frame stands above it."
    yield ""
    if not view["siblings"]:
        yield "Nothing was finished beside it, nor beside those above it."
        return
    names = ("sibling", "level", "relevance", "recency", "results", "artifacts", "status", "score", "tokens", "")
    yield from _score_lines(names, map(_sibling_cells, view["siblings"]))
    yield ""
    yield f"A sibling stands from a relevance of {view['minimum_relevance']} on, and the three newest in any case."


def _score_lines(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    cells = zip(*([one_line(cell) for cell in row] for row in rows), strict=True)
    columns = [
        TableColumn(
            name,
            tuple(column),
            rank=SCORE_RANKS.get(name, 0),
            min_width=0 if at else MIN_TITLE_SHOWN,
            is_number=0 < at < len(names) - 1,
        )
        for at, (name, column) in enumerate(zip(names, cells, strict=True))
    ]
    return format_columns(columns, output_width())


def _ancestor_cells(row: AncestorView) -> tuple[str, ...]:
    parts = row["parts"]
    figures = (parts["nearness"], parts["recency"], parts["status"], parts["results"], parts["artifacts"])
    return (_frame_cell(row), str(row["depth"]), *map(_figure, figures), *_result_cells(row))


def _sibling_cells(row: SiblingView) -> tuple[str, ...]:
    rest = row["rest"]
    figures = (row["relevance"], rest["recency"], rest["results"], rest["artifacts"], rest["status"])
    return (_frame_cell(row), str(row["level"]), *map(_figure, figures), *_result_cells(row))


def _frame_cell(row: AncestorView | SiblingView) -> str:
    return f"{row['frame']} {cut_at_word(row['title'], MAX_TITLE_SHOWN)}"


def _result_cells(row: AncestorView | SiblingView) -> tuple[str, str, str]:
    state = "stands" if row["kept"] else "left out"
    return _figure(row["score"]), str(row["tokens"]), f"{state}: {row['why']}"


def _figure(points: float) -> str:
    """Points, without a fraction where it is zero."""
    return f"{points:.1f}".removesuffix(".0")


def resume(
    conversation: ConversationArgument = "",
    as_of: AsOfOption = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Where the work stands: the way from the goal, what was done last, what not to try again, and what is next."""
    view = asyncio.run(_load_resume(settings_at(config, data), conversation, parse_as_of(as_of)))
    if as_json:
        print_json(view)
        return
    for line in resume_text(view):
        print_line(line)


async def _load_resume(config: Config, reference: str, moment_ms: int | None) -> ResumeView:
    async with opened_store(config) as store:
        ledger = ledger_at(await find_by_id.find_ledger(store, None, reference), moment_ms)
        return resume_view(ledger, conversations.path_state_of(ledger))


def resume_text(view: ResumeView) -> Iterator[str]:
    """From the goal down to what is next; empty sections are left out."""
    yield f"{view['conversation']}  last active {local_time(view['last_active'])}"
    for depth, frame in enumerate(view["path"]):
        yield f"{'  ' * depth}{_icon(frame['status'])} {one_line(frame['title'])} [{frame['frame']}]"
        if frame["criteria"]:
            yield f"{'  ' * depth}    done when: {one_line(frame['criteria'])}"
    yield from _section(
        "Finished", (f"{_icon(f['status'])} {f['title']}: {f['results'] or 'no result'}" for f in view["finished"])
    )
    yield from _section("Done last", view["actions"])
    yield from _section(
        "Not to be tried again as it is",
        (f"{' | '.join(b['calls'])} ({b['times']} times)" for b in view["blocked_actions"]),
    )
    yield from _section("Said last", [view["said"]] if view["said"] else [])
    yield ""
    planned = f" ({view['planned']} planned)" if view["planned"] else ""
    yield f"Next: {one_line(view['next']['action'])}{planned}"


def _icon(status: str) -> str:
    return TREE_ICONS[Status(status)]


def _section(title: str, lines: Iterator[str] | list[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        if not number:
            yield ""
            yield f"{title}:"
        yield f"  {one_line(line)}"


def search(
    words: Annotated[list[str], typer.Argument(help="What it was about; quotes and signs mean nothing.")],
    limit: Annotated[int, typer.Option("--limit", min=1, max=MAX_RESULTS, help="At most so many.")] = 10,
    project: Annotated[
        Path | None, typer.Option("--project", help="Only of agents that worked in this folder, or below it.")
    ] = None,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Finished frames with these words, of all conversations, the best first."""
    query, folders, settings = " ".join(words), project_folders(project), settings_at(config, data)
    asked = [("q", query), ("limit", str(limit)), *(("project", name) for name in folders)]
    read = partial(search_frames, scope=None, query=query, limit=limit, project=folders)
    view: SearchResults = call(settings, "GET", f"/stack/search?{urlencode(asked)}", read=read)
    if as_json:
        print_json(view)
        return
    if settings.embeddings.model and view["meaning"] == "off":
        print_note("no proxy runs here with the embedding model: words were looked for alone")
    for line in search_results_text(view):
        print_line(line)


def search_results_text(view: SearchResults) -> Iterator[str]:
    """Two lines for each frame: which one it is, and an excerpt."""
    if view["meaning"] == "unavailable":
        yield "The embedding model does not answer: words were looked for alone."
    if not view["frames"]:
        yield "No finished frame has any of these words."
        return
    if not view["all_words"]:
        near = " or are near in meaning" if any(row["by"] == "meaning" for row in view["frames"]) else ""
        yield f"No finished frame has all of these words; these come close{near}:"
    for row in view["frames"]:
        about = f"{local_time(row['ended'])}  {row['status']:<9}  {row['conversation'][:SHORT_ID]}"
        start, width = f"{row['frame']}  {about}  ", output_width()
        title = one_line(row["title"])
        yield start + (title if width is None else cut_at_word(title, width - len(start)))
        found_by = "(by meaning) " if row["by"] == "meaning" else ""
        if row["excerpt"] or found_by:
            yield f"    {found_by}{one_line(row['excerpt'])}"
    yield "Everything a frame did: callstack log FRAME"


def map_(
    conversation: ConversationArgument = "",
    tokens: Annotated[int, typer.Option(min=100, max=16_000, help="At most so many are told.")] = DEFAULT_MAP_TOKENS,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Which symbols are where, of the files that were read or written; those first that others refer to most."""
    view = asyncio.run(_load_map(settings_at(config, data), conversation, tokens))
    if as_json:
        print_json(view)
        return
    for line in map_text(view):
        print_line(line)


async def _load_map(config: Config, reference: str, tokens: int) -> SeenFilesView:
    async with opened_store(config) as store:
        ledger = await find_by_id.find_ledger(store, None, reference)
        return seen_files_view(ledger, conversations.path_state_of(ledger), config, tokens, TokenCounter().count)


def map_text(view: SeenFilesView) -> Iterator[str]:
    """Each file with its symbols below it, and a last line with totals."""
    if not view["files"]:
        yield "No file was seen here that defines anything." if view["seen"] else "No file was seen here."
        return
    for file in view["files"]:
        yield one_line(file["path"]) + ("" if file["whole"] else PARTIAL_FILE_SUFFIX)
        for symbol in file["symbols"]:
            yield f"{symbol['line'] or '':>6} {one_line(symbol['text'])}"
    yield ""
    symbols = sum(len(file["symbols"]) for file in view["files"])
    named = f"{pluralize(symbols, 'symbol')} of {pluralize(len(view['files']), 'file')}"
    yield f"{named} in {view['tokens']:,} tokens; {pluralize(view['seen'], 'file')} seen in all"
