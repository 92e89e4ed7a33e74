"""Metrics of a telemetry record as samples by series, a part for each tenant."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.errors import Corrupt, InvalidInput, Unsupported
from penstock.records import Signal
from penstock.telemetry import TABLES, SeriesSamples, decode_records, series_of

__all__ = ["metric_samples"]

_METRICS = TABLES[Signal.METRICS]
_TENANT = "tenant"


def metric_samples(record: bytes, payload: bytes, received_ms: int) -> Iterator[tuple[str, SeriesSamples]]:
    """Tenants and their samples. A record with anything but metrics is refused whole: nothing of it may be lost."""
    try:
        tables = decode_records([record], payload, received_ms * 1_000_000)
    except Corrupt as error:
        raise InvalidInput(error.what, error.why) from error
    others = sorted(set(tables) - {_METRICS})
    if others:
        why = "a time-series store takes metrics alone"
        raise Unsupported(f"a record with {', '.join(others)}", why, "give them their own queue and consumer")
    for table in tables.get(_METRICS, ()):
        for tenant, rows in _by_tenant(table):
            yield tenant, series_of(rows)


def _by_tenant(table: pa.Table) -> Iterator[tuple[str, pa.RecordBatch]]:
    tenants = table.column(_TENANT).to_pylist() if _TENANT in table.column_names else [""] * table.num_rows
    for tenant in dict.fromkeys(tenants):
        mine = table.filter(pa.array([one == tenant for one in tenants]))
        for batch in mine.combine_chunks().to_batches():
            yield tenant or "", batch
