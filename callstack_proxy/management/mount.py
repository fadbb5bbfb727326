"""All that stands beside the way of a request, as a proxy is given it: `build_app(config, doors=DOORS)`."""

from __future__ import annotations

from collections.abc import Sequence

from callstack_proxy.filemap import draw_map_for
from callstack_proxy.management.compress_api import CompressApi
from callstack_proxy.management.telemetry import EventFileWriter, open_tracer
from proxy.core.ledger import LedgerEvent
from proxy.server import Doors, Mounted, RenderMetrics, RunningApp


def build_management(app: RunningApp) -> Mounted:
    # FastAPI: 30 MB that most runs never need
    from callstack_proxy.management.api import ApiContext, build_api
    from callstack_proxy.management.console import EndedSessions, PageMemory, Sessions, build_console

    services, config = app.services, app.services.config
    conversations, counter, memory = services.conversation_cache, services.counter, PageMemory()

    def on_deleted(tenant: str | None, conversation: str) -> None:
        memory.forget_all()
        conversations.drop_deleted(tenant, conversation)

    def on_mode_changed(tenant: str, conversation: str, mode: str) -> None:
        memory.forget_ledger(tenant, conversation)
        conversations.set_mode(tenant, conversation, mode)

    def on_events_stored(tenant: str, conversation: str, events: Sequence[LedgerEvent]) -> None:
        memory.forget_ledger(tenant, conversation)
        conversations.apply_events(tenant, conversation, events)

    context = ApiContext(
        store=services.store,
        tenant_of=app.tenant_of,
        on_deleted=on_deleted,
        on_mode_changed=on_mode_changed,
        on_events_stored=on_events_stored,
        inbox=services.inbox,
        is_draining=app.is_draining,
        started=app.started,
        live_settings=services.live_settings,
        counter_name=lambda: counter.name,
        operator_token=app.operator_token,
        config=config,
        feed=services.event_bus,
        count_tokens=counter.count,
        learned_traits=app.learned_traits,
        meaning_of=services.frame_embedder.query_vector if services.frame_embedder else None,
    )
    by_key = app.tenant_of if config.tenancy in ("key", "credential") else None
    by_front = app.tenant_of if config.tenancy == "header" else None
    sessions = Sessions(services.secret, app.operator_token, by_key, app.hash_of_key, by_front)
    sessions.ended = EndedSessions(config.data / "ended_sessions.json")
    return Mounted(build_api(context), build_console(context, sessions, memory))


def load_metrics_page() -> RenderMetrics:
    from callstack_proxy.management.telemetry.prometheus import render_metrics  # the library takes 25 ms and 3 MB

    return render_metrics


DOORS = Doors(
    build_mounted=build_management,
    build_endpoints=CompressApi,
    draw_map_for=draw_map_for,
    load_metrics_page=load_metrics_page,
    open_tracer=open_tracer,
    write_events=lambda feed, folder: EventFileWriter(feed, folder).run(),
)
