"""What a store refuses of a batch before anything of it is taken: series with too many or too long labels. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidInput
from penstock.timeseries.arrays import compute
from penstock.timeseries.config import TimeSeriesConfig
from penstock.timeseries.series_table import SeriesTable

__all__ = ["check_limits"]


def check_limits(table: SeriesTable, config: TimeSeriesConfig) -> None:
    """Raise `InvalidInput` that names the first series over a bound."""
    if not len(table):
        return
    row = int(table.label_counts.argmax())
    if int(table.label_counts[row]) > config.labels_max:
        found = int(table.label_counts[row])
        raise InvalidInput(
            f"series {table.name(row)} has {found} labels",
            f"at most {config.labels_max} are allowed",
            "drop labels, or raise labels_max",
        )
    _check_bytes(table, "name", table.names, config.label_name_bytes_max)
    _check_bytes(table, "value", table.values, config.label_value_bytes_max)


def _check_bytes(table: SeriesTable, what: str, texts: Any, most: int) -> None:
    sizes = compute.binary_length(texts).to_numpy(zero_copy_only=False)
    at = int(sizes.argmax())
    if int(sizes[at]) > most:
        row = int(table.series_of(np.array([at]))[0])
        raise InvalidInput(
            f"series {table.name(row)} has a label whose {what} takes {sizes[at]} bytes",
            f"at most {most} are allowed",
            f"shorten it, or raise label_{what}_bytes_max",
        )
