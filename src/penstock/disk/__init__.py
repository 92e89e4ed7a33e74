"""The local-file interface, and its implementation on the operating system."""

from penstock.disk.direct import DIRECT_BLOCK_BYTES, aligned_buffer, has_direct_writes
from penstock.disk.os_errors import explain, is_full
from penstock.disk.port import Body, Disk, DiskFile, FileStat
from penstock.disk.real import RealDisk

__all__ = [
    "DIRECT_BLOCK_BYTES",
    "Body",
    "Disk",
    "DiskFile",
    "FileStat",
    "RealDisk",
    "aligned_buffer",
    "explain",
    "has_direct_writes",
    "is_full",
]
