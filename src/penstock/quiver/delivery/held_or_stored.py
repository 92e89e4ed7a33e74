"""Reads a segment where it is: in memory, as long as it has no files, or on the disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from penstock.disk import explain
from penstock.quiver.delivery.handover import Handover
from penstock.quiver.doors import Doors
from penstock.quiver.segment.format import SegmentMeta
from penstock.quiver.segment.segment_store import SegmentStore

__all__ = ["SegmentReader"]

# Numbers of segments that are gone may stay in a set until there are so many.
_CHECKED_SPARE: Final = 1000


class SegmentReader:
    """Checksums of files are checked when they are first read."""

    def __init__(
        self, shelf: SegmentStore, segments: Mapping[int, SegmentMeta], handover: Handover, doors: Doors
    ) -> None:
        self._shelf = shelf
        self._segments = segments
        self._handover = handover
        self._doors = doors
        self._checked: set[int] = set()

    async def read(self, meta: SegmentMeta) -> dict[str, list[pa.Table]]:
        """Tables by slot. `Corrupt` when the files are not what was written."""
        held = self._handover.get(meta.segment_seq)
        if held is not None:
            return await self._doors.offload(held.read)
        # As its files are: a delivery that began in memory knows nothing of them.
        meta = self._segments.get(meta.segment_seq, meta)
        try:
            slots = await self._doors.offload(_read, self._shelf, meta, meta.segment_seq not in self._checked)
        except OSError as error:
            raise explain(f"segment {meta.segment_seq} cannot be read", error) from error
        self._checked.add(meta.segment_seq)
        if len(self._checked) > 2 * len(self._segments) + _CHECKED_SPARE:
            self._checked.intersection_update(self._segments)
        return slots


def _read(shelf: SegmentStore, meta: SegmentMeta, check: bool) -> dict[str, list[pa.Table]]:
    return shelf.read(meta, check=check)
