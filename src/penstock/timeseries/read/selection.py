"""Selecting series and samples from one moment of a tenant: those of all hours that the range touches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from penstock.blocks import BlockReader
from penstock.timeseries.arrays import Bools, Ids, Indices, Words
from penstock.timeseries.format.keys import BUCKET_MS, keys_of
from penstock.timeseries.format.sample_block import SampleBlock
from penstock.timeseries.format.state import SAMPLES, TenantState
from penstock.timeseries.offload import offload
from penstock.timeseries.operations import SampleChange
from penstock.timeseries.promql import EngineConfig, Matcher, SeriesColumns
from penstock.timeseries.promql.labels import Labels
from penstock.timeseries.read.assembly import SamplePart, assemble, cut_block
from penstock.timeseries.read.joining import TableSeries, join_series
from penstock.timeseries.read.labels import period_labels
from penstock.timeseries.read.matching import LabelTest, label_tests
from penstock.timeseries.read.postings import SelectedSeries, check_bound, find_postings, series_name
from penstock.timeseries.read.unflushed import matching_rows, unflushed_batches
from penstock.timeseries.samples import SampleBatch
from penstock.timeseries.series_table import SeriesTable

__all__ = ["Moment", "SeriesFound", "find_series", "select_columns"]

# Samples in blocks that are read in one go.
_SAMPLES_AT_ONCE: Final = 1 << 23


@dataclass(frozen=True, slots=True)
class Moment:
    """One tenant at one moment: what is stored, and what is accepted beside it."""

    tenant: str
    blocks: BlockReader
    state: TenantState | None
    unflushed: Sequence[SampleChange] = ()

    def hours(self, start_ms: int, end_ms: int) -> list[int]:
        """The stored hours that a range touches."""
        if self.state is None:
            return []
        first, last = start_ms // BUCKET_MS, end_ms // BUCKET_MS
        return [hour for hour in self.state.hours if first <= hour <= last]

    def batches(self) -> list[SampleBatch]:
        """Accepted and not flushed; without what its flush is going to leave out because its hour was removed."""
        first = msgspec.UNSET if self.state is None else self.state.head.first_hour
        return unflushed_batches(self.unflushed, self.tenant, None if first is msgspec.UNSET else first * BUCKET_MS)


@dataclass(slots=True)
class SeriesFound:
    """Series that satisfy matchers, each once, and where they were found."""

    labels: list[Labels] = field(default_factory=list)
    # For each hour the ids of its series, and their numbers among `labels`.
    hours: dict[int, tuple[Ids, Indices]] = field(default_factory=dict)
    # For each table of unflushed writes the numbers of its rows; -1 where a row does not match.
    tables: Mapping[int, Indices] = field(default_factory=dict)


async def find_series(
    moment: Moment, matchers: Sequence[Matcher], start_ms: int, end_ms: int, bounds: EngineConfig
) -> SeriesFound:
    """The series of all hours that a range touches, in the order of their labels."""
    tests = label_tests(matchers)
    state, blocks = moment.state, moment.blocks
    hours = moment.hours(start_ms, end_ms)
    name = None if state is None or moment.unflushed else (series_name(state, hours, tests), SelectedSeries)
    kept = None if name is None else blocks.cache.get(name, SelectedSeries)
    if kept is not None and kept.block is not None:
        check_bound("series", len(kept.block.labels), bounds.series_max)
        return SeriesFound(list(kept.block.labels), dict(kept.block.hours))
    ids = {} if state is None else await find_postings(blocks, state, hours, tests, bounds.series_max)
    rows = _unflushed_series(moment, tests, start_ms, end_ms)
    periods = _period_ids(state, ids)
    known = {} if state is None else await period_labels(blocks, state, periods)
    joined = join_series([*known.values(), *rows.values()], bounds.series_max)
    labels = joined.labels
    order = np.array(sorted(range(len(labels)), key=labels.__getitem__), np.int64)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    found = SeriesFound([labels[place] for place in order.tolist()])
    numbers = [rank[own] for own in joined.numbers]
    of_period = dict(zip(known, numbers, strict=False))
    for hour in hours:
        assert state is not None
        period = state.period(hour)
        found.hours[hour] = ids[hour], of_period[period][np.searchsorted(periods[period], ids[hour])]
    tables: dict[int, Indices] = {}
    for (key, part), own in zip(rows.items(), numbers[len(known) :], strict=True):
        tables[key] = np.full(len(part.table), -1, np.int64)
        tables[key][part.rows] = own
    found.tables = tables
    if name is not None:
        blocks.cache.put(name, SelectedSeries(list(found.labels), dict(found.hours)))
    return found


async def select_columns(
    moment: Moment, matchers: Sequence[Matcher], start_ms: int, end_ms: int, bounds: EngineConfig
) -> SeriesColumns:
    """Series that have samples from start to end, both included, with these samples."""
    found = await find_series(moment, matchers, start_ms, end_ms, bounds)
    parts: list[SamplePart] = []
    samples = 0
    for hours in _read_together(moment.state, found):
        assert moment.state is not None
        for part in await _parts(moment.blocks, moment.state, hours, start_ms, end_ms):
            parts.append(part)
            samples += len(part.times)
        check_bound("samples", samples, bounds.samples_max)
    fresh = _unflushed_parts(moment, found, start_ms, end_ms)
    samples += sum(len(part.times) for part in fresh)
    check_bound("samples", samples, bounds.samples_max)
    columns = await offload(samples, assemble, len(found.labels), [*parts, *fresh], overlapping=bool(fresh))
    counts = np.diff(columns.offsets)
    there = counts > 0
    labels, offsets = found.labels, columns.offsets
    if not there.all():
        labels = [found.labels[place] for place in np.flatnonzero(there).tolist()]
        offsets = np.concatenate([[0], np.cumsum(counts[there])])
    return SeriesColumns(labels, offsets, columns.times, columns.values)


def _period_ids(state: TenantState | None, hours: Mapping[int, Ids]) -> dict[int, Ids]:
    """For each period all ids that its hours have, in order."""
    found: dict[int, Ids] = {}
    for hour, ids in hours.items():
        assert state is not None
        known = found.get(period := state.period(hour))
        found[period] = ids if known is None or np.array_equal(known, ids) else np.union1d(known, ids)
    return found


@dataclass(frozen=True, slots=True)
class _HourBlocks:
    """Series of an hour and the blocks that hold their samples: `owners` are places in `lows`, in order."""

    hour: int
    ids: Ids
    numbers: Indices
    lows: Words
    owners: Indices

    def wanted(self) -> Indices:
        return np.unique(self.owners)


def _read_together(state: TenantState | None, found: SeriesFound) -> Iterator[list[_HourBlocks]]:
    """The hours of found series in groups whose blocks are read at once, bounded by the samples in them."""
    group: list[_HourBlocks] = []
    samples = 0
    for hour, (ids, numbers) in found.hours.items():
        assert state is not None
        lows = state.lows(SAMPLES, hour)
        if not len(ids) or not len(lows):
            continue
        group.append(_HourBlocks(hour, ids, numbers, lows, state.owners(SAMPLES, hour, keys_of(hour, ids))))
        samples += state.rows(SAMPLES, hour) * len(group[-1].wanted()) // len(lows)
        if samples >= _SAMPLES_AT_ONCE:
            yield group
            group, samples = [], 0
    if group:
        yield group


async def _parts(
    blocks: BlockReader, state: TenantState, hours: Sequence[_HourBlocks], start_ms: int, end_ms: int
) -> list[SamplePart]:
    """The samples of some series of some hours, a part for each block."""
    lows = [low for own in hours for low in own.lows[own.wanted()].tolist()]
    found = await blocks.contents(state, SAMPLES, lows, SampleBlock)
    rows = sum(len(block) for block in found.values())
    return await offload(rows, _cut, hours, found, start_ms, end_ms)


def _cut(
    hours: Sequence[_HourBlocks], found: Mapping[int, SampleBlock], start_ms: int, end_ms: int
) -> list[SamplePart]:
    parts = []
    for own in hours:
        for place in own.wanted().tolist():
            first, end = np.searchsorted(own.owners, [place, place + 1])
            block = found.get(int(own.lows[place]))
            if block is not None:
                mine, part = cut_block(block, own.ids[first:end], start_ms, end_ms, own.hour * BUCKET_MS)
                numbers = own.numbers[first:end][mine]
                parts.append(SamplePart(numbers, part.counts, part.base_ms, part.times, part.values))
    return parts


def _unflushed_series(moment: Moment, tests: Sequence[LabelTest], start_ms: int, end_ms: int) -> dict[int, TableSeries]:
    """For each table of unflushed writes the rows that match and have samples."""
    sampled: dict[int, Bools] = {}
    tables: dict[int, SeriesTable] = {}
    for batch in moment.batches():
        tables[id(batch.table)] = batch.table
        inside = (batch.timestamps_ms >= start_ms) & (batch.timestamps_ms <= end_ms)
        present = sampled.setdefault(id(batch.table), np.zeros(len(batch.table), np.bool_))
        present[batch.series[inside]] = True
    return {
        key: TableSeries(table, np.flatnonzero(sampled[key] & matching_rows(table, tests)))
        for key, table in tables.items()
    }


def _unflushed_parts(moment: Moment, found: SeriesFound, start_ms: int, end_ms: int) -> list[SamplePart]:
    parts = []
    for batch in moment.batches():
        numbers = found.tables[id(batch.table)][batch.series]
        kept = np.flatnonzero((numbers >= 0) & (batch.timestamps_ms >= start_ms) & (batch.timestamps_ms <= end_ms))
        kept = kept[np.argsort(numbers[kept], kind="stable")]
        series, counts = np.unique(numbers[kept], return_counts=True)
        parts.append(SamplePart(series, counts, 0, batch.timestamps_ms[kept], batch.values[kept]))
    return [part for part in parts if len(part.times)]
