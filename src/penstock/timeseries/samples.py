"""A batch of samples: a table of series, and columns that say which series, when, and what value.

Labels cross once a series, however many samples it has. A batch is checked when it is made and never changes; what is
wrong with it is told with the series named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.timeseries.arrays import Array, Cut, Floats, Ids, Indices, Times, compute
from penstock.timeseries.metric_metadata import MetricMetadata, description_of
from penstock.timeseries.series_table import SeriesTable

__all__ = ["TIMESTAMP_MS_MAX", "SampleBatch"]

# Times beyond this cannot be told apart as numbers of JSON and of PromQL.
TIMESTAMP_MS_MAX: Final = 1 << 53

_SAMPLE_BYTES: Final = 20


@dataclass(frozen=True, eq=False)
class SampleBatch:
    """Samples of many series. `series[i]` is the row of sample i in the table of series."""

    table: SeriesTable
    series: Ids
    timestamps_ms: Times
    values: Floats
    # By the name of the metric.
    metadata: Mapping[str, MetricMetadata] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        labels: Any,
        series: Any,
        timestamps_ms: Any,
        values: Any,
        metadata: Mapping[str, MetricMetadata] | None = None,
    ) -> SampleBatch:
        """A batch of labels as `SeriesTable.of` takes them, and three columns of NumPy, Arrow or lists."""
        table = SeriesTable.of(labels)
        rows, times = _whole("series", series), _whole("timestamps_ms", timestamps_ms)
        numbers = _numbers(values)
        if not len(rows) == len(times) == len(numbers):
            raise InvalidInput(
                f"{len(rows)} series numbers, {len(times)} timestamps and {len(numbers)} values", "each sample has all"
            )
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(table):
            raise InvalidInput(
                f"series numbers from {rows.min()} to {rows.max()}", f"the table has {len(table)} series"
            )
        batch = cls(table, _frozen(rows, np.uint32), _frozen(times, np.int64), numbers, _metadata(metadata))
        batch._check_times()
        return batch

    @classmethod
    def of_series(
        cls, series: Iterable[tuple[Any, Any, Any]], metadata: Mapping[str, MetricMetadata] | None = None
    ) -> SampleBatch:
        """A batch of (labels, timestamps in ms, values) of each series."""
        listed = [(labels, _whole("timestamps_ms", times), _numbers(values)) for labels, times, values in series]
        for labels, times, values in listed:
            if len(times) != len(values):
                raise InvalidInput(f"series {labels!r:.80}", f"it has {len(times)} timestamps and {len(values)} values")
        rows = np.repeat(np.arange(len(listed)), [len(times) for _, times, _ in listed])
        times = np.concatenate([np.empty(0, np.int64), *(times for _, times, _ in listed)])
        values = np.concatenate([np.empty(0, np.float64), *(values for _, _, values in listed)])
        return cls.of([labels for labels, _, _ in listed], rows, times, values, metadata)

    @classmethod
    def from_table(cls, data: pa.Table | pa.RecordBatch) -> SampleBatch:
        """A batch of an Arrow table: `labels`, `timestamp_ms` and `value`, a row a sample.

        What `select` returns is taken too: `labels`, and lists `timestamps_ms` and `values`, a row a series. What an
        exported table says of its metrics is kept.
        """
        if not isinstance(data, pa.Table | pa.RecordBatch):
            raise InvalidInput(f"samples of {type(data).__name__}", "they are an Arrow table or record batch")
        names = set(data.column_names)
        if len(names) < data.num_columns:
            raise InvalidInput("a table of samples has two columns with the same name", "column names must be unique")
        about = description_of(data.schema)
        if {"labels", "timestamps_ms", "values"} <= names:
            times, values = (_lists(name, data.column(name)) for name in ("timestamps_ms", "values"))
            counts = np.diff(np.asarray(times.offsets))
            if times.null_count or values.null_count or not np.array_equal(counts, np.diff(np.asarray(values.offsets))):
                raise InvalidInput("lists of timestamps and values differ in length", "each sample has both")
            rows = np.repeat(np.arange(data.num_rows), counts)
            return cls.of(data.column("labels"), rows, times.flatten(), values.flatten(), about)
        if {"labels", "timestamp_ms", "value"} <= names:
            table = SeriesTable.of(data.column("labels"))
            encoded = table.payloads.dictionary_encode()
            rows = np.asarray(encoded.indices)
            first = np.full(len(encoded.dictionary), len(rows))
            np.minimum.at(first, rows, np.arange(len(rows)))
            return cls.of(table.take(first), rows, data.column("timestamp_ms"), data.column("value"), about)
        raise InvalidInput(
            f"a table with the columns {', '.join(sorted(names))}", "samples are labels, timestamp_ms and value"
        )

    def __len__(self) -> int:
        return len(self.series)

    @property
    def samples_bytes(self) -> int:
        """Memory held, without the table of series."""
        return _SAMPLE_BYTES * len(self)

    def take(self, rows: Cut) -> SampleBatch:
        """Some of the samples, of the same series."""
        return SampleBatch(self.table, self.series[rows], self.timestamps_ms[rows], self.values[rows], self.metadata)

    def _check_times(self) -> None:
        # Without the absolute value, which the least 64-bit number does not have.
        beyond = (self.timestamps_ms > TIMESTAMP_MS_MAX) | (self.timestamps_ms < -TIMESTAMP_MS_MAX)
        if beyond.any():
            at = int(beyond.argmax())
            name = self.table.name(int(self.series[at]))
            raise InvalidInput(
                f"series {name} has a sample at {self.timestamps_ms[at]} ms", f"times lie within ±{TIMESTAMP_MS_MAX}"
            )


def _whole(name: str, column: Any) -> Indices:
    """Whole numbers of any kind as 64-bit ones."""
    column = _combined(column)
    if isinstance(column, pa.Array):
        if column.null_count:
            raise InvalidInput(f"{name} with nulls", "each sample has all of its columns")
        if pa.types.is_timestamp(column.type):
            column = _milliseconds(name, column)
        column = _numpy(name, column)
    found = np.asarray(column)
    if found.dtype == np.object_ and found.ndim == 1 and all(isinstance(one, int) for one in found):
        raise InvalidInput(f"{name} up to {max(found, key=abs)}", "it is too large to be stored")
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        raise InvalidInput(f"{name} of {found.dtype} in {found.ndim} dimensions", "it is a column of whole numbers")
    if found.dtype == np.uint64 and len(found) and int(found.max()) >= 1 << 63:
        raise InvalidInput(f"{name} up to {found.max()}", "it is too large to be stored")
    return found.astype(np.int64, copy=False) if len(found) else np.empty(0, np.int64)


def _numbers(column: Any) -> Floats:
    column = _combined(column)
    if isinstance(column, pa.Array):
        if column.null_count:
            raise InvalidInput("values with nulls", "each sample has a value; NaN is one")
        column = _numpy("values", column)
    found = np.asarray(column)
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iuf"):
        raise InvalidInput(f"values of {found.dtype} in {found.ndim} dimensions", "it is a column of numbers")
    frozen: Floats = _frozen(found if len(found) else np.empty(0), np.float64)
    return frozen


def _numpy(name: str, column: Any) -> Array:
    """A column of numbers. Arrow makes Python's objects of most others, and of some of them it can make nothing."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if len(column) and not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise InvalidInput(f"{name} of {column.type}", "it is a column of numbers")
    found: Array = column.to_numpy(zero_copy_only=False) if len(column) else np.empty(0)
    return found


