"""Metrics and their Prometheus page, events and the event bus, traces, and the format of log fields."""

from proxy.telemetry.event_bus import EventBus, EventListener, NumberedEvent
from proxy.telemetry.event_log import EventFileWriter
from proxy.telemetry.events import ProxyEvent
from proxy.telemetry.health import Health, health_view
from proxy.telemetry.log_fields import MAX_FIELD_CHARS, LogFields, log_field, truncate_field
from proxy.telemetry.metrics import OTHER_LABEL, Metrics
from proxy.telemetry.spans import AttributeValue, Span, frame_span, request_span, tool_span
from proxy.telemetry.tracer import open_tracer
