"""Words written in several ways are one word, and letters that only look alike are not."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.vector import fold_word


@pytest.mark.parametrize(
    "words",
    [
        ("Straße", "STRASSE", "strasse", "STRAẞE"),
        ("İstanbul", "ISTANBUL", "ıstanbul", "istanbul"),
        ("résumé", "re\u0301sume\u0301", "RÉSUMÉ", "resume"),
        ("Αθήνα", "ΑΘΗΝΑ", "αθηνα"),
        ("ὁδός", "ΟΔΟΣ"),
        ("Ёлка", "елка"),
        ("Łódź", "lodz"),
        ("Việt", "viet"),
        ("مَدْرَسَةٌ", "مدرسة", "مدرسه"),
        ("الكـــتاب", "الْكِتَاب", "الكتاب"),
        ("أحمد", "احمد", "إحمد", "آحمد"),
        ("کتاب", "كتاب"),
        ("שָׁלוֹם", "שלום"),
        ("ﾃﾞｰﾀ", "データ"),
        ("ＡＢＣ９", "abc9"),
        ("١٢٣", "۱۲۳", "१२३", "123"),
        ("in\u00adter\u200dna\u2060tional", "international"),
        ("ﬁne", "fine"),
    ],
)
def test_ways_to_write_a_word_are_one_word(words: tuple[str, ...]) -> None:
    assert {fold_word(word) for word in words} == {fold_word(words[0])}


@pytest.mark.parametrize(
    ("one", "other"), [("мой", "мои"), ("їх", "іх"), ("が", "か"), ("हिन्दी", "हन्द"), ("한국", "하국")]
)
def test_marks_that_make_another_letter_stay(one: str, other: str) -> None:
    assert fold_word(one) != fold_word(other)


@given(st.text())
def test_a_folded_word_is_folded_already_in_any_case_and_form(word: str) -> None:
    folded = fold_word(word)
    assert fold_word(folded) == folded
    assert fold_word(unicodedata.normalize("NFD", word)) == folded
