"""Direct writes: memory that fits them, and whether a folder's file system does them at all.

A direct, synchronous write goes past the page cache and is on the disk when it returns, several times faster than
a buffered write and its sync. The price is alignment: of the place in the file, of the length, and of the memory.
"""

from __future__ import annotations

import mmap
from typing import Final

from penstock.disk.port import Disk

__all__ = ["DIRECT_BLOCK_BYTES", "aligned_buffer", "as_aligned", "has_direct_writes"]

# Divides evenly by the sectors of every drive in use (512 or 4,096 bytes), and is the page of the machine.
DIRECT_BLOCK_BYTES: Final = 4096


def aligned_buffer(size: int) -> memoryview:
    """Zeroed, writable memory of at least one block, at an address that direct writes take as it is."""
    return memoryview(mmap.mmap(-1, max(size, DIRECT_BLOCK_BYTES)))


def as_aligned(data: memoryview) -> memoryview:
    """The same bytes at an aligned address: `data` itself if it is, else a copy."""
    # Imported when first used: only numpy tells the address of read-only memory, and commands start without it.
    import numpy as np

    # Not through `ctypes`, which makes several objects to tell a number.
    if not data or np.frombuffer(data, np.uint8).__array_interface__["data"][0] % DIRECT_BLOCK_BYTES == 0:
        return data
    copy = aligned_buffer(len(data))[: len(data)]
    copy[:] = data
    return copy


def has_direct_writes(disk: Disk, folder: str) -> bool:
    """Whether files in this folder can be written directly: asked by writing one, because nothing else tells."""
    path = f"{folder}/.direct-probe"
    try:
        with disk.open(path, direct=True) as file:
            file.write_at(0, aligned_buffer(DIRECT_BLOCK_BYTES))
    except OSError:
        return False
    finally:
        _remove(disk, path)
    return True


def _remove(disk: Disk, path: str) -> None:
    try:
        disk.unlink(path)
    except OSError:
        # It was never made, or the disk fails: then the caller's own write will say so.
        return
