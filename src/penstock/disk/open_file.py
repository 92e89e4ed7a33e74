"""One open file of the operating system, written through the page cache or past it."""

from __future__ import annotations

import errno
import os
from types import TracebackType
from typing import Final

from penstock.disk.direct import DIRECT_BLOCK_BYTES, as_aligned
from penstock.disk.port import Body

__all__ = ["RealFile", "write_all"]

_CLOSED: Final = -1


class RealFile:
    """See `DiskFile`."""

    def __init__(self, handle: int, *, direct: bool) -> None:
        self._handle = handle
        self._direct = direct

    @property
    def direct(self) -> bool:
        return self._direct

    def size(self) -> int:
        return os.fstat(self._open()).st_size

    def write_at(self, offset: int, data: Body) -> None:
        handle, rest = self._open(), memoryview(data).cast("B")
        if self._direct and (offset % DIRECT_BLOCK_BYTES or len(rest) % DIRECT_BLOCK_BYTES):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        while rest:
            try:
                written = os.pwrite(handle, rest, offset)
            except OSError as error:
                # Memory at an address that the disk does not take. Rare, and dearer to look for than to meet.
                aligned = as_aligned(rest) if self._direct and error.errno == errno.EINVAL else rest
                if aligned is rest:
                    raise
                rest = aligned
                continue
            rest = rest[written:]
            offset += written

    def append(self, data: Body) -> int:
        end = self.size()
        self.write_at(end, data)
        return end

    def preallocate(self, size: int) -> None:
        os.posix_fallocate(self._open(), 0, size)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._open(), size)

    def sync(self) -> None:
        os.fdatasync(self._open())

    def close(self) -> None:
        handle, self._handle = self._handle, _CLOSED
        if handle != _CLOSED:
            os.close(handle)

    def _open(self) -> int:
        if self._handle == _CLOSED:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._handle

    def __enter__(self) -> RealFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def write_all(handle: int, data: Body) -> None:
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[os.write(handle, rest) :]
