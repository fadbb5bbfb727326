"""`POST /v1/compress` and `/v1/retrieve/{hash}`: the proxy's work on a request for somebody else who asks the provider.

The contract is that of LiteLLM's guardrail `headroom` (litellm/proxy/guardrails/guardrail_hooks/headroom/headroom.py,
read in 1.108.7). It sends `{"messages": [...], "model": "..."}` in the form of chat completions, whatever API its own
client speaks, with our key as a bearer token. It holds back system and assistant messages, the last user message and
the last calls with their results, and matches what comes back by position: another number of `messages` makes its
client's request fail. `ccr_hashes` (12 to 24 hex digits; earlier versions search the texts for `hash=`) make it offer
the model the tool `headroom_retrieve(hash, query)`, whose calls it answers by `GET /v1/retrieve/{hash}?query=...`, of
which it reads `original_content`. The token counts go into its records. `tools` is ours: what its client offers.

A request goes through the same exchange as any other, up to the upstream: there the body is taken instead of sent, and
the request ends as answered. Calls that were held back are put in, without a name. Of the rows, only results of tools
change: where a task left the context, the first of its results becomes what stands for the task, and the others one
line each. The model cannot call our tools: `stack_recall` is written as `headroom_retrieve`, a frame's id as a hash.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import parse_qs

import msgspec
from msgspec.structs import replace as replace_struct

from proxy.config import UpstreamSettings
from proxy.core.tools import TOOLS, CallGroup, ToolContext, ToolError
from proxy.dialects import OPENAI_CHAT
from proxy.errors import BadRequest, NotFound
from proxy.exchange import AppServices, ClientRequest, Reply, Services, build_services, pipeline, tool_settings
from proxy.management.views import lookup
from proxy.upstream import Answer, AskedElsewhere, LearnedForms, RawHeaders, Routes, Upstream

COMPRESS_PATH, RETRIEVE_PATH = "/v1/compress", "/v1/retrieve/"
CHAT_PATH = "/v1/chat/completions"
RETRIEVE_TOOL = "headroom_retrieve"
HASH_BYTES = 12
DONE_APART_BYTES = 1 << 18
UNNAMED_MODEL = "unknown"
ACTIVE_HEADER = (b"x-stack-mode", b"active")
LEFT_TEXT = "left the context"
_HASH = re.compile(r"[0-9a-f]{24}")
_HASH_IN_TEXT = re.compile(r"hash=([0-9a-f]{24})")
_RECALL_CALL = re.compile(r'stack_recall\(ref="(\w+)"(, query="[^"]*")?\)')
_REF = re.compile(r'ref="(f\w{1,11})"')
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
T = TypeVar("T")
_TAKEN: ContextVar[list[bytes]] = ContextVar("taken")


def is_compress_request(method: str, path: str) -> bool:
    if path == COMPRESS_PATH:
        return method == "POST"
    return path.startswith(RETRIEVE_PATH) and method in ("GET", "POST")


class TakingUpstream(Upstream):
    """Takes the body that it is to send."""

    def __init__(self) -> None:
        super().__init__("compress", UpstreamSettings(url="http://compress.invalid"))

    async def send(self, method: str, path: str, query: bytes, headers: RawHeaders, body: bytes) -> Answer:
        _TAKEN.get().append(body)
        raise AskedElsewhere


class _SilentReply:
    """A client that waits for no answer."""

    started = False
    client_left = True

    async def start(self, status: int, headers: RawHeaders) -> None:
        """Nobody reads it."""

    async def send(self, chunk: bytes) -> None:
        """Nobody reads it."""

    async def end(self, last: bytes = b"") -> None:
        """Nobody reads it."""

    def abort(self) -> None:
        """There is no connection."""


class CompressApi:
    """The two endpoints, over the services of the running proxy."""

    def __init__(self, process: AppServices) -> None:
        config = process.config
        if config.mode == "active":  # only what the proxy itself decides: the model cannot call our tools
            config = config.model_copy(update={"mode": "passive"})
        routes = Routes(config.model_copy(update={"upstreams": {}}))
        routes.upstreams = dict.fromkeys((*config.upstreams, "default"), TakingUpstream())
        own = replace(
            process,
            config=config,
            routes=routes,
            summarizer=None,
            cache_keep_alive=None,
            learned_forms=LearnedForms(),
        )
        self._process = process
        self._services: Services = build_services(own, OPENAI_CHAT)

    async def handle(self, asked: ClientRequest, reply: Reply) -> None:
        """Raises BadRequest and NotFound."""
        if asked.path == COMPRESS_PATH:
            await _send(reply, await self._compress(asked))
        else:
            await _send(reply, await self._retrieve(asked))

    # ------------------------------------------------------------------------------------------------------- compress
    async def _compress(self, asked: ClientRequest) -> Mapping[str, Any]:
        given = await _apart(len(asked.body), lambda: _object_in(asked.body))
        messages, tools = given.get("messages"), given.get("tools")
        if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
            raise BadRequest('"messages" must be a list of messages, as chat completions have it.')
        if tools is not None and not isinstance(tools, list):
            raise BadRequest('"tools" must be a list of tools, as chat completions have it.')
        model = given.get("model")
        if not isinstance(model, str) or not model:
            model = UNNAMED_MODEL
        whole = list(_with_calls(messages))
        body = {"model": model, "messages": whole, "tools": tools or [_TOOL]}
        sent = await self._sent_for(asked, msgspec.json.encode(body)) if messages else None
        rows = await _apart(len(asked.body), lambda: _rows_for(whole, sent["messages"])) if sent is not None else whole
        compressed = [row for row, own in zip(rows, whole, strict=True) if not isinstance(own, _HeldBack)]
        before, after = await self._tokens(model, messages), await self._tokens(model, compressed)
        return {
            "messages": compressed,
            "tokens_before": before,
            "tokens_after": after,
            "tokens_saved": before - after,
            "compression_ratio": after / before if before else 1.0,
            "transforms_applied": ["callstack:frames"] if compressed != messages else [],
            "ccr_hashes": _hashes_in(compressed),
        }

    async def _sent_for(self, asked: ClientRequest, body: bytes) -> Mapping[str, Any] | None:
        """The body that would have gone upstream; None where none would."""
        taken: list[bytes] = []
        _TAKEN.set(taken)
        request = replace_struct(
            asked,
            path=CHAT_PATH,
            query=b"",
            body=body,
            headers=[header for header in asked.headers if header != ACTIVE_HEADER],
            mode="passive" if asked.mode == "active" else asked.mode,
            takes_slash_commands=False,
        )
        task = asyncio.current_task()
        try:
            await pipeline.handle(self._services, request, _SilentReply())
        except asyncio.CancelledError:  # where a task of its own asked, it comes as the plain one
            if task is None or task.cancelling() or not taken:
                raise
        found = json.loads(taken[0]) if taken else None
        return found if isinstance(found, dict) and isinstance(found.get("messages"), list) else None

    async def _tokens(self, model: str, messages: Sequence[Mapping[str, Any]]) -> int:
        texts = [text for message in messages for text in _texts_of(message)]
        return sum(await self._process.counter.count_all(texts)) if texts else 0

    # ------------------------------------------------------------------------------------------------------- retrieve
    async def _retrieve(self, asked: ClientRequest) -> Mapping[str, Any]:
        digits = asked.path.removeprefix(RETRIEVE_PATH)
        frame = frame_of_hash(digits)
        if frame is None:
            raise NotFound("There is nothing under this hash: it has 24 hex digits, as the compressed messages say.")
        query = next(iter(parse_qs(asked.query.decode("latin-1")).get("query", [])), "")
        if asked.method == "POST" and asked.body:
            told = _object_in(asked.body).get("query")
            query = told if isinstance(told, str) else query
        ledger, path_state = await lookup.ledger_with_frame(self._process.store, asked.tenant, frame)
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
        arguments = {"ref": frame, "query": query} if query else {"ref": frame}
        try:
            text = (await asyncio.to_thread(_RECALL.run, context, arguments)).text
        except ToolError as error:
            text = str(error)
        return {"hash": digits, "original_content": with_hashes(text), "query": query}


async def _apart(size: int, work: Callable[[], T]) -> T:
    """What `work` returns; done in a thread where a body of so many bytes would hold up other requests."""
    return await asyncio.to_thread(work) if size >= DONE_APART_BYTES else work()


async def _send(reply: Reply, answer: Mapping[str, Any]) -> None:
    text = json.dumps(answer).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
    await reply.start(HTTPStatus.OK, headers)
    await reply.end(text)


def _object_in(body: bytes) -> Mapping[str, Any]:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest("The body is not valid JSON.") from None
    if not isinstance(given, dict):
        raise BadRequest("The body must be a JSON object.")
    return given


# --------------------------------------------------------------------------------------------------------------- words
def hash_of_frame(frame: str) -> str:
    """24 hex digits that say which frame: the characters of its id, filled up with zeros."""
    return frame.encode().ljust(HASH_BYTES, b"\0").hex()


def frame_of_hash(digits: str) -> str | None:
    """None for what is no such hash."""
    if not _HASH.fullmatch(digits):
        return None
    name = bytes.fromhex(digits).rstrip(b"\0")
    return name.decode() if name.isascii() and name.decode().isalnum() else None


def with_hashes(text: str) -> str:
    """Our own words for a model that has `headroom_retrieve`."""
    text = _RECALL_CALL.sub(lambda found: f"{RETRIEVE_TOOL}(hash={hash_of_frame(found[1])}{found[2] or ''})", text)
    text = _REF.sub(lambda found: f'ref="{found[1]}" hash={hash_of_frame(found[1])}', text)
    return _RECALL_WORD.sub(RETRIEVE_TOOL, text)


class _HeldBack(dict[str, Any]):
    """A message that was not among those that came."""


def _with_calls(messages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The messages, with a call in front of each result whose call is not there."""
    called: set[object] = set()
    for message in messages:
        calls = message.get("tool_calls")
        called.update(call.get("id") for call in calls if isinstance(call, dict)) if isinstance(calls, list) else None
        name = message.get("tool_call_id")
        if message.get("role") == "tool" and isinstance(name, str) and name not in called:
            called.add(name)
            made = {"id": name, "type": "function", "function": {"name": "tool", "arguments": "{}"}}
            yield _HeldBack(role="assistant", content=None, tool_calls=[made])
        yield message


