"""Metrics as series: the public mapping of OTLP to Prometheus, and rows of Prometheus as they stand.

```
gauge, sum           name                     sum: _total if it only rises
histogram            name_bucket{le}  name_sum  name_count       counts added up, +Inf last
summary              name{quantile}   name_sum  name_count
each resource        target_info{job, instance, …} 1
```
A point without a recorded value becomes a stale marker. What has no series is counted with the reason: exponential
histograms (unless they are to become classic ones), and points of delta temporality (unless they are to be added up).
The labels of a series cross once, however many samples it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.telemetry.columns.building import Ints, lists, pc, places, to_ints
from penstock.telemetry.columns.coded_maps import map_numbers
from penstock.telemetry.columns.label_sets import distinct
from penstock.telemetry.columns.schemas import OTLP
from penstock.telemetry.series.labels import LabelEntries, job_of, target_info
from penstock.telemetry.series.malformed import malformed_rows
from penstock.telemetry.series.prometheus_names import metric_name

__all__ = ["DeltaPolicy", "ExponentialPolicy", "SeriesConfig", "SeriesSamples", "series_of"]

STALE: Final = float(np.array([0x7FF0000000000002], np.uint64).view(np.float64)[0])
_MS: Final = 1_000_000
_INT_FLOAT: Final = 1e15
_NEVER: Final = np.iinfo(np.int64).min


class DeltaPolicy(Enum):
    """What becomes of points that say how much was added since the last one."""

    # They have no series, and are counted.
    REFUSE = "refuse"
    # They are added up to a counter, from the first one seen on.
    ACCUMULATE = "accumulate"


class ExponentialPolicy(Enum):
    """What becomes of exponential histograms."""

    REFUSE = "refuse"
    # Buckets with the bounds that scale and offset give.
    CLASSIC = "classic"


@dataclass(frozen=True, slots=True)
class SeriesConfig:
    """How metrics become series."""

    # Points of delta temporality: `refuse` (counted, without a series) or `accumulate` (added up to a counter).
    delta: DeltaPolicy = DeltaPolicy.REFUSE
    # Exponential histograms: `refuse`, or convert to `classic` buckets.
    exponential: ExponentialPolicy = ExponentialPolicy.REFUSE
    # Whether each resource has a series `target_info` with its attributes.
    target_info: bool = True
    # Whether series carry the name and version of the instrumentation scope.
    scope_labels: bool = False


@dataclass(frozen=True, slots=True)
class SeriesSamples:
    """Samples by series: `labels` is a map a series, `series`, `time_ms` and `value` are a row a sample.

    `refused` counts the rows that have no series, by the reason.
    """

    labels: Any
    series: npt.NDArray[np.uint32]
    time_ms: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]
    refused: Mapping[str, int] = field(default_factory=dict)
    # Which samples are to be added up before they are stored.
    is_delta: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))

    def __len__(self) -> int:
        return len(self.value)


@dataclass(slots=True)
class _Parts:
    """Samples of one kind of row, before their labels are put together. Suffixes and extra labels are texts by code."""

    row: Ints
    suffix: Ints
    extra: Ints
    value: npt.NDArray[np.float64]


_NO_PARTS: Final = _Parts(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))


class _Texts:
    """Texts by number, each once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def all(self) -> list[str]:
        return list(self._numbers)


def series_of(batch: pa.RecordBatch, config: SeriesConfig | None = None) -> SeriesSamples:
    """The series and samples of rows of metrics."""
    return _Mapping(batch, config or SeriesConfig()).samples()


