"""What a person types to the proxy itself: answered here, and never part of what the agent is asked.

    overheard    a request less all that was typed to the proxy; or None, where it was answered

A command at the end of a request is carried out and answered in the client's dialect; nothing goes upstream. It and its
answer come back with every later request of the client, and are taken off before anything else looks at that. So no
line, no ledger and no frame ever has them, and no prefix changes by them.

The laws: **what was typed to the proxy never goes upstream** where it is on (`off` and `shadow` send what came), and
**a command is carried out once**: a retry is answered with the same words. When our bookkeeping fails the person is
told so, and nothing has changed.

What this module does not do: it decides nothing about frames (`stack.by_hand`), takes no words in for an agent
(`speaking`), and reads no command (`stack.typed`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container
from hashlib import sha256

from msgspec.structs import replace

from proxy.accounting.receipts import ANSWERED
from proxy.core.commands.apply_command import Hand, answered, did, hung
from proxy.core.commands.parse_slash import HELP, MARK, WORD, Say, Unclear, command_in, heard, help_text, read
from proxy.core.frames.tree import Tree
from proxy.core.ledger.ledger import answer_of
from proxy.core.ledger.messages import Message, Request
from proxy.core.ledger.queued_messages import Lane
from proxy.core.tools import inspect_tools as looking
from proxy.dialects import Saying, Unreadable, Wanted
from proxy.dialects import raw_json as slices
from proxy.dialects.synthetic_responses import behind
from proxy.errors import BadRequest, NotAllowed, StoreError, UnknownFrame
from proxy.exchange.client_response import Reply
from proxy.exchange.passthrough import Passing, record_of, under_its_name
from proxy.exchange.previous_responses import whole
from proxy.exchange.resolver import ACTING
from proxy.exchange.rounds import Incoming, Parts, Unfit, read_request, weighed
from proxy.exchange.thread.placement import Arrival, Standing
from proxy.store.lookup import named

log = logging.getLogger(__name__)

PREVIOUS = "previous_response_id"
NOTHING_YET = (
    "There is no conversation here yet: the first message to the agent begins one. `/stack help` lists commands."
)
ELSEWHERE = (
    "The conversation went on from here before, and this is the beginning of another branch of it. Send the agent a "
    "message first, then do this again."
)
WAITING = (
    "This request holds more for the agent than the command, and names the answer before it by its id: send the rest "
    "first, then type the command."
)
FAILED = (
    "The proxy could not do this: its bookkeeping fails now ({why}). Nothing has changed, and the agent was not asked."
)


async def overheard(passing: Passing, reply: Reply) -> tuple[Passing, Incoming] | None:
    """The request less what was typed to the proxy, and as it came, for where the proxy is off; None where a command
    was answered. Raises BadRequest for a command that stands where it cannot be taken out."""
    passing = await _gone_on(passing)
    request = passing.request
    if request is None or not [m for m in request.messages if m.role == "user" and WORD in m.text]:
        return passing, passing.incoming
    found = heard(request.messages)
    try:
        less = await _less(passing, request, found.past) if found.past else passing
    except (Unreadable, slices.NotSliced):  # the agent must not notice
        log.exception("what was typed to the proxy cannot be taken out", extra={"request": passing.incoming.id})
        less = passing
    if found.waiting >= 0 and await _answered(less, reply, found.before):
        return None
    return less, passing.incoming


# --------------------------------------------------------------------------------------------------------- taking out
async def _less(passing: Passing, request: Request, past: Container[int]) -> Passing:
    """The request without these messages, everything else as it was."""
    dialect = passing.parts.dialect
    kept = [message for at, message in enumerate(request.messages) if at not in past]
    head = [message.wire for message in request.head]
    written = dialect.render(request, kept, head, Wanted(include_usage=False))
    # A rendered request goes on from nothing by its id; this one may.
    return await _reread(passing, request, {**request.fields, **slices.members(b"".join(written))})


async def _gone_on(passing: Passing) -> Passing:
    """A request that goes on from an answer of ours by its id goes on from what that stands behind."""
    request, references = passing.request, passing.parts.dialect.references
    if request is None or references is None or (before := behind(references.previous(request))) is None:
        return passing
    fields = {name: raw for name, raw in request.fields.items() if before or name != PREVIOUS}
    return await _reread(passing, request, fields | ({PREVIOUS: slices.encoded(before)} if before else {}))


async def _reread(passing: Passing, request: Request, fields: dict[str, bytes]) -> Passing:
    body = slices.object_of(fields)
    incoming = under_its_name(replace(passing.incoming, body=body), request.model, passing.route)
    return replace(passing, incoming=incoming, request=await read_request(passing.parts, body))


# ---------------------------------------------------------------------------------------------------------- answering
async def _answered(passing: Passing, reply: Reply, before: int) -> bool:
    """Carry out the command at the end and answer it; False where the proxy is off. `before`: how many commands stand
    between it and the last message that is none."""
    request = passing.request
    if request is None or _names_rest(passing.parts, request):
        raise BadRequest(WAITING, code="command_not_alone")
    incoming = passing.incoming
    expected = passing.parts.reception.mode_of(incoming.headers, incoming.mode, request.model)
    standing: Standing | None = None
    try:
        mode, command, standing = await _placed(passing, request)
        if mode not in ACTING:
            return False
        text = await _carried_out(passing.parts, standing, command, before)
    except BadRequest:
        raise
    except (StoreError, Unfit) as error:
        text = FAILED.format(why=error.code)
    except TimeoutError:
        text = FAILED.format(why="too_slow")
    except Exception:  # the outermost edge of our bookkeeping: a person waits for an answer
        log.exception("a command could not be carried out", extra={"request": passing.incoming.id})
        text = FAILED.format(why="internal")
    if standing is None and expected not in ACTING:
        return False
    await _tell(passing, reply, request, standing, text)
    return True


def _names_rest(parts: Parts, request: Request) -> bool:
    """Whether it names an answer by its id and holds more than the command: the rest would be lost with it."""
    references = parts.dialect.references
    return references is not None and bool(references.previous(request)) and len(request.messages) > 1


async def _placed(passing: Passing, request: Request) -> tuple[str, str, Standing | None]:
    """The mode, the command, and where it was typed; None where no conversation is known."""
    parts, incoming = passing.parts, passing.incoming
    if (trouble := parts.keeper.store.trouble()) is not None:
        raise StoreError("the store does not take records", code=trouble.code)
    async with asyncio.timeout(parts.config.assembly_budget_ms / 1000):
        all_of_it, kept_there = await whole(parts, incoming, request)
    all_of_it = await weighed(parts, all_of_it)
    at = heard(all_of_it.messages).waiting
    command, others = command_in(all_of_it.messages[at]), _without(all_of_it.messages, at)
    placed = replace(all_of_it, messages=() if kept_there else others)
    arrival = Arrival(incoming.tenant, incoming.headers, placed, parts.now(), incoming.mode)
    async with asyncio.timeout(parts.config.assembly_budget_ms / 1000):
        mode, standing = await parts.reception.addressed(arrival)
    return mode, command, standing


def _without(messages: tuple[Message, ...], at: int) -> tuple[Message, ...]:
    return messages[:at] + messages[at + 1 :]


async def _carried_out(parts: Parts, standing: Standing | None, command: str, before: int) -> str:
    """What the person is told. What was decided is on disk then. Raises StoreError."""
    try:
        asked = read(command)
    except Unclear as unclear:
        return str(unclear)
    if asked == HELP:
        return help_text()
    if standing is None:
        return NOTHING_YET
    if isinstance(asked, str):
        return _looked_at(standing.story.tree, asked)
    ledger, tip = standing.ledger, standing.story.tip
    key = sha256(f"{tip}\n{before}\n{command}".encode()).hexdigest()
    if isinstance(asked, Say):
        return await _said(parts, standing, asked, key[:32])
    key = key[:16]
    if (told := answered(ledger, tip, key)) is not None:
        return told
    if tip in ledger.has_child:
        return ELSEWHERE
    kit, model = parts.kit, standing.request.model
    hand = Hand(standing.story, ledger, key, parts.now(), kit.count, kit.settings, kit.suffixed(model))
    try:
        done = did(hand, asked)
    except (NotAllowed, UnknownFrame) as refused:
        return str(refused)
    parts.shelf.record(standing.shelved, hung(hand, done))
    standing.shelved.stories.clear()
    await parts.shelf.durable(standing.shelved)
    return done.told


async def _said(parts: Parts, standing: Standing, asked: Say, name: str) -> str:
    """Words for the agent of this conversation, or of another one of the same tenant. Raises StoreError."""
    tenant, there = standing.arrival.tenant, standing.conversation
    try:
        if asked.to:
            async with asyncio.timeout(parts.config.assembly_budget_ms / 1000):
                there = (await named(parts.keeper.store, tenant, asked.to)).id
        lane = Lane.FOLLOW_UP if asked.follow_up else Lane.STEER
        parts.keeper.afterwards.catch_up()  # whether it would be heard is read from the newest request's record
        await parts.speaking.say(tenant, there, asked.text, lane, name=name)
    except (NotAllowed, UnknownFrame) as refused:
        return str(refused)
    whose = "The agent" if there == standing.conversation else f"The agent of {there}"
    return f"{whose} is told {'when it has nothing more to do' if asked.follow_up else 'with its next request'}."


def _looked_at(tree: Tree, what: str) -> str:
    shown = looking.drawn(tree) if what == "tree" else looking.status_text(tree)
    return f"```\n{shown}\n```"


# ------------------------------------------------------------------------------------------------------------ telling
async def _tell(passing: Passing, reply: Reply, request: Request, standing: Standing | None, text: str) -> None:
    """The answer in the client's dialect. Where it was typed in a conversation, its receipt says that nothing was sent
    for it."""
    parts, incoming = passing.parts, passing.incoming
    after = _behind_what(parts, request, standing)
    name = sha256(incoming.id.encode()).hexdigest()[:24]
    body = parts.dialect.says(request, Saying(name, f"{MARK} {text}", parts.now() // 1000, after))
    record = record_of(parts, incoming, passing.route, ANSWERED)
    if standing is not None:
        now = standing.shelved.story(standing.story.tip)
        record.addressed(replace(standing, story=now, arrival=replace(standing.arrival, request=request)))
    record.settle(200)
    kind = b"text/event-stream" if request.stream else b"application/json"
    sized = [] if request.stream else [(b"content-length", str(len(body)).encode())]
    await reply.start(200, [(b"content-type", kind), *sized, *record.headers()])
    await reply.end(body)


def _behind_what(parts: Parts, request: Request, standing: Standing | None) -> str | None:
    """The id of the answer that the client's next request goes on from, where it goes on from ours by its id; empty
    where nothing was said before, None where what was said has no id."""
    references = parts.dialect.references
    if references is None:
        return ""
    if (named := references.previous(request)) or len(request.messages) == 1:
        return named
    return answer_of(standing.ledger.rounds.get(standing.story.tip, ())) or None if standing is not None else None
