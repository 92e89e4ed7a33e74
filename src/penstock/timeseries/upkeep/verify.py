"""Verifying a tenant: everything is read, and whatever does not agree is named. One damaged block stops nobody.

Every id of a day must be in its labels and, for each label, in its index, and nowhere else; no two series of a day have
the same labels; samples must belong to a known series that their hour lists, lie in their hour, and be in order. An hour
with ids of its own has a dictionary, whose fingerprints must be those of the labels.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyroaring

from penstock.blocks import Block, BlockReader, Damage, Shelf
from penstock.timeseries.arrays import Ids
from penstock.timeseries.fingerprints import Fingerprints, fingerprints_of
from penstock.timeseries.format.index_block import IndexBlock
from penstock.timeseries.format.keys import BUCKET_MS, IDS_MAX, hour_key, hour_of_key, period_hours
from penstock.timeseries.format.metadata_block import MetadataBlock
from penstock.timeseries.format.ordering import is_risen
from penstock.timeseries.format.presence_block import PresenceBlock
from penstock.timeseries.format.sample_block import SampleBlock
from penstock.timeseries.format.series_block import FingerprintBlock, LabelBlock
from penstock.timeseries.format.state import DICTIONARY, INDEX, LABELS, METADATA, PRESENCE, SAMPLES, TenantState

__all__ = ["SeriesVerifyReport", "verify_tenant"]

_UNLIKE = "labels of {} series for a dictionary of {}"
# Problems of one kind that are told one by one.
_TOLD_MAX = 10


@dataclass(slots=True)
class SeriesVerifyReport:
    """What was read of a tenant, and its inconsistencies."""

    tenant: str
    hours: int = 0
    # Each counted once a day.
    series: int = 0
    samples: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


async def verify_tenant(blocks: BlockReader, state: TenantState) -> SeriesVerifyReport:
    """Read everything of a tenant."""
    report = SeriesVerifyReport(state.name)
    for names in state.lost.values():
        report.problems += [f"{name} cannot be read" for name in names]
    known: dict[int, int] = {}
    for period in _numbers(state, DICTIONARY, LABELS, INDEX):
        known[period] = await _Period(blocks, state, period, report).verify_series()
    for hour in _numbers(state, SAMPLES, PRESENCE):
        await _Period(blocks, state, hour, report).verify_samples(known.get(state.period(hour), 0))
        report.hours += 1
    damage = Damage()
    await blocks.contents(state, METADATA, state.directory(METADATA).lows.tolist(), MetadataBlock, damage)
    report.problems += [f"{name} cannot be read" for name in damage.blocks]
    return report


def _numbers(state: TenantState, *shelves: Shelf) -> list[int]:
    """The periods that have anything on some shelves."""
    return sorted({hour_of_key(low) for shelf in shelves for low in state.directory(shelf).lows.tolist()})


@dataclass(slots=True)
class _Period:
    """An hour or a day in the course of being verified."""

    blocks: BlockReader
    state: TenantState
    period: int
    report: SeriesVerifyReport

    async def verify_series(self) -> int:
        """Verify dictionary, labels and index; returns how many series there may be."""
        before = len(self.report.problems)
        known = None if len(period_hours(self.period)) > 1 else await self._dictionary()
        complete = len(self.report.problems) == before
        labelled = await self._labels(known, complete=complete)
        series = labelled if known is None else len(known)
        self.report.series += series
        # Without a whole dictionary nobody can tell which series there are.
        complete = len(self.report.problems) == before if known is None else complete
        return series if complete else IDS_MAX

    async def verify_samples(self, known: int) -> None:
        """Verify the samples of an hour, whose period has so many series."""
        before = len(self.report.problems)
        present: pyroaring.BitMap | None = None
        if self.state.period(self.period) != self.period:
            parts = (await self._read(PRESENCE, PresenceBlock)).values()
            present = pyroaring.BitMap().union(*(part.ids for part in parts if isinstance(part, PresenceBlock)))
            present = None if len(self.report.problems) > before else present
        found = await self._samples(known)
        if present is not None and found is not None and found != present:
            self._tell(f"{len(found)} series have samples, and {len(present)} are listed")

    def _tell(self, what: str) -> None:
        hours = period_hours(self.period)
        named = f"hour {hours[0]}" if len(hours) == 1 else f"the day from hour {hours[0]}"
        self.report.problems.append(f"{named} of tenant {self.state.name}: {what}")

    async def _read(self, shelf: Shelf, kind: type[Block]) -> dict[int, Block]:
        """The buckets of a shelf that can be read; the others are told."""
        damage = Damage()
        lows = self.state.lows(shelf, self.period).tolist()
        found = await self.blocks.contents(self.state, shelf, lows, kind, damage)
        self.report.problems += [f"{name} cannot be read" for name in damage.blocks]
        return dict(found)

    async def _dictionary(self) -> Fingerprints:
        parts = (await self._read(DICTIONARY, FingerprintBlock)).values()
        blocks = [part for part in parts if isinstance(part, FingerprintBlock)]
        ids = np.concatenate([np.empty(0, np.uint32), *(part.ids for part in blocks)])
        prints = Fingerprints.concatenate([part.fingerprints for part in blocks])
        if not np.array_equal(ids, np.arange(len(ids))):
            self._tell("the dictionary lacks ids, or has some twice")
        if len(prints.unique()[0]) < len(prints):
            self._tell("the dictionary has a series twice")
        return prints

    async def _labels(self, known: Fingerprints | None, *, complete: bool) -> int:
        """Verify labels, against a dictionary where there is one; returns of how many series there are any."""
        before = len(self.report.problems)
        blocks = [part for part in (await self._read(LABELS, LabelBlock)).values() if isinstance(part, LabelBlock)]
        whole = complete and len(self.report.problems) == before
        ids = np.concatenate([np.empty(0, np.uint32), *(part.ids for part in blocks)])
        if whole and not np.array_equal(ids, np.arange(len(ids) if known is None else len(known))):
            self._tell("labels are not those of all series" if known is None else _UNLIKE.format(len(ids), len(known)))
            whole = False
        if whole and known is None:
            prints = Fingerprints.concatenate([fingerprints_of(block.payloads) for block in blocks])
            if len(prints.unique()[0]) < len(prints):
                self._tell("two series have the same labels")
        expected: dict[tuple[str, str], list[int]] = {}
        for block in blocks:
            if whole and known is not None:
                found, stored = fingerprints_of(block.payloads), known.take(block.ids)
                if np.any((found.high != stored.high) | (found.low != stored.low)):
                    self._tell("the fingerprint of a series is not that of its labels")
            for number, labels in zip(block.ids.tolist(), block.labels_at(np.arange(len(block))), strict=True):
                for label in labels:
                    expected.setdefault(label, []).append(number)
        await self._index(expected, whole=whole)
        return len(ids)

    async def _index(self, expected: dict[tuple[str, str], list[int]], *, whole: bool) -> None:
        before = len(self.report.problems)
        blocks = [part for part in (await self._read(INDEX, IndexBlock)).values() if isinstance(part, IndexBlock)]
        if not whole or len(self.report.problems) > before:
            return
        told = 0
        for block in blocks:
            for name in list(block.label_names()):
                for value in block.label_values(name):
                    series = block.series(name, value)
                    if series != pyroaring.BitMap(expected.pop((name, value), [])) and told < _TOLD_MAX:
                        self._tell(f"the index of {name}={value!r} is not what the labels tell")
                        told += 1
        if expected:
            self._tell(f"the index lacks {len(expected)} labels, {next(iter(expected))!r} among them")

    async def _samples(self, known: int) -> pyroaring.BitMap | None:
        """Verify samples; returns the series that have any, unless a block is missing."""
        series = pyroaring.BitMap()
        lows = self.state.lows(SAMPLES, self.period).tolist()
        ends = [*lows[1:], hour_key(self.period + 1)]
        found = await self._read(SAMPLES, SampleBlock)
        for place, (low, end) in enumerate(zip(lows, ends, strict=True)):
            block = found.get(low)
            if not isinstance(block, SampleBlock):
                continue
            series.update(block.ids)
            self.report.samples += len(block)
            if block.hour != self.period or np.any((block.times < 0) | (block.times >= BUCKET_MS)):
                self._tell("samples of another hour")
            if not is_risen(block.rows, block.times):
                self._tell("samples are not in order")
            self._ids(block.ids, known, low if place else 0, end)
        return series if len(found) == len(lows) else None

    def _ids(self, ids: Ids, known: int, low: int, end: int) -> None:
        if len(ids) and int(ids.max()) >= known:
            self._tell(f"samples of the series {ids.max()}, and the dictionary has {known}")
        keys = np.uint64(hour_key(self.period)) + ids.astype(np.uint64)
        if np.any((keys < np.uint64(low)) | (keys >= np.uint64(end))):
            self._tell("samples of series that belong to another block")
