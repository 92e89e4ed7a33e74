"""Landlock: the files that a parser may read, and that it may do nothing else with any file.

Rights that a kernel does not know yet are left out, by the version of its interface; newer kernels also refuse TCP
connections, abstract sockets and signals to processes outside.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from ctypes import create_string_buffer
from pathlib import Path
from typing import Final

from penstock.documents.parsers.isolation.kernel import system_call

__all__ = ["restrict_files"]

# The same numbers on every architecture.
_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_ASK_VERSION: Final = 1
_PATH_BENEATH: Final = 1

_READ_FILE: Final = 1 << 2
_READ_DIRECTORY: Final = 1 << 3
# Rights over files of version 1 are bits 0 to 12; later versions add one each.
_FILE_RIGHTS: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NETWORK_RIGHTS: Final = {4: 0b11}
_SCOPES: Final = {6: 0b11}


def restrict_files(readable: Iterable[Path]) -> int:
    """Allow reading beneath `readable` and no other use of files, for good. The version of the kernel's interface."""
    version = system_call(_CREATE_RULESET, None, 0, _ASK_VERSION)
    handled = [_newest(rights, version) for rights in (_FILE_RIGHTS, _NETWORK_RIGHTS, _SCOPES)]
    attributes = create_string_buffer(struct.pack("=QQQ", *handled), 24)
    ruleset = system_call(_CREATE_RULESET, attributes, 24, 0)
    try:
        for path in readable:
            _allow(ruleset, path)
        system_call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return version


def _newest(rights: dict[int, int], version: int) -> int:
    return max((value for since, value in rights.items() if since <= version), default=0)


def _allow(ruleset: int, path: Path) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        # It is not there, so nobody needs it.
        return
    try:
        access = _READ_FILE | _READ_DIRECTORY if path.is_dir() else _READ_FILE
        rule = create_string_buffer(struct.pack("=Qi", access, opened), 12)
        system_call(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(opened)
