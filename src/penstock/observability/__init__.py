"""Metrics, logs and traces: the table of their names, and the observers that emit them."""

from penstock.observability import names
from penstock.observability.names import Event, Kind, Metric, Span
from penstock.observability.observer import SILENT, LiveObserver, Observer
from penstock.observability.tally import Tally, recount
from penstock.observability.trace_context import checked_traceparent, trace_id

__all__ = [
    "SILENT",
    "Event",
    "Kind",
    "LiveObserver",
    "Metric",
    "Observer",
    "Span",
    "Tally",
    "checked_traceparent",
    "names",
    "recount",
    "trace_id",
]
