"""A small store on this room's machinery: what meters read, by hour, of many tenants. The tests' own, and an example.

Readings are filed by a key of hour and meter; of two readings of one meter in one hour the later write wins. What
lies before an hour can be forgotten in one write.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np

from penstock.blocks import (
    EMPTY,
    BlockBody,
    BlockCache,
    BlockDraft,
    BlockFlushHandler,
    BlockReader,
    Directory,
    Envelope,
    FlushPlan,
    Shelf,
    StateChanges,
    StoreFormat,
    StoreHeader,
    StoreSnapshot,
    all_keys,
    check_name,
    file,
    is_stored,
    read_directories,
    read_head,
    read_positions,
    read_store_record,
    read_under_head,
)
from penstock.coordinator import Coordinator, CoordinatorConfig
from penstock.errors import Corrupt, NotFound
from penstock.keyvalue import KeyValue
from penstock.observability import SILENT, Observer

# Flushes only when it is asked to.
QUIET = CoordinatorConfig(flush_interval_seconds=900)
_COUNT = struct.Struct("<I")
_METER_BITS = 32


class Table(IntEnum):
    READINGS = 1


READINGS = Shelf(Table.READINGS)


@dataclass(frozen=True, eq=False)
class ReadingBlock:
    """Readings by hour and meter, in order, each once: u32 rows, keys, values."""

    keys: Any
    values: Any

    @property
    def size_bytes(self) -> int:
        return 16 * len(self.keys)

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: Any) -> ReadingBlock:
        return ReadingBlock(self.keys[rows], self.values[rows])

    def encode(self) -> BlockBody:
        return BlockBody((_COUNT.pack(len(self)), self.keys.astype("<u8"), self.values.astype("<i8")))

    @classmethod
    def decode(cls, body: memoryview) -> ReadingBlock:
        if len(body) < 4 or len(body) != 4 + 16 * _COUNT.unpack_from(body)[0]:
            raise Corrupt("a block of readings is cut short", f"it has {len(body)} bytes")
        rows = (len(body) - 4) // 16
        return cls(np.frombuffer(body, "<u8", rows, 4), np.frombuffer(body, "<i8", rows, 4 + 8 * rows))

    @classmethod
    def merge(cls, parts: Sequence[ReadingBlock]) -> ReadingBlock:
        return cls.of(np.concatenate([part.keys for part in parts]), np.concatenate([part.values for part in parts]))

    @classmethod
    def of(cls, keys: Any, values: Any) -> ReadingBlock:
        """Of any order; of equal keys the last is kept."""
        last = {int(key): int(value) for key, value in zip(keys, values, strict=True)}
        ordered = sorted(last)
        return cls(np.array(ordered, np.uint64), np.array([last[key] for key in ordered], np.int64))


FORMAT = StoreFormat(
    Envelope("the store of meters", b"PSMB", 1),
    Table,
    {Table.READINGS: ReadingBlock},
    label="meters",
    repair="penstock meters repair",
)


class MeterRecord(StoreHeader, frozen=True):
    flushes: int = 0


class MeterHead(msgspec.Struct, frozen=True):
    commit: int = 0
    next_serial: int = 1


@dataclass(frozen=True)
class TenantState:
    """The readings of a tenant at one moment."""

    name: str
    head: MeterHead = field(default_factory=MeterHead)
    directories: Mapping[Shelf, Directory] = field(default_factory=dict)

    @property
    def prefix(self) -> bytes:
        return tenant_prefix(self.name)

    def directory(self, shelf: Shelf) -> Directory:
        return self.directories.get(shelf, EMPTY)


def tenant_prefix(tenant: str) -> bytes:
    name = check_name("tenant", tenant)
    return b"\x10" + len(name).to_bytes(2, "big") + name


def key_of(hour: int, meter: int) -> int:
    return hour << _METER_BITS | meter


@dataclass(frozen=True)
class Write:
    """Readings of a tenant as (hour, meter, value), and what is forgotten before them."""

    tenant: str
    readings: tuple[tuple[int, int, int], ...] = ()
    source: str | None = None
    position: int | None = None
    forget_before: int = 0
    leave: bool = False
    size_bytes: int = 100


@dataclass
class Writes:
    writes: list[Write] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(write.size_bytes for write in self.writes)

    def merge(self, later: Writes) -> None:
        self.writes.extend(later.writes)


MeterSnapshot = StoreSnapshot[MeterRecord, str, TenantState]


async def read_tenant(blocks: BlockReader, tenant: str) -> TenantState | None:
    prefix = tenant_prefix(tenant)
    if await read_head(blocks.reader, FORMAT, prefix, tenant, MeterHead) is None:
        return None

    async def under(head: MeterHead) -> TenantState:
        return TenantState(tenant, head, (await read_directories(blocks, prefix, tenant)).directories)

    return await read_under_head(blocks, prefix, tenant, MeterHead, under)


class MeterPlanner:
    """`tidied` names the tenants whose buckets a second batch writes again, each as one fragment."""

    def __init__(self) -> None:
        self.plans = 0
        self.tidied: set[str] = set()

    def empty(self) -> Writes:
        return Writes()

    async def plan(self, delta: Writes, snapshot: MeterSnapshot) -> FlushPlan[MeterRecord, str, TenantState]:
        self.plans += 1
        record = msgspec.structs.replace(snapshot.record, flushes=snapshot.record.flushes + 1)
        plan: FlushPlan[MeterRecord, str, TenantState] = FlushPlan(record, dict(snapshot.positions))
        for tenant, writes in _by_tenant(_fresh(delta, plan)).items():
            await self._plan_tenant(plan, snapshot, tenant, writes)
        plan.then = self._tidy
        return plan

    async def _plan_tenant(
        self,
        plan: FlushPlan[MeterRecord, str, TenantState],
        snapshot: MeterSnapshot,
        tenant: str,
        writes: Sequence[Write],
    ) -> None:
        state = await snapshot.state(tenant) or TenantState(tenant)
        if writes[-1].leave:
            plan.dropped.add(tenant)
            for key in all_keys(state):
                plan.changes.batch.delete(key)
            return
        draft = BlockDraft(FORMAT, state)
        oldest = key_of(max(write.forget_before for write in writes), 0)
        for low in state.directory(READINGS).lows.tolist():
            if low + (1 << _METER_BITS) <= oldest:
                draft.replace(READINGS, low, None)
        rows = [reading for write in writes for reading in write.readings]
        if rows:
            keys = np.array([key_of(hour, meter) for hour, meter, _ in rows], np.uint64)
            await _file_by_hour(draft, snapshot.blocks, ReadingBlock.of(keys, [value for *_, value in rows]))
        await draft.fold(snapshot.blocks)
        done = draft.finish(state.head)
        plan.changes.commit(tenant, replace(state, head=done.head, directories=done.directories), done.operations)

    async def _tidy(self, snapshot: MeterSnapshot) -> StateChanges[str, TenantState]:
        changes: StateChanges[str, TenantState] = StateChanges()
        for tenant in sorted(self.tidied):
            state = await snapshot.state(tenant)
            assert state is not None
            draft = BlockDraft(FORMAT, state)
            stored = await snapshot.blocks.contents(state, READINGS, state.directory(READINGS).low_list, ReadingBlock)
            for low, block in stored.items():
                draft.replace(READINGS, low, block)
            done = draft.finish(state.head)
            changes.commit(tenant, replace(state, head=done.head, directories=done.directories), done.operations)
        return changes


async def _file_by_hour(draft: BlockDraft[TenantState], blocks: BlockReader, readings: ReadingBlock) -> None:
    """Each hour begins a bucket, so that it can be forgotten without its neighbours."""
    known = set(draft.base.directory(READINGS).low_list)
    for hour in np.unique(readings.keys >> np.uint64(_METER_BITS)).tolist():
        mine = readings.take(readings.keys >> np.uint64(_METER_BITS) == hour)
        if key_of(hour, 0) in known:
            await file(draft, blocks, READINGS, mine)
        else:
            draft.append(READINGS, key_of(hour, 0), mine)


def _fresh(delta: Writes, plan: FlushPlan[MeterRecord, str, TenantState]) -> Iterable[Write]:
    for write in delta.writes:
        if is_stored(plan.positions, write.source, write.position):
            continue
        if write.source is not None and write.position is not None:
            plan.move_on(FORMAT, write.source, write.position)
        yield write


def _by_tenant(writes: Iterable[Write]) -> dict[str, list[Write]]:
    found: dict[str, list[Write]] = {}
    for write in writes:
        found.setdefault(write.tenant, []).append(write)
    return found


class MeterStore:
    """The single writer."""

    def __init__(self, keyvalue: KeyValue, planner: MeterPlanner, handler: Any, coordinator: Any) -> None:
        self.keyvalue = keyvalue
        self.planner = planner
        self.handler = handler
        self.coordinator: Coordinator[Writes, MeterSnapshot] = coordinator

    @classmethod
    async def over(cls, keyvalue: KeyValue, *, states_max: int = 8, observer: Observer = SILENT) -> MeterStore:
        reader = await keyvalue.snapshot()
        blocks = BlockReader(reader, FORMAT, BlockCache(1 << 20, store=FORMAT.label, observer=observer))
        record = await read_store_record(reader, FORMAT, MeterRecord) or MeterRecord(FORMAT.envelope.version)
        positions = await read_positions(reader, FORMAT)
        first: MeterSnapshot = StoreSnapshot(blocks, record, positions.known, read_tenant)
        planner = MeterPlanner()
        handler: BlockFlushHandler[Writes, MeterRecord, str, TenantState] = BlockFlushHandler(
            keyvalue, FORMAT, planner, first, states_max=states_max
        )
        coordinator = Coordinator(handler, first, QUIET, name="meters", observer=observer)
        handler.published = lambda: coordinator.current.snapshot
        return cls(keyvalue, planner, handler, coordinator)

    @property
    def snapshot(self) -> MeterSnapshot:
        return self.coordinator.current.snapshot

    async def write(self, *writes: Write) -> None:
        for write in writes:
            await self.coordinator.write(Writes([write]))
        await self.coordinator.flush()

    async def readings(self, tenant: str) -> dict[tuple[int, int], int]:
        with self.snapshot.held() as snapshot:
            return await readings_in(snapshot, tenant)

    async def close(self) -> None:
        await self.coordinator.shutdown()
        await self.handler.close()
        await self.keyvalue.close()


async def readings_in(snapshot: MeterSnapshot, tenant: str) -> dict[tuple[int, int], int]:
    state = await snapshot.state(tenant)
    return {} if state is None else await readings_of(snapshot.blocks, state)


async def readings_of(blocks: BlockReader, state: TenantState) -> dict[tuple[int, int], int]:
    lows = state.directory(READINGS).low_list
    stored = await blocks.contents(state, READINGS, lows, ReadingBlock)
    found = {}
    for block in stored.values():
        for key, value in zip(block.keys.tolist(), block.values.tolist(), strict=True):
            found[key >> _METER_BITS, key & ((1 << _METER_BITS) - 1)] = value
    return found


class DurableTenants:
    """Tenants as a follower reads them."""

    async def read(self, blocks: BlockReader, name: str) -> TenantState:
        state = await read_tenant(blocks, name)
        if state is None:
            raise NotFound(f"there is no tenant {name}")
        return state

    async def is_newest(self, blocks: BlockReader, state: TenantState) -> bool:
        return await read_head(blocks.reader, FORMAT, state.prefix, state.name, MeterHead) == state.head
