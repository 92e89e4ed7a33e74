"""Full-text ranking: Okapi BM25 over the visible texts of a collection, exact at every moment.

Where leads count, what is asked is also looked for in what the document of each text is about. Those few words are a
text of their own: how rare a word is among them decides, and not how often passages mention it.
Counts are those of rows that a search can find, dead and hidden ones excluded; a filter narrows what is
returned and not what is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.blocks import BlockReader, Damage, Shelf
from penstock.vector.arrays import Array, Column, Counts, Ids
from penstock.vector.format.content import ColumnBlock
from penstock.vector.format.idset import IdSet
from penstock.vector.format.keys import Family
from penstock.vector.format.state import LENGTHS, CollectionState
from penstock.vector.format.terms import QueryWord, TermBlock, TextQuery, query_words
from penstock.vector.read.lookup import find_column
from penstock.vector.search.fusion import Ranking, best_places

__all__ = ["rank_texts"]

_TERMS: Final = Shelf(Family.TERMS)
# How fast repeats of a word stop counting, and how much long texts are held back. 1.2 is usual for the first; passages
# of documentation are found better with 2 (benchmarks/search_quality.py).
_SATURATION: Final = 2.0
_LENGTH_SHARE: Final = 0.75
# What a document is about is some forty words, each there once or twice: repeats say little, and lengths nothing.
_ABOUT_SATURATION: Final = 1.2
# How much it counts beside the text itself. 0.3 to 0.7 are equally good.
_ABOUT_SHARE: Final = 0.5


async def rank_texts(
    blocks: BlockReader,
    state: CollectionState,
    texts: Column,
    count: int,
    selected: IdSet | None,
    damage: Damage,
) -> list[Ranking]:
    """The best rows for each query text."""
    queries = query_words(texts, state.stored_analysis, state.languages)
    hashes = {form for query in queries for word in (*query.words, *query.about) for form in word.hashes}
    found = await _postings(blocks, state, np.array(sorted(hashes), np.uint64), damage)
    lengths = _Lengths(blocks, state, damage)
    return [await _rank(state, query, found, lengths, count, selected) for query in queries]


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
    query: TextQuery,
    found: dict[int, tuple[Ids, Counts]],
    lengths: _Lengths,
    count: int,
    selected: IdSet | None,
) -> Ranking:
    parts = [part for word in query.words for part in _parts(word, found, about=False)]
    parts += [part for word in query.about for part in _parts(word, found, about=True)]
    if not any(len(part.ids) for part in parts):
        return Ranking.none()
    rows, inverse = np.unique(np.concatenate([part.ids for part in parts]), return_inverse=True)
    average = max(state.head.words / max(state.head.texts, 1), 1.0)
    norms = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * (await lengths.of(rows)) / average)
    total = np.zeros(len(rows), np.float64)
    start = 0
    for part in parts:
        places = inverse[start : start + len(part.ids)]
        start += len(part.ids)
        rarity = np.log1p((state.head.texts - part.holding + 0.5) / (part.holding + 0.5))
        total[places] += part.weight * rarity * part.share_of_counts(norms[places])
    if selected is not None:
        kept = selected.contains(rows)
        rows, total = rows[kept], total[kept]
    best = best_places(total, count)
    return Ranking(rows[best], total[best].astype(np.float32))


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of a word in one of its forms, how many hold it in any, and how much it counts."""

    ids: Ids
    counts: Counts
    holding: int
    weight: float
    # Whether the word stands in what the documents of these rows are about.
    about: bool

    def share_of_counts(self, norms: Array) -> Array:
        """How much a word counts in each row for how often it is there; `norms` are those of the rows' texts."""
        if self.about:
            return self.counts * (_ABOUT_SATURATION + 1) / (self.counts + _ABOUT_SATURATION)
        return self.counts * (_SATURATION + 1) / (self.counts + norms)


def _parts(word: QueryWord, found: dict[int, tuple[Ids, Counts]], *, about: bool) -> list[_Part]:
    """The rows of a word, form by form.

    A text is of one language, so that no row is counted twice. A common word must not pass for a rare one because
    the few texts of some other language have it too.
    """
    forms = [found[form] for form in word.hashes if form in found]
    holding = sum(len(ids) for ids, _ in forms)
    weight = word.weight * (_ABOUT_SHARE if about else 1)
    return [_Part(ids, counts, holding, weight, about) for ids, counts in forms]


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
