"""How old segments are, whatever somebody does to the clock meanwhile. Pure, but for the clock.

What came in since the store was opened is as old as the time that passed, on the clock that nobody sets. What came
before has its stored date alone. So a date that the clock has since turned out to be wrong about is corrected on the
disk: machines at the edge often start years behind, and the next start would take their data for old.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from penstock.clock import Clock
from penstock.quiver.segment.format import SegmentMeta

__all__ = ["Ages"]

# Time servers move a clock by less, in steps or slowly; retention counts hours.
_WRONG_MS_MIN: Final = 600_000


class Ages:
    """Segments that came in during this life, from the bundle `first_bundle` on."""

    def __init__(self, clock: Clock, first_bundle: int) -> None:
        self._clock = clock
        self._first_bundle = first_bundle
        # When the last bundle came, on the clock that nobody sets.
        self._came_at: dict[int, float] = {}

    def came(self, meta: SegmentMeta, at: float) -> None:
        """A segment was made, whose last bundle came then. One that a start read from the log came in an earlier life."""
        if meta.last_bundle >= self._first_bundle:
            self._came_at[meta.segment_seq] = at

    def forget(self, segment_seq: int) -> None:
        self._came_at.pop(segment_seq, None)

    def ingested_ms(self, meta: SegmentMeta) -> int:
        """When its last bundle came, by today's clock."""
        came_at = self._came_at.get(meta.segment_seq)
        if came_at is None:
            return meta.ingestion_ms[1]
        return self._clock.now_ms() - round((self._clock.monotonic() - came_at) * 1000)

    def redated(self, metas: Iterable[SegmentMeta]) -> Iterator[SegmentMeta]:
        """Those whose stored date is wrong, with the right one."""
        for meta in metas:
            first, last = meta.ingestion_ms
            right = max(0, self.ingested_ms(meta))
            if abs(right - last) >= _WRONG_MS_MIN:
                # Part of it may have come after the clock was set back.
                begun = first if first <= right < last else max(0, first + right - last)
                yield msgspec.structs.replace(meta, ingestion_ms=(begun, right))
