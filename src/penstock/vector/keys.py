"""Where everything lies: the keys of a vector store, as docs/format/vector.md draws them.

Numbers in keys are big-endian, so that key order is numeric order. Data lies in fragments; a fragment's
serial is used once, so the bytes under its key never change.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.errors import InvalidInput

__all__ = [
    "COLLECTIONS",
    "COLLECTION_DATA",
    "NAME_BYTES_MAX",
    "POSITIONS",
    "ROW_FAMILIES",
    "STORE",
    "Address",
    "CollectionName",
    "Family",
    "Shelf",
    "check_name",
    "collection_key",
    "collection_number",
    "collection_prefix",
    "fragment_key",
    "fragments_prefix",
    "head_key",
    "page_key",
    "pages_prefix",
    "parse_collection_key",
    "parse_fragment_key",
    "parse_page_key",
    "position_key",
    "shelf_prefix",
]

STORE: Final = b"\x00"
POSITIONS: Final = b"\x01"
COLLECTIONS: Final = b"\x02"
COLLECTION_DATA: Final = b"\x10"

# Inside a collection: its head, the pages of its directories, its fragments.
_HEAD: Final = 0
_PAGE: Final = 1
_FRAGMENT: Final = 2

_HEAD_KEY: Final = struct.Struct(">cIB")
_SHELF_KEY: Final = struct.Struct(">cIBBH")
_PAGE_KEY: Final = struct.Struct(">cIBBHQ")
_FRAGMENT_KEY: Final = struct.Struct(">cIBBHQQ")
_LENGTH: Final = struct.Struct(">H")

# Names of tenants, indexes, models and sources: far beyond what people write, far below a key's limit.
NAME_BYTES_MAX: Final = 1024


class Family(IntEnum):
    """What a block holds. The number is in keys and in block headers, and never changes its meaning."""

    VECTORS = 1  # vectors by internal id
    NAMES = 2  # external ids by internal id
    TEXTS = 3  # texts by internal id
    COLUMN = 4  # one attribute's values by internal id; the column's number is in the key
    DICTIONARY = 5  # internal ids by the hash of the external one
    POSTINGS = 6  # codes of a list's rows, by list number
    TERMS = 7  # rows of a word, by the word's hash
    DOCUMENTS = 8  # rows of a document's versions, by the document's hash
    CENTROIDS = 9  # centres of lists, by list number
    DELETED = 10  # ids of dead rows
    HIDDEN = 11  # ids of rows whose version is not current yet


# What makes up a row that is asked for by its id, and tells whether it may be shown.
ROW_FAMILIES: Final = (
    Family.VECTORS,
    Family.NAMES,
    Family.TEXTS,
    Family.COLUMN,
    Family.DICTIONARY,
    Family.DELETED,
    Family.HIDDEN,
)


class Shelf(NamedTuple):
    """One directory's worth of buckets: a family, and for columns which one."""

    family: Family
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


@dataclass(frozen=True, slots=True, order=True)
class CollectionName:
    """Rows of one tenant's index, embedded by one model."""

    tenant: str
    index: str
    model: str

    def __post_init__(self) -> None:
        for part, text in (("tenant", self.tenant), ("index", self.index), ("model", self.model)):
            check_name(part, text)

    def __str__(self) -> str:
        return f"{self.tenant}/{self.index}/{self.model}"


def check_name(part: str, text: str) -> bytes:
    """The bytes of a name that can be part of a key."""
    if not text or not isinstance(text, str):
        raise InvalidInput(f"{part} = {text!r:.60}", "a name is text of at least one character")
    try:
        name = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{part} = {text[:40]!r}", f"it is no text that can be written: {error.reason}") from error
    if len(name) > NAME_BYTES_MAX:
        raise InvalidInput(f"{part} = {text[:40]!r}…", f"a name has at most {NAME_BYTES_MAX} bytes")
    return name


def position_key(source: str) -> bytes:
    return POSITIONS + check_name("source", source)


def collection_key(name: CollectionName) -> bytes:
    parts = [part.encode() for part in (name.tenant, name.index, name.model)]
    return COLLECTIONS + b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def collection_prefix(number: int) -> bytes:
    return COLLECTION_DATA + number.to_bytes(4, "big")


def collection_number(key: bytes) -> int:
    """The number of the collection that a key of data belongs to."""
    return int.from_bytes(key[1:5], "big")


def head_key(number: int) -> bytes:
    return _HEAD_KEY.pack(COLLECTION_DATA, number, _HEAD)


def pages_prefix(number: int) -> bytes:
    return _HEAD_KEY.pack(COLLECTION_DATA, number, _PAGE)


def page_key(number: int, shelf: Shelf, low: int) -> bytes:
    return _PAGE_KEY.pack(COLLECTION_DATA, number, _PAGE, shelf.family, shelf.column, low)


def parse_page_key(key: bytes) -> tuple[Shelf, int]:
    """The shelf and the page's lowest key."""
    _, _, _, family, column, low = _PAGE_KEY.unpack(key)
    return Shelf(Family(family), column), low


def fragments_prefix(number: int) -> bytes:
    return _HEAD_KEY.pack(COLLECTION_DATA, number, _FRAGMENT)


def shelf_prefix(number: int, shelf: Shelf) -> bytes:
    """What the keys of all fragments of a shelf begin with."""
    return _SHELF_KEY.pack(COLLECTION_DATA, number, _FRAGMENT, shelf.family, shelf.column)


def fragment_key(number: int, address: Address) -> bytes:
    shelf = address.shelf
    return _FRAGMENT_KEY.pack(
        COLLECTION_DATA, number, _FRAGMENT, shelf.family, shelf.column, address.low, address.serial
    )


def parse_fragment_key(key: bytes) -> Address:
    _, _, _, family, column, low, serial = _FRAGMENT_KEY.unpack(key)
    return Address(Shelf(Family(family), column), low, serial)


def parse_collection_key(key: bytes) -> CollectionName:
    parts, at = [], len(COLLECTIONS)
    while at < len(key):
        (size,) = _LENGTH.unpack_from(key, at)
        at += _LENGTH.size
        parts.append(key[at : at + size].decode())
        at += size
    tenant, index, model = parts
    return CollectionName(tenant, index, model)
