import random
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaigns import examples

from penstock.documents.chunker import START, Chunker, ChunkingConfig, Progress
from penstock.documents.sources import BlockSource, BytesSource
from penstock.documents.tokens import token_counter
from penstock.errors import InvalidInput

SMALL: dict[str, Any] = {"target_tokens": 40, "max_tokens": 64, "overlap_tokens": 8, "cell_bytes": 1024}
COUNTERS = ("cl100k", "estimate")
CHUNKERS = {name: Chunker(ChunkingConfig(**SMALL, counter=name)) for name in COUNTERS}


@st.composite
def documents(draw, languages):
    """Text of several languages with the separators, and the lack of separators, that documents have."""
    source = random.Random(draw(st.integers(0, 2**32)))
    names = source.sample(sorted(languages), k=3)
    separators = source.choice([["\n\n", "\n", " "], ["\r\n\r\n", "\r\n", " "], ["\n", ""], [" "], [""]])
    pieces = [languages[source.choice(names)] + source.choice(separators) for _ in range(draw(st.integers(1, 60)))]
    return "".join(pieces).encode()


def assert_sound(data, chunks, chunker):
    config, count = chunker.config, token_counter(chunker.config.counter).count
    assert [c.seq for c in chunks] == list(range(len(chunks)))
    assert [c.core_start for c in chunks] == [0, *(c.end for c in chunks[:-1])] if data else not chunks
    assert not data or chunks[-1].end == len(data)
    for chunk in chunks:
        assert chunk.start <= chunk.core_start < chunk.end
        assert chunk.text.encode() == data[chunk.start : chunk.end]
        assert chunk.tokens == count(chunk.text) <= config.max_tokens
        assert not (data[: chunk.start].endswith(b"\r") and chunk.text.startswith("\n"))
        assert chunk.start == 0 or unicodedata.combining(chunk.text[0]) == 0


@pytest.mark.parametrize("counter", COUNTERS)
def test_every_language_is_covered_without_a_gap_a_broken_character_or_a_chunk_too_large(languages, counter):
    assert len(languages) >= 50
    for text in languages.values():
        data = (text + " ").encode() * 12
        assert_sound(data, CHUNKERS[counter].chunk(data), CHUNKERS[counter])


@pytest.mark.parametrize("counter", COUNTERS)
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_chunks_do_not_depend_on_read_sizes_order_or_restarts(languages, counter, data):
    text = data.draw(documents(languages))
    chunker = CHUNKERS[counter]
    expected = chunker.chunk(text)
    assert_sound(text, expected, chunker)

    blocks = BlockSource(BytesSource(text), block_bytes=data.draw(st.integers(1, 5000)), blocks_kept=2)
    assert list(chunker.document(blocks)) == expected

    cells = list(range(chunker.cell_count(len(text))))
    data.draw(st.randoms(use_true_random=False)).shuffle(cells)
    alone = {cell: chunker.cell(BytesSource(text), cell).chunks for cell in cells}
    assert [c.text for cell in sorted(alone) for c in alone[cell]] == [c.text for c in expected]

    at = data.draw(st.integers(0, len(expected) - 1))
    resumed = Progress(next_seq=at, next_byte_start=expected[at].core_start)
    assert list(chunker.document(BytesSource(text), resumed)) == expected[at:]


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=3000), st.sampled_from(COUNTERS))
def test_any_bytes_at_all_are_chunked_and_bad_ones_become_one_question_mark_each(data, counter):
    chunker = CHUNKERS[counter]
    chunks = chunker.chunk(data)
    rebuilt = b"".join(c.text.encode()[c.core_start - c.start :] for c in chunks)
    assert len(rebuilt) == len(data)
    changed = [i for i in range(len(data)) if rebuilt[i] != data[i]]
    assert all(rebuilt[i : i + 1] == b"?" for i in changed)
    assert sum(cell.replaced_bytes for cell in chunker.cells(BytesSource(data))) == len(changed)
    assert_sound(rebuilt, chunks, chunker)


def test_valid_text_is_never_changed(languages):
    for text in languages.values():
        assert all(cell.replaced_bytes == 0 for cell in CHUNKERS["cl100k"].cells(BytesSource(text.encode() * 30)))


def test_resuming_at_the_end_gives_nothing():
    data = b"some words. " * 300
    chunks = CHUNKERS["cl100k"].chunk(data)
    assert list(CHUNKERS["cl100k"].document(BytesSource(data), Progress(len(chunks), len(data)))) == []


def test_an_empty_document_has_no_chunks():
    assert CHUNKERS["cl100k"].chunk(b"") == []
    assert list(CHUNKERS["cl100k"].cells(BytesSource(b""), START)) == []


def test_a_short_document_is_one_chunk():
    (chunk,) = Chunker().chunk("Only this: a naïve line.".encode())
    assert (chunk.seq, chunk.start, chunk.core_start, chunk.text) == (0, 0, 0, "Only this: a naïve line.")


