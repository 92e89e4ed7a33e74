"""An open file on a torn disk: every write is a piece that a power loss may tear."""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol

from penstock.disk import DIRECT_BLOCK_BYTES, Body
from penstock.testing.storage.pages import Piece
from penstock.testing.storage.power import PowerCut
from penstock.testing.storage.tree import File

__all__ = ["TornFile"]


class Below(Protocol):
    """What an open file asks of its disk."""

    boots: int

    def put(self, file: File, piece: Piece) -> None: ...

    def set_aside(self, file: File, size: int) -> None: ...

    def save(self, file: File) -> None: ...

    def look(self) -> AbstractContextManager[None]: ...


class TornFile:
    """See `DiskFile`. It belongs to the life of the machine that opened it: later calls meet a `PowerCut`."""

    def __init__(self, disk: Below, file: File, *, direct: bool, synchronous: bool = True) -> None:
        self._disk = disk
        self._file = file
        self._direct = direct
        self._settles = direct and synchronous
        self._boot = disk.boots
        self._is_open = True

    @property
    def direct(self) -> bool:
        return self._direct

    def size(self) -> int:
        self._check()
        with self._disk.look():
            return len(self._file.data)

    def write_at(self, offset: int, data: Body) -> None:
        self._check()
        body = bytes(data)
        if self._direct and (offset % DIRECT_BLOCK_BYTES or len(body) % DIRECT_BLOCK_BYTES):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if body:
            self._disk.put(self._file, Piece(offset, body, settled=self._settles))

    def append(self, data: Body) -> int:
        end = self.size()
        self.write_at(end, data)
        return end

    def preallocate(self, size: int) -> None:
        self._check()
        self._disk.set_aside(self._file, size)

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.put(self._file, Piece(size, None))

    def sync(self) -> None:
        self._check()
        self._disk.save(self._file)

    def close(self) -> None:
        self._is_open = False

    def _check(self) -> None:
        if self._boot != self._disk.boots:
            raise PowerCut
        if not self._is_open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def __enter__(self) -> TornFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
