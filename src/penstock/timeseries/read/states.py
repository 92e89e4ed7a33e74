"""A tenant's state as the store holds it, all of one moment, and the records that belong to no tenant's data.

A directory page that cannot be read is made again from the keys of the fragments it listed: that is no loss, and the
next commit writes it again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, TypeAlias

from penstock.blocks import (
    BlockReader,
    StoreSnapshot,
    read_directories,
    read_head,
    read_positions,
    read_store_record,
    read_under_head,
)
from penstock.errors import Corrupt
from penstock.keyvalue import Reader
from penstock.timeseries.format.keys import TENANT_DATA, TENANTS, parse_tenant_key, tenant_key, tenant_prefix
from penstock.timeseries.format.state import SeriesStoreRecord, TenantHead, TenantRecord, TenantState
from penstock.timeseries.format.store_format import FORMAT, FORMAT_VERSION, TENANT_RECORD

__all__ = [
    "SeriesSnapshot",
    "check_format",
    "list_tenants",
    "read_state",
    "read_store",
    "read_tenant_head",
    "rebuilt_store",
    "record_problems",
]

SeriesSnapshot: TypeAlias = StoreSnapshot[SeriesStoreRecord, str, TenantState]

# Numbers left out when it is not known how many were given out: more than tenants are ever made in one batch.
_NUMBERS_SKIPPED: Final = 1 << 16


async def read_state(blocks: BlockReader, name: str) -> TenantState | None:
    """The state of a tenant, or None if there is none of that name."""
    value = await blocks.reader.get(tenant_key(name))
    if value is None:
        return None
    record = FORMAT.decode_record(TENANT_RECORD, value, TenantRecord, f"the record of tenant {name}")
    prefix = tenant_prefix(record.number)

    async def under(head: TenantHead) -> TenantState:
        found = await read_directories(blocks, prefix, f"tenant {name}")
        lost = {shelf: tuple(damage.blocks) for shelf, damage in found.damages.items()}
        return TenantState(name, record, head, found.directories, lost=lost, remade=frozenset(found.remade))

    return await read_under_head(blocks, prefix, f"tenant {name}", TenantHead, under)


async def read_tenant_head(reader: Reader, state: TenantState) -> TenantHead | None:
    return await read_head(reader, FORMAT, state.prefix, f"tenant {state.name}", TenantHead)


async def list_tenants(reader: Reader) -> list[str]:
    """The names of all tenants, in order."""
    return [parse_tenant_key(key) async for entries in reader.scan_prefix(TENANTS) for key, _ in entries]


async def read_store(reader: Reader) -> SeriesStoreRecord:
    """The store's own record; that of an empty store if there is none, and nothing else."""
    record = await read_store_record(reader, FORMAT, SeriesStoreRecord)
    return await rebuilt_store(reader) if record is None else record


async def check_format(reader: Reader) -> None:
    """Raise `Unsupported` if the store has a newer format. One whose record is damaged is of this format."""
    with suppress(Corrupt):
        await read_store(reader)


async def rebuilt_store(reader: Reader) -> SeriesStoreRecord:
    """The store's record as its tenants tell it: no number that may ever have been given out is given out again."""
    highest = -1
    async for entries in reader.scan_prefix(TENANTS):
        for _, value in entries:
            with suppress(Corrupt):
                highest = max(highest, FORMAT.decode_record(TENANT_RECORD, value, TenantRecord).number)
    async for entries in reader.scan_prefix(TENANT_DATA, reverse=True, block_bytes=1):
        highest = max(highest, int.from_bytes(entries[0][0][1:5], "big"))
        break
    return SeriesStoreRecord(FORMAT_VERSION, highest + 1 + _NUMBERS_SKIPPED if highest >= 0 else 0)


async def record_problems(reader: Reader) -> list[str]:
    """What is wrong with the records that belong to no tenant."""
    problems = []
    try:
        await read_store(reader)
    except Corrupt as error:
        problems.append(str(error))
    return problems + [str(error) for error in (await read_positions(reader, FORMAT)).unknown.values()]