class _Mapping:
    def __init__(self, batch: pa.RecordBatch, config: SeriesConfig) -> None:
        self.config = config
        self.refused: dict[str, int] = {}
        self.extras = _Texts()
        self.suffixes = _Texts()
        self.batch = self._mappable(batch)
        self.resources = _Resources(self.batch.column("resource"))

    def samples(self) -> SeriesSamples:
        parts = [part for part in (self._numbers(), self._histograms(), self._summaries()) if len(part.row)]
        if not parts:
            return _nothing(self.refused)
        rows, suffix, extra, value = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "suffix", "extra", "value")
        )
        labels, series = self._labels(rows, suffix, extra)
        times = to_ints(self.batch.column("time").cast(pa.int64())) // _MS
        delta = self._is_delta()[rows]
        found = SeriesSamples(labels, series.astype(np.uint32), times[rows], value, self.refused, delta)
        return self._with_target_info(found, times) if self.config.target_info else found

    def _mappable(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without the rows that have no series, each counted under one reason."""
        kept = np.ones(batch.num_rows, np.bool_)
        if self.config.exponential is ExponentialPolicy.REFUSE:
            self._refuse(kept, pc.equal(batch.column("type"), "exponential_histogram"), "exponential histogram")
        if self.config.delta is DeltaPolicy.REFUSE:
            self._refuse(kept, pc.equal(batch.column("temporality"), "delta"), "delta temporality")
        self._refuse(kept, pa.array(malformed_rows(batch)), "malformed histogram or summary")
        return batch if kept.all() else batch.filter(pa.array(kept))

    def _refuse(self, kept: npt.NDArray[np.bool_], mask: Any, reason: str) -> None:
        refused = kept & np.asarray(pc.fill_null(mask, False))
        if count := int(np.count_nonzero(refused)):
            self.refused[reason] = count
            kept &= ~refused

    def _rows_of(self, *types: str) -> Ints:
        return np.flatnonzero(np.asarray(pc.is_in(self.batch.column("type"), pa.array(types))))

    def _is_delta(self) -> npt.NDArray[np.bool_]:
        return np.asarray(pc.fill_null(pc.equal(self.batch.column("temporality"), "delta"), False))

    def _stale(self) -> npt.NDArray[np.bool_]:
        flags = to_ints(pc.fill_null(self.batch.column("flags"), 0)) & 1
        return np.asarray(flags == 1)

    # Kinds of rows --------------------------------------------------------------------------------------------

    def _numbers(self) -> _Parts:
        """Rows with one value, whoever sent them."""
        value = self.batch.column("value")
        stale = self._stale() & np.asarray(self.batch.column("count").is_null())
        rows = np.flatnonzero(np.asarray(value.is_valid()) | stale)
        values = np.array(value.to_numpy(zero_copy_only=False), dtype=np.float64)
        values[stale] = STALE
        nothing = np.zeros(len(rows), np.int64)
        return _Parts(rows, nothing, nothing, values[rows])

    def _histograms(self) -> _Parts:
        from penstock.telemetry.series.exponential import classic_buckets

        rows = self._rows_of("histogram")
        rows = rows[np.asarray(self.batch.column("count").is_valid())[rows]]
        parts = [_NO_PARTS]
        if len(rows):
            parts += [
                self._buckets(
                    rows,
                    *lists(self.batch.column("bounds").take(places(rows))),
                    *lists(self.batch.column("counts").take(places(rows))),
                ),
                self._totals(rows),
            ]
        exponential = self._rows_of("exponential_histogram")
        if len(exponential):
            bounds, bound_offsets, counts, count_offsets = classic_buckets(self.batch.take(places(exponential)))
            parts += [
                self._buckets(exponential, pa.array(bounds), bound_offsets, pa.array(counts), count_offsets),
                self._totals(exponential),
            ]
        return _joined(parts)

    def _buckets(self, rows: Ints, bounds: Any, bound_offsets: Ints, counts: Any, count_offsets: Ints) -> _Parts:
        """A sample a bucket, with the counts of all buckets below added; +Inf holds them all."""
        numbers = np.asarray(counts.to_numpy(zero_copy_only=False), dtype=np.int64)
        lengths = np.diff(count_offsets)
        # A histogram without buckets has +Inf alone, which is its count.
        totals = to_ints(self.batch.column("count").take(places(rows)))
        running = np.cumsum(numbers)
        before = np.concatenate([[0], running])[count_offsets[:-1]]
        owner = np.repeat(np.arange(len(rows)), lengths)
        added = running - before[owner]
        edges = np.asarray(bounds.to_numpy(zero_copy_only=False), dtype=np.float64)
        texts, inverse = np.unique(edges, return_inverse=True) if len(edges) else (edges, np.zeros(0, np.int64))
        codes = np.array([self.extras.number(f"le\0{_number_text(edge)}") for edge in texts], np.int64)
        is_edge = np.ones(len(numbers), np.bool_)
        is_edge[count_offsets[1:][lengths > 0] - 1] = False
        finite = codes[inverse] if len(edges) else np.zeros(0, np.int64)
        infinity = np.full(len(rows), self.extras.number("le\0+Inf") if len(rows) else 0, np.int64)
        stale = self._stale()[rows]
        low = np.where(stale[owner[is_edge]], STALE, added[is_edge].astype(np.float64))
        high = np.where(stale, STALE, totals.astype(np.float64))
        suffix = self.suffixes.number("_bucket")
        return _Parts(
            np.concatenate([rows[owner[is_edge]], rows]),
            np.full(len(low) + len(rows), suffix, np.int64),
            np.concatenate([finite, infinity]),
            np.concatenate([low, high]),
        )

    def _totals(self, rows: Ints) -> _Parts:
        """`_count` of all, and `_sum` of those that have one."""
        stale = self._stale()
        counts = np.asarray(self.batch.column("count").to_numpy(zero_copy_only=False), dtype=np.float64)
        sums = self.batch.column("sum")
        with_sum = rows[(np.asarray(sums.is_valid()) | stale)[rows]]
        totals = np.asarray(sums.to_numpy(zero_copy_only=False), dtype=np.float64)
        counts, totals = np.where(stale, STALE, counts), np.where(stale, STALE, totals)
        suffix = np.repeat(
            [self.suffixes.number("_count"), self.suffixes.number("_sum")], [len(rows), len(with_sum)]
        ).astype(np.int64)
        every = np.concatenate([rows, with_sum])
        return _Parts(every, suffix, np.zeros(len(every), np.int64), np.concatenate([counts[rows], totals[with_sum]]))

    def _summaries(self) -> _Parts:
        rows = self._rows_of("summary")
        rows = rows[np.asarray(self.batch.column("count").is_valid())[rows]]
        if not len(rows):
            return _NO_PARTS
        quantiles, offsets = lists(self.batch.column("quantiles").take(places(rows)))
        owner = np.repeat(rows, np.diff(offsets))
        points = np.asarray(pc.struct_field(quantiles, "quantile").to_numpy(zero_copy_only=False), np.float64)
        values = np.asarray(pc.struct_field(quantiles, "value").to_numpy(zero_copy_only=False), np.float64)
        codes = np.array([self.extras.number(f"quantile\0{_number_text(point)}") for point in points], np.int64)
        found = _Parts(owner, np.zeros(len(owner), np.int64), codes, np.where(self._stale()[owner], STALE, values))
        return _joined([found, self._totals(rows)])

    # Labels ---------------------------------------------------------------------------------------------------

    def _labels(self, rows: Ints, suffix: Ints, extra: Ints) -> tuple[Any, Ints]:
        """A map for each series, and for each sample the number of its series."""
        labels, sets, heads = map_numbers(self.batch.column("labels"))
        sources, resources = self._sources()
        names, texts = self._names()
        series, first = distinct(sets[rows], sources[rows], names[rows], suffix, extra)
        head = rows[first]
        is_otlp = np.asarray(pc.equal(self.batch.column("convention"), OTLP))
        entries = LabelEntries(len(first))
        entries.add_attributes(labels.taken(heads[sets[head]]), is_otlp[head])
        for name, values in resources.items():
            if any(values):
                entries.add(name, [values[source] for source in sources[head]])
        extra_texts = self.extras.all()
        for name in ("le", "quantile") if extra.any() else ():
            entries.add(name, [_extra(extra_texts[code], name) for code in extra[first]])
        suffixes = self.suffixes.all()
        entries.add(
            "__name__", [texts[name] + suffixes[end] for name, end in zip(names[head], suffix[first], strict=True)]
        )
        return entries.maps(), series

    def _names(self) -> tuple[Ints, list[str]]:
        """For each row the number of its metric's name, and the names."""
        columns = [pc.dictionary_encode(self.batch.column(name).fill_null("")) for name in _NAME_COLUMNS]
        monotonic = np.asarray(pc.fill_null(self.batch.column("monotonic"), False)).astype(np.int64)
        numbers, first = distinct(*(to_ints(column.indices) for column in columns), monotonic)
        texts = []
        for row in first:
            name, unit, kind, convention = (column[int(row)].as_py() for column in columns)
            is_otlp = convention == OTLP
            texts.append(metric_name(name, unit, kind, bool(monotonic[row])) if is_otlp else name)
        return numbers, texts

    def _sources(self) -> tuple[Ints, dict[str, list[str | None]]]:
        """For each row the number of its resource and scope, and the labels that follow from those."""
        sets, heads = self.resources.numbers, self.resources.attributes
        jobs = [job_of(one) for one in heads]
        instances = [one.get("service.instance.id") for one in heads]
        if not self.config.scope_labels:
            return sets, {"job": jobs, "instance": instances}
        scopes = [pc.dictionary_encode(self.batch.column(name).fill_null("")) for name in ("scope", "scope_version")]
        numbers, rows = distinct(sets, *(to_ints(scope.indices) for scope in scopes))
        return numbers, {
            "job": [jobs[sets[row]] for row in rows],
            "instance": [instances[sets[row]] for row in rows],
            "otel_scope_name": [scopes[0][int(row)].as_py() for row in rows],
            "otel_scope_version": [scopes[1][int(row)].as_py() for row in rows],
        }

    def _with_target_info(self, found: SeriesSamples, times: Ints) -> SeriesSamples:
        """One more series for each resource that names its service, at the time of its last point."""
        attributes = self.resources.attributes
        last = np.full(len(attributes), _NEVER)
        np.maximum.at(last, self.resources.numbers, times)
        maps, when = [], []
        for number, one in enumerate(attributes):
            info = target_info(one) if last[number] != _NEVER else None
            if info is not None:
                maps.append(info)
                when.append(int(last[number]))
        if not maps:
            return found
        more = pa.array(maps, found.labels.type)
        series = np.arange(len(found.labels), len(found.labels) + len(maps))
        return SeriesSamples(
            pa.concat_arrays([found.labels, more]),
            np.concatenate([found.series, series]).astype(np.uint32),
            np.concatenate([found.time_ms, np.array(when, np.int64)]),
            np.concatenate([found.value, np.ones(len(maps))]),
            found.refused,
            np.concatenate([found.is_delta, np.zeros(len(maps), np.bool_)]),
        )


class _Resources:
    """The resources of rows: attributes of each, and for each row the number of its own."""

    def __init__(self, column: Any) -> None:
        entries, self.numbers, heads = map_numbers(column)
        maps = entries.taken(heads).map().to_pylist() if len(entries.keys) else [()] * len(heads)
        self.attributes: list[dict[str, str]] = [dict(one) for one in maps]


_NAME_COLUMNS: Final = ("metric", "unit", "type", "convention")


def _joined(parts: list[_Parts]) -> _Parts:
    return _Parts(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "suffix", "extra", "value"))
    )


def _extra(text: str, name: str) -> str | None:
    label, _, value = text.partition("\0")
    return value if label == name else None


def _number_text(value: float) -> str:
    """As Prometheus writes numbers in labels: whole ones without a fraction."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < _INT_FLOAT else repr(float(value))


def _nothing(refused: Mapping[str, int]) -> SeriesSamples:
    return SeriesSamples(
        pa.array([], pa.map_(pa.string(), pa.string())),
        np.zeros(0, np.uint32),
        np.zeros(0, np.int64),
        np.zeros(0, np.float64),
        refused,
    )
