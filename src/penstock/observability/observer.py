"""One small door to metrics, traces and logs, which costs one empty call when it is off.

A room takes `observer: Observer = SILENT`. The command line gives it a `LiveObserver`; a test gives
it the recording one of `penstock.testing` and asserts on what was counted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from penstock.observability.names import Event, Kind, Metric, Span

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer
    from prometheus_client import CollectorRegistry

__all__ = ["SILENT", "LiveObserver", "Observer"]


class Observer:
    """Emits nothing. Subclasses emit."""

    def count(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""

    def gauge(self, metric: Metric, value: float, **labels: str) -> None:
        """Set a gauge."""

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """Add one observation to a histogram."""

    def span(self, span: Span, **attributes: Any) -> AbstractContextManager[None]:
        """A traced piece of work; errors that leave it are recorded on the span."""
        return _NO_SPAN

    def event(self, event: Event, **fields: Any) -> None:
        """One structured log line."""


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

    def __init__(self, registry: CollectorRegistry | None = None, tracer: Tracer | None = None) -> None:
        # Imported when somebody listens: to the many processes that are silent, they would be most of the start.
        import structlog
        from opentelemetry import trace
        from prometheus_client import CollectorRegistry

        self.registry = registry or CollectorRegistry()
        with _CREATING:
            self._instruments = _INSTRUMENTS.setdefault(self.registry, {})
        self._tracer = tracer or trace.get_tracer("penstock")
        self._log = structlog.get_logger("penstock")

    def count(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        self._instrument(metric, labels).inc(amount)

    def gauge(self, metric: Metric, value: float, **labels: str) -> None:
        self._instrument(metric, labels).set(value)

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        self._instrument(metric, labels).observe(value)

    @contextmanager
    def span(self, span: Span, **attributes: Any) -> Iterator[None]:
        with self._tracer.start_as_current_span(span.name, attributes=attributes):
            yield

    def event(self, event: Event, **fields: Any) -> None:
        getattr(self._log, event.level)(event.name, **fields)

    def _instrument(self, metric: Metric, labels: dict[str, str]) -> Any:
        instrument = self._instruments.get(metric.name)
        if instrument is None:
            with _CREATING:
                instrument = self._instruments.get(metric.name) or self._create(metric)
                self._instruments[metric.name] = instrument
        return instrument.labels(**labels) if metric.labels else instrument

    def _create(self, metric: Metric) -> Any:
        from prometheus_client import Counter, Gauge, Histogram

        if metric.kind is Kind.HISTOGRAM:
            return Histogram(metric.name, metric.help, metric.labels, buckets=metric.buckets, registry=self.registry)
        make = Counter if metric.kind is Kind.COUNTER else Gauge
        return make(metric.name, metric.help, metric.labels, registry=self.registry)
