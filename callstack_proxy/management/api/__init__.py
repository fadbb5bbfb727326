"""The HTTP API of `/stack` and `/health`. FastAPI takes 0.3 s to import, so only `serve` imports this package, and only
once somebody asks."""

from callstack_proxy.management.api.app import OPERATOR_TENANT, build_api
from callstack_proxy.management.api.base import ApiContext, JsonResponse, now_ms
from callstack_proxy.management.api.events import EVENT_STREAM_TYPE, STREAM_HEADERS, stream_events_to
from callstack_proxy.management.api.limits import LimitsMiddleware, RequestRateLimiter
from callstack_proxy.management.api.messages import MessageBody
from callstack_proxy.management.api.operation_routes import carry_out, find_target, perform
from callstack_proxy.management.api.usage import KeyRow, UserRow, key_rows, user_rows
