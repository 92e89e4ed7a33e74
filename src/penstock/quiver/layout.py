"""The folders of a store.

```
<path>/000.usage            what each instance takes, for the shared cap
<path>/instance-000/lock    held by the one writer
                   /wal/       the log, and spare files
                   /segments/  Arrow files and their metadata
                   /ack/       ack.log: files with a checkpoint each
                   /aside/     what could not be read
```
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.disk import Disk

__all__ = ["INSTANCE_PREFIX", "Layout", "instances_of", "scan_if_there"]

INSTANCE_PREFIX: Final = "instance-"


@dataclass(frozen=True, slots=True)
class Layout:
    path: str
    instance: int

    @property
    def home(self) -> str:
        return f"{self.path}/{INSTANCE_PREFIX}{self.instance:03d}"

    @property
    def lock(self) -> str:
        return f"{self.home}/lock"

    @property
    def wal(self) -> str:
        return f"{self.home}/wal"

    @property
    def segments(self) -> str:
        return f"{self.home}/segments"

    @property
    def ack(self) -> str:
        return f"{self.home}/ack"

    @property
    def aside(self) -> str:
        return f"{self.home}/aside"

    def make(self, disk: Disk) -> None:
        """All folders, durable up to the first that was there."""
        self._make(disk, self.path)
        self._make(disk, self.home)
        for folder in (self.wal, self.segments, self.ack, self.aside):
            self._make(disk, folder)
        # Also when nothing was made: a crash may have come between the making and this.
        disk.sync_directory(self.home)
        disk.sync_directory(self.path)

    def _make(self, disk: Disk, path: str) -> None:
        try:
            disk.make_directory(path)
        except FileExistsError:
            return
        except FileNotFoundError:
            parent = path.rpartition("/")[0]
            self._make(disk, parent)
            disk.make_directory(path)
        disk.sync_directory(path.rpartition("/")[0] or "/")


def instances_of(disk: Disk, path: str) -> list[int]:
    """The numbers of the instances that a directory has."""
    found = []
    for name, is_folder in disk.scan(path):
        digits = name.removeprefix(INSTANCE_PREFIX)
        if is_folder and name.startswith(INSTANCE_PREFIX) and digits.isdecimal():
            found.append(int(digits))
    return sorted(found)


def scan_if_there(disk: Disk, folder: str) -> list[tuple[str, bool]]:
    """What a folder has. One that is not there has nothing: a crash may have come before it was made."""
    try:
        return disk.scan(folder)
    except FileNotFoundError:
        return []
