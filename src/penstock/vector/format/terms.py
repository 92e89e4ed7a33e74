"""Words of texts counted, words of queries, and the block that finds rows by a word.

A collection indexes words as they are, or their stems in the language of each text beside them; and it may tell the
lead of a text from the rest of it. Words are found by their 64-bit hash. Counting and sorting run on whole columns.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.blocks import BlockBody
from penstock.errors import Corrupt
from penstock.vector.arrays import Bools, Column, Counts, Cut, Ids, Indices, Words
from penstock.vector.format.analysis import StoredAnalysis, TextAnalysis
from penstock.vector.format.idset import IdSet
from penstock.vector.format.languages import guess_languages, is_function_word
from penstock.vector.format.running_words import PARTS_APART, RunningWords, WordForms, WordKind

__all__ = ["QueryWord", "TermBlock", "TextQuery", "Vocabulary", "count_words", "query_words"]

_SHAPE: Final = struct.Struct("<QQQ")
# Texts whose words are counted together: on the way a word takes a hundred bytes, and a text some twenty times its own.
_PART_BYTES: Final = 1 << 20
_COUNT_MAX: Final = 65_535
# What is added to a seed for words that tell what the whole document is about: they are counted apart.
_ABOUT: Final = 64
# How often a word of a section counts: it stands for all that is below it. 3 to 5 are equally good on three sets of
# questions out of four (docs/decisions/0014-answers.md).
_SECTION_REPEATS: Final = 4
_LEAD_END: Final = "\n\n"
# A word that only holds a question together says little about what is asked.
_FUNCTION_WORD_WEIGHT: Final = 0.3
# A part of a word, such as `value` in `ValueError`, is a weaker hint than the word: enough to be found by it.
_PART_WEIGHT: Final = 0.1


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words of some texts counted: one row a text and word, by word and then by text."""

    hashes: Words
    texts: Indices
    counts: Counts
    # Words of each text, repeats included.
    lengths: NDArray[np.uint32]
    # Languages whose stems are among the hashes.
    languages: frozenset[int] = frozenset()


