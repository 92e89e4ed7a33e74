"""Words of texts, and the block that finds rows by a word.

A word is a run of letters and digits, in Unicode's compatibility form (NFKC) and lower-cased; each character of a
script written without spaces is a word of its own. A collection indexes words as they are, or their stems in the
language of each text beside them. Words are found by their 64-bit hash. Splitting, counting and sorting run on whole columns.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from penstock.errors import Corrupt
from penstock.vector.arrays import Bools, Column, Counts, Cut, Ids, Indices, Words, compute
from penstock.vector.block import seal, unseal
from penstock.vector.idset import IdSet
from penstock.vector.languages import Language, guess_languages
from penstock.vector.stems import stem

__all__ = [
    "QueryWord",
    "TermBlock",
    "TextAnalysis",
    "Vocabulary",
    "count_words",
    "hash_words",
    "query_words",
    "split_words",
]

_SHAPE: Final = struct.Struct("<QQQ")
_BETWEEN_WORDS: Final = r"[^\p{L}\p{N}\p{M}]+"
# The same among the characters of ASCII. A pattern is compiled in every call, and those of all scripts take milliseconds.
_BETWEEN_ASCII_WORDS: Final = r"[^a-z0-9]+"
# Scripts that put no spaces between words.
_UNSPACED: Final = r"([\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}])"
# A longer run is not a word; its end is dropped, in texts and in queries alike.
_WORD_CHARACTERS_MAX: Final = 64
_COUNT_MAX: Final = 65_535
# The seed of words as they are; stems have the number of their language.
_PLAIN: Final = 0


def split_words(texts: Column) -> Column:
    """The words of each text."""
    if compute.all(compute.string_is_ascii(texts)).as_py():
        return compute.split_pattern_regex(compute.ascii_lower(texts), _BETWEEN_ASCII_WORDS)
    # An accent may be part of its letter or follow it, and a letter may be wide: they are written alike first.
    lowered = compute.utf8_lower(compute.utf8_normalize(texts, form="NFKC"))
    spaced = compute.replace_substring_regex(lowered, _UNSPACED, r" \1 ")
    return compute.split_pattern_regex(spaced, _BETWEEN_WORDS)


def hash_words(words: Column) -> Words:
    return _hashed(words.cast(pa.binary()).to_pylist(), _PLAIN)


def _hashed(words: Sequence[bytes], seed: int) -> Words:
    return np.fromiter((xxhash.xxh3_64_intdigest(word, seed) for word in words), np.uint64, len(words))


class TextAnalysis(StrEnum):
    """What of a text is indexed: its words as they are, or also their stems in the language it is taken for."""

    WORDS = "words"
    STEMS = "stems"


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


@dataclass(frozen=True, slots=True)
class _Running:
    """The words of some texts one after the other: `distinct[codes[k]]` stands in text `parents[k]`."""

    distinct: list[bytes]
    codes: Indices
    parents: Indices
    texts: int

    @classmethod
    def of(cls, texts: Column) -> _Running:
        lists = split_words(texts)
        words = compute.utf8_slice_codeunits(lists.flatten(), 0, _WORD_CHARACTERS_MAX)
        parents = compute.list_parent_indices(lists).to_numpy()
        real = compute.not_equal(words, "").to_numpy(zero_copy_only=False)
        coded = words.filter(pa.array(real)).dictionary_encode()
        codes = coded.indices.to_numpy().astype(np.int64)
        return cls(coded.dictionary.cast(pa.binary()).to_pylist(), codes, parents[real].astype(np.int64), len(texts))

    def counted(self, hashes: Words, parents: Indices, languages: frozenset[int] = frozenset()) -> Vocabulary:
        """Each hash of each text once, with how often it is there."""
        lengths = np.bincount(self.parents, minlength=self.texts).astype(np.uint32)
        order = np.lexsort((parents, hashes))
        hashes, parents = hashes[order], parents[order]
        fresh = np.ones(len(hashes), np.bool_)
        fresh[1:] = (hashes[1:] != hashes[:-1]) | (parents[1:] != parents[:-1])
        starts = np.flatnonzero(fresh)
        counts = np.minimum(np.diff(np.append(starts, len(hashes))), _COUNT_MAX).astype(np.uint16)
        return Vocabulary(hashes[starts], parents[starts], counts, lengths, languages)

    def plain(self) -> Words:
        """The hashes of the distinct words as they are."""
        return _hashed(self.distinct, _PLAIN)

    def hashes(self, language: int) -> Words:
        """The hashes of the distinct words' stems. Those of two languages never meet: each has a seed of its own."""
        return _hashed(stem(self.distinct, Language(language)), language)


