"""OpenMetrics and the older text format of Prometheus as rows of metrics: one sample a row, with its labels as they stand.

The parsers are those of the Prometheus project's own Python client. Text is for scraped files and for hands; what
comes by the million comes by remote write.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.telemetry.columns.rows import DecodedRows, RowSource
from penstock.telemetry.columns.schemas import METRICS, PROMETHEUS
from penstock.telemetry.wire.limits import DecodeLimits

__all__ = ["decode_openmetrics", "decode_prometheus_text"]

_LIMITS: Final = DecodeLimits()
_SECOND: Final = 1_000_000_000
_INT64: Final = 2**63
# Whatever a parser of somebody else's text may trip over.
_FAULTS: Final = (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, AssertionError)


def decode_openmetrics(body: bytes, source: RowSource, limits: DecodeLimits = _LIMITS) -> DecodedRows:
    """OpenMetrics 1.0, which ends with `# EOF`."""
    from prometheus_client.openmetrics import parser

    return _decoded(body, source, limits, parser.text_string_to_metric_families, "OpenMetrics text")


def decode_prometheus_text(body: bytes, source: RowSource, limits: DecodeLimits = _LIMITS) -> DecodedRows:
    """The text format 0.0.4."""
    from prometheus_client import parser

    return _decoded(body, source, limits, parser.text_string_to_metric_families, "Prometheus text")


def _decoded(body: bytes, source: RowSource, limits: DecodeLimits, parse: Any, what: str) -> DecodedRows:
    limits.check_request(len(body))
    try:
        text = bytes(body).decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the {what} is not UTF-8", str(error)) from error
    rows: list[dict[str, Any]] = []
    try:
        _collect(parse(text), source, limits, rows)
        batch = pa.RecordBatch.from_pylist(rows, METRICS)
    except InvalidInput:
        raise
    except (*_FAULTS, pa.ArrowException) as error:
        raise InvalidInput(f"the {what} cannot be read", str(error)[:200] or type(error).__name__) from error
    return DecodedRows(batch)


def _collect(families: Iterable[Any], source: RowSource, limits: DecodeLimits, rows: list[dict[str, Any]]) -> None:
    for family in families:
        for sample in family.samples:
            limits.check_attributes(len(sample.labels))
            rows.append(_row(family, sample, source))
        limits.check_rows(len(rows))


def _row(family: Any, sample: Any, source: RowSource) -> dict[str, Any]:
    return {
        "tenant": source.tenant,
        "time": source.received_ns if sample.timestamp is None else _nanoseconds(sample.timestamp),
        "metric": sample.name,
        "type": family.type,
        "convention": PROMETHEUS,
        "unit": family.unit or None,
        "description": family.documentation or None,
        # An empty value is the same as no label.
        "labels": sorted((name, value) for name, value in sample.labels.items() if value),
        "value": float(sample.value),
        "exemplars": [_exemplar(sample.exemplar)] if sample.exemplar else None,
    }


def _exemplar(exemplar: Any) -> dict[str, Any]:
    return {
        "time": None if exemplar.timestamp is None else _nanoseconds(exemplar.timestamp),
        "value": float(exemplar.value),
        "trace_id": exemplar.labels.get("trace_id"),
        "span_id": exemplar.labels.get("span_id"),
        "attributes": sorted(exemplar.labels.items()),
    }


def _nanoseconds(timestamp: Any) -> int:
    if hasattr(timestamp, "sec"):
        found = int(timestamp.sec) * _SECOND + int(timestamp.nsec)
    else:
        # Times of both formats have milliseconds; more digits of a double are noise.
        found = round(float(timestamp) * 1000) * 1_000_000
    if not -_INT64 <= found < _INT64:
        raise InvalidInput(f"time {timestamp} is beyond the year 2262", "times are seconds since 1970")
    return found
