"""Answers slash commands that a person types to the proxy, and removes them from later requests. A command at the end
of a request is carried out and answered in the client's dialect; nothing goes upstream. Commands and answers in the
history are removed first, so no context, ledger or frame contains them (`off` and `shadow` send what came). A retried
command is carried out once and gets the same answer; if our bookkeeping fails, the person is told and nothing changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container
from hashlib import sha256

from msgspec.structs import replace

from proxy.accounting import ANSWERED_STATUS
from proxy.core.commands import (
    ANSWER_MARK,
    COMMAND_WORD,
    HELP,
    CommandContext,
    InvalidCommand,
    SayCommand,
    apply_command,
    attach,
    command_text,
    find_commands,
    help_text,
    parse,
    previous_answer,
)
from proxy.core.ledger import Lane, Request, response_id_of
from proxy.core.tools import inspect_tools
from proxy.dialects import OwnResponse, RenderOptions, RequestParseError, previous_id_in, raw_json, text_blocks_of
from proxy.errors import BadRequest, NotAllowed, NotFound, StoreError
from proxy.exchange.client_response import Reply
from proxy.exchange.passthrough_without_turn import PassthroughRequest, new_request_record, with_upstream_model
from proxy.exchange.previous_responses import resolve_references
from proxy.exchange.resolver import ACTING_MODES
from proxy.exchange.rounds import ClientRequest, ContextRejected, Services, count_request_tokens, parse_client_request
from proxy.exchange.thread.placement import ParsedRequest, Placement

log = logging.getLogger(__name__)

SLASH_COMMANDS_HEADER = b"x-stack-slash-commands"
PREVIOUS_RESPONSE_KEY = "previous_response_id"
NO_CONVERSATION_TEXT = (
    "There is no conversation here yet: the first message to the agent begins one. `/stack help` lists commands."
)
OTHER_BRANCH_TEXT = (
    "The conversation went on from here before, and this is the beginning of another branch of it. Send the agent a "
    "message first, then do this again."
)
COMMAND_NOT_ALONE_TEXT = (
    "This request holds more for the agent than the command, and names the answer before it by its id: send the rest "
    "first, then type the command."
)
COMMAND_FAILED_TEXT = (
    "The proxy could not do this: its bookkeeping fails now ({why}). Nothing has changed, and the agent was not asked."
)


async def handle_slash_commands(
    passing: PassthroughRequest, reply: Reply
) -> tuple[PassthroughRequest, ClientRequest] | None:
    """The request without commands, and as it came (for `off` and `shadow`); None where a command was answered. Raises
    BadRequest for a command that cannot be taken out."""
    passing = await _skip_own_response(passing)
    request = passing.request
    if request is None or not [m for m in request.messages if m.role == "user" and COMMAND_WORD in m.text]:
        return passing, passing.client_request
    if not _takes_commands(passing):
        return passing, passing.client_request
    found = find_commands(request.messages, text_blocks_of)
    try:
        less = await _without_commands(passing, request, found.handled) if found.handled else passing
    except (RequestParseError, raw_json.JsonSplitError):  # the agent must not notice
        log.exception("what was typed to the proxy cannot be taken out", extra={"request": passing.client_request.id})
        less = passing
    if found.pending >= 0 and await _answer_command(less, reply, found.preceding_count):
        return None
    return less, passing.client_request


def _takes_commands(passing: PassthroughRequest) -> bool:
    """Whether commands in the chat count: the configuration, the client key and the client itself can each turn them
    off, and none can turn them on again. Raises BadRequest for a header that says neither."""
    asked, config = passing.client_request, passing.services.config
    setting = dict(asked.headers).get(SLASH_COMMANDS_HEADER, b"on").strip().lower()
    if setting not in (b"on", b"off"):
        shown = setting[:40].decode("latin-1")
        raise BadRequest(
            f"x-stack-slash-commands: {shown!r} says nothing; send `off` where no message is a command, or leave the "
            "header out.",
            code="unknown_slash_commands",
        )
    return config.slash_commands == "on" and asked.takes_slash_commands and setting == b"on"


# --------------------------------------------------------------------------------------------------------- taking out
async def _without_commands(passing: PassthroughRequest, request: Request, past: Container[int]) -> PassthroughRequest:
    dialect = passing.services.dialect
    messages = [message for at, message in enumerate(request.messages) if at not in past]
    head = [message.wire for message in request.head]
    written = dialect.render(request, messages, head, RenderOptions(include_usage=False))
    # Rendering drops `previous_response_id`; the client's fields keep it.
    return await _parse_again(passing, request, {**request.fields, **raw_json.members(b"".join(written))})


async def _skip_own_response(passing: PassthroughRequest) -> PassthroughRequest:
    """A request that continues one of our own answers by id is made to continue the answer before that."""
    request, references = passing.request, passing.services.dialect.references
    if (
        request is None
        or references is None
        or (before := previous_id_in(references.previous_response_id(request))) is None
    ):
        return passing
    fields = {name: raw for name, raw in request.fields.items() if before or name != PREVIOUS_RESPONSE_KEY}
    return await _parse_again(
        passing, request, fields | ({PREVIOUS_RESPONSE_KEY: raw_json.encode(before)} if before else {})
    )


async def _parse_again(passing: PassthroughRequest, request: Request, fields: dict[str, bytes]) -> PassthroughRequest:
    body = raw_json.join_object(fields)
    client_request = with_upstream_model(replace(passing.client_request, body=body), request.model, passing.route)
    return replace(passing, client_request=client_request, request=await parse_client_request(passing.services, body))


# ---------------------------------------------------------------------------------------------------------- answering
async def _answer_command(passing: PassthroughRequest, reply: Reply, before: int) -> bool:
    """Carry out the command at the end and answer it; False where the proxy is off. `before`: commands between it and
    the last other message."""
    request = passing.request
    if request is None or _would_lose_messages(passing.services, request):
        raise BadRequest(COMMAND_NOT_ALONE_TEXT, code="command_not_alone")
    client_request = passing.client_request
    expected = passing.services.resolver.mode_without_conversation(
        client_request.headers, client_request.mode, request.model
    )
    placement: Placement | None = None
    try:
        mode, command, placement = await _resolve_command(passing, request)
        if mode not in ACTING_MODES:
            return False
        text = await _run_command(passing.services, placement, command, before)
    except BadRequest:
        raise
    except (StoreError, ContextRejected) as error:
        text = COMMAND_FAILED_TEXT.format(why=error.code)
    except TimeoutError:
        text = COMMAND_FAILED_TEXT.format(why="too_slow")
    except Exception:  # the outermost edge of our bookkeeping: a person waits for an answer
        log.exception("a command could not be carried out", extra={"request": passing.client_request.id})
        text = COMMAND_FAILED_TEXT.format(why="internal")
    if placement is None and expected not in ACTING_MODES:
        return False
    await _send_answer(passing, reply, request, placement, text)
    return True


def _would_lose_messages(services: Services, request: Request) -> bool:
    """Whether the request names an answer by id and holds more than the command, which would be lost."""
    references = services.dialect.references
    return references is not None and bool(references.previous_response_id(request)) and len(request.messages) > 1


async def _resolve_command(passing: PassthroughRequest, request: Request) -> tuple[str, str, Placement | None]:
    """The mode, the command, and where it was typed (None if no conversation is known)."""
    services, client_request = passing.services, passing.client_request
    if (trouble := services.recorder.store.write_error()) is not None:
        raise StoreError("the store does not take records", code=trouble.code)
    async with asyncio.timeout(services.config.assembly_budget_ms / 1000):
        all_of_it, unplaced_reason = await resolve_references(services, client_request, request)
    all_of_it = await count_request_tokens(services, all_of_it)
    at = find_commands(all_of_it.messages, text_blocks_of).pending
    if at < 0:  # behind results of the answer that the request names: text for the agent
        return "", "", None
    command = command_text(all_of_it.messages[at], text_blocks_of)
    others = all_of_it.messages[:at] + all_of_it.messages[at + 1 :]
    path_entry = replace(all_of_it, messages=() if unplaced_reason else others)
    parsed = ParsedRequest(
        client_request.tenant, client_request.headers, path_entry, services.now(), client_request.mode
    )
    async with asyncio.timeout(services.config.assembly_budget_ms / 1000):
        mode, placement = await services.resolver.resolve_command(parsed)
    return mode, command, placement


async def _run_command(services: Services, placement: Placement | None, command: str, before: int) -> str:
    """The answer to the person; what was decided is on disk. Raises StoreError."""
    try:
        asked = parse(command)
    except InvalidCommand as unclear:
        return str(unclear)
    if asked == HELP:
        return help_text()
    if placement is None:
        return NO_CONVERSATION_TEXT
    if isinstance(asked, str):
        tree = placement.path_state.tree
        return f"```\n{inspect_tools.draw_tree(tree) if asked == 'tree' else inspect_tools.render_status(tree)}\n```"
    ledger, tip = placement.ledger, placement.path_state.tip
    key = sha256(f"{tip}\n{before}\n{command}".encode()).hexdigest()
    if isinstance(asked, SayCommand):
        return await _queue_message(services, placement, asked, key[:32])
    key = key[:16]
    if (earlier_answer := previous_answer(ledger, tip, key)) is not None:
        return earlier_answer
    if tip in ledger.parent_ids:
        return OTHER_BRANCH_TEXT
    kit = services.toolkit
    hand = CommandContext(
        placement.path_state,
        ledger,
        key,
        services.now(),
        kit.count_tokens,
        kit.settings,
        kit.context_form_for(placement.request).suffixed,
    )
    try:
        done = apply_command(hand, asked)
    except (NotAllowed, NotFound) as refused:
        return str(refused)
    services.conversation_cache.record(placement.cached_conversation, attach(hand, done))
    placement.cached_conversation.path_states.clear()
    await services.conversation_cache.wait_until_durable(placement.cached_conversation)
    return done.user_text


async def _queue_message(services: Services, placement: Placement, asked: SayCommand, name: str) -> str:
    """Queue a message for this conversation's agent. Raises StoreError."""
    tenant = placement.parsed_request.tenant
    try:
        lane = Lane.FOLLOW_UP if asked.is_follow_up else Lane.STEER
        # the inbox reads from the newest request's record whether the message would be delivered
        services.recorder.deferred_tasks.run_pending()
        await services.inbox.add_message(tenant, placement.conversation, asked.text, lane, name=name)
    except (NotAllowed, NotFound) as refused:
        return str(refused)
    return f"The agent is told {'when it has nothing more to do' if asked.is_follow_up else 'with its next request'}."


