"""Words: what counts as one, and rows found by them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Corrupt
from penstock.vector.format.analysis import StoredAnalysis
from penstock.vector.format.idset import IdSet
from penstock.vector.format.keys import Family
from penstock.vector.format.languages import Language
from penstock.vector.format.running_words import hash_words, split_words
from penstock.vector.format.stems import stem
from penstock.vector.format.store_format import FORMAT
from penstock.vector.format.terms import (
    QueryWord,
    TermBlock,
    TextQuery,
    count_words,
    query_words,
)

WORDS, STEMS = StoredAnalysis.PLAIN_WORDS, StoredAnalysis.PLAIN_STEMS
STEMMED = (Language.ENGLISH, Language.GERMAN, Language.FRENCH, Language.RUSSIAN, Language.TURKISH)
ENGLISH = frozenset({int(Language.ENGLISH)})
_ENTRIES = st.dictionaries(st.tuples(st.integers(0, 6), st.integers(0, 40)), st.integers(1, 9), max_size=30)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The quick, BROWN fox!", ["the", "quick", "brown", "fox"]),
        ("naïve Ärger", ["naïve", "ärger"]),
        ("nai\u0308ve A\u0308rger", ["naïve", "ärger"]),
        ("ＡＢＣ２０２４ ﬁne ｶﾞ", ["abc2024", "fine", "ガ"]),
        ("水道橋 bridge", ["水", "道", "橋", "bridge"]),
        ("snake_case e-mail 3.14", ["snake", "case", "e", "mail", "3", "14"]),
        ("", []),
        (" ...\n", []),
    ],
)
def test_words_are_runs_of_letters_and_digits_lower_cased(text: str, words: list[str]) -> None:
    (found,) = split_words(pa.array([text])).to_pylist()
    assert [word for word in found if word] == words


def test_words_are_counted_by_text_and_missing_texts_have_none() -> None:
    found = count_words(pa.array(["a b a", None, "b"]), WORDS)
    assert found.lengths.tolist() == [3, 0, 1]
    hashes = dict(zip(("a", "b"), hash_words(pa.array(["a", "b"])).tolist(), strict=True))
    counted = Counter(
        {(h, t): c for h, t, c in zip(found.hashes.tolist(), found.texts.tolist(), found.counts.tolist(), strict=True)}
    )
    assert counted == {(hashes["a"], 0): 2, (hashes["b"], 0): 1, (hashes["b"], 2): 1}


def test_an_endless_word_is_the_same_word_in_text_and_query() -> None:
    text, query = count_words(pa.array(["x" * 500]), WORDS), count_words(pa.array(["x" * 90]), WORDS)
    assert text.hashes.tolist() == query.hashes.tolist()


def stemmed(queries: list[str], languages: frozenset[int] = ENGLISH) -> list[tuple[QueryWord, ...]]:
    return [query.words for query in query_words(pa.array(queries), STEMS, languages)]


def common(query: str, text: str) -> int:
    """How many words of a query a text has, as stems."""
    found = count_words(pa.array([text]), STEMS)
    found_hashes = set(found.hashes.tolist())
    (asked,) = stemmed([query], found.languages)
    stems = [word for word in asked if word.hashes[0] not in set(hash_words(pa.array(query.lower().split())).tolist())]
    return sum(not found_hashes.isdisjoint(word.hashes) for word in stems)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("compress files", "The file is compressed by the compressor."),
        ("Häuser Verbindungen", "Das Haus hat eine Verbindung und ist nicht auf dem Berg."),
        ("fichiers compressés", "Le fichier est compressé dans une archive pour les utilisateurs."),
        ("configuraciones", "La configuración de los servidores es una parte del sistema."),
        ("файлы", "Это файл, и он не для всех, как и другие файлов."),
    ],
)
def test_a_query_finds_other_forms_of_its_words_in_the_language_of_the_text(query: str, text: str) -> None:
    assert common(query, text) == len(query.split())


def test_stems_of_one_language_are_not_taken_for_words_of_another() -> None:
    """Spanish cuts `notes` to `not`, which half of all English texts have."""
    english = count_words(pa.array(["This is not for the faint of heart."]), STEMS)
    spanish = count_words(pa.array(["El notes de la casa es una palabra que no está en los libros."]), STEMS)
    assert english.languages.isdisjoint(spanish.languages)
    assert not set(english.hashes.tolist()) & set(spanish.hashes.tolist())


def test_texts_of_several_languages_in_one_column_are_each_stemmed_in_their_own() -> None:
    texts = ["The houses of the town are old.", "Die Häuser der Stadt sind nicht neu und alt.", None, "x1 y2"]
    together = count_words(pa.array(texts), STEMS)
    assert together.languages == {Language.ENGLISH, Language.GERMAN}
    for place, text in enumerate(texts):
        alone = count_words(pa.array([text], pa.string()), STEMS)
        assert sorted(together.hashes[together.texts == place].tolist()) == sorted(alone.hashes.tolist())


def test_a_collection_without_texts_is_asked_nothing() -> None:
    assert query_words(pa.array([""]), STEMS, frozenset()) == [TextQuery(())]


def test_words_of_one_stem_are_one_stem_said_several_times() -> None:
    first, second = stemmed(["compress compressing files", "file"])
    assert sorted(word.weight for word in first) == [1, 1, 1, 1, 2]
    assert {word.hashes for word in second} & {word.hashes for word in first} == {second[1].hashes}


def test_the_very_word_counts_beside_its_stem() -> None:
    found = set(count_words(pa.array(["the compressed file"]), STEMS).hashes.tolist())
    (near,), (exact,) = (
        [sum(not found.isdisjoint(word.hashes) for word in words)] for words in stemmed(["compressing", "compressed"])
    )
    assert (near, exact) == (1, 2)


def test_words_that_only_hold_a_question_together_count_little() -> None:
    (asked,) = stemmed(["how do the files compress"])
    assert sorted(word.weight for word in asked) == [0.3] * 6 + [1.0] * 4
    (plain,) = query_words(pa.array(["how do the files"]), WORDS, frozenset())
    assert {word.weight for word in plain.words} == {1.0}


def test_what_a_document_is_about_lies_under_hashes_of_its_own() -> None:
    counted = count_words(pa.array(["Ports\nA harbour\n\nThe ships"]), StoredAnalysis.PLAIN_LEADS)
    found = dict(zip(counted.hashes.tolist(), counted.counts.tolist(), strict=True))
    assert found == {
        **{xxhash.xxh3_64_intdigest(word, 0): count for word, count in ((b"ports", 4), (b"the", 1), (b"ships", 1))},
        **{xxhash.xxh3_64_intdigest(word, 1): count for word, count in ((b"port", 4), (b"the", 1), (b"ship", 1))},
        **{xxhash.xxh3_64_intdigest(word, seed): 1 for word in (b"a", b"harbour") for seed in (64, 65)},
    }
    # Four times the section, and the text; what it is about makes no text longer.
    assert counted.lengths.tolist() == [6]


@pytest.mark.parametrize("text", ["| a | b | no |\n| a | c | do |", "socket.connect()\n\nsocket.op()", ""])
def test_tables_and_code_with_the_odd_short_word_are_not_taken_for_another_language(text: str) -> None:
    assert count_words(pa.array([f"{text} x1"]), STEMS).languages == {Language.ENGLISH}


def test_the_stored_form_of_stems_has_not_changed() -> None:
    """Hashes of stems lie in stores: another release of the stemmer, or another number, would lose their rows."""
    words = ["connection", "Verbindungen", "continuellement", "соединения", "bağlantıları"]
    stems = [stem([word.lower().encode()], language)[0].decode() for word, language in zip(words, STEMMED, strict=True)]
    assert stems == ["connect", "verbind", "continuel", "соединен", "bağlantı"]
    assert count_words(pa.array(["the connections"]), STEMS).hashes.tolist() == sorted(
        xxhash.xxh3_64_intdigest(word, seed)
        for word, seed in ((b"the", 1), (b"connect", 1), (b"the", 0), (b"connections", 0))
    )


@given(_ENTRIES)
def test_rows_are_found_by_word_after_encoding_merging_and_cutting(entries: dict[tuple[int, int], int]) -> None:
    ordered = sorted(entries)
    block = TermBlock.of(
        np.array([word for word, _ in ordered], np.uint64),
        np.array([row + 1000 for _, row in ordered], np.int64),
        np.array([entries[key] for key in ordered], np.uint16),
    )
    young = block.take(block.ids % 2 == 0)
    old = block.take(block.ids % 2 == 1)
    merged = FORMAT.decode(Family.TERMS, FORMAT.encode(Family.TERMS, TermBlock.merge([old, young])), TermBlock)
    for word in range(7):
        ids, counts = merged.find(word)
        expected = {row + 1000: count for (found, row), count in entries.items() if found == word}
        assert dict(zip(ids.tolist(), counts.tolist(), strict=True)) == expected
    assert merged.keys.tolist() == [word for word, _ in ordered]


def test_dead_rows_are_left_out() -> None:
    block = TermBlock.of(np.array([1, 1, 2], np.uint64), np.array([3, 4, 3]), np.ones(3, np.uint16))
    kept = block.take(block.kept(IdSet.of(np.array([3]), 5)))
    assert kept.find(1)[0].tolist() == [4]
    assert kept.find(2)[0].tolist() == []


def test_a_block_whose_length_does_not_hold_is_corrupt() -> None:
    for body in (b"", b"\x01" * 24, b"\x00" * 30):
        with pytest.raises(Corrupt):
            FORMAT.decode(Family.TERMS, FORMAT.envelope.seal(7, body), TermBlock)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), unique=True).map(sorted),
    st.integers(0, 12),
    st.integers(0, 12),
)
def test_a_slice_of_rows_is_what_their_positions_would_take(
    entries: list[tuple[int, int]], start: int, stop: int
) -> None:
    words, ids = np.array(entries, np.int64).reshape(-1, 2).T
    block = TermBlock.of(words.astype(np.uint64), ids, np.arange(len(ids), dtype=np.uint16))
    cut, taken = block.take(slice(start, stop)), block.take(np.arange(len(ids))[start:stop])
    for column in ("words", "ends", "ids", "counts"):
        assert getattr(cut, column).tolist() == getattr(taken, column).tolist()
