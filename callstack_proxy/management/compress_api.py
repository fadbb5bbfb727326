"""`POST /v1/compress` and `/v1/retrieve/{hash}`: the proxy's work on a request for somebody else who asks the provider.

The contract is that of LiteLLM's guardrail `headroom` (litellm/proxy/guardrails/guardrail_hooks/headroom/headroom.py,
read in 1.108.7; docs/litellm.md has its members). What comes back is matched by position: another number of `messages`
makes the request of its client fail. So only results of tools change, each in its place.

A request goes through the same exchange as any other, up to the upstream: there the body is taken instead of sent.
`stack_recall` is written as `headroom_retrieve`, which the model can call, and the id of a frame or an entry as a hash.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import parse_qs

import msgspec
from msgspec.structs import replace as replace_struct

from callstack_proxy.management import find_by_id
from proxy.accounting import COUNTED_APART_CHARACTERS, LEAST_CHARACTERS, SLICE_CHARACTERS, TokenCounterProtocol
from proxy.config import UpstreamSettings
from proxy.config.for_core import tool_settings
from proxy.core.frames import PathState
from proxy.core.ledger import Ledger
from proxy.core.memo import RecentCache
from proxy.core.tools import TOOLS, CallGroup, ToolContext, ToolError
from proxy.dialects import OPENAI_CHAT, raw_json, replace_surrogates
from proxy.errors import BadRequest, NotFound
from proxy.exchange import AppServices, ClientRequest, HeldReply, Reply, Services, build_services, pipeline
from proxy.upstream import Answer, AskedElsewhere, LearnedForms, RawHeaders, Routes, Upstream

COMPRESS_PATH, RETRIEVE_PATH = "/v1/compress", "/v1/retrieve/"
CHAT_PATH = "/v1/chat/completions"
RETRIEVE_TOOL = "headroom_retrieve"
HASH_BYTES = 12
DONE_APART_BYTES = 1 << 18
UNNAMED_MODEL = "unknown"
LEFT_TEXT = "left the context"
_HASH = re.compile(r"[0-9a-f]{24}")
_HASH_IN_TEXT = re.compile(r"hash=([0-9a-f]{24})")
_ID = r"(f[a-z2-7]{8}|[0-9a-f]{12})"
_IS_REF = re.compile(_ID)
_RECALL_CALL = re.compile(rf'stack_recall\(ref="{_ID}"(, query="[^"]*")?\)')
_REF = re.compile(rf'ref[= ]"{_ID}(?:/\d+)?"|(?<=stack_recall with )ref {_ID}\b')
_RECALL_WORD = re.compile(r"\bstack_recall\b")
_TOOL = {
    "type": "function",
    "function": {
        "name": RETRIEVE_TOOL,
        "description": "Shows what left the context.",
        "parameters": {"type": "object", "properties": {"hash": {"type": "string"}, "query": {"type": "string"}}},
    },
}
"""Stands for the tools that the caller's client may have: without any, nothing could be asked back."""
_RECALL = next(tool for tool in TOOLS if tool.op == "recall")
OURS_BEGINS = "<stack-"
MAX_REMEMBERED = 20_000
"""Counts, of about 165 bytes each."""
T = TypeVar("T")
_TAKEN: ContextVar[list[bytes]] = ContextVar("taken")


class TakingUpstream(Upstream):
    """Takes the body that it is to send."""

    def __init__(self) -> None:
        super().__init__("compress", UpstreamSettings(url="http://compress.invalid"))

    async def send(self, method: str, path: str, query: bytes, headers: RawHeaders, body: bytes) -> Answer:
        _TAKEN.get().append(body)
        raise AskedElsewhere


class _RefusedThereError(Exception):
    """The exchange has refused the request, and recorded that."""

    def __init__(self, held: HeldReply) -> None:
        super().__init__(held.status)
        self.held = held


