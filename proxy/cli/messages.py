"""The commands `say` and `cancel`: speak into a running conversation, see what waits there, stop it.

A running proxy is asked, which keeps conversations in memory; where none runs, what is said waits in the store.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from proxy.cli.context import AsJson, ConfigFile, DataDirectory, opened_store, run_async, settings_at
from proxy.cli.output import align_columns, pluralize, print_json
from proxy.cli.output import print_line as tell
from proxy.cli.running import ServerInfo, ask_proxy, find_running_proxy
from proxy.config import Config
from proxy.core.ledger import Conversation, Lane
from proxy.core.text import cut_for_display
from proxy.exchange import Inbox
from proxy.management.actions import StopView, stop_all
from proxy.management.views import MessageRow, local_time, lookup, message_rows
from proxy.store import ConversationCache, Store

ConversationName = Annotated[
    str, typer.Argument(help="Id of the conversation, or its beginning (4 characters or more).")
]
MAX_TEXT_SHOWN = 60
"""Characters of a text in a list."""


def say(
    conversation: ConversationName,
    text: Annotated[str, typer.Argument(help="What the agent is to be told.")] = "",
    follow_up: Annotated[bool, typer.Option("--follow-up", help="When the model has nothing more to do.")] = False,
    thread: Annotated[str, typer.Option("--thread", help="Only in this thread.")] = "",
    listed: Annotated[bool, typer.Option("--list", help="What was said here, and what became of it.")] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Take back whatever waits.")] = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Say something to a running agent: it is told with its next request."""
    if (bool(text) + listed + clear) != 1:
        raise typer.BadParameter("write what the agent is to be told, or --list, or --clear; one of them")
    settings = settings_at(config, data)
    if listed:
        rows = run_async(_load_messages(settings, conversation))
        _print_value({"messages": rows}, queued_messages_text(rows), as_json=as_json)
    elif clear:
        removed = run_async(_clear_messages(settings, conversation))
        _print_value({"removed": removed}, [f"took back {pluralize(removed, 'message')}"], as_json=as_json)
    else:
        body = {"text": text, "lane": Lane.FOLLOW_UP if follow_up else Lane.STEER, "thread": thread}
        done = run_async(_queue_message(settings, conversation, body))
        when = "when the model has nothing more to do" if follow_up else "with its next request"
        line = f"queued as number {done['position']}; the agent is told {when}"
        _print_value(done, [line], as_json=as_json)


def cancel(
    conversation: ConversationName,
    tree: Annotated[bool, typer.Option("--tree", help="Also block its frames, and give up what is planned.")] = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Stop what is under way in a conversation, and take back what waits to be told."""
    done = run_async(_cancel_requests(settings_at(config, data), conversation, tree=tree))
    _print_value(done, cancelled_text(done), as_json=as_json)


def _print_value(value: Any, lines: Sequence[str] | Iterator[str], *, as_json: bool) -> None:
    if as_json:
        print_json(value)
        return
    for line in lines:
        tell(line)


# -------------------------------------------------------------------------------------------------------------- asking
async def _queue_message(settings: Config, reference: str, body: dict[str, str]) -> Any:
    async with opened_store(settings) as store:
        about, server = await _find_conversation(settings, store, reference)
        if server is None:
            lane, text, thread = Lane(body["lane"]), body["text"], body["thread"]
            said, position = await _inbox_of(settings, store).add_message(about.tenant, about.id, text, lane, thread)
            return {"queued": True, "position": position, "id": said.id}
    return ask_proxy(server, "POST", f"/stack/conversations/{about.id}/messages", body)


async def _load_messages(settings: Config, reference: str) -> list[MessageRow]:
    async with opened_store(settings) as store:
        about, _ = await _find_conversation(settings, store, reference)
        speaking = _inbox_of(settings, store)
        return message_rows(await speaking.list_messages(about.tenant, about.id), speaking.now())


async def _clear_messages(settings: Config, reference: str) -> int:
    async with opened_store(settings) as store:
        about, server = await _find_conversation(settings, store, reference)
        if server is None:
            return await _inbox_of(settings, store).clear_messages(about.tenant, about.id)
    return int(ask_proxy(server, "DELETE", f"/stack/conversations/{about.id}/messages")["removed"])


async def _cancel_requests(settings: Config, reference: str, *, tree: bool) -> Any:
    async with opened_store(settings) as store:
        about, server = await _find_conversation(settings, store, reference)
        if server is None:
            done = await _inbox_of(settings, store).cancel_requests(about.tenant, about.id)
            stopped: StopView | None = None
            if tree:
                ledger = await lookup.ledger_of(store, about.tenant, about.id)
                stopped, _ = await stop_all(store, settings, ledger, _now())
            return {"requests": done.requests, "messages": done.messages, "tree": stopped}
    return ask_proxy(server, "POST", f"/stack/conversations/{about.id}/cancel", {"tree": tree})


async def _find_conversation(settings: Config, store: Store, reference: str) -> tuple[Conversation, ServerInfo | None]:
    """The conversation, and the proxy that has it at hand, where one runs."""
    ledger = await lookup.find_ledger(store, None, reference)
    return ledger.conversation, find_running_proxy(settings.data)


def _inbox_of(settings: Config, store: Store) -> Inbox:
    return Inbox(store, ConversationCache(store), settings.queue_hours, _now, lambda: secrets.token_hex(16))


def _now() -> int:
    return time.time_ns() // 1_000_000


# -------------------------------------------------------------------------------------------------------------- telling
def queued_messages_text(rows: Sequence[MessageRow]) -> Iterator[str]:
    """One line for each, with its text in the last column."""
    if not rows:
        yield "Nothing was said here from beside the client."
        return
    cells = [
        (local_time(row["created"]), row["state"], row["lane"], cut_for_display(row["text"], MAX_TEXT_SHOWN))
        for row in rows
    ]
    yield from align_columns([("when", "state", "lane", "text"), *cells])


def cancelled_text(done: Any) -> Iterator[str]:
    """What was stopped, and what became of the frames."""
    yield f"stopped {pluralize(done['requests'], 'request')}, took back {pluralize(done['messages'], 'message')}"
    if done["tree"] is None:
        return
    for word, name in (("blocked", "blocked"), ("given up", "invalidated"), ("still under way", "left")):
        if frames := done["tree"][name]:
            yield f"{word}: {', '.join(frames)}"
