"""Outlines: the headings above a place, however the text before it was cut."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.documents.outline import NO_OUTLINE, Outline

LINES = st.lists(st.sampled_from(["# One", "## Two", "### Three", "text", "#no heading", "", "## Other"]), max_size=20)


def test_a_heading_ends_those_of_its_level_and_below() -> None:
    outline = NO_OUTLINE.past("# Manual\nintro\n## Install\n### Debian\nsteps\n## Use\n")
    assert outline.path == ((1, "Manual"), (2, "Use"))
    assert outline.lead == "Manual › Use"


def test_the_title_comes_from_the_parser_or_is_the_first_heading() -> None:
    assert NO_OUTLINE.titled("The  Book").past("# Chapter").lead == "The Book › Chapter"
    assert NO_OUTLINE.past("## Chapter\n# Other").title == "Chapter"


def test_a_title_that_is_a_heading_too_counts_once() -> None:
    assert NO_OUTLINE.titled("gzip").past("# gzip\n## Functions").lead == "gzip › Functions"


def test_a_heading_of_a_page_is_cut_short() -> None:
    lead = NO_OUTLINE.past("# " + "word " * 1000).lead
    assert len(lead) < 170
    assert lead.endswith("…")


@given(LINES, st.integers(0, 20))
def test_the_outline_does_not_depend_on_where_the_text_was_cut(lines: list[str], place: int) -> None:
    before, after = "".join(f"{line}\n" for line in lines[:place]), "".join(f"{line}\n" for line in lines[place:])
    assert NO_OUTLINE.past(before).past(after) == NO_OUTLINE.past(before + after)


@given(LINES)
def test_an_outline_survives_being_stored(lines: list[str]) -> None:
    outline = NO_OUTLINE.past("\n".join(lines))
    assert msgspec.json.decode(msgspec.json.encode(outline), type=Outline) == outline


def test_the_first_words_of_a_document_are_its_opening_without_its_headings() -> None:
    outline = NO_OUTLINE.past("# Manual\nIt shows\n## Part\nhow it works\n")
    assert outline.opening == "It shows how it works"
    assert outline.past("word " * 100).past("later").opening.split() == [*outline.opening.split(), *["word"] * 35]


def test_words_above_the_title_are_not_the_opening() -> None:
    above = Outline().past("Version 2.4\n\n# Gates\n\nHow they open.")
    assert above.opening == "How they open."
    repeated = Outline().past("# Gates\n\nThe site\n\n## Gates\n\nHow they open.\n\n## More\n\nAnd close.")
    assert repeated.opening == "How they open. And close."
    preface = " ".join(f"word{n}" for n in range(50))
    assert Outline().past(f"{preface}\n\n# Gates\n\nHow they open.").opening.startswith("word0 word1 ")


def test_data_without_spaces_does_not_make_a_long_opening() -> None:
    assert len(NO_OUTLINE.past_plain("x" * 1_000_000).opening) == 64
