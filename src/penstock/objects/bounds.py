"""What every backend refuses alike, and in the same words: bodies, reads too large, ranges, versions, pages."""

from __future__ import annotations

import sys
from operator import index
from typing import Final

from penstock.errors import AtCapacity, Conflict, InvalidInput, NotFound, Unavailable
from penstock.objects.port import Body, ObjectMeta

__all__ = [
    "GET_BYTES_MAX",
    "RACES_MAX",
    "check_body",
    "check_listing",
    "check_size",
    "check_start",
    "check_version",
    "conflict",
    "missing",
    "storm",
]

# The largest object `get` holds in memory unless the caller says otherwise: four times the largest
# batch object and catalog file that Penstock writes, and small enough for a worker with 1 GB.
GET_BYTES_MAX: Final = 256 * 1024 * 1024
# Several ranges read while the object is replaced are read anew; so many times in a row means a storm.
RACES_MAX: Final = 10


def check_body(key: str, data: Body) -> Body:
    """The bytes to write, in one piece, that no later change of the caller's buffer can reach.

    A cancelled write may go on behind the caller's back, so a buffer that can change is copied now.
    """
    if isinstance(data, bytes):
        return data
    try:
        view = memoryview(data)
    except TypeError as error:
        why = f"its body is of type {type(data).__name__}, not bytes"
        raise InvalidInput(f"object {key[:80]!r} cannot be written", why, "encode it first") from error
    is_settled = view.readonly and view.c_contiguous and view.nbytes > 0
    return view.cast("B") if is_settled else view.tobytes()


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
        why = f"past its end at {size} bytes"
        raise InvalidInput(f"range of {key!r} starts at {start}", why, "get its size with head")


def check_version(url: str, key: str, found: str | None, expected: str | None) -> None:
    """Refuse to go on when the object is not at the version the caller holds; None stands for no object."""
    if found != expected:
        raise conflict(url, key, expected)


def check_listing(prefix: str, offset: str, page_size: int) -> None:
    """Refuse a listing that could not be made; a prefix or offset that no key can have finds what it finds."""
    for name, text in (("prefix", prefix), ("offset", offset)):
        if not isinstance(text, str):
            raise InvalidInput(
                f"{name} {text!r} cannot be listed", f"it is of type {type(text).__name__}, not text", "give it as text"
            )
    if not hasattr(page_size, "__index__") or not 1 <= index(page_size) <= sys.maxsize:
        why = f"it must be a whole number from 1 to {sys.maxsize}"
        raise InvalidInput(f"page_size {page_size} cannot be used", why, "omit it for 1,000")


def missing(url: str, key: str) -> NotFound:
    return NotFound(f"no object {key!r} in {url}", "it was never written, or is deleted", "check the key and the store")


def conflict(url: str, key: str, expected: str | None) -> Conflict:
    """The conflict of a create or of an update, told apart for the reader of a log."""
    why = "it already exists" if expected is None else f"it is no longer at version {expected}"
    return Conflict(f"object {key!r} in {url} has changed", why, "read it again before deciding")


def storm(url: str, key: str) -> Unavailable:
    """No version of the object held still for long enough to read all of its ranges."""
    return Unavailable(f"ranges of {key!r} in {url} were not read", "it was replaced repeatedly", "try again")
