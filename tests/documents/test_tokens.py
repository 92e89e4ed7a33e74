import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.documents.tokens import EstimatedTokens, token_counter
from penstock.errors import InvalidInput

ESTIMATE = EstimatedTokens()
EXACT = token_counter("cl100k")


def test_an_estimate_follows_the_script_for_every_language(languages):
    ratios = {name: ESTIMATE.count(text) / EXACT.count(text) for name, text in languages.items()}
    assert all(0.7 <= ratio <= 1.35 for ratio in ratios.values()), ratios


def test_the_estimate_does_not_undercount_chinese_japanese_and_korean_as_a_quarter_of_the_bytes_does(languages):
    for name in ("Chinese", "Japanese", "Korean"):
        exact = EXACT.count(languages[name])
        assert len(languages[name].encode()) / 4 < 0.67 * exact
        assert ESTIMATE.count(languages[name]) > 0.88 * exact


def test_no_text_has_no_tokens():
    assert ESTIMATE.count("") == 0


def test_one_character_has_at_least_one_token():
    assert ESTIMATE.count("a") == ESTIMATE.count("猫") - 1 == 1


@given(st.text(max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_a_part_of_a_region_is_estimated_as_it_would_be_alone(text, left, right):
    left, right = sorted((min(left, len(text)), min(right, len(text))))
    start, end = len(text[:left].encode()), len(text[:right].encode())
    ruler = ESTIMATE.ruler(text.encode(), text)
    assert ruler.count(start, end) == ESTIMATE.count(text[left:right])


@given(st.text(min_size=1, max_size=60), st.integers(0, 40))
def test_a_mark_leads_back_to_the_last_place_that_has_it(text, tokens):
    data = text.encode()
    ruler = ESTIMATE.ruler(data, text)
    place = ruler.place(tokens * ruler.units_per_token)
    assert ruler.mark(place) <= tokens * ruler.units_per_token
    assert place == len(data) or ruler.mark(place + 1) > tokens * ruler.units_per_token


def test_a_ruler_stays_inside_its_region():
    ruler = ESTIMATE.ruler(b"abc", "abc")
    assert (ruler.place(-100), ruler.place(10_000)) == (0, 3)


def test_a_counter_travels_to_another_process():
    for counter in (ESTIMATE, EXACT):
        assert pickle.loads(pickle.dumps(counter)).count("a few words") == counter.count("a few words")


def test_a_counter_that_does_not_exist_is_refused_by_name():
    with pytest.raises(InvalidInput, match="gpt2"):
        token_counter("gpt2")
