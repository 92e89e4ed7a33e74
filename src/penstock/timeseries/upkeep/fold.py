"""Folding: the blocks of a closed hour become one sorted run, each series in one block if it fits; those of a day too.

A period is closed when its end and the delay for late samples have passed. What arrives later is taken all the same, and
the period is folded again. A step reads and writes a bounded number of bytes.
"""

from __future__ import annotations

import numpy as np

from penstock.blocks import Block, BlockReader, Operations, Shelf
from penstock.observability import SILENT, Observer, names
from penstock.timeseries.arrays import Array
from penstock.timeseries.config import TimeSeriesConfig
from penstock.timeseries.format.keys import BUCKET_MS, hour_of_key, period_hours
from penstock.timeseries.format.sample_block import SampleBlock
from penstock.timeseries.format.state import DICTIONARY, INDEX, LABELS, PRESENCE, SAMPLES, TenantState
from penstock.timeseries.format.store_format import FORMAT
from penstock.timeseries.write.draft import VALUE_BYTES, TenantDraft
from penstock.timeseries.write.placement import place_samples

__all__ = ["due_periods", "fold_step", "is_closed", "untidy_lows"]

_SHELVES = (SAMPLES, PRESENCE, INDEX, LABELS, DICTIONARY)


def is_closed(period: int, config: TimeSeriesConfig, now_ms: int) -> bool:
    """Whether no more samples of an hour or a day are waited for."""
    return (period_hours(period)[-1] + 1) * BUCKET_MS + int(1000 * config.fold_delay_seconds) <= now_ms


def untidy_lows(state: TenantState, shelf: Shelf) -> Array:
    """The buckets of a shelf that a fold would change, in order."""
    fragments = state.directory(shelf).fragments
    if len(fragments) < 2:
        return np.empty(0, np.uint64)
    same = fragments["low"][1:] == fragments["low"][:-1]
    # Neighbours that one commit wrote because they do not fit into one value are as they should be.
    size = fragments["bytes"].astype(np.int64)
    full = (size[1:] + size[:-1] > VALUE_BYTES * 9 // 10) & (fragments["serial"][1:] == fragments["serial"][:-1] + 1)
    found: Array = np.unique(fragments["low"][1:][same & ~full])
    return found


def due_periods(state: TenantState, config: TimeSeriesConfig, now_ms: int, *, whole: bool = False) -> list[int]:
    """The hours and days that a fold would change, oldest first; with `whole` those that are not closed too."""
    found: set[int] = set()
    for shelf in _SHELVES:
        found.update(hour_of_key(low) for low in untidy_lows(state, shelf).tolist())
    return sorted(period for period in found if whole or is_closed(period, config, now_ms))


async def fold_step(
    blocks: BlockReader,
    state: TenantState,
    config: TimeSeriesConfig,
    now_ms: int,
    *,
    whole: bool = False,
    observer: Observer = SILENT,
) -> tuple[TenantState, Operations] | None:
    """Fold some buckets of the oldest hour or day that is due; None if none is."""
    periods = due_periods(state, config, now_ms, whole=whole)
    if not periods:
        return None
    draft = TenantDraft(state)
    room = config.upkeep_bytes
    for shelf in _SHELVES:
        for low in untidy_lows(state, shelf).tolist():
            if hour_of_key(low) != periods[0] or room <= 0:
                continue
            room -= int(state.directory(shelf).bucket(low)["bytes"].sum())
            await _fold(draft, blocks, shelf, low)
    await draft.encode()
    if room > 0:
        observer.count(names.TIMESERIES_HOURS_FOLDED)
    return draft.state_after(state.head)


async def _fold(draft: TenantDraft, blocks: BlockReader, shelf: Shelf, low: int) -> None:
    kind: type[Block] = FORMAT.blocks[shelf.family]
    content = (await blocks.contents(draft.base, shelf, [low], kind))[low]
    if isinstance(content, SampleBlock):
        draft.replace(shelf, low, None)
        place_samples(draft, low, content)
    else:
        draft.replace(shelf, low, content)