class CompressApi:
    """The two endpoints, over the services of the running proxy."""

    def __init__(self, process: AppServices) -> None:
        config = process.config
        routes = Routes(config.model_copy(update={"upstreams": {}}))
        routes.upstreams = dict.fromkeys((*config.upstreams, "default"), TakingUpstream())
        own = replace(process, routes=routes, summarizer=None, cache_keep_alive=None, learned_forms=LearnedForms())
        self._process = process
        self._counts = RememberedCounts(process.counter)
        services = build_services(own, OPENAI_CHAT)
        # Only what the proxy itself decides: the model cannot call our tools.
        self._services: Services = replace(services, resolver=replace(services.resolver, has_active=False))

    def answers(self, method: str, path: str) -> bool:
        if path == COMPRESS_PATH:
            return method == "POST"
        return path.startswith(RETRIEVE_PATH) and method in ("GET", "POST")

    async def handle(self, asked: ClientRequest, reply: Reply) -> None:
        """Raises BadRequest and NotFound."""
        if asked.path == COMPRESS_PATH:
            try:
                await _send(reply, await self._compress(asked))
            except _RefusedThereError as refused:
                await reply.start(refused.held.status, refused.held.headers)
                await reply.end(refused.held.body)
        else:
            await _send(reply, await self._retrieve(asked))

    # ------------------------------------------------------------------------------------------------------- compress
    async def _compress(self, asked: ClientRequest) -> Mapping[str, Any]:
        size = len(asked.body)
        messages, whole, body = await _apart(size, lambda: _completed(asked.body))
        taken = await self._body_for(asked, body) if messages else None
        compressed, before, after = await _apart(size, lambda: _compared(messages, whole, taken))
        tokens_before, tokens_after = await self._counts.total(before), await self._counts.total(after)
        return {
            "messages": compressed,
            "tokens_before": tokens_before,
            "tokens_after": tokens_after,
            "tokens_saved": tokens_before - tokens_after,
            "compression_ratio": tokens_after / tokens_before if tokens_before else 1.0,
            "transforms_applied": ["callstack:frames"] if after != before else [],
            "ccr_hashes": list(dict.fromkeys(digits for text in after for digits in _HASH_IN_TEXT.findall(text))),
        }

    async def _body_for(self, asked: ClientRequest, body: bytes) -> bytes | None:
        """The body that would have gone upstream; None where none would. Raises _RefusedThereError."""
        taken: list[bytes] = []
        _TAKEN.set(taken)
        request = replace_struct(asked, path=CHAT_PATH, query=b"", body=body, takes_slash_commands=False)
        # The client waits for no answer; what it is answered nevertheless is a refusal.
        task, held = asyncio.current_task(), HeldReply(client_left=True)
        try:
            await pipeline.handle(self._services, request, held)
        except asyncio.CancelledError:  # where a task of its own asked, it comes as the plain one
            if task is None or task.cancelling() or not taken:
                raise
        if not taken and held.started:
            raise _RefusedThereError(held)
        return taken[0] if taken else None

    # ------------------------------------------------------------------------------------------------------- retrieve
    async def _retrieve(self, asked: ClientRequest) -> Mapping[str, Any]:
        digits = asked.path.removeprefix(RETRIEVE_PATH)
        ref = ref_of_hash(digits)
        if ref is None:
            raise NotFound("There is nothing under this hash: it has 24 hex digits, as the compressed messages say.")
        query = next(iter(parse_qs(asked.query.decode("latin-1")).get("query", [])), "")
        if asked.method == "POST" and asked.body:
            told = (await _apart(len(asked.body), lambda: _object_in(asked.body))).get("query")
            query = replace_surrogates(told) if isinstance(told, str) else query
        ledger, path_state = await self._ledger_with(asked.tenant, ref)
        context = ToolContext(
            path_state,
            ledger,
            CallGroup(has_only_stack_calls=True, home_frame=path_state.tree.active),
            "",
            "",
            0,
            self._process.now(),
            self._process.nonce_of(ledger.conversation.id),
            self._process.counter.count,
            tool_settings(self._process.config),
        )
        arguments = {"ref": ref, "query": query} if query else {"ref": ref}
        try:
            text = await asyncio.to_thread(lambda: with_hashes(_RECALL.run(context, arguments).text))
        except ToolError as error:
            text = with_hashes(str(error))
        return {"hash": digits, "original_content": text, "query": query}

    async def _ledger_with(self, tenant: str, ref: str) -> tuple[Ledger, PathState]:
        """The conversation of a frame or an entry, and a path of it. Raises NotFound, ConversationUnreadable."""
        if len(ref) < HASH_BYTES:  # the shorter ids are those of frames
            return await find_by_id.ledger_with_frame(self._process.store, tenant, ref)
        return await find_by_id.ledger_with_entry(self._process.store, tenant, ref)