def count_words(texts: Column, analysis: StoredAnalysis) -> Vocabulary:
    """Count the words of each text; texts may be missing. Many are counted a part at a time, which takes less memory."""
    rows = max(1, len(texts) * _PART_BYTES // max(1, texts.nbytes))
    if rows >= len(texts):
        return _count(texts, analysis)
    return _joined([_count(texts.slice(start, rows), analysis) for start in range(0, len(texts), rows)])


def _joined(parts: Sequence[Vocabulary]) -> Vocabulary:
    """The words of consecutive texts that were counted apart."""
    starts = np.cumsum([0, *(len(part.lengths) for part in parts)])
    hashes = np.concatenate([part.hashes for part in parts])
    texts = np.concatenate([part.texts + start for part, start in zip(parts, starts, strict=False)])
    # The texts of each word follow each other already, part after part: a stable sort leaves them so.
    order = np.argsort(hashes, kind="stable")
    return Vocabulary(
        hashes[order],
        texts[order],
        np.concatenate([part.counts for part in parts])[order],
        np.concatenate([part.lengths for part in parts]),
        frozenset().union(*(part.languages for part in parts)),
    )


def _counted(
    forms: Sequence[WordForms], measured: Indices, texts: int, languages: frozenset[int] = frozenset()
) -> Vocabulary:
    """Each hash of each text once, with how often it is there; `measured` has the text of each word that counts."""
    lengths = np.bincount(measured, minlength=texts).astype(np.uint32)
    hashes, ranks = np.unique(np.concatenate([form.hashes for form in forms]), return_inverse=True)
    starts = np.cumsum([0, *(len(form.hashes) for form in forms)])
    # Word and text in one number: sorting numbers takes a fraction of the time of sorting by two columns.
    found = np.concatenate(
        [
            ranks[start : start + len(form.hashes)][form.places] * texts + form.parents
            for form, start in zip(forms, starts.tolist(), strict=False)
        ]
    )
    found.sort()
    fresh = np.ones(len(found), np.bool_)
    fresh[1:] = found[1:] != found[:-1]
    firsts = np.flatnonzero(fresh)
    counts = np.minimum(np.diff(np.append(firsts, len(found))), _COUNT_MAX).astype(np.uint16)
    words, parents = np.divmod(found[firsts], max(texts, 1))
    return Vocabulary(hashes[words], parents, counts, lengths, languages)


def _count(texts: Column, analysis: StoredAnalysis) -> Vocabulary:
    if analysis.analysis is TextAnalysis.LEADS:
        return _count_led(texts, folded=analysis.folds)
    running = RunningWords.of(texts, folded=analysis.folds)
    measured = running.parents[running.own]
    words = np.arange(len(running.codes))
    if analysis.analysis is TextAnalysis.WORDS:
        return _counted(running.forms(words, None), measured, len(texts))
    spoken = _spoken_in(running)
    return _counted(running.forms(words, spoken), measured, len(texts), _languages(spoken, measured))


def _count_led(texts: Column, *, folded: bool) -> Vocabulary:
    """Count the words of texts with leads, those that tell what a document is about under hashes of their own."""
    count = len(texts)
    parts = list(zip(*map(_parts, texts.to_pylist()), strict=True)) or [(), (), ()]
    column: Column = pa.array([text for part in parts for text in part], pa.string())
    running = RunningWords.of(column, folded=folded)
    part, parents = np.divmod(running.parents, max(count, 1))
    running = replace(running, parents=parents, texts=count)
    spoken = _spoken_in(running)
    body = np.repeat(np.arange(len(part)), np.array([1, _SECTION_REPEATS, 0])[part])
    about = np.flatnonzero(part == 2)
    forms = [*running.forms(body, spoken), *running.forms(about, spoken, _ABOUT)]
    measured = parents[body][running.own[body]]
    languages = _languages(spoken, parents[running.own])
    return _counted(forms, measured, count, languages)


def _spoken_in(running: RunningWords) -> Indices:
    """The language of each text, guessed from its own words."""
    own = running.own
    return guess_languages(running.distinct, running.codes[own], running.parents[own], running.texts)


def _parts(text: str | None) -> tuple[str | None, str, str]:
    """A text without its lead, the section in its lead, and what the lead tells of the whole document."""
    lead, end, own = (text or "").partition(_LEAD_END)
    if not end:
        return text, "", ""
    section, _, about = lead.partition("\n")
    return own, section, about


def _languages(spoken: Indices, parents: Indices) -> frozenset[int]:
    """The languages of those texts that have words. Their numbers are small: counting is sooner done than sorting."""
    return frozenset(np.flatnonzero(np.bincount(spoken[parents])).tolist())


@dataclass(frozen=True, slots=True)
class QueryWord:
    """A word of a query, or its stem: its hashes, one for each language it is asked in, and how much it counts."""

    hashes: tuple[int, ...]
    weight: float


@dataclass(frozen=True, slots=True)
class TextQuery:
    """What is asked of the texts, and of what their documents are about."""

    words: tuple[QueryWord, ...]
    about: tuple[QueryWord, ...] = ()


def query_words(texts: Column, analysis: StoredAnalysis, languages: frozenset[int]) -> list[TextQuery]:
    """The words of each query: too short to guess a language from, they are asked in all that a collection has."""
    running = RunningWords.of(texts, folded=analysis.folds)
    plain = analysis.analysis is TextAnalysis.WORDS
    weights = [
        _FUNCTION_WORD_WEIGHT if not plain and is_function_word(word, languages) else 1.0 for word in running.distinct
    ]
    words = _asked(running, weights, frozenset() if plain else languages, 0)
    if analysis.analysis is not TextAnalysis.LEADS:
        return [TextQuery(each) for each in words]
    return [TextQuery(*each) for each in zip(words, _asked(running, weights, languages, _ABOUT), strict=True)]


def _asked(
    running: RunningWords, weights: list[float], languages: frozenset[int], apart: int
) -> list[tuple[QueryWord, ...]]:
    """The words of each query and their stems, under hashes apart or not."""
    forms = _query_forms(running, languages, apart)
    asked: list[defaultdict[tuple[int, ...], float]] = [defaultdict(float) for _ in range(running.texts)]
    for code, parent, kind in zip(
        running.codes.tolist(), running.parents.tolist(), running.kinds.tolist(), strict=True
    ):
        for form, weight in forms[kind]:
            # Words of one stem are one.
            asked[parent][tuple(form[code].tolist())] += weight * weights[code]
    return [tuple(QueryWord(hashes, weight) for hashes, weight in words.items()) for words in asked]


def _query_forms(running: RunningWords, languages: frozenset[int], apart: int) -> dict[int, list[tuple[Words, float]]]:
    """By kind, the hashes of the distinct words in each form that is asked for, and how much the form counts."""
    plain = running.plain(apart)[:, None]
    forms, inside = [plain], running.plain(apart + PARTS_APART)[:, None]
    if languages:
        spoken = sorted(languages)
        forms.append(np.stack([running.stems(language, apart) for language in spoken], axis=1))
        inside = np.stack([running.stems(language, apart + PARTS_APART) for language in spoken], axis=1)
    within = [(inside, _PART_WEIGHT)] if running.folded else []
    return {
        WordKind.WORD: [(form, 1.0) for form in forms] + within,
        WordKind.PART: [(form, _PART_WEIGHT) for form in forms] + within,
        WordKind.EXACT: [(plain, 1.0)],
    }


@dataclass(frozen=True, slots=True)
class TermBlock:
    """Rows by word: u64 words, u64 rows, u64 base; hashes, ends, ids as steps from the base, counts."""

    words: Words
    ends: Indices
    ids: Ids
    counts: Counts

    @property
    def keys(self) -> Words:
        """What decides on a row's bucket: the hash of its word, once a row."""
        return np.repeat(self.words, np.diff(self.ends, prepend=0))

    @property
    def size_bytes(self) -> int:
        return int(self.words.nbytes + self.ends.nbytes + self.ids.nbytes + self.counts.nbytes)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Cut) -> TermBlock:
        if isinstance(rows, slice):
            return self._between(*rows.indices(len(self))[:2])
        return TermBlock.of(self.keys[rows], self.ids[rows], self.counts[rows])

    def _between(self, start: int, stop: int) -> TermBlock:
        first = int(np.searchsorted(self.ends, start, side="right"))
        words = slice(first, int(np.searchsorted(self.ends, stop)) + 1 if start < stop else first)
        ends = np.minimum(self.ends[words], stop) - start
        return TermBlock(self.words[words], ends, self.ids[start:stop], self.counts[start:stop])

    def find(self, word: int) -> tuple[Ids, Counts]:
        """The rows that have a word, and how often."""
        place = int(np.searchsorted(self.words, np.uint64(word)))
        if place == len(self.words) or int(self.words[place]) != word:
            return self.ids[:0], self.counts[:0]
        start = int(self.ends[place - 1]) if place else 0
        return self.ids[start : self.ends[place]], self.counts[start : self.ends[place]]

    def kept(self, dead: IdSet) -> Bools:
        return ~dead.contains(self.ids)

    def encode(self) -> BlockBody:
        base = int(self.ids.min()) if len(self.ids) else 0
        # Inside a word ids grow, so steps are small numbers, which compress well.
        steps = np.diff(self.ids - base, prepend=0)
        starts = self.ends[:-1]
        steps[starts] = self.ids[starts] - base
        shape = _SHAPE.pack(len(self.words), len(self.ids), base)
        columns = self.words.astype("<u8"), self.ends.astype("<u4"), steps.astype("<u4"), self.counts.astype("<u2")
        return BlockBody((shape, *columns), compress=True)

    @classmethod
    def decode(cls, body: memoryview) -> TermBlock:
        if len(body) < _SHAPE.size:
            raise Corrupt("a term block is cut short", f"it has {len(body)} bytes")
        words, rows, base = _SHAPE.unpack_from(body)
        if len(body) != _SHAPE.size + 12 * words + 6 * rows:
            raise Corrupt("a term block's length does not match", f"{words} words, {rows} rows, {len(body)} bytes")
        ends = np.frombuffer(body, "<u4", words, _SHAPE.size + 8 * words).astype(np.int64)
        steps = np.frombuffer(body, "<u4", rows, _SHAPE.size + 12 * words).astype(np.int64)
        counts = np.frombuffer(body, "<u2", rows, _SHAPE.size + 12 * words + 4 * rows)
        ids = _running(steps, ends) + base
        return cls(np.frombuffer(body, "<u8", words, _SHAPE.size), ends, ids, counts)

    @classmethod
    def of(cls, keys: Words, ids: Ids, counts: Counts) -> TermBlock:
        """A block of rows ordered by word and then by id."""
        fresh = np.ones(len(keys), np.bool_)
        fresh[1:] = keys[1:] != keys[:-1]
        starts = np.flatnonzero(fresh)
        return cls(keys[starts], np.append(starts[1:], len(keys)).astype(np.int64)[: len(starts)], ids, counts)

    @classmethod
    def merge(cls, parts: Sequence[TermBlock]) -> TermBlock:
        if len(parts) == 1:
            return parts[0]
        keys = np.concatenate([part.keys for part in parts])
        ids = np.concatenate([part.ids for part in parts])
        order = np.lexsort((ids, keys))
        return cls.of(keys[order], ids[order], np.concatenate([part.counts for part in parts])[order])


def _running(steps: Ids, ends: Indices) -> Ids:
    """Sums of steps, begun anew after each end."""
    sums = np.cumsum(steps)
    before = np.concatenate(([0], sums[ends[:-1] - 1])) if len(ends) else np.empty(0, np.int64)
    sums -= np.repeat(before, np.diff(ends, prepend=0))
    return sums
