"""Decompresses the body of a client's request, so that the exchange reads it and the upstream gets it plain.

A body that cannot be decompressed passes as it came, unread, where only one upstream could be meant. Where its model
chooses the upstream, or `fail_policy` is closed, it is refused with 415; what unpacks to more than the body limit is
refused with 413.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from msgspec.structs import replace

from proxy.config import Config
from proxy.dialects import dialect_at
from proxy.errors import TooLarge, UnreadableCoding
from proxy.exchange import ClientRequest
from proxy.upstream import READABLE_CODINGS, BrokenCoding, DecodedTooLarge, UnknownCoding, codings_of, decode_body

log = logging.getLogger(__name__)


async def decompress_request(client_request: ClientRequest, config: Config) -> ClientRequest:
    """The request with a plain body and without `content-encoding`, or as it came. Raises TooLarge and
    UnreadableCoding."""
    codings = codings_of(client_request.headers)
    if not codings or not client_request.body:
        return client_request
    limit = config.body_limit_bytes
    try:
        # A body of 64 KiB may hold 64 MiB, which take 0.2 s.
        body = await asyncio.to_thread(decode_body, client_request.body, codings, limit)
    except DecodedTooLarge:
        if dialect_at(client_request.path) is None:
            return client_request  # nobody here has to read it
        words = f"The request body is larger than {limit} bytes once it is decompressed, the limit of this proxy"
        raise TooLarge(f"{words} (body_limit_bytes). Send less.") from None
    except (UnknownCoding, BrokenCoding) as error:
        is_model_call = dialect_at(client_request.path) is not None
        if is_model_call and (config.fail_policy == "closed" or len(config.upstreams) > 1):
            raise _unreadable(codings) from None
        log.warning(
            "a compressed body passes unread",
            extra={"request": client_request.id, "coding": ", ".join(codings)[:80], "reason": type(error).__name__},
        )
        return client_request
    headers = [header for header in client_request.headers if header[0] != b"content-encoding"]
    return replace(client_request, headers=headers, body=body)


def refuse_unread_coding(client_request: ClientRequest) -> None:
    """For a client key with limits: what is checked has to be what a provider reads. A body that one program reads as
    JSON may unpack to another one. Raises UnreadableCoding."""
    if client_request.body and (codings := codings_of(client_request.headers)):
        raise _unreadable(codings)


def _unreadable(codings: Sequence[str]) -> UnreadableCoding:
    named = ", ".join(codings)[:80]
    return UnreadableCoding(
        f"The request body is compressed as {named!r} and cannot be read. Send it plain, or as one of "
        f"{', '.join(READABLE_CODINGS)}; clients have a setting for that."
    )