class RememberedCounts:
    """Counts each text once, for histories whose messages come again with every request. Texts are not kept."""

    def __init__(self, counter: TokenCounterProtocol) -> None:
        self._counter = counter
        self._counts = RecentCache[bytes, int](MAX_REMEMBERED)

    async def total(self, texts: Iterable[str]) -> int:
        """Tokens of all texts together, which hold no halves of surrogate pairs. Lets other tasks run every few
        milliseconds."""
        total, since_pause = 0, 0
        for text in texts:
            is_long = len(text) > COUNTED_APART_CHARACTERS
            digest = await asyncio.to_thread(_digest, text) if is_long else _digest(text)
            if (count := self._counts.find(digest)) is None:
                (counted,) = await self._counter.count_all([text])
                count = self._counts.keep(digest, counted, 1)
            total += count
            since_pause += max(len(text), LEAST_CHARACTERS)
            if since_pause >= SLICE_CHARACTERS:
                since_pause = 0
                await asyncio.sleep(0)
        return total


def _digest(text: str) -> bytes:
    """16 bytes. Encoded in slices, because other threads wait while a text is encoded."""
    digest = hashlib.blake2b(digest_size=16)
    for start in range(0, len(text), COUNTED_APART_CHARACTERS):
        digest.update(text[start : start + COUNTED_APART_CHARACTERS].encode())
    return digest.digest()


async def _apart(size: int, work: Callable[[], T]) -> T:
    """What `work` returns; done in a thread where a body of so many bytes would hold up other requests."""
    return await asyncio.to_thread(work) if size >= DONE_APART_BYTES else work()


async def _send(reply: Reply, answer: Mapping[str, Any]) -> None:
    texts = sum(len(text) for each in answer.get("messages", ()) for text in _texts_of(each))
    text = await _apart(texts, lambda: json.dumps(answer).encode())
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
    await reply.start(HTTPStatus.OK, headers)
    await reply.end(text)


def _object_in(body: bytes) -> Mapping[str, Any]:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest("The body is not valid JSON. Send an object with `messages`.") from None
    if not isinstance(given, dict):
        raise BadRequest("The body is JSON, but no object. Send an object with `messages`.")
    return given


# --------------------------------------------------------------------------------------------------------------- words
def hash_of_ref(ref: str) -> str:
    """24 hex digits that say which frame or entry: the characters of its id, filled up with zeros."""
    return ref.encode().ljust(HASH_BYTES, b"\0").hex()


def ref_of_hash(digits: str) -> str | None:
    """None for what is no such hash."""
    if not _HASH.fullmatch(digits):
        return None
    ref = bytes.fromhex(digits).rstrip(b"\0").decode("latin-1")
    return ref if _IS_REF.fullmatch(ref) else None


def with_hashes(text: str) -> str:
    """Our own words for a model that has `headroom_retrieve`. Of a round of a turn the whole turn is named."""
    text = _RECALL_CALL.sub(lambda found: f"{RETRIEVE_TOOL}(hash={hash_of_ref(found[1])}{found[2] or ''})", text)
    text = _REF.sub(lambda found: f"{found[0]} hash={hash_of_ref(found[1] or found[2])}", text)
    return _RECALL_WORD.sub(RETRIEVE_TOOL, text)


class _HeldBack(dict[str, Any]):
    """A message that was not among those that came."""


