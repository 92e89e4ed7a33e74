"""The nearest rows of many queries: lists are probed and scanned, and the best candidates ranked exactly.

With all lists probed the answer is exact: candidates are fetched until the codes' own error cannot hide a
better row. Lists are read into the cache in the form in which they are scanned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import faiss
import numpy as np

from penstock.blocks import BlockReader, Damage, Shelf
from penstock.vector.arrays import Array, Floats, Ids, distinct
from penstock.vector.config import VectorConfig
from penstock.vector.format.clusters import NO_LIST
from penstock.vector.format.codes import uncertainty
from penstock.vector.format.content import PostingBlock
from penstock.vector.format.idset import IdSet
from penstock.vector.format.keys import Family
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.format.state import CollectionState
from penstock.vector.offload import kernel_threads, offload
from penstock.vector.read.select import Selection
from penstock.vector.read.vectors import VectorRows, exact_scores, find_comparable
from penstock.vector.search.calibration import ProbePlan
from penstock.vector.search.fusion import best_places
from penstock.vector.search.scan import NONE, Candidates, PostingList, Stack, scan_lists

__all__ = ["POSTINGS", "SPARE", "NearestRows", "is_short_scan"]

POSTINGS: Final = Shelf(Family.POSTINGS)
# Candidates beyond those asked for, for exact ranking to choose from: codes rarely confuse more than a few.
SPARE: Final = 2
# How fast a search that is not done fetches more candidates, or looks into more lists.
_WIDENING: Final = 4
# Queries scanned in one call.
_QUERIES_AT_ONCE: Final = 1024
# Candidates held at once, of all queries together: about fifty megabytes.
_CANDIDATES_MAX: Final = 4_000_000
# Components compared before a scan is worth a thread of its own: about two milliseconds.
_OFFLOAD_COMPONENTS: Final = 20_000_000
# Lists that one query is scanned through one by one: for more of them a stack costs less.
_SINGLY_SCANNED: Final = 64
# Rows that a filter may leave for all of them to be compared: so many cost one query less than looking into the lists
# that they are spread over, which at one row in a hundred are a hundred times as many lists. Reading one costs about as much as comparing it with sixty queries. No more memory than this
# is spent on it.
_FEW_ROWS: Final = 16_384
_FEW_ROWS_PER_QUERY: Final = 64
_FEW_BYTES_MAX: Final = 32 << 20
# Pairs of queries and rows that are compared one by one: two milliseconds. More are a product of matrices, off the loop.
_PAIRS_ONE_BY_ONE: Final = 1 << 15


class NearestRows:
    """Finds nearest rows. Belongs to one store, and is used from its event loop only."""

    def __init__(self, config: VectorConfig) -> None:
        self._config = config

    async def find(
        self,
        blocks: BlockReader,
        state: CollectionState,
        queries: Floats,
        count: int,
        plan: ProbePlan,
        selection: Selection | None,
        damage: Damage,
        *,
        rerank: bool,
    ) -> Candidates:
        """The best `count` rows of each prepared query among selected ones, or all visible ones."""
        if not len(state.centroids) or not len(queries):
            return _nothing(len(queries), count)
        if selection is not None and _is_few(state, selection.rows, len(queries)):
            few = await _few_rows(blocks, state, selection, damage)
            if few is not None:
                return await _among(state, queries, count, few, self._config.threads)
        selected = None if selection is None else selection.ids
        if selected is None and not state.all_visible:
            selected = state.visible
        parts = []
        for first in range(0, len(queries), _QUERIES_AT_ONCE):
            chunk = queries[first : first + _QUERIES_AT_ONCE]
            if plan.probes >= len(state.centroids):
                parts.append(await self._exactly(blocks, state, chunk, count, selected, damage))
                continue
            wanted = count + SPARE if rerank else count
            found = await self._filled(blocks, state, chunk, wanted, plan, selected, damage, count)
            if rerank:
                found = await _rank(blocks, state, chunk, found, damage)
            parts.append(Candidates(found.scores[:, :count], found.ids[:, :count]))
        return _joined(parts)

    async def _filled(
        self,
        blocks: BlockReader,
        state: CollectionState,
        queries: Floats,
        wanted: int,
        plan: ProbePlan,
        selected: IdSet | None,
        damage: Damage,
        count: int,
    ) -> Candidates:
        """Candidates; a query that finds fewer rows than asked for looks into more lists."""
        found = await self._scan(blocks, state, queries, wanted, plan, selected, damage)
        short, probes = np.flatnonzero(found.ids[:, count - 1] == NONE), plan.probes
        while len(short) and probes < len(state.centroids):
            probes = min(probes * _WIDENING, len(state.centroids))
            more = await self._scan(blocks, state, queries[short], wanted, ProbePlan(probes), selected, damage)
            found.ids[short], found.scores[short] = more.ids, more.scores
            short = short[more.ids[:, count - 1] == NONE]
        return found

    async def _exactly(
        self,
        blocks: BlockReader,
        state: CollectionState,
        queries: Floats,
        count: int,
        selected: IdSet | None,
        damage: Damage,
    ) -> Candidates:
        rows = max(1, int(state.list_rows.sum()))
        best = _nothing(len(queries), count)
        open_queries, everything = np.arange(len(queries)), ProbePlan(len(state.centroids))
        wanted = min(count + SPARE, rows)
        while len(open_queries):
            doubted = []
            # Rows that codes cannot tell apart are fetched by the thousand: not for all queries at once.
            for first in range(0, len(open_queries), max(1, _CANDIDATES_MAX // wanted)):
                part = open_queries[first : first + max(1, _CANDIDATES_MAX // wanted)]
                asked = queries[part]
                found = await self._scan(blocks, state, asked, wanted, everything, selected, damage)
                ranked = await _rank(blocks, state, asked, found, damage)
                width = min(count, ranked.ids.shape[1])
                best.scores[part, :width], best.ids[part, :width] = ranked.scores[:, :width], ranked.ids[:, :width]
                doubted.append(part[_doubtful(state, asked, found, ranked, count) & (wanted < rows)])
            open_queries = np.concatenate(doubted)
            wanted = min(wanted * _WIDENING, rows)
        return best

    # scanning -------------------------------------------------------------------------------------

    async def _scan(
        self,
        blocks: BlockReader,
        state: CollectionState,
        queries: Floats,
        count: int,
        plan: ProbePlan,
        selected: IdSet | None,
        damage: Damage,
    ) -> Candidates:
        kernel_threads(self._config.threads)
        lists = state.centroids.probe(state.metric, queries, plan.probes, plan.reach)
        if len(queries) == 1 and lists.size <= _SINGLY_SCANNED:
            held = blocks.held(state, POSTINGS, lists[0].tolist(), PostingList)
            if held is not None and is_short_scan(held, state.dimensions):
                blocks.cache.count(len(held), 0)
                return scan_lists(state.metric, queries, held, count, selected)
        numbers = distinct(lists)
        waves = self._waves(blocks, state, numbers[numbers != NO_LIST])
        if len(waves) == 1:
            stack = Stack(state.dimensions, state.metric, await self._read(blocks, state, waves[0].tolist(), damage))
            return await self._run(state, stack, queries, lists, count, selected)
        best = _nothing(len(queries), count)
        for wave in waves:
            read = await self._read(blocks, state, wave.tolist(), damage)
            stack = Stack(state.dimensions, state.metric, read)
            best = best.merged(await self._run(state, stack, queries, lists, count, selected))
        return best

    async def _run(
        self, state: CollectionState, stack: Stack, queries: Floats, lists: Ids, count: int, selected: IdSet | None
    ) -> Candidates:
        if not stack.lists:
            return _nothing(len(queries), count)
        mean_rows = stack.rows / len(stack.lists)
        components = int((lists != NO_LIST).sum()) * mean_rows * state.dimensions
        arguments = (np.ascontiguousarray(queries), lists, count, selected, self._config.threads)
        if components < _OFFLOAD_COMPONENTS:
            return stack.search(*arguments)
        return await asyncio.to_thread(stack.search, *arguments)

    async def _read(
        self, blocks: BlockReader, state: CollectionState, numbers: list[int], damage: Damage
    ) -> dict[int, PostingList]:
        return await blocks.built(state, POSTINGS, numbers, PostingBlock, PostingList, PostingList, damage)

    def _waves(self, blocks: BlockReader, state: CollectionState, numbers: Ids) -> list[Ids]:
        """Lists in groups of which each fits into half of the cache."""
        places = np.searchsorted(state.centroids.lists, numbers)
        sizes = state.list_rows[places] * (2 * state.dimensions + 8)
        wave = np.cumsum(sizes) // max(1, blocks.cache.max_bytes // 2)
        return np.split(numbers, np.flatnonzero(np.diff(wave)) + 1)


def is_short_scan(lists: Sequence[PostingList], dimensions: int) -> bool:
    """Whether one query is done with these lists before a thread would have begun."""
    rows = sum([each.rows for each in lists])
    return len(lists) <= _SINGLY_SCANNED and rows * dimensions < _OFFLOAD_COMPONENTS


def _is_few(state: CollectionState, rows: int, queries: int) -> bool:
    """Whether so few rows are selected that comparing each query with each of them is the shortest way."""
    if state.metric is DistanceMetric.L2 and rows * queries > _PAIRS_ONE_BY_ONE:
        # The product of matrices that this is made of rounds more than distances between near rows can bear.
        return False
    return rows <= min(_FEW_BYTES_MAX // (4 * state.dimensions), max(_FEW_ROWS, _FEW_ROWS_PER_QUERY * queries))


async def _few_rows(
    blocks: BlockReader, state: CollectionState, selection: Selection, damage: Damage
) -> VectorRows | None:
    """The selected rows that have a vector, kept for the next search; None if it may be that one cannot be read."""
    name = None if selection.name is None else (VectorRows, selection.name)
    entry = None if name is None else blocks.cache.get(name, VectorRows)
    if entry is not None and entry.block is not None:
        return entry.block
    ids = selection.ids.ids()
    there, vectors = await find_comparable(blocks, state, ids, damage)
    if len(there) < len(ids) and damage:
        return None
    found = VectorRows(there, vectors)
    if name is not None:
        blocks.cache.put(name, found)
    return found


async def _among(state: CollectionState, queries: Floats, count: int, few: VectorRows, threads: int) -> Candidates:
    """The best of a few rows, exactly."""
    best = _nothing(len(queries), count)
    width = min(count, len(few))
    if not width:
        return best
    if len(queries) * len(few) <= _PAIRS_ONE_BY_ONE:
        for place in range(len(queries)):
            scores = few.scores(state.metric, queries[place : place + 1])
            chosen = best_places(scores, width)
            best.scores[place, :width], best.ids[place, :width] = scores[chosen], few.ids[chosen]
        return best
    kind = faiss.METRIC_INNER_PRODUCT
    scores, places = await offload(len(queries), threads, faiss.knn, queries, few.vectors, width, metric=kind)
    found = _ordered(scores, few.ids[places])
    best.scores[:, :width], best.ids[:, :width] = found.scores, found.ids
    return best


def _doubtful(state: CollectionState, queries: Floats, found: Candidates, ranked: Candidates, count: int) -> Array:
    """Queries for which a row that was not fetched might still be better than the last one found."""
    norms = np.linalg.norm(queries, axis=1)
    more = found.ids[:, -1] != NONE
    edge = np.where(more, found.scores[:, -1], np.float32(0))
    highest_unseen = edge + uncertainty(state.metric, norms, state.head.norm_max, edge)
    last = ranked.scores[:, min(count, ranked.scores.shape[1]) - 1]
    doubtful: Array = more & (highest_unseen >= last)
    return doubtful


async def _rank(
    blocks: BlockReader, state: CollectionState, queries: Floats, found: Candidates, damage: Damage
) -> Candidates:
    """Candidates by their exact scores. One whose vector cannot be read keeps the score of its code."""
    ranks = await exact_scores(blocks, state, queries, found.ids, damage)
    unknown = np.isnan(ranks)
    if unknown.any():
        ranks[unknown] = found.scores[unknown]
        ranks[found.ids == NONE] = -np.inf
    return _ordered(ranks, found.ids)


def _ordered(scores: Floats, ids: Ids) -> Candidates:
    """Best first; of equals the older row."""
    order = np.lexsort((ids, -scores), axis=1)
    if len(scores) == 1:
        return Candidates(scores[:, order[0]], ids[:, order[0]])
    line = np.arange(len(scores))[:, None]
    return Candidates(scores[line, order], ids[line, order])


def _joined(parts: list[Candidates]) -> Candidates:
    if len(parts) == 1:
        return parts[0]
    return Candidates(np.concatenate([part.scores for part in parts]), np.concatenate([part.ids for part in parts]))


def _nothing(queries: int, count: int) -> Candidates:
    return Candidates(np.full((queries, count), -np.inf, np.float32), np.full((queries, count), NONE, np.int64))
