"""What every backend refuses alike: keys no server keeps as they are, oversized reads, senseless ranges and pages."""

from __future__ import annotations

from typing import Final

from penstock.errors import AtCapacity, Conflict, InvalidInput, NotFound
from penstock.objects.port import ObjectMeta, check_key

__all__ = [
    "GET_BYTES_MAX",
    "RESERVED_FOLDER",
    "check_object_key",
    "check_page_size",
    "check_size",
    "check_start",
    "check_version",
    "conflict",
    "missing",
]

# The largest object `get` holds in memory unless the caller says otherwise: four times the largest
# batch object and catalog file that Penstock writes, and small enough for a worker with 1 GB.
GET_BYTES_MAX: Final = 256 * 1024 * 1024

# Where the local directory keeps its locks and half-written files; reserved in every store, so that
# objects can be copied from any one to any other.
RESERVED_FOLDER: Final = ".penstock"


def check_object_key(key: str) -> str:
    """The port's rules, and two that real servers add: see the reasons in the errors."""
    check_key(key)
    if "\\" in key:
        raise InvalidInput(
            f"object key {key[:80]!r} cannot be used",
            "it has a backslash, which some servers turn into a slash",
            "use segments joined by single slashes",
        )
    if key.split("/", 1)[0] == RESERVED_FOLDER:
        raise InvalidInput(
            f"object key {key[:80]!r} cannot be used",
            f"the folder {RESERVED_FOLDER!r} belongs to the store itself",
            "use another first segment",
        )
    return key


def check_size(url: str, meta: ObjectMeta, bytes_max: int) -> None:
    """Refuse to read a whole object that is larger than the bound, before reading any of it."""
    if meta.size > bytes_max:
        raise AtCapacity(
            f"object {meta.key!r} in {url} is too large for get",
            f"it has {meta.size} bytes, over get_bytes_max of {bytes_max}",
            "read it in parts with get_range, or raise get_bytes_max",
        )


def check_start(key: str, start: int, size: int) -> None:
    """Refuse a range that starts past the end; at the end it is merely empty."""
    if start > size:
        raise InvalidInput(f"range of {key!r} starts at {start}", f"past its end at {size} bytes")


def check_version(url: str, key: str, found: str | None, expected: str | None) -> None:
    """Refuse to go on when the object is not at the version the caller holds; None stands for no object."""
    if found != expected:
        raise conflict(url, key, expected)


def check_page_size(page_size: int) -> None:
    if page_size < 1:
        raise InvalidInput(f"page_size {page_size} cannot be used", "a page holds at least one object")


def missing(url: str, key: str) -> NotFound:
    return NotFound(f"no object {key!r} in {url}")


def conflict(url: str, key: str, expected: str | None) -> Conflict:
    """The conflict of a create or of an update, told apart for the reader of a log."""
    why = "it already exists" if expected is None else f"it is no longer at version {expected}"
    return Conflict(f"object {key!r} in {url} has changed", why, "read it again before deciding")
