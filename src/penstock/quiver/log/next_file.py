"""The log's next file, begun while groups are written into the one before: a rotation costs no sync then.

```
writer's thread    claim ─────────────────▶ settle ─────────▶ take (a rotation)
another thread            make_ready: header, sync, name
```
A rotation that comes while `make_ready` is at work waits for it: to begin another file would take as long. One that
comes before it, or needs more room, goes without, and the file is given up: its number is below the other's.
"""

from __future__ import annotations

from threading import Lock

from penstock.quiver.log.log_files import LogFile
from penstock.quiver.log.log_folder import BegunFile, LogFolder

__all__ = ["NextFile"]


class NextFile:
    """`file` is there from `claim` on: it takes its room. All but `make_ready` is the writer's."""

    def __init__(self, folder: LogFolder) -> None:
        self._folder = folder
        self._making = Lock()
        self._begun: BegunFile | None = None
        self.file: LogFile | None = None

    @property
    def generation(self) -> int | None:
        """Of its frames, once it is ready."""
        begun = self._begun
        return None if begun is None else begun.generation

    def claim(self, file: LogFile) -> None:
        self.file = file

    def make_ready(self) -> None:
        with self._making:
            if self.file is not None and self._begun is None:
                self._begun = self._folder.begin(self.file.number)

    def settle(self) -> LogFile | None:
        """`make_ready` has returned or failed. Without success, the file is given up."""
        return self.give_up() if self._begun is None else None

    def take(self, size: int) -> tuple[LogFile, BegunFile] | None:
        """The file, if it is ready and has so many bytes."""
        with self._making:
            file, begun = self.file, self._begun
            if file is None or begun is None or file.size < size:
                return None
            self.file = self._begun = None
            return file, begun

    def give_up(self) -> LogFile | None:
        """The file, for its room to be reused; nothing is written into it any more."""
        with self._making:
            file, begun = self.file, self._begun
            if begun is not None:
                begun.handle.close()
            self.file = self._begun = None
            return file
