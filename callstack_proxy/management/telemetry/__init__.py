"""What other programs are told of the proxy: the Prometheus page, spans for OpenTelemetry, and the file of events."""

from callstack_proxy.management.telemetry.event_log import EventFileWriter
from callstack_proxy.management.telemetry.spans import AttributeValue, Span, frame_span, request_span, tool_span
from callstack_proxy.management.telemetry.tracer import open_tracer
