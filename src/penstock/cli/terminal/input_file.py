"""Bytes that a person hands to a command: a file, or standard input, each with an end to what is read of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from penstock.errors import AtCapacity, InvalidInput, NotFound, PermissionDenied

__all__ = ["read_file", "read_input"]

# Held in memory while it is read; a store sends a thousandth of it at a time.
INPUT_BYTES_MAX: Final = 64 << 20


def read_input(file: str) -> bytes:
    """The bytes of a file, or of standard input for `-`."""
    data = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1) if file == "-" else read_file(Path(file))
    if len(data) > INPUT_BYTES_MAX:
        raise AtCapacity(
            f"{file} is too large", f"at most {INPUT_BYTES_MAX} bytes are read at once", "send it in parts"
        )
    return data


def read_file(path: Path) -> bytes:
    """At most one byte more than may be read."""
    try:
        with path.open("rb") as opened:
            return opened.read(INPUT_BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFound(
            f"there is no {path}", "the file does not exist", "name a file, or - for standard input"
        ) from None
    except IsADirectoryError:
        raise InvalidInput(f"{path} cannot be read", "it is a folder", "name a file, or - for standard input") from None
    except PermissionError as error:
        raise PermissionDenied(f"{path} cannot be read", str(error.strerror)) from None
