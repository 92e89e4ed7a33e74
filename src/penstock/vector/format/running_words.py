"""The words of a column of texts, one after the other. Splitting and sorting run on whole columns.

By the plain rule a word is a run of letters and digits, in Unicode's compatibility form (NFKC) and lower-cased; each
character of a script written without spaces is a word of its own. By the folded rule emoji and other symbols are words
too, words are folded before they are hashed, and beside them lie parts and compounds of identifiers and pairs of
characters that follow each other in a script without spaces: none of these makes a text longer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from penstock.vector.arrays import Bools, Column, Indices, Words, compute
from penstock.vector.format.folding import INVISIBLE, fold_words
from penstock.vector.format.identifiers import CANDIDATES, compounds, parts
from penstock.vector.format.languages import Language
from penstock.vector.format.stems import stem

__all__ = ["PARTS_APART", "RunningWords", "WordForms", "WordKind", "hash_words", "split_words"]

# The same among the characters of ASCII. A pattern is compiled in every call, and those of all scripts take milliseconds.
_BETWEEN_ASCII_WORDS: Final = r"[^a-z0-9]+"
_ASCII_WORD: Final = re.compile(r"[a-z0-9]+")
_BETWEEN_WORDS: Final = r"[^\p{L}\p{N}\p{M}]+"
# Symbols that people look for: emoji, pictographs, signs of currencies and of mathematics.
_SYMBOLS: Final = (
    r"\x{a2}-\x{a5}\x{20a0}-\x{20cf}\x{2190}-\x{22ff}\x{231a}\x{231b}\x{2328}\x{23cf}\x{23e9}-\x{23fa}\x{2600}-\x{27bf}"
    r"\x{2934}\x{2935}\x{2a00}-\x{2aff}\x{2b00}-\x{2bff}\x{3030}\x{303d}\x{1f000}-\x{1faff}"
)
_BETWEEN_FOLDED_WORDS: Final = rf"[^\p{{L}}\p{{N}}\p{{M}}{_SYMBOLS}]+"
# Scripts that put no spaces between words.
_UNSPACED: Final = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_UNSPACED_CHARACTER: Final = rf"([{_UNSPACED}])"
# A flag is two letters of its own kind; marks go with the character before them.
_FOLDED_UNIT: Final = rf"([\x{{1f1e6}}-\x{{1f1ff}}]{{2}}|[{_UNSPACED}]\p{{M}}*|[{_SYMBOLS}])"
_UNSPACED_UNIT: Final = rf"^[{_UNSPACED}]\p{{M}}*$"
# Endings follow Korean words without a space.
_HANGUL: Final = re.compile("[\uac00-\ud7a3]{3,}")
_HANGUL_WORD: Final = r"\p{Hangul}{3}"
# Texts of so many bytes in all are split sooner without Arrow.
_FEW_BYTES: Final = 8 << 10
# A longer run is not a word; its end is dropped, in texts and in queries alike.
_WORD_CHARACTERS_MAX: Final = 64
# Tokens whose further words are remembered, some 300 bytes each.
_KNOWN_TOKENS: Final = 1 << 15
# The seed of words as they are; stems have the number of their language.
_PLAIN: Final = 0
# What is added to a seed for parts of words: they say less than words do, and are asked for apart.
PARTS_APART: Final = 32


class WordKind(IntEnum):
    """What a word is: a word of the text, a part of one, or something that is found only as it is."""

    WORD = 0
    PART = 1
    EXACT = 2


def split_words(texts: Column) -> Column:
    """The words of each text by the plain rule."""
    if _is_ascii(texts):
        return compute.split_pattern_regex(compute.ascii_lower(texts), _BETWEEN_ASCII_WORDS)
    # An accent may be part of its letter or follow it, and a letter may be wide: they are written alike first.
    lowered = compute.utf8_lower(compute.utf8_normalize(texts, form="NFKC"))
    spaced = compute.replace_substring_regex(lowered, _UNSPACED_CHARACTER, r" \1 ")
    return compute.split_pattern_regex(spaced, _BETWEEN_WORDS)


def hash_words(words: Column) -> Words:
    """The hashes under which words lie that are written as they are looked up."""
    return _hashed(words.cast(pa.binary()).to_pylist(), _PLAIN)


def _hashed(words: Sequence[bytes], seed: int) -> Words:
    return np.fromiter(map(xxhash.xxh3_64_intdigest, words, repeat(seed)), np.uint64, len(words))


class WordForms(NamedTuple):
    """Words in one form: `hashes[places[k]]` lies in text `parents[k]`. Few hashes stand for many words."""

    hashes: Words
    places: Indices
    parents: Indices


@dataclass(frozen=True, slots=True)
class RunningWords:
    """The words of some texts: `distinct[codes[k]]` stands in text `parents[k]` and is of kind `kinds[k]`."""

    distinct: list[bytes]
    codes: Indices
    parents: Indices
    kinds: NDArray[np.uint8]
    texts: int
    folded: bool

    @classmethod
    def of(cls, texts: Column, *, folded: bool) -> RunningWords:
        if texts.nbytes <= _FEW_BYTES:
            listed = texts.to_pylist()
            if all(text is None or text.isascii() for text in listed):
                return _few_words(listed, folded=folded)
        return _folded_words(texts) if folded else _plain_words(texts)

    @property
    def own(self) -> Bools:
        """Which are the words of the texts themselves."""
        own: Bools = self.kinds == WordKind.WORD
        return own

    def plain(self, apart: int = 0) -> Words:
        """The hashes of the distinct words as they are."""
        return self._hashes(self.distinct, _PLAIN + apart)

    def stems(self, language: int, apart: int = 0) -> Words:
        """The hashes of the distinct words' stems. Those of two languages never meet: each has a seed of its own."""
        return self._hashes(stem(self.distinct, Language(language)), language + apart)

    def _hashes(self, words: list[bytes], seed: int) -> Words:
        # Folded only now: stemmers know words with their accents.
        return _hashed(fold_words(words) if self.folded else words, seed)

    def forms(self, words: Indices, spoken: Indices | None, apart: int = 0) -> list[WordForms]:
        """The hashes under which some of the words lie, and the text of each.

        The words themselves lie beside their stems in the language of their text, if languages are told: a passage that
        has the very word asked for is the better answer. Parts of words lie apart, in one form.
        """
        kinds = self.kinds[words]
        inside = words[kinds == WordKind.PART]
        found = [self._plain_of(words[kinds != WordKind.PART], apart)]
        if spoken is None:
            return [*found, self._plain_of(inside, PARTS_APART + apart)]
        found += self._stems_of(words[kinds == WordKind.WORD], spoken, apart)
        return [*found, *self._stems_of(inside, spoken, PARTS_APART + apart)]

    def _plain_of(self, words: Indices, apart: int) -> WordForms:
        used, places = self._used(self.codes[words])
        return WordForms(used.plain(apart), places, self.parents[words])

    def _stems_of(self, words: Indices, spoken: Indices, apart: int) -> Iterator[WordForms]:
        languages = spoken[self.parents[words]]
        for language in np.flatnonzero(np.bincount(languages)).tolist():
            mine = words[languages == language]
            used, places = self._used(self.codes[mine])
            yield WordForms(used.stems(language, apart), places, self.parents[mine])

    def _used(self, codes: Indices) -> tuple[RunningWords, Indices]:
        """Only the distinct words that some places have: one text of another language has few of all words."""
        there = np.zeros(len(self.distinct), np.bool_)
        there[codes] = True
        distinct = [self.distinct[place] for place in np.flatnonzero(there).tolist()]
        places: Indices = (np.cumsum(there) - 1)[codes]
        return RunningWords(distinct, places, codes, self.kinds[:0], self.texts, self.folded), places


