"""Tables as text: every cell whole, however narrow the terminal, because keys and paths are copied from them."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from penstock.cli.terminal.terminal_text import terminal_text

__all__ = ["table_lines"]

_GAP: Final = "  "


def table_lines(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = ()
) -> Iterator[str]:
    """The headings and the rows, one line each, in columns; those named in `right` are aligned there."""
    lines = [[_one_line(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            _padded(cell, width, right=heading in right)
            for cell, width, heading in zip(line, widths, headings, strict=True)
        )
        yield _GAP.join(cells).rstrip()


def _one_line(cell: str) -> str:
    """What is stored comes from anywhere: none of it may command the terminal."""
    return terminal_text(" ".join(cell.split()))


def _padded(cell: str, width: int, *, right: bool) -> str:
    padding = " " * (width - _width(cell))
    return padding + cell if right else cell + padding


def _width(text: str) -> int:
    """Columns on a terminal: letters of East Asia take two, marks on letters none."""
    if text.isascii():
        return len(text)
    return sum(_columns(letter) for letter in text)


def _columns(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) == "Cf":
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
