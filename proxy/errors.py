"""The tree of errors, each with the HTTP status it is answered with.

    ProxyError 500
      BadRequest 400 · Unauthorized 401 · Forbidden 403 · UnknownFrame 404 · NotAllowed 409 · TooLarge 413 ·
      TooOften 429 · Stopped 499 · Ending 503
      StoreError 500
      UpstreamError
        UpstreamUnreachable 502 · UpstreamClosed 502 · UpstreamTimeout 504
      InvalidConfiguration    refuses to start, never answered over HTTP

What the provider itself answers is not an error of ours: its status and body reach the client unchanged. A mistake by
the model is tool text. These are raised only for what the proxy refuses, or cannot do.
"""

from __future__ import annotations


class ProxyError(Exception):
    """`code` is the word for machines, the message says what happened, why, and what to do."""

    status = 500
    code = "proxy_error"

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code or type(self).code


class BadRequest(ProxyError):
    status = 400
    code = "bad_request"


class Unauthorized(ProxyError):
    status = 401
    code = "unauthorized"


class Forbidden(ProxyError):
    status = 403
    code = "forbidden"


class NotFound(ProxyError):
    status = 404
    code = "not_found"


class NotAllowed(ProxyError):
    status = 409
    code = "not_allowed"


class TooLarge(ProxyError):
    status = 413
    code = "too_large"


class RateLimited(ProxyError):
    """`retry_after_s` is when to ask again, in whole seconds."""

    status = 429
    code = "too_often"

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RequestCancelled(ProxyError):
    """A person stopped the request. The status is one that no client asks again after."""

    status = 499
    code = "cancelled"


class ShuttingDown(ProxyError):
    """The process ends before the answer did. Whoever asks again is answered by the next one."""

    status = 503
    code = "shutdown"


class StoreError(ProxyError):
    """Our bookkeeping failed; the request goes upstream without us. `code` is the reason told in `x-stack-status`."""

    code = "store_failed"


class UpstreamError(ProxyError):
    status = 502
    code = "upstream_failed"


class UpstreamUnreachable(UpstreamError):
    """No connection, so no byte of the request was read by anybody."""

    code = "upstream_unreachable"


class UpstreamClosed(UpstreamError):
    """The connection ended before the answer did."""

    code = "upstream_closed"


class UpstreamInvalidResponse(UpstreamError):
    """What came in the place of an answer is none."""

    code = "upstream_unreadable"


class UpstreamTimeout(UpstreamError):
    status = 504
    code = "upstream_timeout"


class InvalidConfiguration(ProxyError):
    """Names the key, what is wrong with it, and what is allowed."""

    code = "invalid_configuration"
