"""The errors of the proxy, each with its HTTP status.

    ProxyError 500
      BadRequest 400, Unauthorized 401, Forbidden 403 (ModelNotAllowed, NotCounted, OtherUser), NotFound 404,
      MethodNotAllowed 405, NotAllowed 409, TooLarge 413, UnreadableCoding 415, UpgradeRefused 426,
      RateLimited 429 (BudgetSpent, BudgetReserved),
      RequestCancelled 499, AgentStopped 499, ShuttingDown 503, Overloaded 503, BudgetUnknown 503, LoopDetected 508
      StoreError 500
      UpstreamError 502
        UpstreamUnreachable 502, UpstreamClosed 502, UpstreamInvalidResponse 502, UpstreamTimeout 504
      InvalidConfiguration    refuses to start, never sent over HTTP

An error response of the provider is no error of ours: its status and body reach the client unchanged. The model reads
about its own mistakes as tool text.
"""

from __future__ import annotations


class ProxyError(Exception):
    """`code` is for programs; the message says what happened, why, and what to do."""

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


class MethodNotAllowed(ProxyError):
    status = 405
    code = "method_not_allowed"


class NotAllowed(ProxyError):
    status = 409
    code = "not_allowed"


class TooLarge(ProxyError):
    status = 413
    code = "too_large"


class UnreadableCoding(ProxyError):
    """A body is compressed in a way that cannot be read here, and may not pass unread."""

    status = 415
    code = "unreadable_coding"


class UpgradeRefused(ProxyError):
    """A client wants a web socket; clients take this status as the word to use plain HTTP."""

    status = 426
    code = "no_web_sockets"


class RateLimited(ProxyError):
    """`retry_after_s`: seconds until the client should try again."""

    status = 429
    code = "too_often"

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BudgetSpent(RateLimited):
    """A client key has spent its budget. Asking again before the period ends brings nothing."""

    code = "budget_spent"


class BudgetReserved(RateLimited):
    """What the other requests of a client key may cost takes the rest of its budget. In a moment there may be room."""

    code = "budget_reserved"


class BudgetUnknown(ProxyError):
    """The store cannot say what was spent. A limit fails closed."""

    status = 503
    code = "budget_unknown"


class ModelNotAllowed(Forbidden):
    code = "model_not_allowed"


class OtherUser(Forbidden):
    """Another user of this machine would spend the operator's key."""

    code = "other_user"


class NotCounted(Forbidden):
    """What a request costs could not be counted against the budget of its key."""

    code = "not_counted"


class RequestCancelled(ProxyError):
    """A person stopped the request. Clients do not retry status 499."""

    status = 499
    code = "cancelled"


class AgentStopped(ProxyError):
    """A person stopped the conversation and has not resumed it. Clients do not retry status 499."""

    status = 499
    code = "stopped"


class ShuttingDown(ProxyError):
    """The process stops before the answer is complete. A retry reaches the next process."""

    status = 503
    code = "shutdown"


class Overloaded(ProxyError):
    """The bodies that are being read take all the room there is for them."""

    status = 503
    code = "overloaded"


class LoopDetected(ProxyError):
    """An upstream leads back to this proxy."""

    status = 508
    code = "loop_detected"


class StoreError(ProxyError):
    """Our bookkeeping failed, and the request goes upstream without us. `x-stack-status` names `code`."""

    code = "store_failed"


class UpstreamError(ProxyError):
    status = 502
    code = "upstream_failed"


class UpstreamUnreachable(UpstreamError):
    """No connection was made, so the provider has read no byte of the request."""

    code = "upstream_unreachable"


class UpstreamClosed(UpstreamError):
    """The connection ended before the answer did."""

    code = "upstream_closed"


class UpstreamInvalidResponse(UpstreamError):
    """The provider's answer cannot be parsed."""

    code = "upstream_unreadable"


class UpstreamTimeout(UpstreamError):
    status = 504
    code = "upstream_timeout"


class InvalidConfiguration(ProxyError):
    """Names the key, what is wrong with it, and what is allowed."""

    code = "invalid_configuration"
