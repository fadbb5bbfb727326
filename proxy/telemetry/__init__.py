"""Metrics, events and the event bus, what traces them, and the format of log fields."""

from proxy.telemetry.event_bus import EventBus, EventListener, NumberedEvent, Tracer
from proxy.telemetry.events import ProxyEvent
from proxy.telemetry.health import Health, health_view
from proxy.telemetry.log_fields import MAX_FIELD_CHARS, LogFields, log_field, truncate_field
from proxy.telemetry.metrics import MAX_BYPASS_SHARE, OTHER_LABEL, Histogram, Metrics, ModelTotals
