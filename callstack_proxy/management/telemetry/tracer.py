"""Live traces: a span for each frame when it ends, and for each request when it is answered, sent to an OpenTelemetry
receiver (OTLP over HTTP). Needs the extra `otel`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec

import msgspec

from callstack_proxy.management.telemetry.spans import Span, frame_span
from proxy.config import OtelSettings
from proxy.core.frames import (
    FINAL_STATUSES,
    PART_ORIGIN,
    ROOTED,
    FrameEntered,
    FrameInvalidated,
    FramePlanned,
    FramePopped,
    FramePushed,
    FrameReplanned,
    FrameSplit,
    RootStarted,
    Status,
    SubagentStarted,
    decode_event,
)
from proxy.core.ledger import Ledger, LedgerEvent
from proxy.errors import InvalidConfiguration
from proxy.telemetry import Tracer

BEGINNING_KINDS = frozenset({ROOTED, "planned", "replanned", "pushed", "entered", "delegated"})
ENDING_KINDS = frozenset({"popped", "parted", "invalidated"})
ORIGIN_BY_EVENT = {RootStarted: "root", SubagentStarted: "subagent", FrameSplit: PART_ORIGIN}


def open_tracer(settings: OtelSettings, count_exported: Callable[[str, int], None]) -> Tracer:
    """Without `titles`, no word of the conversation is in a span. `count_exported` is called in another thread with
    `sent` or `lost` and a number of spans. Raises InvalidConfiguration without the extra."""
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter") is None:
        raise InvalidConfiguration("otel.endpoint: tracing needs a package: pip install 'callstack-proxy[otel]'")
    # An extra, which costs 0.1 s and 15 MB.
    from callstack_proxy.management.telemetry.opentelemetry_sdk import SdkTracer

    return SdkTracer(settings.endpoint, titles=settings.titles, count_exported=count_exported)


def ended_frame_spans(ledger: Ledger, events: Iterable[LedgerEvent], *, titles: bool) -> Iterator[Span]:
    """Spans of the frames that these events of the ledger end. A blocked frame has not ended."""
    for event in events:
        if event.kind in ENDING_KINDS:
            for frame, status in _ended_frames(event):
                if (span := _span_of(ledger, frame, status, event, titles=titles)) is not None:
                    yield span


def _ended_frames(event: LedgerEvent) -> Iterator[tuple[str, Status]]:
    match decode_event(event):
        case FramePopped(frame=frame, status=status) if status in FINAL_STATUSES:
            yield frame, status
        case FrameSplit(frame=frame):
            yield frame, Status.COMPLETED
        case FrameInvalidated(frame=first, cascade=others):
            yield from ((frame, Status.INVALIDATED) for frame in dict.fromkeys((first, *others)))
        case _:
            pass


def _span_of(ledger: Ledger, frame: str, status: Status, ended: LedgerEvent, *, titles: bool) -> Span | None:
    """None for a frame whose beginning is not in the ledger, because its record was lost."""
    parent = origin = title = ""
    begun = 0
    for event in _events_that_begin(ledger, frame, ended):
        match decode_event(event):
            case FrameReplanned() as again if again.frame == frame:
                title = again.title
            case (
                RootStarted() | FramePlanned() | FramePushed() | FrameEntered() | SubagentStarted() | FrameSplit()
            ) as first if first.frame == frame:
                parent = parent or getattr(first, "parent", "")
                origin = origin or ORIGIN_BY_EVENT.get(type(first), "") or getattr(first, "origin", "")
                title, begun = first.title, min(begun or event.created, event.created)
    if not begun:
        return None
    return frame_span(
        ledger.conversation.id,
        frame,
        title=title if titles else "",
        parent=parent,
        origin=origin,
        status=status,
        span_ms=(begun, ended.created),
    )


def _events_that_begin(ledger: Ledger, frame: str, ended: LedgerEvent) -> Iterator[LedgerEvent]:
    for hanging in ledger.events.values():
        for event in hanging:
            if event.kind in BEGINNING_KINDS and frame in event.subject:
                yield event
    if ended.kind == "parted":  # it begins and ends with one event, at the first entry that it takes
        split = decode_event(ended)
        assert isinstance(split, FrameSplit)  # noqa: S101 - its kind says so
        taken = [ledger.entries[entry].created for entry in split.taking if entry in ledger.entries]
        yield msgspec.structs.replace(ended, created=min(taken, default=ended.created))
