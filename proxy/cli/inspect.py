"""The commands that look at what happened: `tree`, `log`, `diff`. What it cost is told by `reporting`.

They read the store themselves, whether a proxy runs or not, and print what `/stack` would answer.
"""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.cli.context import AsJson, ConfigFile, DataDirectory, at, opened, run
from proxy.cli.output import columns, counted, page, say, say_bytes, say_json
from proxy.config.model import Config
from proxy.errors import BadRequest
from proxy.management.views import conversations, logs, lookup, requests
from proxy.management.views.diff import CHANGES, FIRST_BYTES, INSERTED, KEPT, LEFT_OUT
from proxy.management.views.past import ledger_at, moment_in
from proxy.management.views.schemas import (
    ConversationRow,
    DecisionTold,
    FrameLog,
    LogItem,
    MessageChange,
    NamedChanges,
    ReceiptTold,
    RequestDifference,
    RoundDifference,
)
from proxy.management.views.totals import moment
from proxy.store import Store

LISTED = 10
"""Conversations listed above the newest one's tree."""
SHORT_ID = 12
SIGNS = {KEPT: "  ", FIRST_BYTES: " ~", LEFT_OUT: " -", INSERTED: " +"}
COLORS = {LEFT_OUT: "red", INSERTED: "green", FIRST_BYTES: "yellow", KEPT: None}

AsOf = Annotated[
    str, typer.Option("--as-of", help="As it was known then: an ISO time (UTC without a zone), or ms since the epoch.")
]
Conversation = Annotated[str, typer.Argument(help="Id, or its beginning (4 characters or more); default: the newest.")]


def time_of(as_of: str) -> int | None:
    """The time that was typed, in ms since the epoch; None where none was. Raises BadParameter."""
    try:
        return moment_in(as_of)
    except BadRequest as error:
        raise typer.BadParameter(str(error)) from None


