"""Series as an Arrow table that tells what its metrics are, so that a Parquet or Arrow file of them loses nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.timeseries.metric_metadata import MetricMetadata, described
from penstock.timeseries.promql.labels import metric_names
from penstock.timeseries.promql.source import SeriesColumns
from penstock.timeseries.read.arrow import arrow_table

__all__ = ["described_table"]


def described_table(columns: SeriesColumns, about: Mapping[str, MetricMetadata]) -> pa.Table:
    """Series as `select` returns them, with type, help and unit of their metrics; `SampleBatch.from_table` takes it back."""
    # Its room reads columns of all kinds, which asking a store does not need.
    from penstock.telemetry import family_of

    families = dict.fromkeys(family_of(name, about) for name in metric_names(columns.labels))
    return described(arrow_table(columns), {family: about[family] for family in families if family is not None})