def _milliseconds(name: str, column: Any) -> Any:
    """Parts of a millisecond are cut off. Seconds may lie where milliseconds do not reach: that is no time at all."""
    target = pa.timestamp("ms", column.type.tz)
    try:
        whole: Any = compute.cast(column, options=compute.CastOptions(target, allow_time_truncate=True))
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"{name} of {column.type}", f"they cannot be converted to milliseconds: {error}") from error
    return whole.cast(pa.int64())


def _lists(name: str, column: Any) -> Any:
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise InvalidInput(
            f"{name} of {column.type}", "with a labels column it must be a column of lists, one per series"
        )
    return _combined(column)


def _combined(column: Any) -> Any:
    if isinstance(column, np.ma.MaskedArray) and np.ma.getmaskarray(column).any():
        raise InvalidInput("a column with masked elements", "each sample has all of its columns", "leave those out")
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _frozen(array: Array, kind: type[Any]) -> Array:
    """A column that the caller cannot change any more."""
    if array.dtype == kind and not array.flags.writeable and not isinstance(array.base, np.ndarray):
        return array
    copied = array.astype(kind, copy=True)
    copied.flags.writeable = False
    return copied


def _metadata(metadata: Mapping[str, MetricMetadata] | None) -> dict[str, MetricMetadata]:
    found = dict(metadata or {})
    for name, about in found.items():
        try:
            for text in (name, about.type, about.help, about.unit):
                str.encode(text)
        except (AttributeError, TypeError, UnicodeEncodeError) as error:
            raise InvalidInput(f"metadata of {name!r:.60}", "it is text by the name of a metric") from error
    return found
