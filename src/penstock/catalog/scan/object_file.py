"""Data files as Arrow's readers want them: seekable files over ranges of objects, whatever store they lie on.

Arrow reads on threads of its own. What lies in a directory is read there and then. Any other read is handed to the event
loop that the store belongs to, so the loop must be free: nobody may wait for Arrow on it.
"""

from __future__ import annotations

import asyncio
import io
import threading
from collections import OrderedDict
from collections.abc import Coroutine, Iterable
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
from pyarrow import fs

from penstock.catalog.format.data_file import DataFile
from penstock.catalog.format.layout import CatalogLayout
from penstock.errors import InvalidInput, PenstockError, Unsupported
from penstock.objects import direct_read

__all__ = ["Door", "LoopDoor", "ObjectFiles", "TailCache"]

T = TypeVar("T")

# The end of a Parquet file holds its footer; most footers fit, and a longer one costs one more request.
TAIL_BYTES: Final = 64 * 1024


class Door(Protocol):
    """Runs coroutines where the store belongs, and waits for them. `penstock.loops.LoopThread` is one."""

    def run(self, work: Coroutine[Any, Any, T]) -> T: ...


class LoopDoor:
    """Runs coroutines on an event loop for threads without one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()

    @classmethod
    def here(cls) -> LoopDoor:
        """To the loop that is running now."""
        return cls(asyncio.get_running_loop())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if threading.get_ident() == self._thread:
            work.close()
            raise Unsupported(
                "data files cannot be read here",
                "the event loop that reads them would block itself",
                "read on another thread, as asyncio.to_thread does",
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class TailCache:
    """The ends of files that were looked at, by path: paths are never used twice, so what is here stays true."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._tails: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str) -> bytes | None:
        with self._lock:
            if path in self._tails:
                self._tails.move_to_end(path)
            return self._tails.get(path)

    def put(self, path: str, tail: bytes) -> None:
        with self._lock:
            self._bytes += len(tail) - len(self._tails.pop(path, b""))
            self._tails[path] = tail
            while self._bytes > self._bytes_max:
                self._bytes -= len(self._tails.popitem(last=False)[1])


class RangeStore(Protocol):
    """Where ranges of objects are read; every object store is one."""

    async def get_range(self, key: str, start: int, end: int, *, version: str | None = None) -> bytes: ...


class ObjectFiles(fs.FileSystemHandler):
    """The files of one plan as a file system that can be read and nothing else.

    `failure` is the first error of the store: engines that call this report it in words of their own.
    """

    def __init__(self, store: RangeStore, layout: CatalogLayout, door: Door, tails: TailCache) -> None:
        self._store = store
        self._direct = direct_read(store)
        self._layout = layout
        self._door = door
        self._tails = tails
        self._sizes: dict[str, int] = {}
        self.failure: PenstockError | None = None

    def add(self, files: Iterable[DataFile]) -> None:
        self._sizes.update((file.path, file.size_bytes) for file in files)

    def tail(self, path: str) -> tuple[int, bytes]:
        """The last bytes of a file, and where they begin."""
        size = self._sizes[path]
        found = self._tails.get(path)
        if found is None:
            found = self._fetch(path, max(0, size - TAIL_BYTES), size)
            self._tails.put(path, found)
        return size - len(found), found

    def read(self, path: str, start: int, end: int) -> bytes:
        tail_start, tail = self.tail(path) if end > self._sizes[path] - TAIL_BYTES else (self._sizes[path], b"")
        if start >= tail_start:
            return tail[start - tail_start : end - tail_start]
        return self._fetch(path, start, end)

    def whole(self, path: str) -> bytes:
        """All of a file, in one request."""
        return self._fetch(path, 0, self._sizes[path])

    def size(self, path: str) -> int:
        return self._sizes[path]

    def _fetch(self, path: str, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        key = self._layout.key(path)
        try:
            if self._direct is not None:
                return self._direct(key, start, end)
            return self._door.run(self._store.get_range(key, start, end))
        except PenstockError as error:
            self.failure = self.failure or error
            raise

    # What Arrow asks of a file system --------------------------------------------------------------------

    def get_type_name(self) -> str:
        return "penstock"

    def normalize_path(self, path: str) -> str:
        return path

    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(ObjectFile(self, path), mode="r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def get_file_info(self, paths: str | list[str]) -> list[fs.FileInfo]:
        return [
            fs.FileInfo(path, fs.FileType.File, size=self._sizes[path])
            if path in self._sizes
            else fs.FileInfo(path, fs.FileType.NotFound)
            for path in ([paths] if isinstance(paths, str) else paths)
        ]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        raise self._refusal()

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise self._refusal()

    @staticmethod
    def _refusal() -> Unsupported:
        return Unsupported("data files can only be read", "only the catalog changes which files exist")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refuse
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refuse


class ObjectFile(io.RawIOBase):
    """One object with a position, for `pa.PythonFile`."""

    def __init__(self, files: ObjectFiles, path: str) -> None:
        self._files = files
        self._path = path
        self._at = 0

    def read(self, count: int | None = -1) -> bytes:
        size = self._files.size(self._path)
        end = size if count is None or count < 0 else min(size, self._at + count)
        data = self._files.read(self._path, self._at, end)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._files.size(self._path)}[whence]
        if start + offset < 0:
            raise InvalidInput(f"position {start + offset} of {self._path!r}", "it is before the file's start")
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False
