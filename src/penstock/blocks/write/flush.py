"""The coordinator's flush handler for block stores: a delta becomes one write batch, and a repeat is the same write.

The store plans, which is where all of its own work is: it turns a delta into puts and deletes, moves source positions
on, and says what its states are afterwards. What is here is alike for every store: the batch is written, a new snapshot
is made, older ones are closed when nobody reads them. A flush that is asked for again sends the very batches it made
before, and one that landed already writes no data: its epochs are in the snapshot that it is asked on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from penstock.blocks.format.envelope import RecordKind
from penstock.blocks.format.keys import STORE
from penstock.blocks.format.store_format import StoreFormat
from penstock.blocks.read.head import StoreHeader
from penstock.blocks.read.pages import Operations
from penstock.blocks.read.positions import position_operation
from penstock.blocks.read.snapshot import OpenSnapshots, StoreSnapshot
from penstock.coordinator import Delta, Epochs, Flushed
from penstock.keyvalue import KeyValue, WriteBatch

__all__ = ["BlockFlushHandler", "FlushPlan", "FlushPlanner", "StateChanges", "fill"]

D = TypeVar("D", bound=Delta)
R = TypeVar("R", bound=StoreHeader)
N = TypeVar("N", bound=Hashable)
S = TypeVar("S")


@dataclass(slots=True)
class StateChanges(Generic[N, S]):
    """A batch to write, and the states that it leads to."""

    batch: WriteBatch = field(default_factory=WriteBatch)
    states: dict[N, S] = field(default_factory=dict)

    def commit(self, name: N, state: S, operations: Operations) -> None:
        """Add what one draft came to."""
        fill(self.batch, operations)
        self.states[name] = state


@dataclass(slots=True)
class FlushPlan(Generic[R, N, S]):
    """What a flush writes: data, positions and the store's record, all in one batch."""

    record: R
    positions: dict[str, int]
    changes: StateChanges[N, S] = field(default_factory=StateChanges)
    # States that are gone before those of `changes` count.
    dropped: set[N] = field(default_factory=set)
    # Plans a second batch once the first is visible: upkeep, without data of its own.
    then: Callable[[StoreSnapshot[R, N, S]], Awaitable[StateChanges[N, S]]] | None = None

    def move_on(self, format: StoreFormat, source: str, position: int) -> None:
        """Note that a source is stored up to here, in the batch that holds what came from it."""
        self.positions[source] = position
        fill(self.changes.batch, [position_operation(format, source, position)])


class FlushPlanner(Protocol[D, R, N, S]):
    """The store's part of a flush."""

    def empty(self) -> D:
        """A fresh delta for writes to merge into."""
        ...

    async def plan(self, delta: D, snapshot: StoreSnapshot[R, N, S], /) -> FlushPlan[R, N, S]:
        """What to write of a delta, on top of a snapshot. The store's record is added by the handler."""
        ...


@dataclass(slots=True)
class _Prepared(Generic[R, N, S]):
    """Batches that were made and may have been sent: a repeat sends the very same, and so ends in the same state."""

    epochs: tuple[int, int]
    base: StoreSnapshot[R, N, S]
    plan: FlushPlan[R, N, S]
    second: StateChanges[N, S] | None = None

    def is_for(self, snapshot: StoreSnapshot[R, N, S], epochs: Epochs) -> bool:
        return self.base is snapshot and self.epochs == (epochs.first, epochs.last)


class BlockFlushHandler(Generic[D, R, N, S]):
    """Writes deltas of a block store."""

    def __init__(
        self,
        keyvalue: KeyValue,
        format: StoreFormat,
        planner: FlushPlanner[D, R, N, S],
        snapshot: StoreSnapshot[R, N, S],
        *,
        states_max: int,
    ) -> None:
        self._keyvalue = keyvalue
        self._format = format
        self._planner = planner
        # States that a snapshot keeps at hand, beside those that its own flush changed.
        self._states_max = states_max
        self._prepared: _Prepared[R, N, S] | None = None
        self._open = OpenSnapshots(snapshot)
        # The snapshot that readers are given now, and who is told of every state that a flush has left.
        self.published: Callable[[], StoreSnapshot[R, N, S]] | None = None
        self.landed: Callable[[S], None] | None = None

    def empty(self) -> D:
        return self._planner.empty()

    async def flush(
        self, delta: D, snapshot: StoreSnapshot[R, N, S], epochs: Epochs
    ) -> Flushed[StoreSnapshot[R, N, S]]:
        await self._open.retire(self.published() if self.published else None)
        if epochs.last <= snapshot.epoch:
            return await self._vouch(snapshot)
        if self._prepared is None or not self._prepared.is_for(snapshot, epochs):
            self._prepared = await self._prepare(delta, snapshot, epochs)
        prepared, plan = self._prepared, self._prepared.plan
        handle = await self._keyvalue.write(plan.changes.batch)
        flushed = await self._advance(snapshot.without(plan.dropped), plan, epochs.last, plan.changes.states)
        if prepared.second is None:
            prepared.second = await plan.then(flushed) if plan.then is not None else StateChanges()
        if prepared.second.states:
            handle = await self._keyvalue.write(prepared.second.batch)
            flushed = await self._advance(flushed, plan, epochs.last, prepared.second.states)
        self._prepared = None
        if self.landed is not None:
            # The snapshot itself keeps no more states than may stay open.
            for state in {**plan.changes.states, **prepared.second.states}.values():
                self.landed(state)
        return Flushed(flushed, handle.durable)

    async def close(self) -> None:
        """Close every snapshot that was handed out."""
        await self._open.close()

    async def _prepare(self, delta: D, snapshot: StoreSnapshot[R, N, S], epochs: Epochs) -> _Prepared[R, N, S]:
        plan = await self._planner.plan(delta, snapshot)
        plan.changes.batch.put(STORE, self._format.encode_record(RecordKind.STORE, plan.record))
        return _Prepared((epochs.first, epochs.last), snapshot, plan)

    async def _vouch(self, snapshot: StoreSnapshot[R, N, S]) -> Flushed[StoreSnapshot[R, N, S]]:
        """The data is there: a write that changes nothing tells when all before it is durable."""
        record = self._format.encode_record(RecordKind.STORE, snapshot.record)
        handle = await self._keyvalue.write(WriteBatch().put(STORE, record))
        return Flushed(snapshot, handle.durable)

    async def _advance(
        self, snapshot: StoreSnapshot[R, N, S], plan: FlushPlan[R, N, S], epoch: int, states: Mapping[N, S]
    ) -> StoreSnapshot[R, N, S]:
        reader = await self._keyvalue.snapshot()
        advanced = snapshot.advanced(reader, plan.record, plan.positions, epoch, states, self._states_max)
        self._open.add(advanced)
        return advanced


def fill(batch: WriteBatch, operations: Operations) -> None:
    """Add operations to a write batch."""
    for key, value in operations:
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
