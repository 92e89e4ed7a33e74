"""The records of a vector store that belong to no collection's data: its own, those of collections, and positions."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, TypeAlias

from penstock.blocks import StoreSnapshot, read_positions, read_store_record
from penstock.errors import Corrupt
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

__all__ = ["VectorSnapshot", "check_format", "list_collections", "read_store", "rebuilt_store", "record_problems"]

VectorSnapshot: TypeAlias = StoreSnapshot[StoreRecord, CollectionName, CollectionState]

# Numbers left out when it is not known how many were given out: more than collections are ever dropped in a row.
_NUMBERS_SKIPPED: Final = 1 << 16


async def read_store(reader: Reader) -> StoreRecord:
    """The store's own record; that of an empty store if there is none, and nothing else."""
    record = await read_store_record(reader, FORMAT, StoreRecord)
    return await rebuilt_store(reader) if record is None else record


async def check_format(reader: Reader) -> None:
    """Raise `Unsupported` if the store has a newer format. One whose record is damaged is of this format."""
    with suppress(Corrupt):
        await read_store(reader)


async def rebuilt_store(reader: Reader) -> StoreRecord:
    """The store's record as its collections tell it: no number that may ever have been given out is given out again."""
    highest = -1
    async for entries in reader.scan_prefix(COLLECTIONS):
        for _, value in entries:
            with suppress(Corrupt):
                highest = max(highest, FORMAT.decode_record(COLLECTION_RECORD, value, CollectionRecord).number)
    async for entries in reader.scan_prefix(COLLECTION_DATA, reverse=True, block_bytes=1):
        highest = max(highest, collection_number(entries[0][0]))
        break
    return StoreRecord(FORMAT_VERSION, highest + 1 + _NUMBERS_SKIPPED if highest >= 0 else 0)


async def record_problems(reader: Reader) -> list[str]:
    """What is wrong with the records that belong to no collection."""
    problems = []
    try:
        await read_store(reader)
    except Corrupt as error:
        problems.append(str(error))
    return problems + [str(error) for error in (await read_positions(reader, FORMAT)).unknown.values()]


async def list_collections(reader: Reader) -> list[CollectionName]:
    """The names of all collections, in order."""
    found: list[CollectionName] = []
    async for entries in reader.scan_prefix(COLLECTIONS):
        found += [parse_collection_key(key) for key, _ in entries]
    return sorted(found)
