"""Series of an hour by their ids: their fingerprints, and their labels."""

from __future__ import annotations

import numpy as np

from penstock.blocks import BlockReader
from penstock.errors import Corrupt
from penstock.timeseries.arrays import Ids
from penstock.timeseries.fingerprints import Fingerprints
from penstock.timeseries.format.keys import keys_of
from penstock.timeseries.format.series_block import FingerprintBlock, LabelBlock
from penstock.timeseries.format.state import DICTIONARY, LABELS, TenantState
from penstock.timeseries.promql.labels import Labels

__all__ = ["fingerprints_at", "hour_labels"]


async def fingerprints_at(blocks: BlockReader, state: TenantState, hour: int, ids: Ids) -> Fingerprints:
    """The fingerprints of some series of an hour."""
    resident = state.resident.get(hour)
    if resident is not None:
        return resident.take(ids)
    lows = state.lows(DICTIONARY, hour)
    if not len(ids):
        return Fingerprints.concatenate([])
    owners = state.owners(DICTIONARY, hour, keys_of(hour, ids))
    wanted = np.unique(owners)
    found = await blocks.contents(state, DICTIONARY, lows[wanted].tolist(), FingerprintBlock)
    parts = []
    for place in wanted.tolist():
        block, mine = found[int(lows[place])], ids[owners == place]
        rows = np.searchsorted(block.ids, mine)
        if rows.max() >= len(block) or not np.array_equal(block.ids[rows], mine):
            raise Corrupt(f"the dictionary of hour {hour} of tenant {state.name} does not agree", "ids are missing")
        parts.append(block.fingerprints.take(rows))
    return Fingerprints.concatenate(parts)


async def hour_labels(blocks: BlockReader, state: TenantState, hour: int, ids: Ids) -> list[Labels]:
    """The labels of some series of an hour, in the order asked for."""
    lows = state.lows(LABELS, hour)
    owners = state.owners(LABELS, hour, keys_of(hour, ids))
    found = await blocks.contents(state, LABELS, lows[np.unique(owners)].tolist(), LabelBlock)
    labels: list[Labels] = [()] * len(ids)
    for place in np.unique(owners).tolist():
        block, mine = found[int(lows[place])], np.flatnonzero(owners == place)
        rows = np.searchsorted(block.ids, ids[mine])
        if rows.max() >= len(block) or not np.array_equal(block.ids[rows], ids[mine]):
            raise Corrupt(f"the labels of hour {hour} of tenant {state.name} do not agree", "ids are missing")
        for row, own in zip(mine.tolist(), block.labels_at(rows), strict=True):
            labels[row] = own
    return labels
