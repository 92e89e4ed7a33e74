"""`penstock-timeseries`: samples of a time-series store as a Spark table, for DataFrames and Spark SQL.

A row is a sample: `metric`, `labels` (a map without the metric's name), `time` and `value`. Tasks read windows of time
from the object store, beside the store's writer, and from all shards that a tenant has had.

| option | meaning | default |
| --- | --- | --- |
| `url`, `path` | where the store is, as `TimeSeriesStore.open_reader` takes it | required |
| `tenant` | whose series | `default` |
| `matchers` | a selector of PromQL, like `{job="api"}` | every series |
| `start`, `end` | times, in milliseconds or ISO 8601; both are included | open |
| `hoursPerTask` | hours of one task, where start and end are known; more where that makes over 200 tasks | 6 |
| `pushFilters` | `true`: conditions on `time` and `metric` are applied by the store. Only for a DataFrame that is scanned once: Spark reuses the partitions of the first scan for every later one of the same DataFrame or view | `false` |
| `store.NAME` | an option of the store | |
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.buffer import shard_path
from penstock.errors import InvalidInput
from penstock.landing import ShardedSeries
from penstock.objects import open_store
from penstock.pipelines.spark.times import microseconds, time_option
from penstock.pipelines.spark.workers import settle_worker
from penstock.timeseries import DEFAULT_TENANT, Matcher, MatchKind, SeriesColumns, TimeSeriesReader, TimeSeriesStore
from penstock.timeseries.promql import parse_selector_text

__all__ = ["TimeSeriesDataSource"]

_NAME: Final = "__name__"
_HOUR_MS: Final = 3_600_000
_MS_MAX: Final = 1 << 53
_ROWS_MAX: Final = 65_536
# Each opens the store: thirty years in windows of six hours would be 43,000 of them.
_TASKS_MAX: Final = 200
_TIME: Final[Any] = pa.timestamp("us", tz="UTC")
ARROW_SCHEMA: Final = pa.schema(
    [
        pa.field("metric", pa.string()),
        pa.field("labels", pa.map_(pa.string(), pa.string())),
        pa.field("time", _TIME),
        pa.field("value", pa.float64()),
    ]
)


@dataclass(frozen=True)
class _Selection:
    """What is read. Pickles with the source."""

    url: str
    path: str
    access: Mapping[str, Any]
    tenant: str
    matchers: tuple[Matcher, ...]
    start_ms: int
    end_ms: int
    task_ms: int
    pushes_filters: bool

    @classmethod
    def of(cls, given: Mapping[str, str]) -> _Selection:
        options = {name.lower(): value for name, value in given.items()}
        url, path = options.pop("url", None), options.pop("path", None)
        if not url or not path:
            what = "the source penstock-timeseries has no store"
            raise InvalidInput(what, "the options url and path are needed", "give both")
        access: dict[str, Any] = {
            name.removeprefix("store."): options.pop(name) for name in list(options) if name.startswith("store.")
        }
        hours = options.pop("hourspertask", "6")
        if not hours.isdecimal() or int(hours) < 1:
            raise InvalidInput(f"hoursPerTask = {hours!r}", "it must be a whole number above zero")
        selector = options.pop("matchers", "")
        start, end = (time_option(name, options.pop(name, None), "milliseconds", 1000) for name in ("start", "end"))
        made = cls(
            url=url,
            path=path,
            access=access,
            tenant=options.pop("tenant", DEFAULT_TENANT),
            matchers=tuple(parse_selector_text(selector)) if selector else (),
            start_ms=-_MS_MAX if start is None else max(start, -_MS_MAX),
            end_ms=_MS_MAX if end is None else min(end, _MS_MAX),
            task_ms=int(hours) * _HOUR_MS,
            pushes_filters=options.pop("pushfilters", "false").lower() == "true",
        )
        if options:
            what = f"options {sorted(options)} of penstock-timeseries cannot be used"
            raise InvalidInput(what, "there are no such options")
        return made

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesColumns:
        async def work() -> SeriesColumns:
            path = self.path.strip("/")
            base = path.rpartition("/")[0]
            routing = await open_store(self.url, read_only=True, **self.access)

            async def opened(shard: int) -> TimeSeriesReader:
                return await TimeSeriesStore.open_reader(self.url, shard_path(path, shard, base), **self.access)

            async with ShardedSeries(routing, opened, base=base) as series:
                return await series.select_columns(
                    matchers or [Matcher(_NAME, MatchKind("!="), "")], start_ms, end_ms, tenant=self.tenant
                )

        return asyncio.run(work())


@dataclass
class WindowPartition(InputPartition):
    """Times to be read by one task, both included."""

    start_ms: int
    end_ms: int


class TimeSeriesDataSource(DataSource):
    """Register with `spark.dataSource.register(TimeSeriesDataSource)`, then `format("penstock-timeseries")`."""

    @classmethod
    def name(cls) -> str:
        return "penstock-timeseries"

    def schema(self) -> StructType:
        return from_arrow_schema(ARROW_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        selection = _Selection.of(self.options)
        return SamplesReader(selection) if selection.pushes_filters else AllSamplesReader(selection)


class AllSamplesReader(DataSourceReader):
    """One read, right for any number of scans: Spark keeps the partitions of the first for all of a DataFrame or view."""

    def __init__(self, selection: _Selection) -> None:
        self._selection = selection
        self._matchers = selection.matchers
        self._start_ms, self._end_ms = selection.start_ms, selection.end_ms

    def partitions(self) -> Sequence[InputPartition]:
        start, end, step = self._start_ms, self._end_ms, self._selection.task_ms
        if start > end:
            return []
        if start == -_MS_MAX or end == _MS_MAX:
            return [WindowPartition(start, end)]
        # However long a time was asked for, there are not more tasks than are worth their start.
        step = max(step, -(-(end - start + 1) // _TASKS_MAX))
        return [WindowPartition(at, min(at + step - 1, end)) for at in range(start, end + 1, step)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, WindowPartition):
            # Where nothing is planned, Spark makes up a partition of its own.
            return
        settle_worker("samples")
        found = self._selection.select(self._matchers, partition.start_ms, partition.end_ms)
        yield from sample_batches(found)


class SamplesReader(AllSamplesReader):
    """A read for one scan, whose filters choose too. They are given back to Spark, which evaluates them again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        for each in filters:
            self._narrow(each)
        yield from filters

    def _narrow(self, filter: Any) -> None:
        attribute: tuple[str, ...] = getattr(filter, "attribute", ())
        value = getattr(filter, "value", None)
        if attribute == ("metric",) and isinstance(filter, spark.EqualTo) and isinstance(value, str):
            self._matchers = (*self._matchers, Matcher(_NAME, MatchKind("="), value))
        if attribute != ("time",) or not isinstance(value, datetime):
            return
        # Samples have whole milliseconds; what lies between two of them is rounded outwards.
        moment_us = microseconds(value)
        if isinstance(filter, spark.GreaterThan | spark.GreaterThanOrEqual | spark.EqualTo):
            self._start_ms = max(self._start_ms, moment_us // 1000)
        if isinstance(filter, spark.LessThan | spark.LessThanOrEqual | spark.EqualTo):
            self._end_ms = min(self._end_ms, -(-moment_us // 1000))


def sample_batches(columns: SeriesColumns) -> Iterator[pa.RecordBatch]:
    """A row a sample, in bounded pieces; labels are repeated by number and not by text."""
    counts = np.diff(columns.offsets)
    series = np.repeat(np.arange(len(counts)), counts)
    metrics: Any = pa.array([dict(labels).get(_NAME) for labels in columns.labels], pa.string())
    own = [[pair for pair in labels if pair[0] != _NAME] for labels in columns.labels]
    labels: Any = pa.array(own, ARROW_SCHEMA.field("labels").type)
    for start in range(0, len(series), _ROWS_MAX):
        part = pa.array(series[start : start + _ROWS_MAX])
        times = np.asarray(columns.timestamps[start : start + _ROWS_MAX]) * 1000
        values = pa.array(np.asarray(columns.values[start : start + _ROWS_MAX]))
        arrays = [metrics.take(part), labels.take(part), pa.array(times, pa.int64()).cast(_TIME), values]
        yield pa.record_batch(arrays, schema=ARROW_SCHEMA)
