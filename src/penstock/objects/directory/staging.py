"""Files on their way into a directory: written and synced in a hidden folder, stamped with a time of our choice.

What a dead writer left there is removed once it is an hour old. A disk that rounds time stamps is refused,
because versions are made of them.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

from penstock.clock import Clock
from penstock.disk import Disk, FileStat
from penstock.errors import Unsupported
from penstock.ids import Entropy, ulid
from penstock.objects.port import Body

__all__ = ["Staging"]

_NS_PER_MS: Final = 1_000_000
# A put of gigabytes to a slow disk ends well before; a younger file may still be renamed.
_TEMPORARY_AGE_MS_MAX: Final = 3_600_000
# Nanoseconds below the millisecond that no coarser stamp can hold: rounded, quick writes could not be told apart.
_STAMP_TRIAL_NS: Final = 123_457
# The year 2262. File systems end at different times after it, and a foreign file may bear the very last.
_STAMP_NS_MAX: Final = (1 << 63) - 1


class Staging:
    """The temporary files of one directory store. Safe to share between threads."""

    def __init__(self, folder: str, *, disk: Disk, clock: Clock, entropy: Entropy) -> None:
        self._folder = folder
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        # Guards the last stamp alone.
        self._mutex = threading.Lock()
        self._last_stamp_ns = 0

    def write(self, data: Body, before: FileStat | None) -> tuple[str, FileStat]:
        """A new file, its bytes durable, stamped above `before`; its path and stat."""
        path = self.new_path()
        try:
            self._disk.create(path, data, self.stamp(before))
            self._disk.sync_file(path)
            return path, self._disk.stat(path)
        except OSError:
            self.discard(path)
            raise

    def new_path(self) -> str:
        return f"{self._folder}/{ulid(self._clock.now_ms(), self._entropy)}"

    def stamp(self, before: FileStat | None) -> int:
        """Above the version that is there and above all of ours; random below the millisecond, for other processes.

        A stamp of no believable time is none of ours, and is not counted on from: nothing may lie above it.
        """
        noise = int.from_bytes(self._entropy.token(3), "big") % _NS_PER_MS
        now = self._clock.now_ms() * _NS_PER_MS + noise
        with self._mutex:
            self._last_stamp_ns = max(now, self._last_stamp_ns + 1, _above(before))
            return self._last_stamp_ns

    def discard(self, path: str) -> None:
        # Best effort: what stays is removed an hour later.
        with suppress(OSError):
            self._disk.unlink(path)

    def remove_stale(self) -> None:
        limit_ns = (self._clock.now_ms() - _TEMPORARY_AGE_MS_MAX) * _NS_PER_MS
        for name, is_folder in self._disk.scan(self._folder):
            path = f"{self._folder}/{name}"
            with suppress(FileNotFoundError):
                if not is_folder and self._disk.stat(path).modified_ns < limit_ns:
                    self._disk.unlink(path)

    def check_stamps(self, url: str) -> None:
        """Refuse a file system that rounds them."""
        path = self.new_path()
        stamp = self._clock.now_ms() * _NS_PER_MS + _STAMP_TRIAL_NS
        self._disk.create(path, b"", stamp)
        kept = self._disk.stat(path).modified_ns
        self._disk.unlink(path)
        if kept != stamp:
            raise Unsupported(
                f"{url} cannot be a store",
                "its file system rounds time stamps, so quick writes could not be distinguished",
                "use a directory on ext4, xfs, btrfs, zfs or tmpfs",
            )


def _above(before: FileStat | None) -> int:
    return before.modified_ns + 1 if before and before.modified_ns < _STAMP_NS_MAX else 0
