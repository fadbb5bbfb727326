"""`/console/operation`: the health of the proxy and its store, what was learned of the upstreams, the settings that are
not as they come, the client keys, users from a proxy in front, and the newest events. For operators."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from callstack_proxy.management.api import KeyRow, UserRow, key_rows, user_rows
from callstack_proxy.management.console.rendering import (
    Visitor,
    format_tokens,
    format_usd,
    read_form,
    render,
    visitor_of,
)
from callstack_proxy.management.issued_keys import issue_key, revoke_key
from proxy.auth import IssuedKey, UserLimits, list_keys, read_user_limits
from proxy.errors import BadRequest, Forbidden, InvalidConfiguration, NotFound, StoreError
from proxy.telemetry import EventListener, health_view
from proxy.upstream import LearnedTrait, TraitKind

MAX_EVENTS = 60
SECRET_KEYS = frozenset({"api_key", "headers", "key"})
"""Settings whose values are not shown."""
WORDS_BY_TRAIT: dict[TraitKind, tuple[str, str]] = {
    "strict": (
        "It refused the proxy's tools beside those of a client that are all strict, or all not.",
        "It gets the proxy's tools with schemas as strict as the client's.",
    ),
    "mild": (
        "It refused a request with everything that the proxy adds.",
        "It gets no guidance, and no tool of the proxy but stack_recall; the proxy's texts are written into the "
        "messages beside them.",
    ),
    "bare": (
        "It refused a request with the proxy's tools.",
        "It gets none of them. The model cannot ask back what was put away, so nothing is, and what was is back.",
    ),
    "own": (
        "It refused all that the proxy adds.",
        "It gets each request as the client sent it: nothing is put away.",
    ),
    "window_named": (
        "It refused a request as too long, and said that it takes {tokens} tokens.",
        "Conversations that it refused for their length are kept below that.",
    ),
    "window_size": (
        "It refused a request of {tokens} tokens as too long.",
        "Conversations that it refused for their length are kept below that.",
    ),
    "no_usage": (
        "It refuses to be asked how many tokens a stream has used.",
        "It is not asked, so what its streams cost is an estimate.",
    ),
    "no_reasoning": (
        "It refuses the reasoning of its own answers when it comes back.",
        "It gets the answers without it.",
    ),
    "calls_anyway": (
        "It called the proxy's tools in a round for which it was told to call none.",
        "No such round is asked for: the client gets what was said before.",
    ),
}
"""What happened, and what the proxy does since."""


def _require_operator(request: Request) -> Visitor:
    visitor = visitor_of(request)
    if not visitor.is_operator:
        raise Forbidden("This page is for the operator: sign in with a key issued with --admin.")
    return visitor


async def show(request: Request, *, new_key: str = "", message: str = "") -> Response:
    visitor = _require_operator(request)
    context = visitor.context
    health, _ = health_view(context.store, context.started, context.counter_name(), draining=context.is_draining())
    events = list(context.feed.events_since(0, EventListener(visitor.scope)))[-MAX_EVENTS:]
    return render(
        request,
        "operation.html",
        health=health,
        store=context.store.health(),
        trouble=context.store.write_error(),
        settings=list(changed_settings(context.config, context.config.sources)),
        tenancy=context.config.tenancy,
        keys=await _load_keys(visitor),
        users=await _load_users(visitor) if context.config.tenancy == "header" else (),
        upstreams=context.config.upstreams,
        learned=[_learned_row(trait) for trait in context.learned_traits()],
        is_shared=context.store.is_shared,
        events=list(reversed(events)),
        new_key=new_key,
        message=message,
    )


@dataclass(frozen=True, slots=True)
class LearnedRow:
    """What one upstream's model has taught the proxy."""

    trait: LearnedTrait
    what: str
    since_then: str


def _learned_row(trait: LearnedTrait) -> LearnedRow:
    what, since_then = WORDS_BY_TRAIT[trait.kind]
    return LearnedRow(trait, what.format(tokens=format_tokens(trait.tokens)), since_then)


@dataclass(frozen=True, slots=True)
class ShownKey:
    """A key, or a user. `used` is empty where the store cannot be read."""

    name: str
    sees: str
    may_use: str
    used: str
    since: str