def _rows_for(whole: Sequence[Mapping[str, Any]], sent: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Each message as it is to be sent, in its place. Of `sent`, what no client wrote stands for the results that left
    behind it."""
    theirs, rows, at = {_key(message) for message in whole}, [], 0
    standing = left = ""
    for message in whole:
        while at < len(sent) and not _continues(sent[at], message) and _key(sent[at]) not in theirs:
            standing = "\n".join(filter(None, (standing, *_texts_of(sent[at]))))
            at += 1
        if at < len(sent) and _continues(sent[at], message):
            rows.append(_with_our_words(message, sent[at]))
            at += 1
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
    return msgspec.json.encode(message, order="deterministic")


def _continues(sent: Any, message: Mapping[str, Any]) -> bool:
    """Whether what was sent is this message, perhaps with words of ours behind it."""
    if not isinstance(sent, dict) or sent.get("role") != message.get("role"):
        return False
    if _key({**sent, "content": None}) != _key({**message, "content": None}):
        return False
    return "\n".join(_texts_of(sent)).startswith("\n".join(_texts_of(message)))


def _with_our_words(message: Mapping[str, Any], sent: Mapping[str, Any]) -> Mapping[str, Any]:
    """As it was sent, with our words for the model that reads them; what the client wrote stays as it is."""
    content, before = sent.get("content"), message.get("content")
    if isinstance(content, str) and isinstance(before, str):
        return {**message, "content": before + with_hashes(content[len(before) :])}
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


def _hashes_in(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    found = [digits for message in messages for text in _texts_of(message) for digits in _HASH_IN_TEXT.findall(text)]
    return list(dict.fromkeys(found))
