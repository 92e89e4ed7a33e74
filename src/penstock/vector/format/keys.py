"""The keys that are a vector store's own: names of collections, and the prefix beneath which each has its data.

The rest of the layout is that of all block stores (`penstock.blocks.format.keys`); docs/format/vector.md draws it whole.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from penstock.blocks import check_name

__all__ = [
    "COLLECTIONS",
    "COLLECTION_DATA",
    "ROW_FAMILIES",
    "CollectionName",
    "Family",
    "collection_key",
    "collection_number",
    "collection_prefix",
    "parse_collection_key",
]

COLLECTIONS: Final = b"\x02"
COLLECTION_DATA: Final = b"\x10"

_LENGTH: Final = struct.Struct(">H")


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


def collection_key(name: CollectionName) -> bytes:
    parts = [part.encode() for part in (name.tenant, name.index, name.model)]
    return COLLECTIONS + b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def collection_prefix(number: int) -> bytes:
    return COLLECTION_DATA + number.to_bytes(4, "big")


def collection_number(key: bytes) -> int:
    """The number of the collection that a key of data belongs to."""
    return int.from_bytes(key[1:5], "big")


def parse_collection_key(key: bytes) -> CollectionName:
    parts, at = [], len(COLLECTIONS)
    while at < len(key):
        (size,) = _LENGTH.unpack_from(key, at)
        at += _LENGTH.size
        parts.append(key[at : at + size].decode())
        at += size
    tenant, index, model = parts
    return CollectionName(tenant, index, model)
