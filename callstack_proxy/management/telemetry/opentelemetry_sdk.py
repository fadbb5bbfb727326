"""The OpenTelemetry SDK behind live traces. Import it only where traces are asked for: it comes with the extra `otel`.

The SDK samples, batches and repeats, and reads its own variables, for example OTEL_EXPORTER_OTLP_HEADERS,
OTEL_TRACES_SAMPLER and OTEL_RESOURCE_ATTRIBUTES. A receiver that is away costs spans, never a request.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags, set_span_in_context

from callstack_proxy.management.telemetry.spans import Span, request_span
from callstack_proxy.management.telemetry.tracer import ended_frame_spans
from proxy import __version__
from proxy.accounting import Receipt
from proxy.core.ledger import Ledger, LedgerEvent

log = logging.getLogger(__name__)

TRACES_PATH = "/v1/traces"
SHUTDOWN_S = 3.0
"""How long the end of the process waits for the spans that are left."""
NS_PER_MS = 1_000_000


class SdkTracer:
    """Used on the event loop alone."""

    def __init__(self, endpoint: str, *, titles: bool, count_exported: Callable[[str, int], None]) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # each attempt; `CountingExporter` logs once
        url = endpoint if endpoint.endswith(TRACES_PATH) else endpoint.rstrip("/") + TRACES_PATH
        self._processor = BatchSpanProcessor(CountingExporter(OTLPSpanExporter(endpoint=url), count_exported))
        self._ids = GivenIds()
        resource = Resource.create({"service.name": "callstack", "service.version": __version__})
        provider = TracerProvider(id_generator=self._ids, resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(self._processor)
        self._sampler = provider.sampler
        self._tracer = provider.get_tracer("callstack", __version__)
        self._has_titles = titles

    def trace_receipt(self, tenant: str, receipt: Receipt) -> None:
        self._send(request_span(receipt, tenant))

    def trace_ledger_events(self, ledger: Ledger, events: Sequence[LedgerEvent]) -> None:
        for span in ended_frame_spans(ledger, events, titles=self._has_titles):
            self._send(span)

    async def close(self) -> None:
        """Send what is left, for up to `SHUTDOWN_S`."""
        ending = threading.Thread(target=self._processor.shutdown, daemon=True)  # it may take its own 30 s
        ending.start()
        await asyncio.to_thread(ending.join, SHUTDOWN_S)

    def _send(self, span: Span) -> None:
        decision = self._sampler.should_sample(None, span.trace_id, span.name).decision
        if decision is not Decision.RECORD_AND_SAMPLE:  # decided by the trace: a conversation is whole or absent
            return
        self._ids.trace_id, self._ids.span_id = span.trace_id, span.span_id
        parent = SpanContext(span.trace_id, span.parent_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
        started = self._tracer.start_span(
            span.name,
            context=set_span_in_context(NonRecordingSpan(parent)) if span.parent_id else None,
            kind=SpanKind.CLIENT if span.is_client else SpanKind.INTERNAL,
            attributes=span.attributes,
            start_time=span.begun_ms * NS_PER_MS,
        )
        started.set_status(StatusCode.ERROR if span.has_failed else StatusCode.OK)
        started.end(span.ended_ms * NS_PER_MS)


class GivenIds(IdGenerator):
    """Gives the ids of the span that starts next."""

    trace_id = span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id

    def is_trace_id_random(self) -> bool:
        return True  # a hash is as evenly spread, which is what a sampler by ratio needs


class CountingExporter(SpanExporter):
    """Counts what `exporter` sends and loses, and logs the first failure and the first success after it."""

    def __init__(self, exporter: SpanExporter, count: Callable[[str, int], None]) -> None:
        self._exporter = exporter
        self._count = count
        self._is_failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception:  # the SDK would swallow it, and nobody would count the spans
            result = SpanExportResult.FAILURE
        failed = result is not SpanExportResult.SUCCESS
        self._count("lost" if failed else "sent", len(spans))
        if failed and not self._is_failing:
            log.warning("spans cannot be sent to otel.endpoint and are lost until it answers")
        if self._is_failing and not failed:
            log.info("spans are sent again")
        self._is_failing = failed
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()
