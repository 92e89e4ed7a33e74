"""An observer that remembers, so that a test can ask what was counted, measured and logged.

It is as strict as the live one: a metric given labels other than those of the table of names is refused,
since Prometheus would refuse it in production.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from penstock.errors import InvalidInput
from penstock.observability import Event, Metric, Observer, Span

__all__ = ["RecordingObserver"]

_Labels: TypeAlias = tuple[tuple[str, str], ...]
_Series: TypeAlias = dict[_Labels, float]


class RecordingObserver(Observer):
    """Keeps every metric, event and span. Queries name some labels and match every series that carries them."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, _Series] = defaultdict(dict)
        self._gauges: defaultdict[str, _Series] = defaultdict(dict)
        self._observations: defaultdict[str, list[tuple[_Labels, float]]] = defaultdict(list)
        self._events: list[tuple[Event, dict[str, Any]]] = []
        self._spans: list[tuple[Span, dict[str, Any]]] = []

    def count(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        series, key = self._counts[metric.name], _key(metric, labels)
        series[key] = series.get(key, 0.0) + amount

    def gauge(self, metric: Metric, value: float, **labels: str) -> None:
        series, key = self._gauges[metric.name], _key(metric, labels)
        # Taken out first, so that the series stay in the order in which they were last set.
        series.pop(key, None)
        series[key] = value

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        self._observations[metric.name].append((_key(metric, labels), value))

    @contextmanager
    def span(
        self, span: Span, *, parent: str | None = None, links: Sequence[str] = (), **attributes: Any
    ) -> Iterator[None]:
        self._spans.append((span, _attributes(attributes, parent, links)))
        yield

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
        self._spans.append((span, _attributes(attributes, parent, links)))

    def event(self, event: Event, **fields: Any) -> None:
        self._events.append((event, fields))

    def counted(self, metric: Metric, **labels: str) -> float:
        """The sum over all series that carry these labels."""
        return sum(amount for key, amount in self._counts[metric.name].items() if _matches(key, labels))

    def gauged(self, metric: Metric, **labels: str) -> float | None:
        """The value set last among the series that carry these labels; None if none was set."""
        values = [value for key, value in self._gauges[metric.name].items() if _matches(key, labels)]
        return values[-1] if values else None

    def observed(self, metric: Metric, **labels: str) -> list[float]:
        """Every observation, in order."""
        return [value for key, value in self._observations[metric.name] if _matches(key, labels)]

    def events(self, event: Event) -> list[dict[str, Any]]:
        """The fields of every line of this event, in order."""
        return [fields for seen, fields in self._events if seen == event]

    def spans(self, span: Span) -> list[dict[str, Any]]:
        """The attributes of every span of this name, in the order they were opened; `parent` and `links` where given."""
        return [attributes for seen, attributes in self._spans if seen == span]


def _attributes(attributes: dict[str, Any], parent: str | None, links: Sequence[str]) -> dict[str, Any]:
    return attributes | ({"parent": parent} if parent else {}) | ({"links": list(links)} if links else {})


def _key(metric: Metric, labels: dict[str, str]) -> _Labels:
    if sorted(labels) != sorted(metric.labels):
        raise InvalidInput(
            f"metric {metric.name} was given the labels {sorted(labels)}",
            f"the table of names gives it {sorted(metric.labels)}",
            "name each label of the table exactly once",
        )
    return tuple(sorted(labels.items()))


def _matches(key: _Labels, labels: dict[str, str]) -> bool:
    carried = dict(key)
    return all(carried.get(name) == value for name, value in labels.items())
