"""Words of texts, and the block that finds rows by a word.

A word is a run of letters and digits, in Unicode's compatibility form (NFKC) and lower-cased; each character of a
script written without spaces is a word of its own. A collection indexes words as they are, or their stems in the
language of each text beside them; and it may tell the lead of a text from the rest of it. Words are found by their
64-bit hash. Splitting, counting and sorting run on whole columns.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from penstock.blocks import BlockBody
from penstock.errors import Corrupt
from penstock.vector.arrays import Bools, Column, Counts, Cut, Ids, Indices, Words, compute
from penstock.vector.format.idset import IdSet
from penstock.vector.format.languages import Language, guess_languages, is_function_word
from penstock.vector.format.stems import stem

__all__ = [
    "QueryWord",
    "TermBlock",
    "TextAnalysis",
    "TextQuery",
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
_ASCII_WORD: Final = re.compile(r"[a-z0-9]+")
# Texts of so many bytes in all are split sooner without Arrow.
_FEW_BYTES: Final = 8 << 10
# Texts whose words are counted together: on the way a word takes a hundred bytes, and a text some twenty times its own.
_PART_BYTES: Final = 1 << 20
# Scripts that put no spaces between words.
_UNSPACED: Final = r"([\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}])"
# A longer run is not a word; its end is dropped, in texts and in queries alike.
_WORD_CHARACTERS_MAX: Final = 64
_COUNT_MAX: Final = 65_535
# The seed of words as they are; stems have the number of their language.
_PLAIN: Final = 0
# What is added to a seed for words that tell what the whole document is about: they are counted apart.
_ABOUT: Final = 64
# How often a word of a section counts: it stands for all that is below it. 3 to 5 are equally good on three sets of
# questions out of four (docs/decisions/0014-answers.md).
_SECTION_REPEATS: Final = 4
_LEAD_END: Final = "\n\n"
# A word that only holds a question together says little about what is asked.
_FUNCTION_WORD_WEIGHT: Final = 0.3


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
    """What of a text is indexed: its words as they are, or also their stems in the language it is taken for.

    With leads, what stands before the first empty line of a text is its lead. The words of its first line, the section,
    count several times; those of its other lines tell what the whole document is about, and are a text of their own.
    """

    WORDS = "words"
    STEMS = "stems"
    LEADS = "leads"


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
        if texts.nbytes <= _FEW_BYTES:
            listed = texts.to_pylist()
            if all(text is None or text.isascii() for text in listed):
                return cls._of_few(listed)
        lists = split_words(texts)
        words = compute.utf8_slice_codeunits(lists.flatten(), 0, _WORD_CHARACTERS_MAX)
        parents = compute.list_parent_indices(lists).to_numpy()
        real = compute.not_equal(words, "").to_numpy(zero_copy_only=False)
        coded = words.filter(pa.array(real)).dictionary_encode()
        codes = coded.indices.to_numpy().astype(np.int64)
        return cls(coded.dictionary.cast(pa.binary()).to_pylist(), codes, parents[real].astype(np.int64), len(texts))

    @classmethod
    def _of_few(cls, texts: Sequence[str | None]) -> _Running:
        """The same of a few characters of ASCII: Arrow's kernels would spend their time on being called."""
        places: dict[str, int] = {}
        codes, parents = [], []
        for parent, text in enumerate(texts):
            words = _ASCII_WORD.findall(text.lower()) if text else ()
            codes += [places.setdefault(word[:_WORD_CHARACTERS_MAX], len(places)) for word in words]
            parents += [parent] * len(words)
        distinct = [word.encode() for word in places]
        return cls(distinct, np.array(codes, np.int64), np.array(parents, np.int64), len(texts))

    def counted(
        self, hashes: Words, parents: Indices, measured: Indices, languages: frozenset[int] = frozenset()
    ) -> Vocabulary:
        """Each hash of each text once, with how often it is there; `measured` has the text of each word that counts."""
        lengths = np.bincount(measured, minlength=self.texts).astype(np.uint32)
        order = np.lexsort((parents, hashes))
        hashes, parents = hashes[order], parents[order]
        fresh = np.ones(len(hashes), np.bool_)
        fresh[1:] = (hashes[1:] != hashes[:-1]) | (parents[1:] != parents[:-1])
        starts = np.flatnonzero(fresh)
        counts = np.minimum(np.diff(np.append(starts, len(hashes))), _COUNT_MAX).astype(np.uint16)
        return Vocabulary(hashes[starts], parents[starts], counts, lengths, languages)

    def plain(self, apart: int = 0) -> Words:
        """The hashes of the distinct words as they are."""
        return _hashed(self.distinct, _PLAIN + apart)

    def hashes(self, language: int, apart: int = 0) -> Words:
        """The hashes of the distinct words' stems. Those of two languages never meet: each has a seed of its own."""
        return _hashed(stem(self.distinct, Language(language)), language + apart)

    def both(self, words: Indices, spoken: Indices, apart: int = 0) -> Words:
        """The hashes of some of the words, as stems in the language of the text of each, and then as they are.

        The words themselves lie beside their stems: a passage that has the very word asked for is the better answer.
        """
        codes = self.codes[words]
        stems = np.empty(len(words), np.uint64)
        for language in sorted(_spoken(spoken)):
            mine = spoken == language
            used = self._used(codes[mine])
            stems[mine] = used.hashes(language, apart)[used.codes]
        used = self._used(codes)
        return np.concatenate([stems, used.plain(apart)[used.codes]])

    def _used(self, codes: Indices) -> _Running:
        """Only the distinct words that some places have: one text of another language has few of all words."""
        there = np.zeros(len(self.distinct), np.bool_)
        there[codes] = True
        places = np.flatnonzero(there)
        distinct = [self.distinct[place] for place in places.tolist()]
        return _Running(distinct, (np.cumsum(there) - 1)[codes], codes, self.texts)


