"""Full-text ranking: Okapi BM25 over the visible texts of a collection, exact at every moment.

Counts are those of rows that a search can find, dead and hidden ones excluded; a filter narrows what is
returned and not what is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.vector.arrays import Array, Column, Counts, Ids
from penstock.vector.blocks import BlockReader, Damage
from penstock.vector.content import ColumnBlock
from penstock.vector.fusion import Ranking, best_places
from penstock.vector.idset import IdSet
from penstock.vector.keys import Family, Shelf
from penstock.vector.lookup import find_column
from penstock.vector.state import LENGTHS, CollectionState
from penstock.vector.terms import QueryWord, TermBlock, query_words

__all__ = ["rank_texts"]

_TERMS: Final = Shelf(Family.TERMS)
# How fast repeats of a word stop counting, and how much long texts are held back. 1.2 is usual for the first; passages
# of documentation are found better with 2 (benchmarks/search_quality.py).
_SATURATION: Final = 2.0
_LENGTH_SHARE: Final = 0.75


async def rank_texts(
    blocks: BlockReader,
    state: CollectionState,
    texts: Column,
    count: int,
    selected: IdSet | None,
    damage: Damage,
) -> list[Ranking]:
    """The best rows for each query text."""
    queries = query_words(texts, state.analysis, state.languages)
    hashes = {form for words in queries for word in words for form in word.hashes}
    found = await _postings(blocks, state, np.array(sorted(hashes), np.uint64), damage)
    lengths = _Lengths(blocks, state, damage)
    return [await _rank(state, words, found, lengths, count, selected) for words in queries]


async def _postings(
    blocks: BlockReader, state: CollectionState, words: Array, damage: Damage
) -> dict[int, tuple[Ids, Counts]]:
    """Visible rows of each word."""
    directory = state.directory(_TERMS)
    if not len(directory):
        return {}
    lows = directory.lows[directory.owners(words)].tolist()
    stored = await blocks.contents(state, _TERMS, sorted(set(lows)), TermBlock, damage)
    found = {}
    for word, low in zip(words.tolist(), lows, strict=True):
        if low in stored:
            ids, counts = stored[low].find(word)
            shown = state.visible.contains(ids)
            found[word] = (ids[shown], counts[shown])
    return found


async def _rank(
    state: CollectionState,
    asked: Sequence[QueryWord],
    found: dict[int, tuple[Ids, Counts]],
    lengths: _Lengths,
    count: int,
    selected: IdSet | None,
) -> Ranking:
    parts = [part for word in asked for part in _parts(word, found)]
    if not any(len(ids) for ids, *_ in parts):
        return Ranking.none()
    rows, inverse = np.unique(np.concatenate([ids for ids, *_ in parts]), return_inverse=True)
    average = max(state.head.words / max(state.head.texts, 1), 1.0)
    norms = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * (await lengths.of(rows)) / average)
    total = np.zeros(len(rows), np.float64)
    start = 0
    for ids, counts, holding, repeats in parts:
        places = inverse[start : start + len(ids)]
        start += len(ids)
        rarity = np.log1p((state.head.texts - holding + 0.5) / (holding + 0.5))
        total[places] += repeats * rarity * counts * (_SATURATION + 1) / (counts + norms[places])
    if selected is not None:
        kept = selected.contains(rows)
        rows, total = rows[kept], total[kept]
    best = best_places(total, count)
    return Ranking(rows[best], total[best].astype(np.float32))


def _parts(word: QueryWord, found: dict[int, tuple[Ids, Counts]]) -> list[tuple[Ids, Counts, int, int]]:
    """The rows of a word in each of its forms, how many hold it in any, and how often it was said.

    A text is of one language, so that no row is counted twice. A common word must not pass for a rare one because
    the few texts of some other language have it too.
    """
    forms = [found[form] for form in word.hashes if form in found]
    holding = sum(len(ids) for ids, _ in forms)
    return [(ids, counts, holding, word.repeats) for ids, counts in forms]


class _Lengths:
    """Words of texts by row, read once for all queries of a search."""

    def __init__(self, blocks: BlockReader, state: CollectionState, damage: Damage) -> None:
        self._blocks = blocks
        self._state = state
        self._damage = damage
        self._table: Array | None = None

    async def of(self, rows: Ids) -> Array:
        # A few rows are looked up; many are cheaper from a table of all.
        directory = self._state.directory(LENGTHS)
        if self._table is None and len(rows) * 4 < self._state.head.next_id:
            column = await find_column(self._blocks, self._state, LENGTHS, rows, pa.uint32(), self._damage)
            found: Array = column.fill_null(0).to_numpy()
            return found
        if self._table is None:
            lows = directory.lows.tolist()
            stored = await self._blocks.contents(self._state, LENGTHS, lows, ColumnBlock, self._damage)
            self._table = np.zeros(self._state.head.next_id, np.uint32)
            for content in stored.values():
                self._table[content.ids] = content.values.to_numpy()
        lengths: Array = self._table[rows]
        return lengths
