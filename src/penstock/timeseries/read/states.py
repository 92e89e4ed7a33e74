"""A tenant's state as the store holds it, all of one moment, and the records that belong to no tenant's data.

A directory page that cannot be read is made again from the keys of the fragments it listed: that is no loss, and the
next commit writes it again.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from penstock.blocks import BlockReader, StoreRecords, StoreSnapshot, read_directories, read_head, read_under_head
from penstock.keyvalue import Reader
from penstock.timeseries.format.keys import TENANT_DATA, TENANTS, parse_tenant_key, tenant_key, tenant_prefix
from penstock.timeseries.format.state import SeriesStoreRecord, TenantHead, TenantRecord, TenantState
from penstock.timeseries.format.store_format import FORMAT, FORMAT_VERSION, TENANT_RECORD

__all__ = ["STORE_RECORDS", "SeriesSnapshot", "list_tenants", "read_state", "read_tenant_head"]

SeriesSnapshot: TypeAlias = StoreSnapshot[SeriesStoreRecord, str, TenantState]

STORE_RECORDS: Final = StoreRecords(
    FORMAT,
    SeriesStoreRecord,
    lambda number: SeriesStoreRecord(FORMAT_VERSION, number),
    TENANTS,
    lambda value: FORMAT.decode_record(TENANT_RECORD, value, TenantRecord).number,
    TENANT_DATA,
    lambda key: int.from_bytes(key[1:5], "big"),
)


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
