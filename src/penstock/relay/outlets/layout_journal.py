"""Which layout of the queues each segment is sent by: a segment keeps it through every attempt. Blocking.

A routing may change while a segment is on its way. Were the rest of it sent by the new layout, rows would arrive in two
shards, or in none. So a relay notes from which segment on it sends by which layout, before it sends the first of them.

```
{"version":1,"entries":[{"since":0,"layout":{"shards":1,"by":"tenant"}},{"since":57,"layout":{"shards":4,"by":"tenant"}}]}
3f0a91c2        CRC-32C of the first line
```
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.buffer import ShardLayout
from penstock.disk import Disk
from penstock.errors import InvalidInput, Unsupported
from penstock.relay.outlets.journal import make_folder, read_line, write_line
from penstock.undecodable import UNDECODABLE

__all__ = ["LayoutJournal", "LayoutState"]

_VERSION: Final = 1
# Segments that still wait are seldom older than the last change; this many changes ago none is.
_ENTRIES_MAX: Final = 64


class LayoutEntry(msgspec.Struct, frozen=True):
    """From this segment on."""

    since: int
    layout: ShardLayout


class LayoutState(msgspec.Struct, frozen=True):
    entries: tuple[LayoutEntry, ...] = (LayoutEntry(0, ShardLayout()),)
    version: int = _VERSION

    @property
    def newest(self) -> LayoutEntry:
        return self.entries[-1]

    def layout_of(self, segment_seq: int) -> ShardLayout:
        """The layout that a segment has; one from before the first entry has that one's."""
        held = [one for one in self.entries if one.since <= segment_seq]
        return (held or self.entries)[-1 if held else 0].layout

    def changed(self, segment_seq: int, layout: ShardLayout) -> LayoutState:
        """With another layout from this segment on."""
        before = [one for one in self.entries if one.since < segment_seq]
        return LayoutState((*before, LayoutEntry(segment_seq, layout))[-_ENTRIES_MAX:])


class LayoutJournal:
    """One small file beside the journals of the shards, replaced whole. `was_lost` when it could not be read."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk, self._path = disk, path
        self.was_lost = False

    def read(self) -> LayoutState | None:
        """None before the first entry, and when the file is damaged."""
        try:
            data, _ = self._disk.read(self._path)
        except FileNotFoundError:
            return None
        try:
            line = read_line(data)
            state = None if line is None else msgspec.json.decode(line, type=LayoutState)
        except (*UNDECODABLE, InvalidInput):
            state = None
        if state is None or not state.entries:
            self.was_lost = True
            self._disk.rename(self._path, f"{self._path}.damaged")
            return None
        if state.version > _VERSION:
            raise Unsupported(f"a relay's layouts of version {state.version}", f"this release reads version {_VERSION}")
        return state

    def write(self, state: LayoutState) -> None:
        """Durable when this returns."""
        make_folder(self._disk, self._path.rpartition("/")[0])
        write_line(self._disk, self._path, msgspec.json.encode(state))
