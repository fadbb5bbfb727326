"""What the overview shows, as its address says: which client, whose requests, and how they are added up and drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, cast, get_args
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from callstack_proxy.management.console.rendering import Visitor
from callstack_proxy.management.reports import GroupBy, Period, PeriodName, read_period
from proxy.auth import list_keys, name_of_tenant, tenant_of_key
from proxy.errors import BadRequest, Forbidden

Chart = Literal["money", "tokens"]
GROUPS: tuple[GroupBy, ...] = ("day", "model", "client", "project", "conversation", "frame")
CHARTS: tuple[Chart, ...] = get_args(Chart)
MAX_OPTIONS = 200
"""Names in a list; an address may name any other."""
PERIOD_WORDS: Mapping[PeriodName, str] = {
    "all": "all time",
    "today": "today",
    "week": "last 7 days",
    "month": "last 30 days",
}
WHOSE = {"key": "client key", "header": "user", "credential": "credential"}
"""What a tenant is, by `tenancy`; with `single` there is only one."""


@dataclass(frozen=True, slots=True)
class OverviewFilter:
    """`client` is a name as in receipts, `tenant` the id of a tenant; empty for all."""

    by: GroupBy = "day"
    chart: Chart = "money"
    client: str = ""
    tenant: str = ""
    period: PeriodName = "all"
    since: str = ""
    until: str = ""

    @property
    def is_narrowed(self) -> bool:
        return bool(self.client or self.tenant or not self.days.is_everything)

    @property
    def days(self) -> Period:
        """Raises BadRequest for a date that is none."""
        return read_period(self.period, self.since, self.until)

    @property
    def tenant_name(self) -> str:
        return name_of_tenant(self.tenant)

    def address(self, path: str = "/console", **changed: str) -> str:
        """The address of `path` with this filter, or with one that differs in `changed`. Defaults are left out."""
        wanted, usual = asdict(self) | changed, asdict(OverviewFilter())
        query = urlencode({name: value for name, value in wanted.items() if value != usual[name]})
        return f"{path}?{query}" if query else path

    @property
    def address_of_all(self) -> str:
        """The same table and chart about all requests."""
        return OverviewFilter(self.by, self.chart).address()

    def scope_of(self, visitor: Visitor) -> str | None:
        """The tenant whose requests are read; None for all. Raises Forbidden for another one's."""
        if self.tenant and visitor.scope not in (None, self.tenant):
            raise Forbidden("This address shows the requests of somebody else. An admin's key sees all.")
        return self.tenant or visitor.scope


def read_filter(request: Request) -> OverviewFilter:
    """Raises BadRequest for a table, a chart or a period that there is not."""
    params = request.query_params
    by, chart = params.get("by") or "day", params.get("chart") or "money"
    if by not in get_args(GroupBy):
        raise BadRequest(f"There is no table by that name; there are {', '.join(GROUPS)}.")
    if chart not in CHARTS:
        raise BadRequest(f"There is no such chart; there are {' and '.join(CHARTS)}.")
    chosen = OverviewFilter(cast(GroupBy, by), chart, params.get("client", ""), params.get("tenant", ""))
    since, until = params.get("since", ""), params.get("until", "")
    period = "" if since or until else params.get("period", "")  # of a form with both the dates are what was typed
    read_period(period, since, until)
    return replace(chosen, period=cast(PeriodName, period or "all"), since=since, until=until)


def client_options(clients: Iterable[str], chosen: str) -> list[str]:
    """`clients` has one name for each request. Most requests first; empty where there is nothing to choose."""
    names = [name for name, _ in Counter(clients).most_common(MAX_OPTIONS)]
    names += [chosen] if chosen and chosen not in names else []
    return names if chosen or len(names) > 1 else []


async def tenant_options(visitor: Visitor, chosen: str) -> Sequence[tuple[str, str]]:
    """Id and name of everybody whose requests an operator may choose, by name; empty where there is only one."""
    context = visitor.context
    if visitor.scope is not None or context.config.tenancy not in WHOSE:
        return ()
    tenants = {tenant for tenant, _ in await context.store.usage_days(None)}
    tenants |= {tenant_of_key(key.name) for key in await run_in_threadpool(list_keys, context.config.keys_path)}
    tenants |= {chosen} if chosen else set()
    return sorted(((tenant, name_of_tenant(tenant)) for tenant in tenants), key=lambda each: each[1])[:MAX_OPTIONS]