async def _load_keys(visitor: Visitor) -> list[ShownKey]:
    issued = await run_in_threadpool(list_keys, visitor.context.config.keys_path)
    try:
        used_by = {row["name"]: row for row in await key_rows(visitor.context.store, issued, datetime.now(UTC))}
    except StoreError:
        used_by = {}
    costs = [row["used"]["cost"] for row in used_by.values()]
    # The key that was used most comes first; keys that were used alike stay in their order.
    spent = {name: (row["used"]["cost"], row["used"]["tokens"]) for name, row in used_by.items()}
    issued = sorted(issued, key=lambda key: spent.get(key.name, (0.0, 0)), reverse=True)
    return [_shown_key(key, used_by.get(key.name), costs) for key in issued]


def _shown_key(key: IssuedKey, row: KeyRow | None, costs: Sequence[float]) -> ShownKey:
    sees = "everything" if key.admin else "its own"
    if row is None:
        return ShownKey(key.name, sees, key.limits.describe(), "", "")
    return ShownKey(key.name, sees, key.limits.describe(), _used_text(row, costs), row["begins"])


def _used_text(row: KeyRow | UserRow, costs: Sequence[float]) -> str:
    return f"{format_usd(row['used']['cost'], costs)}, {format_tokens(row['used']['tokens'])} tokens"


async def _load_users(visitor: Visitor) -> list[ShownKey]:
    """What every user may use comes first."""
    context = visitor.context
    limits = await run_in_threadpool(read_user_limits, context.config.users_path)
    try:
        rows = await user_rows(context.store, None, limits, datetime.now(UTC))
    except StoreError:
        rows = []
    costs = [row["used"]["cost"] for row in rows]
    return [
        ShownKey("every other user", "its own", limits.everybody.describe(), "", ""),
        *(_shown_user(row, limits, context.config.front.admins, costs) for row in rows),
    ]


def _shown_user(row: UserRow, limits: UserLimits, admins: Collection[str], costs: Sequence[float]) -> ShownKey:
    sees = "everything" if row["name"] in admins else "its own"
    return ShownKey(row["name"], sees, limits.of(row["name"]).describe(), _used_text(row, costs), row["begins"])


@dataclass(frozen=True, slots=True)
class ChangedSetting:
    """A setting that differs from its default. `source` says where it was configured, empty where that is not known."""

    name: str
    value: str
    default: str
    source: str


def changed_settings(
    model: BaseModel, sources: Mapping[str, str] = MappingProxyType({}), above: str = ""
) -> Iterator[ChangedSetting]:
    """By dotted name. Secrets are hidden."""
    for name, field in type(model).model_fields.items():
        value, default = getattr(model, name), field.get_default(call_default_factory=True)
        dotted = f"{above}{name}"
        if name == "upstreams" or value == default:
            continue
        if isinstance(value, BaseModel):
            yield from changed_settings(value, sources, f"{dotted}.")
        else:
            shown = "(hidden)" if name in SECRET_KEYS else _plain(value)
            source = next((text for key, text in sources.items() if f"{key}.".startswith(f"{dotted}.")), "")
            yield ChangedSetting(dotted, shown, _plain(default), source)


def _plain(value: object) -> str:
    plain = to_jsonable_python(value, fallback=str)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


async def issue(request: Request) -> Response:
    """The key is shown on this page and nowhere again."""
    form = await read_form(request)
    visitor = _require_operator(request)
    name = form.get("name", "").strip()
    try:
        key = await run_in_threadpool(
            lambda: issue_key(visitor.context.config.keys_path, name, admin=form.get("admin") == "yes")
        )
    except InvalidConfiguration as error:
        raise BadRequest(str(error)) from None
    return await show(request, new_key=key, message=f"Key {name} was issued. Copy it now: it is shown only once.")


async def revoke(request: Request) -> Response:
    form = await read_form(request)
    visitor = _require_operator(request)
    if not await run_in_threadpool(revoke_key, visitor.context.config.keys_path, form.get("name", "")):
        raise NotFound("There is no such key; it may have been revoked already.")
    return RedirectResponse("/console/operation", status_code=303)


ROUTES = [
    Route("/console/operation", show),
    Route("/console/operation/keys", issue, methods=["POST"]),
    Route("/console/operation/keys/revoke", revoke, methods=["POST"]),
]