# --------------------------------------------------------------------------------------------------------------- tree
def tree(
    conversation: Conversation = "",
    details: Annotated[bool, typer.Option("--details", help="With criteria, results and artifacts.")] = False,
    as_of: AsOf = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """The frames of a conversation; without an argument the newest one's, below a list of the others."""
    run(_tree(at(config, data), conversation, time_of(as_of), details=details, as_json=as_json))


async def _tree(config: Config, reference: str, moment_ms: int | None, *, details: bool, as_json: bool) -> None:
    async with opened(config) as store:
        if not (reference or as_json):
            await _list_conversations(store)
        ledger = ledger_at(await lookup.ledger_named(store, None, reference), moment_ms)
        story = conversations.story_of(ledger, names=config.observed_tools)
        row = await conversations.conversation_row(store, ledger, moment_ms)
        if as_json:
            say_json({"conversation": row, "state": conversations.state(ledger, story)})
            return
        awake = "awake" if row["awake"] else "asleep"
        mode = f", mode {row['mode']}" if row["mode"] else ""
        say(f"{row['id']}  {counted(row['requests'], 'request')}, {awake}{mode}", "cyan")
        say(conversations.tree_text(ledger, story, details=details))


async def _list_conversations(store: Store) -> None:
    """Nothing where there is only one."""
    rows = await conversations.last_rows(store, None, LISTED)
    if len(rows) < 2:
        return
    cells = [
        (r["id"][:SHORT_ID], moment(r["last_active"]), str(r["requests"]), str(r["frames"]), _title(r)) for r in rows
    ]
    for line in columns([("conversation", "last active", "requests", "frames", "title"), *cells], right=(2, 3)):
        say(line)
    say()


def _title(row: ConversationRow) -> str:
    return lookup.UNREADABLE if "unreadable" in row else row["title"]


# ---------------------------------------------------------------------------------------------------------------- log
def log(
    frame: Annotated[str, typer.Argument(help="Id, its beginning (4 characters or more), or a title.")],
    raw: Annotated[bool, typer.Option("--raw", help="The stored bytes of each message, one a line.")] = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Everything a frame did, oldest first, also what is no longer sent."""
    found = run(_log(at(config, data), frame, raw=raw))
    if as_json:
        say_json(found)
    elif raw:
        say_bytes(
            message["wire"].encode("utf-8", "surrogateescape")
            for entry in found["entries"]
            for message in (entry, *entry["results"])
        )
    else:
        page(log_text(found))


async def _log(config: Config, reference: str, *, raw: bool) -> FrameLog:
    async with opened(config) as store:
        ledger, story, frame = await lookup.frame_named(store, None, reference)
        return logs.frame_log(ledger, story, frame.id, raw=raw)


def log_text(log: FrameLog) -> str:
    """A header, then each message with its calls and hidden results."""
    head = f"{log['frame']}  {log['title']}  ({log['status']})  of {log['conversation']}"
    return "\n\n".join([head, *(_entry_text(entry) for entry in log["entries"])])


def _entry_text(entry: LogItem) -> str:
    marks = [f"to {entry['answers']}"] if entry["answers"] else []
    marks += ["broken off"] if not entry["complete"] else []
    marks += ["on another branch"] if not entry["current"] else []
    head = f"--- {entry['role']}  {moment(entry['created'])}  {entry['tokens']} tokens  {entry['id']}"
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
    found = run(_diff(at(config, data), request))
    if as_json:
        say_json(found)
        return
    say(f"request {found['id']}  {found['status']}", "cyan")
    for line in receipt_text(found["receipt"]):
        say(line)
    if any(not one["same"] and one["readable"] for one in found["rounds"]):
        say("- left out   + inserted by the proxy   ~ in the bytes it was first sent in   B bytes")
    if not found["rounds"]:
        say("Nothing was sent for it, or the client's bytes were passed on and not kept twice.")
    for one in found["rounds"]:
        _say_round(one)


async def _diff(config: Config, request: str) -> RequestDifference:
    async with opened(config) as store:
        return requests.request_difference(await requests.stored_request(store, None, request))


def receipt_text(receipt: ReceiptTold) -> list[str]:
    """What it cost, and what the gate decided, also what it put off; nothing while it is being answered."""
    if not receipt:
        return []
    tokens = f"{receipt['tokens_in']:,} tokens came, {receipt['tokens_sent']:,} were sent"
    money = f"{receipt['cost']:.6f} USD, untouched {receipt['cost_untouched']:.6f} ({receipt['basis']})"
    lost = receipt.get("lost_reasoning", 0)
    reasoning = [f"{lost:,} tokens of reasoning had to be left out"] if lost else []
    return [f"{tokens}; {money}", *reasoning, *map(_decision, receipt.get("decisions", []))]


def _decision(told: DecisionTold) -> str:
    """One answer of the gate; cost and gain in input tokens."""
    if not told["done"] and not told["removed"]:
        return f"{told['kind']}: nothing that could leave is worth it yet"
    answer = "done" if told["done"] else "not now"
    line = f"{told['removed']:,} leave, {told['compaction']:,} stand for them, {told['behind']:,} stay behind"
    worth = f"gain {told['gain']:,.0f}, cost {told['cost']:,.0f} over {counted(told['requests'], 'request')}"
    asked, why = f"{told['kind']} {told['subject']}".rstrip(), told["reason"].replace("_", " ")
    return f"{asked}: {answer} ({why}); {line}; {worth}"


def _say_round(one: RoundDifference) -> None:
    say()
    say(f"round {one['round']}: {one['client_bytes']:,} bytes came, {one['sent_bytes']:,} were sent", "cyan")
    if one["same"]:
        say("byte for byte what the client sent")
    elif not one["readable"]:
        say("not both are chat requests; compare the bodies: /stack/requests/ID")
    else:
        _say_changes(one)


def _say_changes(one: RoundDifference) -> None:
    counts = one["counts"]
    say(", ".join(f"{counts[what]} {what}" for what in CHANGES))
    say(f"tools: {_named_changes(one['tools'])}")
    say(f"fields: {_named_changes(one['fields'])}")
    for row in one["head"]:
        _say_message(row, "head ")
    for row in one["messages"]:
        _say_message(row, "")


def _named_changes(changes: NamedChanges) -> str:
    told = {"changed": changes["changed"], "inserted": changes["inserted"], "left out": changes["left_out"]}
    return "; ".join(f"{what} {', '.join(names)}" for what, names in told.items() if names) or "the same"


def _say_message(row: MessageChange, place: str) -> None:
    calls = f" -> {', '.join(row['calls'])}" if row["calls"] else ""
    said = f"{SIGNS[row['change']]} {place}{row['role']:<9} {row['bytes']:>7,} B{calls}  {row['text']}"
    say(said.rstrip(), COLORS[row["change"]])
