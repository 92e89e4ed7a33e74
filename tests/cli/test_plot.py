"""Plots in the terminal: every line is in the frame, whatever the numbers."""

from __future__ import annotations

import math

from penstock.cli.terminal.plot import plot_lines


def test_a_rising_line_goes_from_the_lower_left_to_the_upper_right() -> None:
    lines = plot_lines([[(float(x), float(x)) for x in range(9)]], width=8, height=4)
    assert len(lines) == 4
    assert lines[0].strip().startswith("8 ┤")
    assert lines[-1].strip().startswith("0 ┤")
    first_dots = [next(at for at, letter in enumerate(line) if ord(letter) > 0x2800) for line in lines]
    assert first_dots == sorted(first_dots, reverse=True)


def test_numbers_without_a_place_are_left_out() -> None:
    assert plot_lines([[(0.0, math.nan), (1.0, math.inf)]], 8, 4) == []
    assert plot_lines([], 8, 4) == []
    assert len(plot_lines([[(0.0, math.nan), (1.0, 2.0)]], 8, 4)) == 4


def test_a_constant_line_and_a_span_beyond_the_largest_number_have_a_place() -> None:
    assert any(ord(letter) > 0x2800 for line in plot_lines([[(0.0, 5.0), (1.0, 5.0)]], 8, 3) for letter in line)
    assert len(plot_lines([[(0.0, -1.7e308), (1.0, 1.7e308)]], 8, 3)) == 3
