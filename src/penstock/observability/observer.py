"""One small door to metrics, traces and logs, which costs one empty call when it is off.

A room takes `observer: Observer = SILENT`. A command that was asked to be watched gives it a `LiveObserver`; a worker
whose figures travel with its answers gives it a `Tally`; a test gives it the recording one of `penstock.testing` and
asserts on what was counted. No text of a document is given to any of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import nan
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from penstock.observability.names import Event, Kind, Metric, Span

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Tracer
    from prometheus_client import CollectorRegistry

__all__ = ["SILENT", "LiveObserver", "Observer"]

_MILLISECOND_NS: Final = 1_000_000


class Observer:
    """Emits nothing. Subclasses emit."""

    def count(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""

    def gauge(self, metric: Metric, value: float, **labels: str) -> None:
        """Set a gauge."""

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """Add one observation to a histogram."""

    def span(
        self, span: Span, *, parent: str | None = None, links: Sequence[str] = (), **attributes: Any
    ) -> AbstractContextManager[None]:
        """A traced piece of work; the kind of an error that leaves it is noted on the span.

        It belongs to the trace of `parent`, the `traceparent` of an event; without one, to the span around it. `links`
        are those of other traces that it works for.
        """
        return _NO_SPAN

    def past_span(
        self,
        span: Span,
        began_ms: float,
        ended_ms: float,
        *,
        parent: str | None = None,
        links: Sequence[str] = (),
        **attributes: Any,
    ) -> None:
        """A piece of work that is over; its times are milliseconds since 1970."""

    def event(self, event: Event, **fields: Any) -> None:
        """One structured log line."""

    def traceparent(self) -> str | None:
        """The trace that this work is of, to be handed on with it; None when nobody traces."""
        return None


_NO_SPAN: AbstractContextManager[None] = nullcontext()
SILENT = Observer()


# By registry, which takes each name once, whoever brings it.
_INSTRUMENTS: Final[WeakKeyDictionary[CollectorRegistry, dict[str, Any]]] = WeakKeyDictionary()
# Only creation is locked: two threads must not register one name twice.
_CREATING: Final = threading.Lock()


class LiveObserver(Observer):
    """Prometheus for numbers, OpenTelemetry for spans, structlog for events. Safe to share between threads.

    Several observers on one registry count together.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        tracer: Tracer | None = None,
        log: Any = None,
        heard: Callable[[Event, Mapping[str, Any]], None] | None = None,
    ) -> None:
        # Imported when somebody listens: to the many processes that are silent, they would be most of the start.
        import structlog
        from opentelemetry import trace
        from prometheus_client import CollectorRegistry

        self.registry = registry or CollectorRegistry()
        with _CREATING:
            self._instruments = _INSTRUMENTS.setdefault(self.registry, {})
        self._tracer = tracer or trace.get_tracer("penstock")
        self._log = log or structlog.get_logger("penstock")
        # Told of every event, whatever its level.
        self._heard = heard

    def declare(self, metrics: Iterable[Metric]) -> None:
        """Show metrics before anything is counted: whoever watches a page finds every name on it from the start.

        A gauge is no number until it is set: zero would be an answer that nobody has given.
        """
        for metric in metrics:
            instrument = self._instrument(metric)
            if metric.kind is Kind.GAUGE and not metric.labels:
                instrument.set(nan)

    def count(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        self._labelled(metric, labels).inc(amount)

    def gauge(self, metric: Metric, value: float, **labels: str) -> None:
        self._labelled(metric, labels).set(value)

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        self._labelled(metric, labels).observe(value)

    @contextmanager
    def span(
        self, span: Span, *, parent: str | None = None, links: Sequence[str] = (), **attributes: Any
    ) -> Iterator[None]:
        from opentelemetry.trace import Status, StatusCode

        with self._tracer.start_as_current_span(
            span.name,
            _context_of(parent),
            attributes=_known(attributes),
            links=_links(links),
            record_exception=False,
            set_status_on_exception=False,
        ) as opened:
            try:
                yield
            except BaseException as error:
                # Its kind alone: what it says may quote what was worked on.
                opened.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise

    def past_span(
        self,
        span: Span,
        began_ms: float,
        ended_ms: float,
        *,
        parent: str | None = None,
        links: Sequence[str] = (),
        **attributes: Any,
    ) -> None:
        began_ns, ended_ns = round(began_ms * _MILLISECOND_NS), round(ended_ms * _MILLISECOND_NS)
        opened = self._tracer.start_span(
            span.name, _context_of(parent), attributes=_known(attributes), links=_links(links), start_time=began_ns
        )
        opened.end(max(began_ns, ended_ns))

    def event(self, event: Event, **fields: Any) -> None:
        known = _known(fields)
        getattr(self._log, event.level)(event.name, **known)
        if self._heard is not None:
            self._heard(event, known)

    def traceparent(self) -> str | None:
        from opentelemetry import trace

        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return None
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"

    def _labelled(self, metric: Metric, labels: dict[str, str]) -> Any:
        instrument = self._instrument(metric)
        return instrument.labels(**labels) if metric.labels else instrument

    def _instrument(self, metric: Metric) -> Any:
        instrument = self._instruments.get(metric.name)
        if instrument is None:
            with _CREATING:
                instrument = self._instruments.get(metric.name) or self._create(metric)
                self._instruments[metric.name] = instrument
        return instrument

    def _create(self, metric: Metric) -> Any:
        from prometheus_client import Counter, Gauge, Histogram

        if metric.kind is Kind.HISTOGRAM:
            return Histogram(metric.name, metric.help, metric.labels, buckets=metric.buckets, registry=self.registry)
        make = Counter if metric.kind is Kind.COUNTER else Gauge
        return make(metric.name, metric.help, metric.labels, registry=self.registry)


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    """Without those that nothing is known of."""
    return {name: value for name, value in fields.items() if value is not None}


def _context_of(parent: str | None) -> Context | None:
    if parent is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": parent})


def _links(traceparents: Sequence[str]) -> list[Link]:
    from opentelemetry import trace

    contexts = [trace.get_current_span(_context_of(each)).get_span_context() for each in dict.fromkeys(traceparents)]
    return [trace.Link(context) for context in contexts if context.is_valid]