def _few_words(texts: Sequence[str | None], *, folded: bool) -> RunningWords:
    """The words of a few characters of ASCII: Arrow's kernels would spend their time on being called."""
    places: dict[str, int] = {}
    codes, parents, kinds = [], [], []
    for parent, text in enumerate(texts):
        found = [(word, WordKind.WORD) for word in _ASCII_WORD.findall(text.lower())] if text else []
        if folded and text:
            found += [extra for token in text.split() for extra in _extras(token)]
        codes += [places.setdefault(word[:_WORD_CHARACTERS_MAX], len(places)) for word, _ in found]
        parents += [parent] * len(found)
        kinds += [kind for _, kind in found]
    distinct = [word.encode() for word in places]
    arrays = np.array(codes, np.int64), np.array(parents, np.int64), np.array(kinds, np.uint8)
    return RunningWords(distinct, *arrays, len(texts), folded)


def _plain_words(texts: Column) -> RunningWords:
    lists = split_words(texts)
    words = compute.utf8_slice_codeunits(lists.flatten(), 0, _WORD_CHARACTERS_MAX)
    parents = compute.list_parent_indices(lists).to_numpy()
    real = compute.not_equal(words, "").to_numpy(zero_copy_only=False)
    coded = words.filter(pa.array(real)).dictionary_encode()
    codes = coded.indices.to_numpy().astype(np.int64)
    distinct = coded.dictionary.cast(pa.binary()).to_pylist()
    return RunningWords(
        distinct, codes, parents[real].astype(np.int64), np.zeros(len(codes), np.uint8), len(texts), folded=False
    )


