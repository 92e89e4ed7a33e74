"""What a worker counts where nobody can ask it: gathered, sent along with its answers, and counted again by the driver.

Observations are kept one by one, so that nothing is lost between two histograms; a worker that hands its figures over
with every answer holds no more of them than the answer had steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.observability import names
from penstock.observability.names import Event, Kind, Metric, Span
from penstock.observability.observer import Observer

__all__ = ["Tally", "recount"]

# Of lines and spans in one answer: enough to follow every document of a round, and no more than a few megabytes.
_LINES_MAX: Final = 4096

_Labels = tuple[tuple[str, str], ...]


class _PastSpan(msgspec.Struct, array_like=True):
    name: str
    began_ms: float
    ended_ms: float
    parent: str | None
    links: list[str]
    attributes: dict[str, Any]


class _Figures(msgspec.Struct, array_like=True):
    """(name, labels, values) of every series, and the lines and spans in their order."""

    series: list[tuple[str, dict[str, str], list[float]]]
    events: list[tuple[str, dict[str, Any]]]
    spans: list[_PastSpan]


_DECODER: Final = msgspec.msgpack.Decoder(_Figures)


class Tally(Observer):
    """Used by one thread. `taken` hands over what was gathered since it was last called."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._sums: dict[tuple[str, _Labels], float] = {}
        self._levels: dict[tuple[str, _Labels], float] = {}
        self._observed: dict[tuple[str, _Labels], list[float]] = {}
        self._events: list[tuple[str, dict[str, Any]]] = []
        self._spans: list[_PastSpan] = []

    def count(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        series = (metric.name, tuple(labels.items()))
        self._sums[series] = self._sums.get(series, 0.0) + amount

    def gauge(self, metric: Metric, value: float, **labels: str) -> None:
        self._levels[metric.name, tuple(labels.items())] = value

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        self._observed.setdefault((metric.name, tuple(labels.items())), []).append(value)

    @contextmanager
    def span(
        self, span: Span, *, parent: str | None = None, links: Sequence[str] = (), **attributes: Any
    ) -> Iterator[None]:
        began_ms, began = self._clock.now_ms(), self._clock.monotonic()
        try:
            yield
        finally:
            ended_ms = began_ms + (self._clock.monotonic() - began) * 1000
            self.past_span(span, began_ms, ended_ms, parent=parent, links=links, **attributes)

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
        if len(self._spans) < _LINES_MAX:
            self._spans.append(_PastSpan(span.name, began_ms, ended_ms, parent, list(links), attributes))

    def event(self, event: Event, **fields: Any) -> None:
        if len(self._events) < _LINES_MAX:
            self._events.append((event.name, fields))

    def taken(self) -> bytes | None:
        """All of it, to be sent along; None when there is nothing."""
        totals = [(*series, [value]) for series, value in (*self._sums.items(), *self._levels.items())]
        series = [
            (name, dict(labels), values)
            for name, labels, values in (*totals, *((*each, values) for each, values in self._observed.items()))
        ]
        if not series and not self._events and not self._spans:
            return None
        figures = msgspec.msgpack.encode(_Figures(series, self._events, self._spans))
        self._sums, self._levels, self._observed, self._events, self._spans = {}, {}, {}, [], []
        return figures


def recount(figures: bytes, observer: Observer) -> None:
    """Emit what a `Tally` gathered elsewhere, as if it had happened here."""
    found = _DECODER.decode(figures)
    for name, labels, values in found.series:
        metric = names.METRICS[name]
        for value in values:
            _emit(observer, metric, value, labels)
    for name, fields in found.events:
        observer.event(names.EVENTS[name], **fields)
    for span in found.spans:
        observer.past_span(
            names.SPANS[span.name],
            span.began_ms,
            span.ended_ms,
            parent=span.parent,
            links=span.links,
            **span.attributes,
        )


def _emit(observer: Observer, metric: Metric, value: float, labels: dict[str, str]) -> None:
    if metric.kind is Kind.COUNTER:
        observer.count(metric, value, **labels)
    elif metric.kind is Kind.GAUGE:
        observer.gauge(metric, value, **labels)
    else:
        observer.observe(metric, value, **labels)
