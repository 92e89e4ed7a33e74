"""The tokens of a running gateway: those of a file as it is now."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import NotFound, PenstockError
from penstock.gateway import TokenBook

__all__ = ["LiveTokens"]


class LiveTokens:
    """The tokens of a file as they are now; None without a file. A file that becomes unreadable keeps what was read."""

    def __init__(self, file: str | None) -> None:
        self._path = Path(file) if file else None
        self._stamp: tuple[int, int] | None = None
        self._book: TokenBook | None = None
        if self._path is not None:
            self._book = TokenBook.load(self._path)
            self._stamp = self._stamped()

    def __call__(self) -> TokenBook | None:
        if self._path is not None and (stamp := self._stamped()) != self._stamp:
            try:
                self._book = TokenBook.load(self._path)
            except NotFound:
                # Without the file nobody has a token.
                self._book = TokenBook.new()
            except PenstockError:
                # Damaged, or readable by others: those who had a token keep it until the file is mended.
                pass
            self._stamp = stamp
        return self._book

    def _stamped(self) -> tuple[int, int] | None:
        assert self._path is not None
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_ino
