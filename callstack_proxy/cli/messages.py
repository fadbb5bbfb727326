"""The commands `say` and `cancel`: queue a message for a running agent, list what waits, stop what is under way.

All of it goes through the management API.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from callstack_proxy.cli.api_client import call, conversation_path
from callstack_proxy.cli.context import AsJson, ConfigFile, DataDirectory, settings_at
from callstack_proxy.cli.output import align_columns, pluralize, print_json, print_line
from callstack_proxy.management.views import MessageRow, local_time
from proxy.core.ledger import Lane
from proxy.core.text import cut_at_word

ConversationName = Annotated[
    str, typer.Argument(help="Id of the conversation, or its beginning (4 characters or more).")
]
MAX_TEXT_SHOWN = 200
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
    path = f"{conversation_path(settings, conversation)}/messages"
    if listed:
        rows: list[MessageRow] = call(settings, "GET", path)["messages"]
        _print_value({"messages": rows}, queued_messages_text(rows), as_json=as_json)
    elif clear:
        removed = call(settings, "DELETE", path)["removed"]
        _print_value({"removed": removed}, [f"took back {pluralize(removed, 'message')}"], as_json=as_json)
    else:
        body = {"text": text, "lane": Lane.FOLLOW_UP if follow_up else Lane.STEER, "thread": thread}
        queued = call(settings, "POST", path, body)
        when = "when the model has nothing more to do" if follow_up else "with its next request"
        line = f"queued as number {queued['position']}; the agent is told {when}"
        _print_value(queued, [line], as_json=as_json)


def cancel(
    conversation: ConversationName,
    tree: Annotated[bool, typer.Option("--tree", help="Also block its frames, and give up what is planned.")] = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Stop what is under way in a conversation, and take back what waits to be told."""
    settings = settings_at(config, data)
    done = call(settings, "POST", f"{conversation_path(settings, conversation)}/cancel", {"tree": tree})
    _print_value(done, cancelled_text(done), as_json=as_json)


def _print_value(value: Any, lines: Sequence[str] | Iterator[str], *, as_json: bool) -> None:
    if as_json:
        print_json(value)
        return
    for line in lines:
        print_line(line)


def queued_messages_text(rows: Sequence[MessageRow]) -> Iterator[str]:
    """One line for each, with its text in the last column."""
    if not rows:
        yield "Nothing was said here from beside the client."
        return
    cells = [
        (local_time(row["created"]), row["state"], row["lane"], cut_at_word(row["text"], MAX_TEXT_SHOWN))
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
