"""Time series: samples in hours, written exactly once, and PromQL over them or over any other source."""

from penstock.timeseries.config import TimeSeriesConfig
from penstock.timeseries.described_table import described_table
from penstock.timeseries.follower import TimeSeriesReader
from penstock.timeseries.merged import MergedReads
from penstock.timeseries.metric_metadata import MetricMetadata
from penstock.timeseries.open_metrics import open_metrics_batch, read_open_metrics, write_open_metrics
from penstock.timeseries.operations import DEFAULT_TENANT, SampleChanges
from penstock.timeseries.promql import (
    Engine,
    EngineConfig,
    Matcher,
    MatchKind,
    MemorySource,
    SeriesColumns,
    SeriesSelection,
    SeriesSource,
)
from penstock.timeseries.read.stats import TenantStats
from penstock.timeseries.reads import QueryPlan, SelectionPlan, SeriesReads
from penstock.timeseries.samples import SampleBatch
from penstock.timeseries.series_table import SeriesTable
from penstock.timeseries.store import SeriesView, TimeSeriesStore
from penstock.timeseries.upkeep.repair import SeriesRepair
from penstock.timeseries.upkeep.verify import SeriesVerifyReport
from penstock.timeseries.write.limits import check_limits

__all__ = [
    "DEFAULT_TENANT",
    "Engine",
    "EngineConfig",
    "MatchKind",
    "Matcher",
    "MemorySource",
    "MergedReads",
    "MetricMetadata",
    "QueryPlan",
    "SampleBatch",
    "SampleChanges",
    "SelectionPlan",
    "SeriesColumns",
    "SeriesReads",
    "SeriesRepair",
    "SeriesSelection",
    "SeriesSource",
    "SeriesTable",
    "SeriesVerifyReport",
    "SeriesView",
    "TenantStats",
    "TimeSeriesConfig",
    "TimeSeriesReader",
    "TimeSeriesStore",
    "check_limits",
    "described_table",
    "open_metrics_batch",
    "read_open_metrics",
    "write_open_metrics",
]
