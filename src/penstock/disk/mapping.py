"""Files as memory, without a descriptor: Python's own maps keep one open each, and a backlog has thousands of files."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable
from functools import cache
from typing import Any, Final

__all__ = ["mapped"]

_FAILED: Final = ctypes.c_void_p(-1).value


def mapped(handle: int, size: int) -> memoryview:
    """The first `size` bytes of an open file, for reading; they stay for as long as anybody has a view of them."""
    # Imported when first used: commands start without it.
    import numpy as np

    return np.asarray(_Mapping(handle, size)).data


class _Mapping:
    """A range of memory that is given back when the last array on it is gone."""

    def __init__(self, handle: int, size: int) -> None:
        take, self._give_back = _calls()
        self._size = size
        self._address = take(None, size, mmap.PROT_READ, mmap.MAP_SHARED, handle, 0)
        if self._address == _FAILED:
            self._address = None
            code = ctypes.get_errno() or errno.ENOMEM
            raise OSError(code, os.strerror(code))

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"data": (self._address, True), "shape": (self._size,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        if self._address is not None:
            self._give_back(self._address, self._size)


@cache
def _calls() -> tuple[Callable[..., Any], Callable[..., Any]]:
    library = ctypes.CDLL(None, use_errno=True)
    take, give_back = library.mmap, library.munmap
    take.restype = ctypes.c_void_p
    numbers = [ctypes.c_int] * 3
    take.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *numbers, ctypes.c_long]
    give_back.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return take, give_back
