"""Selecting series and samples from one moment of a tenant: hours that the range touches, each by its own index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from penstock.blocks import BlockReader
from penstock.timeseries.arrays import Bools, Ids, Indices, Words
from penstock.timeseries.fingerprints import Fingerprints
from penstock.timeseries.format.keys import BUCKET_MS, keys_of
from penstock.timeseries.format.sample_block import SampleBlock
from penstock.timeseries.format.state import SAMPLES, TenantState
from penstock.timeseries.offload import offload
from penstock.timeseries.operations import SampleChange
from penstock.timeseries.promql import EngineConfig, Matcher, SeriesColumns
from penstock.timeseries.promql.labels import Labels
from penstock.timeseries.read.assembly import SamplePart, assemble, cut_block
from penstock.timeseries.read.labels import hour_labels
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
    postings = {} if state is None else await find_postings(blocks, state, hours, tests, bounds.series_max)
    ids = {hour: postings[hour].ids for hour in hours}
    rows, own = _unflushed_series(moment, tests, start_ms, end_ms)
    every = Fingerprints.concatenate([*(postings[hour].fingerprints for hour in hours), *own])
    firsts, places = every.unique()
    check_bound("series", len(firsts), bounds.series_max)
    labels = await _labels(moment, hours, ids, rows, firsts)
    order = np.array(sorted(range(len(labels)), key=labels.__getitem__), np.int64)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    numbers = rank[places]
    found = SeriesFound([labels[place] for place in order.tolist()])
    at = 0
    for hour in hours:
        found.hours[hour] = ids[hour], numbers[at : at + len(ids[hour])]
        at += len(ids[hour])
    tables: dict[int, Indices] = {}
    for key, (size, chosen) in rows.items():
        tables[key] = np.full(size, -1, np.int64)
        tables[key][chosen] = numbers[at : at + len(chosen)]
        at += len(chosen)
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


async def _labels(
    moment: Moment,
    hours: Sequence[int],
    ids: Mapping[int, Ids],
    rows: Mapping[int, tuple[int, Indices]],
    firsts: Indices,
) -> list[Labels]:
    """The labels of series, each read where it stands first among all that were found."""
    labels: list[Labels | None] = [None] * len(firsts)
    start = 0
    for hour in hours:
        mine = np.flatnonzero((firsts >= start) & (firsts < start + len(ids[hour])))
        if len(mine):
            assert moment.state is not None
            wanted = ids[hour][firsts[mine] - start]
            for place, found in zip(
                mine.tolist(), await hour_labels(moment.blocks, moment.state, hour, wanted), strict=True
            ):
                labels[place] = found
        start += len(ids[hour])
    tables = {id(batch.table): batch.table for batch in moment.batches()} if rows else {}
    for key, (_, chosen) in rows.items():
        for place in np.flatnonzero((firsts >= start) & (firsts < start + len(chosen))).tolist():
            labels[place] = tables[key].labels(int(chosen[firsts[place] - start]))
        start += len(chosen)
    return [found for found in labels if found is not None]


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


def _unflushed_series(
    moment: Moment, tests: Sequence[LabelTest], start_ms: int, end_ms: int
) -> tuple[dict[int, tuple[int, Indices]], list[Fingerprints]]:
    """For each table of unflushed writes its size and the rows that match and have samples, and their fingerprints."""
    rows: dict[int, tuple[int, Indices]] = {}
    prints: list[Fingerprints] = []
    sampled: dict[int, Bools] = {}
    tables: dict[int, SeriesTable] = {}
    for batch in moment.batches():
        tables[id(batch.table)] = batch.table
        inside = (batch.timestamps_ms >= start_ms) & (batch.timestamps_ms <= end_ms)
        present = sampled.setdefault(id(batch.table), np.zeros(len(batch.table), np.bool_))
        present[batch.series[inside]] = True
    for key, table in tables.items():
        chosen = np.flatnonzero(sampled[key] & matching_rows(table, tests))
        rows[key] = len(table), chosen
        prints.append(table.fingerprints.take(chosen))
    return rows, prints


def _unflushed_parts(moment: Moment, found: SeriesFound, start_ms: int, end_ms: int) -> list[SamplePart]:
    parts = []
    for batch in moment.batches():
        numbers = found.tables[id(batch.table)][batch.series]
        kept = np.flatnonzero((numbers >= 0) & (batch.timestamps_ms >= start_ms) & (batch.timestamps_ms <= end_ms))
        kept = kept[np.argsort(numbers[kept], kind="stable")]
        series, counts = np.unique(numbers[kept], return_counts=True)
        parts.append(SamplePart(series, counts, 0, batch.timestamps_ms[kept], batch.values[kept]))
    return [part for part in parts if len(part.times)]
