"""Keeping a collection in shape: splitting lists that are overfull, and sweeping dead rows out of blocks.

Upkeep is a commit of its own, of a bounded size, and changes no answer but its speed. A sweep walks over all
buckets in several such commits; its place is in the head, so that it goes on after a restart. When a collection
has doubled or a tenth of it was replaced, a sweep over its lists alone moves centres to the middle of their rows and
rows to their nearest centre; `compact` asks for a whole sweep, which does both and merges small neighbouring buckets.
Upkeep ends: a sweep passes at least one bucket a step and goes through lists from the highest number down, so that
it never meets those that it makes, and splitting an overfull list moves no row into another one.
What is due waits for a pause in writing (`keeper`); what has waited too long is done by the next flush.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from penstock.blocks import BlockReader, Directory, Operations, Shelf, neighbours
from penstock.observability import SILENT, Observer, names
from penstock.vector.arrays import Array, Bools, Ids
from penstock.vector.config import VectorConfig
from penstock.vector.format.clusters import Centroids, is_overfull
from penstock.vector.format.content import PostingBlock, RowBlock
from penstock.vector.format.keys import Family
from penstock.vector.format.state import CollectionState, Head, Sweep, SweepKind
from penstock.vector.format.store_format import ROW_BLOCKS
from penstock.vector.offload import offload
from penstock.vector.upkeep.reshape import reshape
from penstock.vector.write.commit import append_postings, put_centroids
from penstock.vector.write.draft import CollectionDraft

__all__ = ["PATIENCE", "is_due", "maintain"]

_POSTINGS: Final = Shelf(Family.POSTINGS)
# Rows by internal id: whether a bucket holds dead ones can be told without reading it.
_BY_ID: Final = (Family.VECTORS, Family.NAMES, Family.TEXTS, Family.COLUMN)
# The order of a sweep.
_SWEPT: Final = (*_BY_ID, Family.DICTIONARY, Family.TERMS, Family.DOCUMENTS, Family.POSTINGS)

# A collection that has grown or shrunk by this factor gets its lists shaped anew: each row is moved about once a doubling.
_GROWTH: Final = 2

# The same when so many of its rows have taken the place of others: what drifts is found again by the same probes.
_DRIFT: Final = 0.1

# Rows of a list or two, whose shape does not matter.
_FEW_ROWS: Final = 256

# Lists are not shaped while more than this share of all rows lies in lists that are to be split.
_UNSPLIT: Final = 0.25

# How many times over a bound a writer that never pauses may go before its flushes do upkeep. With four, lists hold
# up to eight times what they should and half of all rows may be dead: a search then still costs a fraction of one
# over all rows, and a load of eight times what was there goes through without waiting.
PATIENCE: Final = 4.0


@dataclass(slots=True)
class _Budget:
    """Bytes that may still be read."""

    left: int

    def take(self, size: int) -> bool:
        """Whether there was anything left; the last one may go over."""
        allowed = self.left > 0
        self.left -= size
        return allowed


async def maintain(
    blocks: BlockReader,
    state: CollectionState,
    config: VectorConfig,
    *,
    whole: bool = False,
    patience: float = 1.0,
    observer: Observer = SILENT,
) -> tuple[CollectionState, Operations] | None:
    """One step of upkeep, or None if nothing is due; with `whole`, of a sweep over everything."""
    budget = _Budget(config.upkeep_bytes)
    sweep = _sweep(state, config, whole, patience)
    # Rows that move between lists of many clusters never meet the lists that those are cut into, and a search would look
    # for them beside where they lie. So lists are split first; where that cannot wait, they are shaped once more later.
    unsplit = state.head.sweep is None and sweep is not None and sweep.shaping and _is_unsplit(state, config)
    if unsplit and not whole and patience <= 1:
        sweep = None
    overfull = _overfull(state, config, patience, budget)
    if not len(overfull) and sweep is None:
        return None
    draft = CollectionDraft(state)
    head, lists, shaped = state.head, overfull, overfull[:0]
    if sweep is not None:
        swept, rest = _next_buckets(state, sweep, budget)
        for shelf, lows in swept:
            if shelf == _POSTINGS:
                lists = np.union1d(overfull, np.array(lows, np.int64))
                shaped = np.array(lows if sweep.shaping else [], np.int64)
            else:
                await _rewrite(blocks, draft, shelf, lows, sweep)
        head = _advanced(head, sweep, rest)
        if unsplit and rest is None:
            head = msgspec.structs.replace(head, replaced=head.rows + head.hidden)
    centroids = state.centroids
    if len(lists):
        head, centroids = await _reshape(blocks, draft, head, lists, shaped, config, observer)
    await draft.fold(blocks)
    rows = head.rows + head.hidden + head.dead
    return await offload(rows, config.threads, draft.state_after, head, centroids, state.deleted, state.hidden)


def is_due(state: CollectionState, config: VectorConfig, patience: float = 1.0) -> bool:
    """Whether there is upkeep to do, or, with more patience, upkeep that can wait no longer."""
    if _sweep(state, config, False, patience) is not None:
        return True
    return len(state.centroids) < config.lists_max and bool(_are_overfull(state, config, patience).any())


def _are_overfull(state: CollectionState, config: VectorConfig, patience: float) -> Bools:
    return is_overfull(state.list_rows / patience, config.list_rows)


def _overfull(state: CollectionState, config: VectorConfig, patience: float, budget: _Budget) -> Ids:
    """The fullest lists that are due to be split, as many as the budget allows."""
    if len(state.centroids) >= config.lists_max:
        return np.empty(0, np.int64)
    rows, overfull = state.list_rows, _are_overfull(state, config, patience)
    row_bytes = 2 * state.dimensions + 8
    found = []
    for place in np.argsort(-rows, kind="stable"):
        if not overfull[place] or not budget.take(int(rows[place]) * row_bytes):
            break
        found.append(int(state.centroids.lists[place]))
    return np.array(found, np.int64)


def _sweep(state: CollectionState, config: VectorConfig, whole: bool, patience: float) -> Sweep | None:
    """The sweep to go on with, or one to begin: because somebody asks, too many rows are dead, or lists are outgrown."""
    head = state.head
    if whole and not (head.sweep and head.sweep.kind is SweepKind.WHOLE):
        return Sweep(int(_SWEPT[0]), 0, 0, head.dead, SweepKind.WHOLE)
    living = head.rows + head.hidden
    # The share of dead rows as one of living ones: patience with it has no end at one half.
    dying = head.dead > patience * config.dead_share_max / (1 - config.dead_share_max) * living
    outgrown = living > patience * _GROWTH * max(head.shaped, config.list_rows)
    drifted = (head.replaced or 0) >= patience * _DRIFT * max(living, config.list_rows)
    if head.sweep is not None:
        return head.sweep if patience <= 1 or dying or outgrown or drifted else None
    if dying:
        return Sweep(int(_SWEPT[0]), 0, 0, head.dead, SweepKind.DEAD)
    return Sweep(int(Family.POSTINGS), 0, head.next_list, 0, SweepKind.LISTS) if outgrown or drifted else None


def _is_unsplit(state: CollectionState, config: VectorConfig) -> bool:
    """Whether a large part of all rows lies in lists that are due to be split, and can be."""
    if len(state.centroids) >= config.lists_max:
        return False
    rows = state.list_rows
    return bool(rows[_are_overfull(state, config, 1.0)].sum() > _UNSPLIT * rows.sum())


def _advanced(head: Head, sweep: Sweep, rest: Sweep | None) -> Head:
    if rest is not None:
        return msgspec.structs.replace(head, sweep=rest)
    head = msgspec.structs.replace(head, sweep=None, dead=max(0, head.dead - sweep.dead))
    if sweep.shaping:
        return msgspec.structs.replace(head, shaped=head.rows + head.hidden, replaced=msgspec.UNSET)
    return _counted_drift(head, sweep)


def _counted_drift(head: Head, sweep: Sweep) -> Head:
    """After a sweep of dead rows: deleting rows and writing others drifts as far as replacing them does."""
    living = head.rows + head.hidden
    if head.shaped > max(_GROWTH * living, _FEW_ROWS):
        # Few of the rows that lists were shaped for are left, and whatever comes now comes to lists of others.
        return msgspec.structs.replace(head, shaped=living, replaced=living or msgspec.UNSET)
    replaced = min(sweep.dead, living - max(0, head.shaped - sweep.dead))
    return msgspec.structs.replace(head, replaced=replaced) if replaced > (head.replaced or 0) else head


def _next_buckets(
    state: CollectionState, sweep: Sweep, budget: _Budget
) -> tuple[list[tuple[Shelf, list[int]]], Sweep | None]:
    """The buckets of this step, by shelf, and where the next one goes on."""
    found: list[tuple[Shelf, list[int]]] = []
    passed = 0
    for shelf in _shelves(state, sweep):
        directory = state.directory(shelf)
        chosen: list[int] = []
        for low in _left(directory, shelf, sweep):
            fragments = directory.bucket(low)
            size = int(fragments["bytes"].sum()) if _worth(state, shelf, low, fragments, sweep) else 0
            # The first one is passed even if overfull lists have used up the budget: a sweep gets on.
            if not budget.take(size) and passed:
                rest = Sweep(int(shelf.family), shelf.column, low, sweep.dead, sweep.kind)
                return [*found, (shelf, chosen)], rest
            chosen.append(low)
            passed += 1
        found.append((shelf, chosen))
    return found, None


def _left(directory: Directory, shelf: Shelf, sweep: Sweep) -> list[int]:
    """The buckets of a shelf that a sweep has not passed: upwards, but lists from the highest number down."""
    lows, at = directory.lows, np.uint64(sweep.low)
    down = shelf == _POSTINGS
    if (shelf.family, shelf.column) == (sweep.family, sweep.column):
        lows = lows[lows <= at] if down else lows[lows >= at]
    left: list[int] = (lows[::-1] if down else lows).tolist()
    return left


def _shelves(state: CollectionState, sweep: Sweep) -> Iterator[Shelf]:
    order: dict[int, int] = {family: place for place, family in enumerate(_SWEPT)}
    present = [shelf for shelf in state.directories if shelf.family in order]
    at = (order[Family(sweep.family)], sweep.column)
    yield from sorted(
        (shelf for shelf in present if (order[shelf.family], shelf.column) >= at),
        key=lambda shelf: (order[shelf.family], shelf.column),
    )


def _worth(state: CollectionState, shelf: Shelf, low: int, fragments: Array, sweep: Sweep) -> bool:
    """Whether a bucket has to be read at all."""
    if sweep.shaping or shelf.family not in _BY_ID:
        return True
    lows = state.directory(shelf).lows
    place = int(np.searchsorted(lows, np.uint64(low))) + 1
    end = int(lows[place]) if place < len(lows) else state.head.next_id
    return len(state.deleted.ids(low, end)) > 0


async def _rewrite(
    blocks: BlockReader, draft: CollectionDraft, shelf: Shelf, lows: Sequence[int], sweep: Sweep
) -> None:
    """Write buckets again without dead rows; a whole sweep also makes one of small neighbours."""
    state = draft.base
    directory = state.directory(shelf)
    sizes = np.array([int(directory.bucket(low)["bytes"].sum()) for low in lows], np.int64)
    runs = neighbours(lows, sizes) if sweep.shaping else [[low] for low in lows]
    kind: type[RowBlock] = ROW_BLOCKS[Family(shelf.family)]
    for run in runs:
        if not any(_worth(state, shelf, low, directory.bucket(low), sweep) for low in run):
            continue
        stored = await blocks.contents(state, shelf, run, kind)
        merged = kind.merge([stored[low] for low in run if low in stored])
        kept = merged.kept(state.deleted)
        single = len(run) == 1 and (not sweep.shaping or len(directory.bucket(run[0])) == 1)
        if kept.all() and single:
            continue
        draft.replace(shelf, run[0], merged if kept.all() else merged.take(kept))
        for low in run[1:]:
            draft.replace(shelf, low, None)


async def _reshape(
    blocks: BlockReader,
    draft: CollectionDraft,
    head: Head,
    in_hand: Ids,
    shaped_lists: Ids,
    config: VectorConfig,
    observer: Observer,
) -> tuple[Head, Centroids]:
    state = draft.base
    stored = await blocks.contents(state, _POSTINGS, in_hand.tolist(), PostingBlock)
    rows = PostingBlock.merge(
        [PostingBlock(np.empty(0, np.int64), np.empty((0, 2 * state.dimensions), np.uint8)), *stored.values()]
    )
    lists = np.repeat(np.array(list(stored), np.int64), [len(content) for content in stored.values()])
    living = rows.kept(state.deleted)
    shaped = await offload(
        len(rows),
        config.threads,
        reshape,
        state.metric,
        state.centroids,
        in_hand,
        rows.take(living),
        lists[living],
        list_rows=config.list_rows,
        lists_max=config.lists_max,
        next_list=head.next_list,
        shaped=shaped_lists,
    )
    for number in in_hand.tolist():
        draft.replace(_POSTINGS, number, None)
    append_postings(draft, shaped.lists, shaped.rows)
    put_centroids(draft, shaped.centroids, shaped.changed)
    if shaped.split:
        observer.count(names.VECTOR_LISTS_RESHAPED, shaped.split, how="split")
    if shaped.dissolved:
        observer.count(names.VECTOR_LISTS_RESHAPED, shaped.dissolved, how="dissolved")
    return msgspec.structs.replace(head, next_list=shaped.next_list), shaped.centroids
