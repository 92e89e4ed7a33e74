"""The records of a vector store that belong to no collection's data: its own, those of collections, and positions."""

from __future__ import annotations

from typing import Final, TypeAlias

from penstock.blocks import StoreRecords, StoreSnapshot
from penstock.keyvalue import Reader
from penstock.vector.format.keys import (
    COLLECTION_DATA,
    COLLECTIONS,
    CollectionName,
    collection_number,
    parse_collection_key,
)
from penstock.vector.format.state import CollectionRecord, CollectionState, StoreRecord
from penstock.vector.format.store_format import COLLECTION_RECORD, FORMAT, FORMAT_VERSION

__all__ = ["STORE_RECORDS", "VectorSnapshot", "list_collections"]

VectorSnapshot: TypeAlias = StoreSnapshot[StoreRecord, CollectionName, CollectionState]

STORE_RECORDS: Final = StoreRecords(
    FORMAT,
    StoreRecord,
    lambda number: StoreRecord(FORMAT_VERSION, number),
    COLLECTIONS,
    lambda value: FORMAT.decode_record(COLLECTION_RECORD, value, CollectionRecord).number,
    COLLECTION_DATA,
    collection_number,
)


async def list_collections(reader: Reader) -> list[CollectionName]:
    """The names of all collections, in order."""
    found: list[CollectionName] = []
    async for entries in reader.scan_prefix(COLLECTIONS):
        found += [parse_collection_key(key) for key, _ in entries]
    return sorted(found)
