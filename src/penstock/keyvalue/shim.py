"""A faster copy for SlateDB's binding, which moves bytes to Rust one at a time in Python.

`install` replaces the one function that lowers bytes into a Rust buffer, and touches nothing else:
lifting them back is a native slice already. It does so only for a release of the binding it was
written against, and only after it gave the same buffers as the shipped function on samples. In every
other case the binding stays as it is, slow and right, and the reason is told.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, Final

from slatedb import uniffi

__all__ = ["KNOWN_RELEASES", "Shim", "decide", "install"]

# Releases whose buffer code was read and measured. In one run on a busy machine, 100 KB values went in at
# 2.4 MB/s as shipped and at 135 with the shim.
KNOWN_RELEASES: Final = frozenset({"0.17.0"})

# A buffer holds the length, big-endian, then the bytes.
_LENGTH: Final = struct.Struct(">i")
# Around the binding's first allocation of 16 bytes, around a doubling, and one block that it must grow for often.
_SAMPLES: Final = tuple(bytes(number % 256 for number in range(size)) for size in (0, 1, 11, 12, 13, 31, 255, 4097))


@dataclass(frozen=True, slots=True)
class Shim:
    """Whether the faster copy is in use and, if not, why."""

    installed: bool
    reason: str = ""


@cache
def install() -> Shim:
    """Speed the binding up once per process, if it is the one we know."""
    # The generated code lies behind a private name, which a class of the public list gives away.
    binding: Any = sys.modules[uniffi.DbBuilder.__module__]
    shim = decide(metadata.version("slatedb"), binding)
    if shim.installed:
        binding._UniffiFfiConverterBytes.lower = staticmethod(_faster(binding))
    return shim


def decide(release: str, binding: Any) -> Shim:
    """Whether the shim fits this release of the binding; changes nothing."""
    if release not in KNOWN_RELEASES:
        return Shim(False, f"the binding is {release}, and the shim knows {', '.join(sorted(KNOWN_RELEASES))}")
    try:
        shipped = [_lowered(binding._UniffiFfiConverterBytes.lower, sample) for sample in _SAMPLES]
        moved = [_lowered(_faster(binding), sample) for sample in _SAMPLES]
    except Exception as error:  # noqa: BLE001 whatever is missing or renamed, the answer is the same
        return Shim(False, f"the self-test failed: {error!r}")
    differing = sum(left != right for left, right in zip(shipped, moved, strict=True))
    return Shim(False, f"the self-test failed: {differing} samples differ") if differing else Shim(True)


def _faster(binding: Any) -> Callable[[Any], Any]:
    allocate = binding._UniffiRustBuffer.alloc

    def lower(value: Any) -> Any:
        # memmove takes bytes; the binding also allows a bytearray or a memoryview.
        data = value if type(value) is bytes else bytes(value)
        buffer = allocate(_LENGTH.size + len(data))
        address = ctypes.addressof(buffer.data.contents)
        ctypes.memmove(address, _LENGTH.pack(len(data)), _LENGTH.size)
        ctypes.memmove(address + _LENGTH.size, data, len(data))
        buffer.len = _LENGTH.size + len(data)
        return buffer

    return lower


def _lowered(lower: Callable[[bytes], Any], sample: bytes) -> bytes:
    """What the Rust buffer holds after lowering; the buffer is given back."""
    buffer = lower(sample)
    try:
        return bytes(buffer.data[: buffer.len])
    finally:
        buffer.free()
