"""What Penstock tells about itself: the table of names, and the observer that emits them."""

from penstock.observability import names
from penstock.observability.names import Event, Kind, Metric, Span
from penstock.observability.observer import SILENT, LiveObserver, Observer

__all__ = ["SILENT", "Event", "Kind", "LiveObserver", "Metric", "Observer", "Span", "names"]
