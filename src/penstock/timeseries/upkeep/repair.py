"""Repairing what nothing else makes again: heads of tenants, and positions of sources that somebody states.

A head says little that the directories do not: the next serial is one above all that are listed. Blocks are not made
again; an hour that lacks one is removed with `expire`, or restored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.blocks import (
    BlockCache,
    BlockReader,
    Operations,
    RecordKind,
    fill,
    head_key,
    position_operation,
    read_directories,
    read_positions,
)
from penstock.errors import Corrupt, InvalidInput
from penstock.keyvalue import KeyValue, Reader, WriteBatch
from penstock.timeseries.format.keys import tenant_key, tenant_prefix
from penstock.timeseries.format.state import TenantHead, TenantRecord
from penstock.timeseries.format.store_format import FORMAT, TENANT_RECORD
from penstock.timeseries.read.states import list_tenants

__all__ = ["SeriesRepair", "repair_series"]

# Far above what a damaged head can have said: followers must see that it changed.
_COMMITS_SKIPPED = 1 << 32


@dataclass(frozen=True, slots=True)
class SeriesRepair:
    """What was damaged, and the result of its repair."""

    what: str
    outcome: str
    repaired: bool


async def repair_series(keyvalue: KeyValue, positions: Mapping[str, int | None]) -> list[SeriesRepair]:
    """Repair a store as its writer, in one batch."""
    operations: Operations = []
    reports = await _positions(keyvalue, positions, operations)
    for tenant in await list_tenants(keyvalue):
        report = await _tenant(keyvalue, tenant, operations)
        if report is not None:
            reports.append(report)
    batch = WriteBatch()
    fill(batch, operations)
    await (await keyvalue.write(batch)).durable()
    return reports


async def _positions(reader: Reader, stated: Mapping[str, int | None], operations: Operations) -> list[SeriesRepair]:
    found = await read_positions(reader, FORMAT)
    for source in stated:
        if source in found.known:
            raise InvalidInput(
                f"the position of {source!r} cannot be set", f"the store already has it: {found.known[source]}"
            )
    operations += [position_operation(FORMAT, source, position) for source, position in stated.items()]
    reports = [
        SeriesRepair(f"the position of {source!r}", f"is now {stated[source]}", repaired=True) for source in stated
    ]
    for source, error in found.unknown.items():
        if source not in stated:
            reports.append(SeriesRepair(f"the position of {source!r}", str(error), repaired=False))
    return reports


async def _tenant(reader: Reader, tenant: str, operations: Operations) -> SeriesRepair | None:
    value = await reader.get(tenant_key(tenant))
    assert value is not None
    named = f"tenant {tenant}"
    try:
        record = FORMAT.decode_record(TENANT_RECORD, value, TenantRecord, f"the record of {named}")
    except Corrupt as error:
        return SeriesRepair(f"the record of {named}", str(error), repaired=False)
    prefix = tenant_prefix(record.number)
    head = await reader.get(head_key(prefix))
    try:
        if head is None:
            raise Corrupt(f"{named} has no head")
        FORMAT.decode_record(RecordKind.HEAD, head, TenantHead, f"the head of {named}")
        return None
    except Corrupt:
        blocks = BlockReader(reader, FORMAT, BlockCache(1, store=FORMAT.label))
        directories = (await read_directories(blocks, prefix, named)).directories
    serials = [int(directory.fragments["serial"].max()) for directory in directories.values() if len(directory)]
    made = TenantHead(commit=_COMMITS_SKIPPED, next_serial=max(serials, default=0) + 1)
    operations.append((head_key(prefix), FORMAT.encode_record(RecordKind.HEAD, made)))
    return SeriesRepair(f"the head of {named}", "was made again from its directories", repaired=True)
