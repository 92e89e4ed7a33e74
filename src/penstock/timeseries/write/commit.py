"""Samples of one tenant become one commit: ids resolved from the store, new series indexed, samples filed.

Whatever a new series needs to be found is in the same list of puts as its first sample. Nothing here is written; if a
block that is needed cannot be read, `DamagedHour` names the hour and nothing of the commit is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyroaring

from penstock.blocks import BlockReader, Operations, file
from penstock.errors import Corrupt
from penstock.timeseries.arrays import Ids
from penstock.timeseries.fingerprints import Fingerprints
from penstock.timeseries.format.keys import IDS_MAX, keys_of
from penstock.timeseries.format.metadata_block import MetadataBlock
from penstock.timeseries.format.sample_block import SampleBlock
from penstock.timeseries.format.state import DICTIONARY, LABELS, METADATA, TenantState
from penstock.timeseries.metric_metadata import MetricMetadata
from penstock.timeseries.offload import offload
from penstock.timeseries.samples import SampleBatch
from penstock.timeseries.write.draft import TenantDraft
from penstock.timeseries.write.gather import GatheredSamples, HourSamples, gather
from penstock.timeseries.write.new_series import NewSeries, index_of, locality
from penstock.timeseries.write.periods import DamagedHour, TooManySeries, periods_of
from penstock.timeseries.write.placement import file_index, file_presence, file_samples, stack_series

__all__ = ["commit_samples"]

# Periods of a tenant whose fingerprints stay in memory: today, yesterday, and one that arrives late.
_RESIDENT_PERIODS: Final = 3
# Hours of a tenant whose bitmaps stay in memory: the one that fills, the one before, and two that arrive late.
_RESIDENT_HOURS: Final = 4


async def commit_samples(
    blocks: BlockReader, state: TenantState, batches: Sequence[SampleBatch], series_max: int = IDS_MAX
) -> tuple[TenantState, Operations]:
    """The state after some batches, and the operations that make it so."""
    try:
        return await _commit(blocks, state, batches, series_max, folding=True)
    except DamagedHour:
        raise
    except Corrupt:
        # A small block that was to be folded cannot be read. It stays where it is; what arrives does not need it.
        return await _commit(blocks, state, batches, series_max, folding=False)


async def _commit(
    blocks: BlockReader, state: TenantState, batches: Sequence[SampleBatch], series_max: int, *, folding: bool
) -> tuple[TenantState, Operations]:
    draft = TenantDraft(state)
    samples = sum(map(len, batches))
    gathered = await offload(samples, gather, batches)
    hours = await offload(samples, lambda: list(gathered.hours()))
    resident, present = dict(state.resident), dict(state.present)
    for period, own, known in await periods_of(blocks, state, hours):
        try:
            resident.pop(period, None)
            resident[period] = after = await _commit_period(draft, blocks, gathered, period, own, known, present)
        except Corrupt as error:
            raise DamagedHour.of(state.name, own[0].hour, error) from error
        if len(after) > max(series_max, len(known)):
            raise TooManySeries.of(state.name, period, len(after), series_max, known)
    _forget_oldest(resident, _RESIDENT_PERIODS)
    _forget_oldest(present, _RESIDENT_HOURS)
    await _file_metadata(draft, blocks, {name: about for batch in batches for name, about in batch.metadata.items()})
    if folding:
        await draft.fold(blocks)
    await draft.encode()
    return await offload(samples, draft.state_after, state.head, resident, present)


def _forget_oldest(kept: dict[int, Any], most: int) -> None:
    while len(kept) > most:
        del kept[next(iter(kept))]


async def _commit_period(
    draft: TenantDraft,
    blocks: BlockReader,
    gathered: GatheredSamples,
    period: int,
    hours: Sequence[HourSamples],
    known: Fingerprints,
    present: dict[int, pyroaring.BitMap],
) -> Fingerprints:
    """Draft the samples of some hours of a period; returns the fingerprints that it has then."""
    samples = sum(len(hour.series) for hour in hours)
    numbers, fresh = await offload(samples, _resolve, gathered, hours, known)
    if fresh is not None:
        keys = keys_of(period, fresh.ids)
        if period == hours[0].hour:
            stack_series(draft, DICTIONARY, period, fresh.dictionary(), keys)
        stack_series(draft, LABELS, period, fresh.labels(), keys)
        index = await offload(len(fresh.ids), index_of, period, fresh)
        await file_index(draft, blocks, period, index)
        known = Fingerprints.concatenate([known, fresh.fingerprints]) if len(known) else fresh.fingerprints
    for hour in hours:
        ids = numbers[hour.series]
        content = await offload(len(ids), SampleBlock.of, hour.hour, ids, hour.times, hour.values)
        await file_samples(draft, blocks, content)
        if period != hour.hour:
            await file_presence(draft, blocks, hour.hour, pyroaring.BitMap(content.ids), present)
    return known


def _resolve(
    gathered: GatheredSamples, hours: Sequence[HourSamples], known: Fingerprints
) -> tuple[Ids, NewSeries | None]:
    """The id of each gathered series, and the series that the period has not seen before."""
    count = len(gathered.fingerprints)
    present = np.flatnonzero(sum(np.bincount(hour.series, minlength=count) for hour in hours))
    found = known.find(gathered.fingerprints.take(present))
    numbers = np.zeros(count, np.uint32)
    numbers[present] = found
    absent = present[found < 0]
    fresh = None
    if len(absent):
        table = gathered.table(absent)
        order = locality(table)
        fresh = NewSeries(np.arange(len(known), len(known) + len(absent), dtype=np.uint32), table.take(order))
        numbers[absent[order]] = fresh.ids
    return numbers, fresh


async def _file_metadata(draft: TenantDraft, blocks: BlockReader, metrics: Mapping[str, MetricMetadata]) -> None:
    """Write what is new about metrics; what is known already is not written again."""
    if not metrics:
        return
    arriving = MetadataBlock.of(dict(metrics))
    directory = draft.base.directory(METADATA)
    known: dict[str, MetricMetadata] = {}
    if len(directory):
        lows = {int(directory.lows[place]) for place in directory.owners(arriving.keys).tolist()}
        for block in (await blocks.contents(draft.base, METADATA, sorted(lows), MetadataBlock)).values():
            known |= block.metrics
    changed = {name: about for name, about in metrics.items() if known.get(name) != about}
    await file(draft, blocks, METADATA, MetadataBlock.of(changed))
