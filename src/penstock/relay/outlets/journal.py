"""What the relay to a queue must remember: who it is, and the one segment whose fate may be unknown. Blocking.

One small file, replaced whole: written under another name, synced, renamed, and its folder synced. A file that cannot
be read is moved out of the way, and the relay begins under a new name: what it was sending may then arrive twice.

```
{"version":1,"relay":"01J…","ordinal":12,"intent":{"segment_seq":57,"ordinal":12,"since":341,"part_bytes":16777216}}
3f0a91c2        CRC-32C of the first line
```
"""

from __future__ import annotations

import contextlib
from typing import Final

import google_crc32c
import msgspec

from penstock.clock import Clock
from penstock.disk import Disk
from penstock.errors import Unsupported
from penstock.ids import Entropy, ulid
from penstock.undecodable import UNDECODABLE

__all__ = ["Intent", "JournalState", "SendJournal", "make_folder", "read_line", "write_line"]

VERSION: Final = 1


class Intent(msgspec.Struct, frozen=True):
    """A segment that is being sent: if it was enqueued, then at the sequence `since` or behind it."""

    segment_seq: int
    ordinal: int
    since: int
    # Parts are cut as they were, whatever the settings say by now.
    part_bytes: int


class JournalState(msgspec.Struct, frozen=True):
    relay: str
    # Of the last intent; ordinals only grow.
    ordinal: int = 0
    intent: Intent | None = None
    version: int = VERSION


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(JournalState)


class SendJournal:
    """`was_lost` when there was a file that could not be read."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._folder = path.rpartition("/")[0]
        self.was_lost = False

    def open(self, clock: Clock, entropy: Entropy) -> JournalState:
        """What is remembered; where there is nothing, a new name, which is durable when this returns."""
        self._make_folder()
        try:
            data, _ = self._disk.read(self._path)
        except FileNotFoundError:
            data = b""
        state = _decode(data)
        if state is None:
            if data:
                self.was_lost = True
                self._disk.rename(self._path, f"{self._path}.damaged")
            state = JournalState(ulid(clock.now_ms(), entropy))
        # Also one that was found: it may have been renamed and not made durable.
        self.write(state)
        return state

    def write(self, state: JournalState) -> None:
        """Durable when this returns. After an `OSError` either state may be found."""
        write_line(self._disk, self._path, _ENCODER.encode(state))

    def _make_folder(self) -> None:
        make_folder(self._disk, self._folder)


def make_folder(disk: Disk, folder: str) -> None:
    """Durable when this returns."""
    with contextlib.suppress(FileExistsError):
        disk.make_directory(folder)
    disk.sync_directory(folder.rpartition("/")[0] or "/")


def write_line(disk: Disk, path: str, line: bytes) -> None:
    """Replace a file by a line and its checksum. Durable when this returns; after an `OSError` either may be found."""
    temporary, folder = f"{path}.tmp", path.rpartition("/")[0]
    # A new file each time: after a failed sync the old one's pages cannot be trusted.
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(temporary)
    disk.create(temporary, line + b"\n%08x\n" % google_crc32c.value(line))
    disk.sync_file(temporary)
    with disk.watching(folder):
        disk.rename(temporary, path)
        disk.sync_directory(folder)


def read_line(data: bytes) -> bytes | None:
    """The line of such a file; None when it is not what was written."""
    line, _, rest = data.partition(b"\n")
    return line if line and rest == b"%08x\n" % google_crc32c.value(line) else None


def _decode(data: bytes) -> JournalState | None:
    line = read_line(data)
    if line is None:
        return None
    try:
        state = _DECODER.decode(line)
    except UNDECODABLE:
        return None
    if state.version > VERSION:
        raise Unsupported(f"a relay's journal of version {state.version}", f"this release reads version {VERSION}")
    return state