def test_chunks_are_near_their_target_and_overlap_the_one_before():
    rng = random.Random(5)
    data = " ".join(rng.choice(["cats", "dream", "of", "fish.", "and", "windows"]) for _ in range(60_000)).encode()
    chunks = Chunker().chunk(data)
    tokens = sorted(c.tokens for c in chunks)
    assert 700 <= tokens[len(tokens) // 2] <= 800
    assert tokens[-1] <= 1200
    overlaps = [token_counter("cl100k").count(c.text[: c.core_start - c.start]) for c in chunks[1:]]
    assert all(50 <= overlap <= 101 for overlap in overlaps)


def test_without_overlap_the_chunks_are_the_text():
    chunker = Chunker(ChunkingConfig(target_tokens=40, max_tokens=64, overlap_tokens=0, cell_bytes=1024))
    data = "Katzen schlafen. Fische träumen.\n".encode() * 200
    assert "".join(c.text for c in chunker.chunk(data)).encode() == data


@pytest.mark.cases(quick=12)
@pytest.mark.parametrize("character", ["a", "猫", "\u0301", "a" + "\u0301" * 90, " ", "\n", ".", "👋🏽", "9"])
@pytest.mark.parametrize("counter", COUNTERS)
def test_a_line_without_an_end_still_obeys_the_limits(character, counter):
    data = (character * 20_000).encode()[:30_000]
    data = data.decode("utf-8", "ignore").encode()
    chunker = CHUNKERS[counter]
    chunks = chunker.chunk(data)
    assert chunks[-1].end == len(data)
    assert all(c.tokens <= chunker.config.max_tokens for c in chunks)


class EndlessLine:
    """Two gigabytes of one word, made where they are read; remembers the most that was asked for at once."""

    size = 2 << 30

    def __init__(self) -> None:
        self.read_bytes_max = 0

    def read(self, start: int, end: int) -> bytes:
        self.read_bytes_max = max(self.read_bytes_max, end - start)
        return b"x" * (end - start)


def test_a_line_of_two_gigabytes_is_read_in_pieces_from_any_place():
    """Only some cells are chunked here: each costs the same, and no cell reads more than two."""
    line = EndlessLine()
    chunker = Chunker(ChunkingConfig(counter="estimate"))
    cells = [chunker.cell(line, cell) for cell in (0, 1000, 1001, chunker.cell_count(line.size) - 1)]
    assert cells[1].end == cells[2].start
    assert cells[-1].end == line.size
    assert line.read_bytes_max < 3 << 20
    resumed = chunker.document(line, Progress(7, cells[1].start))
    assert next(resumed).core_start == cells[1].start


def test_an_insertion_in_the_middle_changes_few_chunks():
    rng = random.Random(9)
    words = ["cat", "window", "fish", "dream", "market", "old", "tomorrow", "river"]
    data = "\n\n".join(" ".join(rng.choices(words, k=60)) + "." for _ in range(12_000)).encode()
    middle = data.index(b" ", len(data) // 2)
    edited = data[:middle] + b" inserted words without end" * 200 + data[middle:]
    chunker = Chunker()
    before, after = ({c.text for c in chunker.chunk(version)} for version in (data, edited))
    assert len(before & after) >= 0.97 * len(before)


def test_the_chunks_of_a_known_text_stay_what_they_are(languages):
    """A change of these numbers changes stored chunks: raise anchors.RULE, and tell that a reindex is due."""
    text = "\n\n".join(languages[name] * 3 for name in sorted(languages)).encode()
    ends = {name: [c.end for c in CHUNKERS[name].chunk(text)] for name in COUNTERS}
    assert {name: (len(found), found[3::40]) for name, found in ends.items()} == GOLDEN


GOLDEN: dict[str, tuple[int, list[int]]] = {
    "cl100k": (364, [438, 2178, 5142, 8167, 10698, 13483, 15723, 18873, 21834, 24370]),
    "estimate": (362, [438, 2178, 5172, 8374, 10698, 13555, 15875, 19007, 21879]),
}


def test_the_fingerprint_changes_with_everything_that_changes_chunks():
    made = {
        ChunkingConfig(**{**SMALL, **change}).fingerprint
        for change in (
            {},
            {"target_tokens": 41},
            {"max_tokens": 65},
            {"overlap_tokens": 9},
            {"counter": "estimate"},
            {"cell_bytes": 2048},
        )
    }
    assert len(made) == 6


@pytest.mark.parametrize(
    "wrong",
    [{"overlap_tokens": 40}, {"overlap_tokens": -1}, {"max_tokens": 47}, {"target_tokens": 10}, {"cell_bytes": 10}],
)
def test_a_configuration_that_cannot_hold_is_refused_by_name(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        ChunkingConfig(**{**SMALL, **wrong})
