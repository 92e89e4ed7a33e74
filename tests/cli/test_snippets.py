"""A snippet shows the match of a passage, and not whatever its head happens to be."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.terminal.snippets import snippet

HEAD = "Nothing of interest is said here. " * 40
TAIL = " And nothing after it either." * 40


def test_the_match_is_shown_wherever_it_stands_in_the_passage() -> None:
    shown = snippet(f"{HEAD}Otters swim in the river.{TAIL}", "river otters", 120)
    assert "Otters swim in the river." in shown
    assert shown.startswith("… ")
    assert shown.endswith(" …")


def test_another_form_of_a_word_is_a_match() -> None:
    assert "loaves are baked" in snippet(f"{HEAD}The loaves are baked slowly.{TAIL}", "how is a loaf baking", 80)


def test_more_words_win_over_fewer_and_long_words_over_short_ones() -> None:
    text = f"{HEAD}A river is wide.{TAIL} {HEAD}The river has otters.{TAIL}"
    assert "otters" in snippet(text, "river otters", 100)
    text = f"{HEAD}it is on it{TAIL}{HEAD}durable{TAIL}"
    assert "durable" in snippet(text, "is it durable", 100)


def test_a_passage_without_a_match_shows_its_head() -> None:
    assert snippet(HEAD, "otters", 40) == "Nothing of interest is said here. …"


def test_a_short_passage_is_shown_whole_on_one_line() -> None:
    assert snippet("one\ntwo\tthree", "two", 40) == "one two three"


@given(st.text(max_size=400), st.text(max_size=40), st.integers(1, 60))
def test_a_snippet_is_part_of_the_passage_and_no_longer_than_asked(text: str, question: str, longest: int) -> None:
    shown = snippet(text, question, longest)
    inner = shown.removeprefix("… ").removesuffix(" …") if len(" ".join(text.split())) > longest else shown
    assert len(inner) <= longest
    assert inner in " ".join(text.split())


def test_a_passage_of_one_word_repeated_costs_no_more_than_its_length() -> None:
    assert len(snippet("otter " * 200_000, "otter river", 100)) <= 104