def _with_calls(messages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The messages, with a call in front of each result whose call is not there."""
    called: set[str] = set()
    for message in messages:
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict) and isinstance(call.get("id"), str):
                called.add(call["id"])
        name = message.get("tool_call_id")
        if message.get("role") == "tool" and isinstance(name, str) and name not in called:
            called.add(name)
            made = {"id": name, "type": "function", "function": {"name": "tool", "arguments": "{}"}}
            yield _HeldBack(role="assistant", content=None, tool_calls=[made])
        yield message


def _completed(body: bytes) -> tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]], bytes]:
    """The messages that came, with the calls that were held back, and both as a request. Raises BadRequest."""
    given = _object_in(body)
    messages, tools, model = given.get("messages"), given.get("tools"), given.get("model")
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise BadRequest('"messages" must be a list of messages, as chat completions have it.')
    if tools is not None and not isinstance(tools, list):
        raise BadRequest('"tools" must be a list of tools, as chat completions have it.')
    named = model if isinstance(model, str) and model else UNNAMED_MODEL
    whole = list(_with_calls(messages))
    return messages, whole, raw_json.encode({"model": named, "messages": whole, "tools": tools or [_TOOL]})


def _compared(
    messages: Sequence[Mapping[str, Any]], whole: Sequence[Mapping[str, Any]], taken: bytes | None
) -> tuple[Sequence[Mapping[str, Any]], list[str], list[str]]:
    """The messages as they are to be sent, and the texts from before and after."""
    found = json.loads(taken) if taken else None
    sent = found.get("messages") if isinstance(found, dict) else None
    rows = rows_for(whole, sent) if isinstance(sent, list) else whole
    compressed = [row for row, own in zip(rows, whole, strict=True) if not isinstance(own, _HeldBack)]
    before, after = ([replace_surrogates(t) for m in each for t in _texts_of(m)] for each in (messages, compressed))
    return compressed, before, after


def rows_for(whole: Sequence[Mapping[str, Any]], sent: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Each message as it is to be sent, in its place. Of `sent`, what no client wrote stands for the results that left
    behind it, unless it is the result of the same call, in other words."""
    own = [_key(message) for message in whole]
    theirs = set(own)
    keys = [next((key for key in map(_key, (m, _without_our_words(m))) if key in theirs), b"") for m in sent]
    to_come = Counter(filter(None, map(_answered_call, whole)))
    rows: list[Mapping[str, Any]] = []
    at, standing, left = 0, "", ""
    for message, key in zip(whole, own, strict=True):
        is_here = False
        to_come[_answered_call(message)] -= 1
        while at < len(sent) and not is_here and not keys[at]:
            answered = _answered_call(sent[at])
            is_here = _continues(sent[at], message) or bool(answered and answered == _answered_call(message))
            if not is_here and to_come[answered] > 0:
                break
            if not is_here:
                standing = "\n".join(filter(None, (standing, *_texts_of(sent[at]))))
                at += 1
        if is_here or (at < len(sent) and keys[at] == key):
            rows.append(_with_our_words(message, sent[at]))
            at, standing = at + 1, ""
            continue
        if message.get("role") != "tool":
            rows.append(message)
            continue
        text = with_hashes(standing)
        left = next(iter(_HASH_IN_TEXT.findall(text)), left)
        line = text or (f"({LEFT_TEXT}: hash={left})" if left else f"({LEFT_TEXT})")
        is_shorter = len(line) < sum(map(len, _texts_of(message)))
        rows.append({**message, "content": line} if is_shorter or text else message)
        standing = ""
    return rows


def _key(message: object) -> bytes:
    try:
        return msgspec.json.encode(message, order="deterministic")
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(message, sort_keys=True).encode()


def _without_our_words(sent: Any) -> Any:
    """What was sent, up to the first text of ours behind what a client wrote."""
    content = sent.get("content") if isinstance(sent, dict) else None
    if isinstance(content, str) and (end := content.find(f"\n\n{OURS_BEGINS}")) > 0:
        return {**sent, "content": content[:end]}
    if isinstance(content, list):
        texts = (part.get("text") if isinstance(part, dict) else None for part in content)
        own = next((at for at, text in enumerate(texts) if str(text).startswith(OURS_BEGINS)), None)
        return {**sent, "content": content[:own]}
    return sent


def _continues(sent: Any, message: Mapping[str, Any]) -> bool:
    """Whether what was sent is this message, perhaps with words of ours behind it."""
    if not isinstance(sent, dict) or sent.get("role") != message.get("role"):
        return False
    if _key({**sent, "content": None}) != _key({**message, "content": None}):
        return False
    now, before = "\n".join(_texts_of(sent)), "\n".join(_texts_of(message))
    if not now.startswith(before):
        return False
    rest = now[len(before) :].lstrip()
    return not rest or rest.startswith(OURS_BEGINS) or message.get("role") in ("system", "developer")


def _answered_call(message: Any) -> str:
    """The id of the call of which this is the result; empty for what is no result."""
    name = message.get("tool_call_id") if isinstance(message, dict) and message.get("role") == "tool" else None
    return name if isinstance(name, str) else ""


def _with_our_words(message: Mapping[str, Any], sent: Mapping[str, Any]) -> Mapping[str, Any]:
    """As it was sent, with our words for the model that reads them; what the client wrote stays as it is."""
    content, before = sent.get("content"), message.get("content")
    if isinstance(content, str) and isinstance(before, str) and content.startswith(before):
        return {**message, "content": before + with_hashes(content[len(before) :])}
    if message.get("role") == "tool" and not _continues(sent, message):  # cut, tidied or cleared
        return {**message, "content": with_hashes("\n".join(_texts_of(sent)))}
    return message


def _texts_of(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        yield json.dumps(calls)
