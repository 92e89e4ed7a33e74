"""What metrics are, as `/api/v1/metadata` tells it: type, help and unit, by the name that their series have.

Of one name that was sent with several descriptions in a batch, the first counts.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.telemetry.columns.building import pc, places, to_ints
from penstock.telemetry.columns.schemas import OTLP
from penstock.telemetry.series.prometheus_names import metric_name

__all__ = ["MetricDescription", "descriptions_of"]

_COLUMNS: Final = ("metric", "type", "convention", "unit", "description", "monotonic")
_TYPES: Final = {"exponential_histogram": "histogram", "sum": "gauge"}
# What the samples of a family add to its name.
_PARTS: Final = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}


class MetricDescription(NamedTuple):
    type: str
    help: str
    unit: str


def descriptions_of(rows: pa.Table) -> dict[str, MetricDescription]:
    """The metrics of rows by the name of their family."""
    if not rows.num_rows:
        return {}
    names = pc.fill_null(rows.column("metric"), "")
    numbers = to_ints(pc.dictionary_encode(names.combine_chunks()).indices)
    first = np.zeros(int(numbers.max()) + 1, np.int64)
    # The last assignment stays: counted backwards, that is the first row.
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
    named = [name for name in _COLUMNS if name in rows.schema.names]
    found: dict[str, MetricDescription] = {}
    for row in rows.select(named).take(places(first)).to_pylist():
        kind, unit, is_counter = row["type"], row.get("unit") or "", bool(row.get("monotonic"))
        if row["convention"] == OTLP:
            name = metric_name(row["metric"] or "", unit, kind, is_counter)
            kind = "counter" if kind == "sum" and is_counter else _TYPES.get(kind, kind)
        else:
            name = _family(row["metric"] or "", kind)
        found.setdefault(name, MetricDescription(kind, row.get("description") or "", unit))
    return found


def _family(name: str, kind: str) -> str:
    """The family that a sample of Prometheus is of."""
    return next((name.removesuffix(part) for part in _PARTS.get(kind, ()) if name.endswith(part)), name)
