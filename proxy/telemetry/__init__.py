"""Metrics and their Prometheus page, events and the event bus, and the format of log fields."""

from proxy.telemetry.event_bus import EventBus, EventListener, NumberedEvent
from proxy.telemetry.event_log import EventFileWriter
from proxy.telemetry.events import ProxyEvent
from proxy.telemetry.log_fields import MAX_FIELD_CHARS, LogFields, log_field, truncate_field
from proxy.telemetry.metrics import OTHER_LABEL, Metrics

__all__ = [
    "MAX_FIELD_CHARS",
    "OTHER_LABEL",
    "EventBus",
    "EventFileWriter",
    "EventListener",
    "LogFields",
    "Metrics",
    "NumberedEvent",
    "ProxyEvent",
    "log_field",
    "truncate_field",
]