def _folded_words(texts: Column) -> RunningWords:
    """Texts are cut at blanks, and each of the different tokens is looked at once: most are in many places."""
    lists = compute.utf8_split_whitespace(texts)
    parents = compute.list_parent_indices(lists).to_numpy().astype(np.int64)
    coded = lists.flatten().dictionary_encode()
    found = _TokenWords.of(coded.dictionary)
    places, entries = found.spread(coded.indices.to_numpy().astype(np.int64))
    return RunningWords(
        found.distinct, found.codes[entries], parents[places], found.kinds[entries], len(texts), folded=True
    )


@dataclass(frozen=True, slots=True)
class _TokenWords:
    """The words of different tokens, by token: those of token `t` are entries `starts[t]` to `starts[t + 1]`."""

    distinct: list[bytes]
    codes: Indices
    kinds: NDArray[np.uint8]
    starts: Indices

    @classmethod
    def of(cls, tokens: Column) -> _TokenWords:
        pieces, owners = _pieces(tokens)
        found = [_words_of(pieces, owners), *_pairs(pieces, owners)]
        listed = [(owner, *extra) for owner, token in _candidates(pieces, owners) for extra in _extras(token)]
        found.append(_entries(listed))
        words = compute.utf8_slice_codeunits(
            pa.concat_arrays([words for words, _, _ in found]), 0, _WORD_CHARACTERS_MAX
        )
        owner = np.concatenate([owners for _, owners, _ in found])
        coded = words.dictionary_encode()
        order = np.argsort(owner, kind="stable")
        starts = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(tokens)))))
        kinds = np.concatenate([kinds for _, _, kinds in found])
        distinct = coded.dictionary.cast(pa.binary()).to_pylist()
        return cls(distinct, coded.indices.to_numpy().astype(np.int64)[order], kinds[order], starts)

    def spread(self, tokens: Indices) -> tuple[Indices, Indices]:
        """Which token each word of a run of tokens is in, and which entry it is."""
        counts = np.diff(self.starts)[tokens]
        places = np.repeat(np.arange(len(tokens)), counts)
        before = np.cumsum(counts) - counts
        return places, np.arange(len(places)) - before[places] + self.starts[:-1][tokens][places]


# Words in lower case, the token of each, and the kind of each.
_Entries = tuple[Column, Indices, NDArray[np.uint8]]