# ------------------------------------------------------------------------------------------------------------ telling
async def _send_answer(
    passing: PassthroughRequest, reply: Reply, request: Request, placement: Placement | None, text: str
) -> None:
    """Send the answer in the client's dialect, with a receipt that shows that nothing was sent upstream."""
    services, client_request = passing.services, passing.client_request
    after = _preceding_response_id(services, request, placement)
    name = sha256(client_request.id.encode()).hexdigest()[:24]
    body = services.dialect.encode_own_response(
        request, OwnResponse(name, f"{ANSWER_MARK} {text}", services.now() // 1000, after)
    )
    record = new_request_record(services, client_request, passing.route, ANSWERED_STATUS)
    if placement is not None:
        now = placement.cached_conversation.path_state(placement.path_state.tip)
        record.set_command_placement(
            replace(placement, path_state=now, parsed_request=replace(placement.parsed_request, request=request))
        )
    record.finish(200)
    kind = b"text/event-stream" if request.stream else b"application/json"
    sized = [] if request.stream else [(b"content-length", str(len(body)).encode())]
    await reply.start(200, [(b"content-type", kind), *sized, *record.headers()])
    await reply.end(body)


def _preceding_response_id(services: Services, request: Request, placement: Placement | None) -> str | None:
    """The id of the answer before ours, which the client's next request continues; empty if there is none, None if it
    has no id."""
    references = services.dialect.references
    if references is None:
        return ""
    if (named := references.previous_response_id(request)) or len(request.messages) == 1:
        return named
    return (
        response_id_of(placement.ledger.rounds.get(placement.path_state.tip, ())) or None
        if placement is not None
        else None
    )
