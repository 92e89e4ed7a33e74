import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.documents.boundaries import best_cut, context_start, is_whole, next_whole, previous_whole

CLUSTERS = st.lists(
    st.sampled_from(
        ["a", " ", "\r\n", "\n", "e\u0301", "猫", "か\u3099", "👋🏽", "👨‍👩‍👧", "🇫🇷", "नि", "\u1112\u1161\u11ab", "é"]
    ),
    min_size=1,
    max_size=40,
)


def cut(text: str, low: int, target: int, high: int) -> str:
    data = text.encode()
    return data[: best_cut(data, low, target, high, ascii_only=data.isascii())].decode()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("one two. three\n\nfour five. six\nseven", "one two. three\n\n"),
        ("one two. three\r\n\r\nfour five. six\nseven", "one two. three\r\n\r\n"),
        ("one two. three four\nfive six seven", "one two."),
        ("one two three\nfour five six seven eight", "one two three\n"),
        ("Is it? Yes it is so it is indeed", "Is it?"),
        ("猫は眠る。魚の夢を見る猫の話", "猫は眠る。"),
        ("बिल्ली सोती है। कल हम बाज़ार जाएँगे", "बिल्ली सोती है।"),
    ],
)
def test_a_chunk_ends_at_the_strongest_end_before_its_target(text, kept):
    size = len(text.encode())
    assert cut(text, 0, size - 1, size) == kept


def test_without_an_end_before_the_target_the_first_one_after_it_is_taken():
    assert cut("one two three four five. six. seven", 4, 13, 30) == "one two three four five."


def test_without_any_end_a_word_is_kept_whole():
    assert cut("one two three four", 2, 11, 15) == "one two"
    assert cut("onetwothreefour five six", 2, 9, 17) == "onetwothreefour"


def test_without_any_space_the_cut_is_at_the_target():
    assert cut("a" * 100, 10, 50, 80) == "a" * 50


def test_a_cut_moves_left_out_of_a_character():
    assert cut("猫" * 20, 5, 31, 40) == "猫" * 10


@given(CLUSTERS, st.data())
def test_a_whole_place_is_one_between_clusters(clusters, data):
    """Flags may join their neighbours: two pairs read as one run, and a run is not cut."""
    text = "".join(clusters).encode()
    place = data.draw(st.integers(0, len(text)))
    edges = {0}
    for cluster in clusters:
        edges.add(max(edges) + len(cluster.encode()))
    if is_whole(text, place):
        assert place in edges


@given(CLUSTERS, st.data())
def test_moving_to_a_whole_place_never_parts_a_character(clusters, data):
    text = "".join(clusters).encode()
    place = data.draw(st.integers(1, len(text)))
    for moved in (previous_whole(text, place, 0), next_whole(text, place, len(text))):
        left, right = text[:moved].decode(), text[moved:].decode()
        assert not (left.endswith("\r") and right.startswith("\n"))
        assert not right or unicodedata.combining(right[0]) == 0 or len(text) > 256


def test_a_pile_of_marks_without_end_is_still_cut_between_characters():
    pile = ("a" + "\u0301" * 2000).encode()
    moved = previous_whole(pile, 1500, 0)
    assert 0 < moved <= 1500
    pile[:moved].decode()
    assert pile[next_whole(pile, 1500, len(pile)) :].decode()


def test_a_character_longer_than_the_window_is_taken_whole():
    assert previous_whole("猫犬".encode(), 1, 0) == 3


def test_context_begins_at_a_sentence_then_at_a_word():
    text = b"the end of it. A new start here"
    assert text[context_start(text, 3, len(text), ascii_only=True) :] == b" A new start here"
    text = b"no sentence ends in here"
    assert text[context_start(text, 4, len(text), ascii_only=True) :] == b" ends in here"
    text = b"unbroken"
    assert text[context_start(text, 4, len(text), ascii_only=True) :] == b"oken"
