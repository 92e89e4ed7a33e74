"""Series of an hour by their ids: their fingerprints, and their labels."""

from __future__ import annotations

from collections.abc import Mapping

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


async def fingerprints_at(blocks: BlockReader, state: TenantState, ids: Mapping[int, Ids]) -> dict[int, Fingerprints]:
    """The fingerprints of some series of each hour. Blocks of all hours are read together."""
    owners = {
        hour: state.owners(DICTIONARY, hour, keys_of(hour, own))
        for hour, own in ids.items()
        if len(own) and hour not in state.resident
    }
    lows = {hour: state.lows(DICTIONARY, hour) for hour in owners}
    wanted = [low for hour, places in owners.items() for low in lows[hour][np.unique(places)].tolist()]
    found = await blocks.contents(state, DICTIONARY, wanted, FingerprintBlock)
    prints: dict[int, Fingerprints] = {}
    for hour, own in ids.items():
        resident = state.resident.get(hour)
        if resident is not None:
            prints[hour] = resident.take(own)
            continue
        parts = []
        for place in np.unique(owners[hour]).tolist() if hour in owners else ():
            block, mine = found[int(lows[hour][place])], own[owners[hour] == place]
            rows = np.searchsorted(block.ids, mine)
            if rows.max() >= len(block) or not np.array_equal(block.ids[rows], mine):
                raise Corrupt(f"the dictionary of hour {hour} of tenant {state.name} does not agree", "ids are missing")
            parts.append(block.fingerprints.take(rows))
        prints[hour] = Fingerprints.concatenate(parts)
    return prints


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
