"""Series of a period by their ids: their labels, and which of them an hour has samples of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyroaring

from penstock.blocks import BlockReader
from penstock.errors import Corrupt
from penstock.timeseries.arrays import Column, Ids, Indices, taken
from penstock.timeseries.format.keys import hour_key, keys_of, period_hours
from penstock.timeseries.format.presence_block import PresenceBlock
from penstock.timeseries.format.series_block import LabelBlock
from penstock.timeseries.format.state import LABELS, PRESENCE, TenantState
from penstock.timeseries.promql.labels import Labels

__all__ = ["PeriodLabels", "period_labels", "present_series"]


class PeriodLabels:
    """The blocks of labels that hold some series of a period, and the row of each series in them."""

    def __init__(self, parts: Sequence[tuple[LabelBlock, Indices]]) -> None:
        # Blocks in the order of their ids, and the rows of the series in each: together they are in the order of ids.
        self._parts = parts
        self.is_distinct = True

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self._parts)

    def payloads(self) -> list[Column]:
        """What identifies each series, in the order of ids."""
        return [taken(block.payloads, rows).cast(pa.large_binary()) for block, rows in self._parts]

    def labels(self, places: Indices) -> list[Labels]:
        """The labels of some of the series, given by rising place among them."""
        found: list[Labels] = []
        start = 0
        for block, rows in self._parts:
            mine = places[(places >= start) & (places < start + len(rows))]
            if len(mine):
                found += block.labels_at(rows[mine - start])
            start += len(rows)
        return found


async def period_labels(blocks: BlockReader, state: TenantState, ids: Mapping[int, Ids]) -> dict[int, PeriodLabels]:
    """The labels of some series of each period, given by rising id. Blocks of all periods are read together."""
    owners = {period: state.owners(LABELS, period, keys_of(period, own)) for period, own in ids.items() if len(own)}
    lows = {period: state.lows(LABELS, period) for period in owners}
    for period in owners:
        if not len(lows[period]):
            raise _unlike(state, period)
    wanted = [low for period, places in owners.items() for low in lows[period][np.unique(places)].tolist()]
    found = await blocks.contents(state, LABELS, wanted, LabelBlock)
    labels: dict[int, PeriodLabels] = {period: PeriodLabels(()) for period in ids}
    for period, places in owners.items():
        parts = []
        for place in np.unique(places).tolist():
            block, mine = found[int(lows[period][place])], ids[period][places == place]
            rows = np.searchsorted(block.ids, mine)
            if rows.max() >= len(block) or not np.array_equal(block.ids[rows], mine):
                raise _unlike(state, period)
            parts.append((block, rows))
        labels[period] = PeriodLabels(parts)
    return labels


def _unlike(state: TenantState, period: int) -> Corrupt:
    first = period_hours(period)[0]
    return Corrupt(f"the labels from hour {first} of tenant {state.name} on are inconsistent", "ids are missing")


async def present_series(
    blocks: BlockReader, state: TenantState, hours: Sequence[int]
) -> dict[int, pyroaring.BitMap | None]:
    """The series that each hour has samples of, not to be changed; None for all series of its period."""
    absent = [hour for hour in hours if state.period(hour) != hour and hour not in state.present]
    found = await blocks.contents(state, PRESENCE, map(hour_key, absent), PresenceBlock)
    present: dict[int, pyroaring.BitMap | None] = {}
    for hour in hours:
        if state.period(hour) == hour:
            present[hour] = None
        elif hour in state.present:
            present[hour] = state.present[hour]
        elif hour_key(hour) in found:
            present[hour] = found[hour_key(hour)].ids
        else:
            raise Corrupt(f"the series of hour {hour} of tenant {state.name} are not known", "their list is missing")
    return present