def count_words(texts: Column, analysis: TextAnalysis) -> Vocabulary:
    """Count the words of each text; texts may be missing."""
    running = _Running.of(texts)
    if analysis is TextAnalysis.WORDS:
        return running.counted(running.plain()[running.codes], running.parents)
    guessed = guess_languages(running.distinct, running.codes, running.parents, len(texts))
    spoken = guessed[running.parents]
    hashes = np.empty(len(running.codes), np.uint64)
    present = frozenset(np.unique(spoken).tolist())
    for language in present:
        mine = spoken == language
        hashes[mine] = running.hashes(language)[running.codes[mine]]
    # The words themselves lie beside their stems: a passage that has the very word asked for is the better answer.
    both = np.concatenate([hashes, running.plain()[running.codes]])
    return running.counted(both, np.tile(running.parents, 2), present)


@dataclass(frozen=True, slots=True)
class QueryWord:
    """A word of a query, or its stem: its hashes, one for each language it is asked in, and how often it was said."""

    hashes: tuple[int, ...]
    repeats: int


def query_words(texts: Column, analysis: TextAnalysis, languages: frozenset[int]) -> list[list[QueryWord]]:
    """The words of each query: too short to guess a language from, they are asked in all that a collection has."""
    running = _Running.of(texts)
    words = [(plain,) for plain in running.plain().tolist()]
    stems: list[tuple[int, ...]] = []
    if analysis is TextAnalysis.STEMS and languages:
        stems = list(zip(*(running.hashes(language).tolist() for language in sorted(languages)), strict=True))
    asked: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(len(texts))]
    for code, parent in zip(running.codes.tolist(), running.parents.tolist(), strict=True):
        asked[parent][words[code]] += 1
        if stems:
            # Words of one stem are one.
            asked[parent][stems[code]] += 1
    return [[QueryWord(hashes, repeats) for hashes, repeats in words.items()] for words in asked]


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

    def encode(self, kind: int) -> bytes:
        base = int(self.ids.min()) if len(self.ids) else 0
        # Inside a word ids grow, so steps are small numbers, which compress well.
        steps = np.diff(self.ids - base, prepend=0)
        starts = self.ends[:-1]
        steps[starts] = self.ids[starts] - base
        return seal(
            kind,
            _SHAPE.pack(len(self.words), len(self.ids), base),
            self.words.astype("<u8"),
            self.ends.astype("<u4"),
            steps.astype("<u4"),
            self.counts.astype("<u2"),
            compress=True,
        )

    @classmethod
    def decode(cls, kind: int, value: bytes) -> TermBlock:
        body = unseal(kind, value)
        if len(body) < _SHAPE.size:
            raise Corrupt("a term block is cut short", f"it has {len(body)} bytes")
        words, rows, base = _SHAPE.unpack_from(body)
        if len(body) != _SHAPE.size + 12 * words + 6 * rows:
            raise Corrupt("a term block's length does not hold", f"{words} words, {rows} rows, {len(body)} bytes")
        ends = np.frombuffer(body, "<u4", words, _SHAPE.size + 8 * words).astype(np.int64)
        steps = np.frombuffer(body, "<u4", rows, _SHAPE.size + 12 * words).astype(np.int64)
        counts = np.frombuffer(body, "<u2", rows, _SHAPE.size + 12 * words + 4 * rows)
        ids = _running(steps, ends) + base
        return cls(np.frombuffer(body, "<u8", words, _SHAPE.size), ends, ids, counts)

    @classmethod
    def of(cls, keys: Words, ids: Ids, counts: Counts) -> TermBlock:
        """A block of rows ordered by word and then by id."""
        words, starts = np.unique(keys, return_index=True)
        return cls(words, np.append(starts[1:], len(keys)).astype(np.int64)[: len(words)], ids, counts)

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
