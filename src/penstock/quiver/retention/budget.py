"""One cap for all instances of a directory, without a lock. The decision is pure; the figures are small files.

Each instance writes its own figure, and reads the others': a number too old by a moment costs at most the segment that
an instance is about to write. An instance above its fair share leaves room to each that is below it, enough for a file
of the log and a segment, so a hot one can use what idle ones do not need, and never starves them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.disk import Disk, DiskFile
from penstock.quiver.config import SizeCapPolicy
from penstock.quiver.layout import INSTANCE_PREFIX
from penstock.quiver.log.frames import checksum

__all__ = ["SharedUsage", "UsageFigure", "missing_elsewhere", "room_left"]

# Bytes taken, bytes missing; then their CRC-32C.
_FIGURE: Final = struct.Struct("<QQ")
_CRC: Final = struct.Struct("<I")
_SUFFIX: Final = ".usage"


def room_left(*, own: int, others: Sequence[int], cap: int, instances: int, reserved_bytes: int) -> int:
    """How many more bytes this instance may take; below zero, how many it is over."""
    share = cap // max(instances, len(others) + 1)
    room = cap - own - sum(others)
    if own > share:
        room -= reserved_bytes * sum(other < share for other in others)
    return room


def missing_elsewhere(
    *, own: int, others: Sequence[UsageFigure], cap: int, instances: int, policy: SizeCapPolicy
) -> int:
    """How many bytes this instance should free for callers that wait elsewhere.

    With backpressure only processed segments can go, and they go wherever they are. Unprocessed ones are dropped for
    others by those alone that have more than their share.
    """
    is_above = own > cap // max(instances, len(others) + 1)
    if policy is SizeCapPolicy.DROP_OLDEST and not is_above:
        return 0
    return sum(other.missing for other in others)


@dataclass(frozen=True, slots=True)
class UsageFigure:
    """What an instance tells the others: the bytes it takes, and those that a caller of it is short of."""

    taken: int
    missing: int = 0

    def encode(self) -> bytes:
        body = _FIGURE.pack(self.taken, self.missing)
        return body + _CRC.pack(checksum(body))

    @staticmethod
    def decode(data: bytes) -> UsageFigure | None:
        body, crc = data[: _FIGURE.size], data[_FIGURE.size :]
        if len(data) != _FIGURE.size + _CRC.size or crc != _CRC.pack(checksum(body)):
            return None
        return UsageFigure(*_FIGURE.unpack(body))


class SharedUsage:
    """The figures of all instances. Blocking, but small: some bytes of files that are always in memory."""

    def __init__(self, disk: Disk, folder: str, instance: int) -> None:
        self._disk = disk
        self._folder = folder
        self._name = f"{instance:03d}{_SUFFIX}"
        self._file: DiskFile | None = None
        self._written: UsageFigure | None = None
        self._known: dict[str, UsageFigure] = {}

    def exchange(self, own: UsageFigure) -> list[UsageFigure]:
        """Tell what this instance takes, and return what the others do."""
        self._publish(own)
        return self._read_others()

    def _publish(self, own: UsageFigure) -> None:
        if own == self._written:
            return
        if self._file is None:
            self._file = self._disk.open(f"{self._folder}/{self._name}")
        self._file.write_at(0, own.encode())
        self._written = own

    def _read_others(self) -> list[UsageFigure]:
        """One that cannot be read is what it was before, or nothing: its owner writes it at its start.

        The figure of an instance whose folder was removed counts no more.
        """
        entries = self._disk.scan(self._folder)
        folders = {name for name, is_folder in entries if is_folder}
        for name, is_folder in entries:
            if name.endswith(_SUFFIX) and name != self._name and not is_folder:
                figure = UsageFigure.decode(self._disk.read(f"{self._folder}/{name}")[0])
                self._known[name] = figure or self._known.get(name, UsageFigure(0))
        return [
            figure
            for name, figure in sorted(self._known.items())
            if f"{INSTANCE_PREFIX}{name.removesuffix(_SUFFIX)}" in folders
        ]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
