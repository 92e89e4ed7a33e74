"""A plot in the terminal: lines of dots in Braille letters, two columns and four rows of them a letter. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

__all__ = ["plot_lines"]

_BLANK: Final = 0x2800
# Bits of the dots of a letter, by column and row.
_DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_AXIS: Final = "┤"


def plot_lines(series: Sequence[Sequence[tuple[float, float]]], width: int, height: int) -> list[str]:
    """Series of (x, y), all in one frame; the values at top and bottom stand beside it. Without numbers, no lines."""
    points = [(x, y) for line in series for x, y in line if math.isfinite(y)]
    if not points or width < 1 or height < 1:
        return []
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    cells = [[_BLANK] * width for _ in range(height)]
    for line in series:
        _draw(cells, [(x, y) for x, y in line if math.isfinite(y)], (left, right), (low, high))
    texts = [f"{high:.6g}", *[""] * (height - 2), f"{low:.6g}"] if height > 1 else [f"{high:.6g}"]
    margin = max(map(len, texts))
    return [
        f"{text:>{margin}} {_AXIS}{''.join(map(chr, row))}".rstrip(chr(_BLANK))
        for text, row in zip(texts, cells, strict=True)
    ]


def _draw(
    cells: list[list[int]], line: Sequence[tuple[float, float]], across: tuple[float, float], up: tuple[float, float]
) -> None:
    columns, rows = len(cells[0]) * 2, len(cells) * 4
    before: tuple[int, int] | None = None
    for x, y in line:
        at = _place(x, across, columns), rows - 1 - _place(y, up, rows)
        for column, row in _between(before or at, at):
            cells[row // 4][column // 2] |= _DOTS[column % 2][row % 4]
        before = at


def _place(value: float, bounds: tuple[float, float], dots: int) -> int:
    low, high = bounds
    # Halves, so that a span beyond the largest number is none either.
    span = high / 2 - low / 2
    return round((value / 2 - low / 2) / span * (dots - 1)) if span > 0 else (dots - 1) // 2


def _between(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    return [
        (start[0] + (end[0] - start[0]) * step // steps, start[1] + (end[1] - start[1]) * step // steps)
        for step in range(steps + 1)
    ]
