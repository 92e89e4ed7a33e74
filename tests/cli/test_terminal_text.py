"""Nothing that a document or an event says can command the terminal it is shown on."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.terminal.terminal_text import terminal_text


def test_escapes_and_turns_of_direction_are_shown_as_such() -> None:
    assert terminal_text("a\x1b[31mred\u202eevil\x00\x9b") == "a\ufffd[31mred\ufffdevil\ufffd\ufffd"


def test_text_of_people_stays_as_it_is() -> None:
    text = "Zürich\tשלום 日本語 क्‍ष 👩‍🔬\nnext line"
    assert terminal_text(text) == text


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left_and_nothing_is_lost(text: str) -> None:
    shown = terminal_text(text)
    assert len(shown) == len(text)
    assert not [each for each in shown if each < " " and each not in "\n\t"]
