"""OpenMetrics and the older text format of Prometheus as rows of metrics: one sample a row, with its labels as they stand.

Text is for scraped files and for hands; what comes by the million comes by remote write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.telemetry.columns.rows import DecodedRows, RowSource
from penstock.telemetry.columns.schemas import METRICS, PROMETHEUS
from penstock.telemetry.wire.exposition import (
    METRIC_NAME,
    ExpositionBatch,
    ExpositionExemplar,
    MetricFamily,
    family_of,
    read_exposition,
)
from penstock.telemetry.wire.limits import DecodeLimits

__all__ = ["decode_openmetrics", "decode_prometheus_text"]

_LIMITS: Final = DecodeLimits()
_INT64: Final = 2**63
_UNKNOWN: Final = MetricFamily()


def decode_openmetrics(body: bytes, source: RowSource, limits: DecodeLimits = _LIMITS) -> DecodedRows:
    """OpenMetrics 1.0, which ends with `# EOF`."""
    return _decoded(body, source, limits, openmetrics=True)


def decode_prometheus_text(body: bytes, source: RowSource, limits: DecodeLimits = _LIMITS) -> DecodedRows:
    """The text format 0.0.4, whose last line ends with a line feed: without one, a number may have lost its end."""
    if body and not body.endswith(b"\n"):
        raise InvalidInput("the text ends within a line", "its last line has no line feed", "was it cut off?")
    return _decoded(body, source, limits, openmetrics=False)


def _decoded(body: bytes, source: RowSource, limits: DecodeLimits, *, openmetrics: bool) -> DecodedRows:
    what = "OpenMetrics text" if openmetrics else "Prometheus text"
    limits.check_request(len(body))
    try:
        text = bytes(body).decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the {what} is not UTF-8", str(error)) from error
    rows: list[dict[str, Any]] = []
    families: dict[str, MetricFamily] = {}
    for batch in read_exposition(text.split("\n"), seconds=openmetrics, must_end=openmetrics):
        families |= batch.families
        limits.check_rows(len(rows) + len(batch))
        rows.extend(_rows(batch, families, source, limits))
    try:
        return DecodedRows(pa.RecordBatch.from_pylist(rows, METRICS))
    except pa.ArrowException as error:
        raise InvalidInput(f"the {what} cannot be read", str(error)[:200]) from error


def _rows(
    batch: ExpositionBatch, families: dict[str, MetricFamily], source: RowSource, limits: DecodeLimits
) -> Iterator[dict[str, Any]]:
    series = [_series(labels, families, limits) for labels in batch.labels]
    for place, (row, time_ns, value) in enumerate(zip(batch.series, batch.times_ns, batch.values, strict=True)):
        exemplar = batch.exemplars.get(place)
        yield {
            "tenant": source.tenant,
            "time": source.received_ns if time_ns is None else _within_bounds(time_ns),
            **series[row],
            "value": value,
            "exemplars": None if exemplar is None else [_exemplar(exemplar)],
        }


def _series(labels: dict[str, str], families: dict[str, MetricFamily], limits: DecodeLimits) -> dict[str, Any]:
    """The columns that all samples of a series share."""
    name = labels.get(METRIC_NAME)
    if not name:
        raise InvalidInput("a series has no name", f"its labels are {labels}")
    limits.check_attributes(len(labels) - 1)
    known = family_of(name, families)
    family = _UNKNOWN if known is None else families[known]
    return {
        "metric": name,
        "type": family.type,
        "convention": PROMETHEUS,
        "unit": family.unit or None,
        "description": family.help or None,
        # An empty value is the same as no label.
        "labels": sorted((own, value) for own, value in labels.items() if value and own != METRIC_NAME),
    }


def _exemplar(exemplar: ExpositionExemplar) -> dict[str, Any]:
    return {
        "time": None if exemplar.time_ns is None else _within_bounds(exemplar.time_ns),
        "value": exemplar.value,
        "trace_id": exemplar.labels.get("trace_id"),
        "span_id": exemplar.labels.get("span_id"),
        "attributes": sorted(exemplar.labels.items()),
    }


def _within_bounds(time_ns: int) -> int:
    if not -_INT64 <= time_ns < _INT64:
        raise InvalidInput(f"time {time_ns / 1e9} is beyond the year 2262", "times are seconds since 1970")
    return time_ns