def _entries(listed: Sequence[tuple[int, str, WordKind]]) -> _Entries:
    owners, words, kinds = zip(*listed, strict=True) if listed else ((), (), ())
    return pa.array(words, pa.string()), np.array(owners, np.int64), np.array(kinds, np.uint8)


def _pieces(tokens: Column) -> tuple[Column, Indices]:
    """Tokens cut into what no blank needs to part: symbols, and characters of scripts without spaces."""
    ascii_only = compute.string_is_ascii(tokens).to_numpy(zero_copy_only=False)
    plain, other = np.flatnonzero(ascii_only), np.flatnonzero(~ascii_only)
    if not len(other):
        return tokens, plain
    written = compute.utf8_normalize(tokens.take(pa.array(other)), form="NFKC")
    spaced = compute.replace_substring_regex(
        compute.replace_substring_regex(written, INVISIBLE, ""), _FOLDED_UNIT, r" \1 "
    )
    lists = compute.utf8_split_whitespace(spaced)
    owners = other[compute.list_parent_indices(lists).to_numpy()]
    return pa.concat_arrays([tokens.take(pa.array(plain)), lists.flatten()]), np.concatenate([plain, owners])


def _words_of(pieces: Column, owners: Indices) -> _Entries:
    if _is_ascii(pieces):
        lists = compute.split_pattern_regex(compute.ascii_lower(pieces), _BETWEEN_ASCII_WORDS)
    else:
        lists = compute.split_pattern_regex(compute.utf8_lower(pieces), _BETWEEN_FOLDED_WORDS)
    words = lists.flatten()
    real = compute.not_equal(words, "").to_numpy(zero_copy_only=False)
    mine = owners[compute.list_parent_indices(lists).to_numpy()[real]]
    return words.filter(pa.array(real)), mine, np.zeros(len(mine), np.uint8)


def _pairs(pieces: Column, owners: Indices) -> Iterable[_Entries]:
    """Characters that follow each other in a script without spaces, and inside Korean words."""
    if _is_ascii(pieces):
        return
    units = compute.match_substring_regex(pieces, _UNSPACED_UNIT).to_numpy(zero_copy_only=False)
    firsts = np.flatnonzero(units[:-1] & units[1:] & (owners[:-1] == owners[1:]))
    joined = compute.binary_join_element_wise(pieces.take(pa.array(firsts)), pieces.take(pa.array(firsts + 1)), "")
    yield joined, owners[firsts], np.full(len(firsts), WordKind.EXACT, np.uint8)
    korean = np.flatnonzero(compute.match_substring_regex(pieces, _HANGUL_WORD).to_numpy(zero_copy_only=False))
    listed = zip(owners[korean].tolist(), pieces.take(pa.array(korean)).to_pylist(), strict=True)
    yield _entries(
        [
            (owner, word[place : place + 2], WordKind.EXACT)
            for owner, piece in listed
            for word in _HANGUL.findall(piece)
            for place in range(len(word) - 1)
        ]
    )


def _candidates(pieces: Column, owners: Indices) -> Iterable[tuple[int, str]]:
    """The pieces that may have words with signs or capitals inside."""
    found = np.flatnonzero(compute.match_substring_regex(pieces, CANDIDATES).to_numpy(zero_copy_only=False))
    return zip(owners[found].tolist(), pieces.take(pa.array(found)).to_pylist(), strict=True)


def _extras(token: str) -> Sequence[tuple[str, WordKind]]:
    """The words of a token beside its runs of letters and digits."""
    return _known_extras(token) if len(token) <= _WORD_CHARACTERS_MAX else _new_extras(token)


def _new_extras(token: str) -> Sequence[tuple[str, WordKind]]:
    return [(part, WordKind.PART) for part in parts(token)] + [(one, WordKind.EXACT) for one in compounds(token)]


# The same identifiers are all over the texts of a project.
_known_extras: Final = lru_cache(_KNOWN_TOKENS)(_new_extras)


def _is_ascii(texts: Column) -> bool:
    return bool(compute.all(compute.string_is_ascii(texts)).as_py())
