"""How old segments are, whatever somebody does to the clock meanwhile. Pure, but for the clock.

What came in since the store was opened is as old as the time that passed, on the clock that nobody sets. What came
before has its stored date alone. So a date that the clock has since turned out to be wrong about is corrected on the
disk: machines at the edge often start years behind, and the next start would take their data for old.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from penstock.clock import Clock
from penstock.quiver.segment.format import SegmentMeta

__all__ = ["Ages"]

# Time servers move a clock by less, in steps or slowly; retention counts hours.
_WRONG_MS_MIN: Final = 600_000
# A clock that was moved by so much may have made dates wrong, together with what it was moved by before.
_MOVED_MS_MIN: Final = 60_000


class Ages:
    """`metas` are from earlier lives; those of this one have bundles from `first_bundle` on."""

    def __init__(self, clock: Clock, metas: Iterable[SegmentMeta], first_bundle: int) -> None:
        self._clock = clock
        self._first_bundle = first_bundle
        # When the last bundle came, on the clock that nobody sets; for earlier lives, the stored date.
        self._came_at: dict[int, float] = {}
        self._dated_ms = {meta.segment_seq: meta.ingestion_ms[1] for meta in metas}
        self._origin_ms = self._now_origin_ms()
        self._may_be_wrong = False

    def came(self, meta: SegmentMeta, at: float) -> None:
        """A segment was made, whose last bundle came then. One that a start read from the log came in an earlier life."""
        if meta.last_bundle < self._first_bundle:
            self._dated_ms[meta.segment_seq] = meta.ingestion_ms[1]
            return
        self._came_at[meta.segment_seq] = at
        if self._is_wrong(meta):
            self._may_be_wrong = True

    def forget(self, segment_seq: int) -> None:
        self._came_at.pop(segment_seq, None)
        self._dated_ms.pop(segment_seq, None)

    def ingested_ms(self, meta: SegmentMeta) -> int:
        """When its last bundle came, by today's clock."""
        came_at = self._came_at.get(meta.segment_seq)
        return meta.ingestion_ms[1] if came_at is None else self._date_ms(came_at)

    @property
    def oldest_ms(self) -> float:
        """The earliest of these times; infinite where there is no segment."""
        came_ms = self._date_ms(min(self._came_at.values())) if self._came_at else math.inf
        return min(came_ms, min(self._dated_ms.values(), default=math.inf))

    @property
    def may_be_wrong(self) -> bool:
        """Whether dates have to be looked at: the clock was set since they all were right."""
        origin_ms = self._now_origin_ms()
        if abs(origin_ms - self._origin_ms) >= _MOVED_MS_MIN:
            self._origin_ms, self._may_be_wrong = origin_ms, True
        return self._may_be_wrong

    def redated(self, metas: Iterable[SegmentMeta], limit: int) -> list[SegmentMeta]:
        """Those whose stored date is wrong, with the right one, some at a time."""
        found = [self._redate(meta) for meta in islice(filter(self._is_wrong, metas), limit)]
        self._may_be_wrong = bool(found)
        return found

    def _redate(self, meta: SegmentMeta) -> SegmentMeta:
        (first, last), right = meta.ingestion_ms, max(0, self.ingested_ms(meta))
        # Part of it may have come after the clock was set back.
        begun = first if first <= right < last else max(0, first + right - last)
        return msgspec.structs.replace(meta, ingestion_ms=(begun, right))

    def _is_wrong(self, meta: SegmentMeta) -> bool:
        return abs(max(0, self.ingested_ms(meta)) - meta.ingestion_ms[1]) >= _WRONG_MS_MIN

    def _date_ms(self, at: float) -> int:
        return self._clock.now_ms() - round((self._clock.monotonic() - at) * 1000)

    def _now_origin_ms(self) -> int:
        """The date at which the clock that nobody sets began: it moves when the other one is set."""
        return self._date_ms(0.0)
