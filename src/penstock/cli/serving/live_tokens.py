"""The tokens of a running gateway: those of a file as it is now.

A file that cannot be used while the gateway runs ends nobody's work: the tokens that were read last stay valid until it
is mended. They may include one that was just revoked, so an event and a gauge tell of it. A file that was deleted is a
decision: nobody is let in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import NotFound, PenstockError
from penstock.gateway import TokenBook
from penstock.observability import SILENT, Observer, names

__all__ = ["LiveTokens"]

# A read can fail for a reason that the file does not show, such as too many open files: it is tried again after this.
_RETRY_SECONDS: Final = 1.0

# Times of the last change of content and of mode, the inode and the size; None where the file cannot be looked at.
_Stamp = tuple[int, int, int, int] | None


class LiveTokens:
    """The tokens of a file as they are now; None without a file."""

    def __init__(self, file: str | None, observer: Observer = SILENT, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path = Path(file) if file else None
        self._observer, self._clock = observer, clock
        self._stamp: _Stamp = None
        self._book: TokenBook | None = None
        # When the file is read again although it looks the same: only while it cannot be used.
        self._retry_at: float | None = None
        if self._path is not None:
            # Looked at before it is read: a change in between is read again, and not missed.
            self._stamp = _stamp(self._path)
            self._book = TokenBook.load(self._path)
        observer.gauge(names.GATEWAY_TOKENS_REFUSED, 0)

    def __call__(self) -> TokenBook | None:
        if self._path is not None:
            stamp = _stamp(self._path)
            if stamp != self._stamp or (self._retry_at is not None and self._clock.monotonic() >= self._retry_at):
                self._read(self._path)
                self._stamp = stamp
        return self._book

    def _read(self, path: Path) -> None:
        try:
            self._book = TokenBook.load(path)
        except NotFound as error:
            self._book = TokenBook.new()
            self._refuse(error, "nobody is let in")
        except PenstockError as error:
            self._refuse(error, "the tokens that were read last stay valid, revoked ones too")
        else:
            if self._retry_at is not None:
                self._observer.event(names.GATEWAY_TOKENS_READ, tokens=len(self._book.entries))
            self._retry_at = None
            self._observer.gauge(names.GATEWAY_TOKENS_REFUSED, 0)

    def _refuse(self, error: PenstockError, effect: str) -> None:
        if self._retry_at is None:
            self._observer.event(names.GATEWAY_TOKENS_UNUSABLE, error=str(error), effect=effect)
        self._retry_at = self._clock.monotonic() + _RETRY_SECONDS
        self._observer.gauge(names.GATEWAY_TOKENS_REFUSED, 1)


def _stamp(path: Path) -> _Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size