def count_words(texts: Column, analysis: TextAnalysis) -> Vocabulary:
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


def _count(texts: Column, analysis: TextAnalysis) -> Vocabulary:
    if analysis is TextAnalysis.LEADS:
        return _count_led(texts)
    running = _Running.of(texts)
    if analysis is TextAnalysis.WORDS:
        return running.counted(running.plain()[running.codes], running.parents, running.parents)
    spoken = guess_languages(running.distinct, running.codes, running.parents, len(texts))
    words = np.arange(len(running.codes))
    hashes = running.both(words, spoken[running.parents])
    return running.counted(hashes, np.tile(running.parents, 2), running.parents, _languages(spoken, running.parents))


def _count_led(texts: Column) -> Vocabulary:
    """Count the words of texts with leads, those that tell what a document is about under hashes of their own."""
    count = len(texts)
    parts = list(zip(*map(_parts, texts.to_pylist()), strict=True)) or [(), (), ()]
    column: Column = pa.array([text for part in parts for text in part], pa.string())
    running = _Running.of(column)
    part, parents = np.divmod(running.parents, max(count, 1))
    running = replace(running, parents=parents, texts=count)
    spoken = guess_languages(running.distinct, running.codes, parents, count)
    body = np.repeat(np.arange(len(part)), np.array([1, _SECTION_REPEATS, 0])[part])
    about = np.flatnonzero(part == 2)
    hashes = [running.both(words, spoken[parents[words]], apart) for words, apart in ((body, 0), (about, _ABOUT))]
    owners = np.concatenate([np.tile(parents[body], 2), np.tile(parents[about], 2)])
    return running.counted(np.concatenate(hashes), owners, parents[body], _languages(spoken, parents))


def _parts(text: str | None) -> tuple[str | None, str, str]:
    """A text without its lead, the section in its lead, and what the lead tells of the whole document."""
    lead, end, own = (text or "").partition(_LEAD_END)
    if not end:
        return text, "", ""
    section, _, about = lead.partition("\n")
    return own, section, about


def _languages(spoken: Indices, parents: Indices) -> frozenset[int]:
    """The languages of those texts that have words."""
    return _spoken(spoken[parents])


def _spoken(languages: Indices) -> frozenset[int]:
    """Each language once. Their numbers are small: counting them is sooner done than sorting."""
    return frozenset(np.flatnonzero(np.bincount(languages)).tolist())


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


def query_words(texts: Column, analysis: TextAnalysis, languages: frozenset[int]) -> list[TextQuery]:
    """The words of each query: too short to guess a language from, they are asked in all that a collection has."""
    running = _Running.of(texts)
    plain = analysis is TextAnalysis.WORDS
    weights = [
        _FUNCTION_WORD_WEIGHT if not plain and is_function_word(word, languages) else 1.0 for word in running.distinct
    ]
    words = _asked(running, weights, frozenset() if plain else languages, 0)
    if analysis is not TextAnalysis.LEADS:
        return [TextQuery(each) for each in words]
    return [TextQuery(*each) for each in zip(words, _asked(running, weights, languages, _ABOUT), strict=True)]


def _asked(
    running: _Running, weights: list[float], languages: frozenset[int], apart: int
) -> list[tuple[QueryWord, ...]]:
    """The words of each query and their stems, under hashes apart or not."""
    forms = [running.plain(apart)[:, None]]
    if languages:
        forms.append(np.stack([running.hashes(language, apart) for language in sorted(languages)], axis=1))
    asked: list[defaultdict[tuple[int, ...], float]] = [defaultdict(float) for _ in range(running.texts)]
    for code, parent in zip(running.codes.tolist(), running.parents.tolist(), strict=True):
        for form in forms:
            # Words of one stem are one.
            asked[parent][tuple(form[code].tolist())] += weights[code]
    return [tuple(QueryWord(hashes, weight) for hashes, weight in words.items()) for words in asked]


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
