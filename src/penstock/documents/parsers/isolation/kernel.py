"""The kernel's calls that Python has no door to: `prctl`, `unshare`, `capset`, Landlock and seccomp, through libc.

Each returns, or raises `OSError` with the kernel's reason. Nothing here decides what to do about a refusal.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache
from typing import Any, Final

__all__ = ["architecture", "drop_capabilities", "no_new_privileges", "set_filter", "system_call", "unshare"]

_PR_SET_SECCOMP: Final = 22
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_MODE_FILTER: Final = 2
_CAPABILITY_VERSION_3: Final = 0x20080522
_CAPSET: Final = {"x86_64": 126, "aarch64": 91}


def architecture() -> str | None:
    """The machine's name where we know its system calls: 64-bit Linux on x86 or ARM; else None."""
    machine = platform.machine()
    known = sys.platform == "linux" and sys.maxsize > 2**32 and sys.byteorder == "little"
    return machine if known and machine in _CAPSET else None


def system_call(number: int, *arguments: Any) -> int:
    """Call the kernel by number. Integers are passed as words, so that no upper half is left to chance."""
    words = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    return _checked(_libc().syscall(ctypes.c_long(number), *words))


def no_new_privileges() -> None:
    """From here on no program that is started gains privileges; Landlock and seccomp ask for it."""
    _control(_PR_SET_NO_NEW_PRIVS, 1)


def unshare(flags: int) -> None:
    """Leave the namespaces in `flags` for new ones."""
    _checked(_libc().unshare(ctypes.c_int(flags)))


def drop_capabilities() -> None:
    """Give up every privilege of root, and with them the right to raise a hard limit."""
    machine = architecture()
    if machine is None:
        raise OSError("only known on Linux with x86_64 or aarch64")
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    system_call(_CAPSET[machine], header, nothing)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def set_filter(program: bytes) -> None:
    """Install a seccomp filter, eight bytes an instruction. It cannot be taken off again."""
    held = ctypes.create_string_buffer(program, len(program))
    _control(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(_Program(len(program) // 8, ctypes.addressof(held))))


def _control(option: int, *arguments: Any) -> None:
    words = [ctypes.c_ulong(item) if isinstance(item, int) else item for item in arguments]
    words += [ctypes.c_ulong(0)] * (4 - len(words))
    _checked(_libc().prctl(ctypes.c_int(option), *words))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
