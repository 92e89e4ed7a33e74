"""Log lines on standard error, as text for a person or as one JSON object a line, with the trace they belong to."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog
from opentelemetry import trace

__all__ = ["open_log"]


def open_log(stream: TextIO, *, form: str = "text", level: str = "info") -> Any:
    """A logger for a `LiveObserver`; lines below `level` cost next to nothing."""
    shown: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _with_trace,
        structlog.processors.JSONRenderer(ensure_ascii=False, default=str)
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=stream.isatty()),
    ]
    least = logging.getLevelNamesMapping()[level.upper()]
    return structlog.wrap_logger(
        structlog.WriteLogger(stream),
        processors=shown,
        wrapper_class=structlog.make_filtering_bound_logger(least),
        cache_logger_on_first_use=True,
    )


def _with_trace(_log: Any, _method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        fields.setdefault("traceId", f"{context.trace_id:032x}")
    return fields
