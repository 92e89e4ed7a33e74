"""Samples of one tenant become one commit: ids resolved from the store, new series indexed, samples filed.

Whatever a new series needs to be found is in the same list of puts as its first sample. Nothing here is written; if a
block that is needed cannot be read, `DamagedHour` names the hour and nothing of the commit is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.blocks import BlockReader, Operations, file
from penstock.errors import AtCapacity, Corrupt
from penstock.timeseries.arrays import Ids
from penstock.timeseries.fingerprints import Fingerprints
from penstock.timeseries.format.keys import IDS_MAX, keys_of
from penstock.timeseries.format.metadata_block import MetadataBlock
from penstock.timeseries.format.sample_block import SampleBlock
from penstock.timeseries.format.series_block import FingerprintBlock
from penstock.timeseries.format.state import DICTIONARY, LABELS, METADATA, TenantState
from penstock.timeseries.offload import offload
from penstock.timeseries.samples import MetricMetadata, SampleBatch
from penstock.timeseries.write.draft import TenantDraft
from penstock.timeseries.write.gather import GatheredSamples, HourSamples, gather
from penstock.timeseries.write.new_series import NewSeries, index_of, locality
from penstock.timeseries.write.placement import file_index, file_samples, stack_series

__all__ = ["DamagedHour", "TooManySeries", "commit_samples", "hour_fingerprints"]

# Hours of a tenant whose fingerprints stay in memory: the one that fills, the one before, and two that arrive late.
_RESIDENT_HOURS = 4


class DamagedHour(Corrupt):
    """An hour of a tenant lacks what a write to it needs."""

    hour = 0

    @classmethod
    def of(cls, tenant: str, hour: int, cause: Corrupt) -> DamagedHour:
        remedy = "restore the block, or remove the hour with `expire`"
        error = cls(f"hour {hour} of tenant {tenant} is damaged and takes no writes", str(cause), remedy)
        error.hour = hour
        return error


class TooManySeries(AtCapacity):
    """An hour of a tenant has as many series as it may."""

    hour = 0

    @classmethod
    def of(cls, tenant: str, hour: int, found: int, most: int) -> TooManySeries:
        error = cls(
            f"hour {hour} of tenant {tenant} would have {found} series",
            f"at most {most} are taken",
            "drop labels that differ for every sample, or raise bucket_series_max",
        )
        error.hour = hour
        return error


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
    resident = dict(state.resident)
    for hour in await offload(samples, lambda: list(gathered.hours())):
        known = await hour_fingerprints(blocks, state, hour.hour)
        try:
            resident.pop(hour.hour, None)
            resident[hour.hour] = after = await _commit_hour(draft, blocks, gathered, hour, known)
        except Corrupt as error:
            raise DamagedHour.of(state.name, hour.hour, error) from error
        if len(after) > max(series_max, len(known)):
            raise TooManySeries.of(state.name, hour.hour, len(after), series_max)
    while len(resident) > _RESIDENT_HOURS:
        del resident[next(iter(resident))]
    await _file_metadata(draft, blocks, {name: about for batch in batches for name, about in batch.metadata.items()})
    if folding:
        await draft.fold(blocks)
    await draft.encode()
    return await offload(samples, draft.state_after, state.head, resident)


async def hour_fingerprints(blocks: BlockReader, state: TenantState, hour: int) -> Fingerprints:
    """The fingerprints of an hour in the order of their ids, as the store has them."""
    known = state.resident.get(hour)
    if known is not None:
        return known
    lows = state.lows(DICTIONARY, hour).tolist()
    try:
        parts = await blocks.contents(state, DICTIONARY, lows, FingerprintBlock)
        ids = np.concatenate([np.empty(0, np.uint32), *(part.ids for part in parts.values())])
        if not np.array_equal(ids, np.arange(len(ids))):
            raise Corrupt(f"the dictionary of hour {hour} of tenant {state.name} does not agree", "ids are missing")
    except Corrupt as error:
        raise DamagedHour.of(state.name, hour, error) from error
    return Fingerprints.concatenate([part.fingerprints for part in parts.values()])


async def _commit_hour(
    draft: TenantDraft, blocks: BlockReader, gathered: GatheredSamples, hour: HourSamples, known: Fingerprints
) -> Fingerprints:
    """Draft the samples of one hour; returns the fingerprints that it has then."""
    ids, fresh = await offload(len(hour.series), _resolve, gathered, hour, known)
    if fresh is not None:
        keys = keys_of(hour.hour, fresh.ids)
        stack_series(draft, DICTIONARY, hour.hour, fresh.dictionary(), keys)
        stack_series(draft, LABELS, hour.hour, fresh.labels(), keys)
        index = await offload(len(fresh.ids), index_of, hour.hour, fresh)
        await file_index(draft, blocks, hour.hour, index)
        known = Fingerprints.concatenate([known, fresh.fingerprints]) if len(known) else fresh.fingerprints
    content = await offload(len(hour.series), SampleBlock.of, hour.hour, ids, hour.times, hour.values)
    await file_samples(draft, blocks, content)
    return known


def _resolve(gathered: GatheredSamples, hour: HourSamples, known: Fingerprints) -> tuple[Ids, NewSeries | None]:
    """The id of every sample's series, and the series that the hour has not seen before."""
    present = np.flatnonzero(np.bincount(hour.series, minlength=len(gathered.fingerprints)))
    found = known.find(gathered.fingerprints.take(present))
    numbers = np.zeros(len(gathered.fingerprints), np.uint32)
    numbers[present] = found
    absent = present[found < 0]
    fresh = None
    if len(absent):
        table = gathered.table(absent)
        order = locality(table)
        fresh = NewSeries(np.arange(len(known), len(known) + len(absent), dtype=np.uint32), table.take(order))
        numbers[absent[order]] = fresh.ids
    return numbers[hour.series], fresh


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
