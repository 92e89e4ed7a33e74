"""A high-water mark with gaps: which of a growing row of numbers are done, in the space of the holes. Pure."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["MarkSet"]


class MarkSet:
    """All numbers up to `mark` are done, and the few above it in `gaps`. The mark never passes a hole."""

    __slots__ = ("gaps", "mark")

    def __init__(self, mark: int = 0, gaps: Iterable[int] = ()) -> None:
        self.mark = mark
        self.gaps: set[int] = set()
        for number in gaps:
            self.add(number)

    def __contains__(self, number: int) -> bool:
        return number <= self.mark or number in self.gaps

    def add(self, number: int) -> bool:
        """Whether this was new."""
        if number in self:
            return False
        self.gaps.add(number)
        while self.mark + 1 in self.gaps:
            self.mark += 1
            self.gaps.remove(self.mark)
        return True

    def discard(self, number: int) -> None:
        """Not done any more. Costs what lies between it and the mark, once."""
        if number <= self.mark:
            self.gaps.update(range(number + 1, self.mark + 1))
            self.mark = number - 1
        else:
            self.gaps.discard(number)

    def raise_to(self, mark: int) -> None:
        """Take everything up to `mark` as done."""
        if mark > self.mark:
            above = {number for number in self.gaps if number > mark}
            self.mark, self.gaps = mark, set()
            for number in above:
                self.add(number)
