import pytest
import splintr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaigns import examples

from penstock.documents.cl100k import ExactTokens, is_seam

SHIPPED = splintr.Tokenizer.from_pretrained("cl100k_base")
EXACT = ExactTokens()

# Everything the pattern of cl100k treats differently, and everything Python and Unicode disagree about.
WORDS = [
    "a",
    "Z",
    "é",
    "e\u0301",
    "9",
    "42",
    "٣",
    "½",
    "Ⅳ",
    "猫",
    "ก",
    "\u0e41",
    "한",
    "\u1112",
    "word",
    "Word",
    "\U000323af",
]
BLANKS = [" ", "  ", "\t", "\n", "\r", "\r\n", "\n\n", "\x0b", "\x1c", "\x85", "\xa0", "\u2003", "\u2028", "\u3000"]
MARKS = [
    "。",
    "、",
    "_",
    "-",
    ".",
    "...",
    "'",
    "'s",
    "'LL",
    "don't",
    '"',
    "{",
    "}",
    "\u2019s",
    "👋🏽",
    "\u200d",
    "\ufeff",
]
PIECES = st.sampled_from([*WORDS, *BLANKS, *MARKS, "<|endoftext|>"])
TEXTS = st.lists(PIECES, max_size=30).map("".join)


def exactly(text: str) -> int:
    return len(SHIPPED.encode_ordinary(text))


@given(TEXTS)
def test_a_count_is_the_tokenizers_own(text):
    assert EXACT.count(text) == exactly(text)


@pytest.mark.slow
@settings(max_examples=examples(400))
@given(TEXTS, st.integers(0, 40), st.integers(0, 40))
def test_a_part_of_a_region_has_the_tokens_it_would_have_alone(text, left, right):
    left, right = sorted((min(left, len(text)), min(right, len(text))))
    start, end = len(text[:left].encode()), len(text[:right].encode())
    assert EXACT.ruler(text.encode(), text).count(start, end) == exactly(text[left:right])


@pytest.mark.slow
@settings(max_examples=examples(400))
@given(TEXTS, TEXTS)
def test_at_a_seam_a_text_falls_into_two_that_do_not_know_of_each_other(before, after):
    data = (before + after).encode()
    place = len(before.encode())
    if is_seam(data, place):
        assert exactly(before) + exactly(after) == exactly(before + after)


@pytest.mark.parametrize("text", ["a b", "end.\nNext", "word, word", "x\n    y", "猫。", "42 is"])
def test_ordinary_prose_is_full_of_seams(text):
    assert any(is_seam(text.encode(), place) for place in range(1, len(text.encode())))


@pytest.mark.parametrize(("text", "place"), [("ab", 1), ("a\n\nb", 2), ("。犬", 3), ("  a", 1), ("1234", 3), ("é", 1)])
def test_where_neighbours_may_join_there_is_no_seam(text, place):
    assert not is_seam(text.encode(), place)


def test_special_tokens_spelled_out_in_a_document_are_ordinary_text():
    assert EXACT.count("<|endoftext|>") == exactly("<|endoftext|>") > 1


def test_marks_are_places_between_tokens():
    text = "The cat sleeps beside the old window."
    ruler = EXACT.ruler(text.encode(), text)
    assert ruler.place(0) == 0
    assert ruler.place(exactly(text)) == ruler.place(10_000) == len(text)
    assert ruler.place(-1) == 0
    assert ruler.mark(ruler.place(3)) == 3
