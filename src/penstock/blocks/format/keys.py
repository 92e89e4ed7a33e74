"""Where everything lies: one layout of keys for every store, beneath prefixes that the store chooses.

```
 00                                                       the store's record
 01 │ source name                                         position of a source
 prefix │ 00                                              the head of what lies beneath a prefix
 prefix │ 01 │ u8 family │ u16 column │ u64 low           a page of a shelf's directory
 prefix │ 02 │ u8 family │ u16 column │ u64 low │ u64 serial     a fragment
```

Numbers in keys are big-endian, so that key order is numeric order. No prefix may begin another one, nor begin with
00 or 01. Data lies in fragments; a fragment's serial is used once, so the bytes under its key never change.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.errors import InvalidInput

__all__ = [
    "NAME_BYTES_MAX",
    "POSITIONS",
    "STORE",
    "Address",
    "Shelf",
    "check_name",
    "fragment_key",
    "fragments_prefix",
    "head_key",
    "page_key",
    "pages_prefix",
    "position_key",
    "shelf_prefix",
    "split_fragment_key",
    "split_page_key",
]

STORE: Final = b"\x00"
POSITIONS: Final = b"\x01"

_HEAD: Final = b"\x00"
_PAGES: Final = b"\x01"
_FRAGMENTS: Final = b"\x02"
_SHELF: Final = struct.Struct(">BH")
_PAGE: Final = struct.Struct(">BHQ")
_FRAGMENT: Final = struct.Struct(">BHQQ")

# Names that are part of keys: far beyond what people write, far below a key's limit.
NAME_BYTES_MAX: Final = 1024


class Shelf(NamedTuple):
    """One directory's worth of buckets: a family, and of families that have several which one."""

    family: IntEnum
    column: int = 0

    def __str__(self) -> str:
        return f"{self.family.name.lower()} {self.column}" if self.column else self.family.name.lower()


class Address(NamedTuple):
    """A fragment: its shelf, the bucket's lowest key, and its serial."""

    shelf: Shelf
    low: int
    serial: int

    def __str__(self) -> str:
        return f"{self.shelf}, bucket {self.low}, fragment {self.serial}"


def check_name(part: str, text: str) -> bytes:
    """The bytes of a name that can be part of a key."""
    if not text or not isinstance(text, str):
        raise InvalidInput(f"{part} = {text!r:.60}", "a name is text of at least one character")
    try:
        name = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{part} = {text[:40]!r}", f"it cannot be encoded as UTF-8: {error.reason}") from error
    if len(name) > NAME_BYTES_MAX:
        raise InvalidInput(f"{part} = {text[:40]!r}…", f"a name has at most {NAME_BYTES_MAX} bytes")
    return name


def position_key(source: str) -> bytes:
    return POSITIONS + check_name("source", source)


def head_key(prefix: bytes) -> bytes:
    return prefix + _HEAD


def pages_prefix(prefix: bytes) -> bytes:
    """What the keys of all directory pages beneath a prefix begin with."""
    return prefix + _PAGES


def page_key(prefix: bytes, shelf: Shelf, low: int) -> bytes:
    return prefix + _PAGES + _PAGE.pack(shelf.family, shelf.column, low)


def fragments_prefix(prefix: bytes) -> bytes:
    """What the keys of all fragments beneath a prefix begin with."""
    return prefix + _FRAGMENTS


def shelf_prefix(prefix: bytes, shelf: Shelf) -> bytes:
    """What the keys of all fragments of a shelf begin with."""
    return prefix + _FRAGMENTS + _SHELF.pack(shelf.family, shelf.column)


def fragment_key(prefix: bytes, address: Address) -> bytes:
    shelf = address.shelf
    return prefix + _FRAGMENTS + _FRAGMENT.pack(shelf.family, shelf.column, address.low, address.serial)


def split_page_key(key: bytes) -> tuple[int, int, int]:
    """The family, the column and the page's lowest key."""
    family, column, low = _PAGE.unpack(key[-_PAGE.size :])
    return family, column, low


def split_fragment_key(key: bytes) -> tuple[int, int, int, int]:
    """The family, the column, the bucket's lowest key and the serial."""
    family, column, low, serial = _FRAGMENT.unpack(key[-_FRAGMENT.size :])
    return family, column, low, serial
