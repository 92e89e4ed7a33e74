"""The coordinator's flush handler: a delta becomes one write batch, data and source positions together.

A change whose position its source has already passed is left out. A second batch follows if upkeep is asked
for or can wait no longer; it holds no data of its own, and if it cannot be made, whatever the reason, it is left for
later. A flush that is asked for again after it landed writes no data twice: its epochs are in the snapshot that it is
asked on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, TypeAlias

import msgspec

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.coordinator import Epochs, Flushed
from penstock.keyvalue import KeyValue, WriteBatch
from penstock.observability import SILENT, Observer, names
from penstock.vector.block import Kind, seal
from penstock.vector.commit import commit
from penstock.vector.config import VectorConfig
from penstock.vector.draft import Operations
from penstock.vector.keys import STORE, CollectionName, collection_key, position_key
from penstock.vector.operations import CollectionSpec, Delete, Drop, Operation, Tend, Upsert, VectorDelta
from penstock.vector.reading import collection_keys
from penstock.vector.snapshot import VectorSnapshot
from penstock.vector.state import CollectionRecord, CollectionState, StoreRecord, encode_record
from penstock.vector.upkeep import PATIENCE, maintain

__all__ = ["VectorFlushHandler"]

# Flushes of a collection that leave its upkeep alone after it failed: each attempt may take long and lead nowhere again.
_UPKEEP_REST_COMMITS: Final = 16

Asked: TypeAlias = tuple[CollectionSpec, Operation]


@dataclass(slots=True)
class _Upkeep:
    """The second batch of a flush."""

    batch: WriteBatch = field(default_factory=WriteBatch)
    states: dict[CollectionName, CollectionState] = field(default_factory=dict)


@dataclass(slots=True)
class _Prepared:
    """Batches that were made and may have been sent: a repeat sends the very same, and so ends in the same state."""

    epochs: tuple[int, int]
    base: VectorSnapshot
    batch: WriteBatch
    store: StoreRecord
    positions: Mapping[str, int]
    states: Mapping[CollectionName, CollectionState]
    # Where upkeep is asked for, and whether of the whole collection.
    tend: Mapping[CollectionName, bool]
    dropped: Set[CollectionName]
    upkeep: _Upkeep | None = None


class VectorFlushHandler:
    """Writes deltas of a vector store."""

    def __init__(
        self,
        keyvalue: KeyValue,
        config: VectorConfig,
        snapshot: VectorSnapshot,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        self._keyvalue = keyvalue
        self._config = config
        self._clock = clock
        self._observer = observer
        self._prepared: _Prepared | None = None
        # Snapshots that were handed out, oldest first; the ones nobody reads any more are closed.
        self._handed_out: deque[VectorSnapshot] = deque([snapshot])
        self.published: Callable[[], VectorSnapshot] | None = None
        # Why the last step of a collection's upkeep could not be made, and the commit from which flushes try it again.
        self.upkeep_errors: dict[CollectionName, Exception] = {}
        self._upkeep_rests: dict[CollectionName, int] = {}
        # Told of the state that each collection in a flush was left in.
        self.landed: Callable[[CollectionState], None] | None = None

    def empty(self) -> VectorDelta:
        return VectorDelta()

    async def flush(self, delta: VectorDelta, snapshot: VectorSnapshot, epochs: Epochs) -> Flushed[VectorSnapshot]:
        await self._retire()
        if epochs.last <= snapshot.epoch:
            return await self._vouch(snapshot)
        prepared = self._prepared
        if prepared is None or prepared.epochs != (epochs.first, epochs.last) or prepared.base is not snapshot:
            prepared = self._prepared = await self._prepare(delta, snapshot, epochs)
        handle = await self._keyvalue.write(prepared.batch)
        held = snapshot.without(prepared.dropped)
        flushed = await self._advance(held, prepared.store, prepared.positions, epochs.last, prepared.states)
        if prepared.upkeep is None:
            prepared.upkeep = await self._plan_upkeep(flushed, prepared)
        if prepared.upkeep.states:
            handle = await self._keyvalue.write(prepared.upkeep.batch)
            flushed = await self._advance(
                flushed, prepared.store, prepared.positions, epochs.last, prepared.upkeep.states
            )
        self._prepared = None
        if self.landed is not None:
            # The snapshot itself keeps no more collections than may stay open.
            for state in {**prepared.states, **prepared.upkeep.states}.values():
                self.landed(state)
        return Flushed(flushed, handle.durable)

    async def close(self) -> None:
        """Close every snapshot that was handed out."""
        while self._handed_out:
            await self._handed_out.popleft().close()

    # the flush itself -----------------------------------------------------------------------------

    async def _prepare(self, delta: VectorDelta, snapshot: VectorSnapshot, epochs: Epochs) -> _Prepared:
        batch = WriteBatch()
        positions = dict(snapshot.positions)
        work = self._accepted(delta, positions, batch)
        next_collection = snapshot.store.next_collection
        states: dict[CollectionName, CollectionState] = {}
        tend: dict[CollectionName, bool] = {}
        dropped: set[CollectionName] = set()
        for name, asked in work.items():
            wanted = _since_drop(asked)
            if len(wanted) < len(asked):
                dropped.add(name)
                for key in await collection_keys(snapshot.blocks, name):
                    batch.delete(key)
            state = None if name in dropped else await snapshot.state(name)
            rest = [operation for _, operation in wanted if not isinstance(operation, Tend)]
            if state is None:
                if not rest:
                    continue
                spec, _ = wanted[0]
                record = CollectionRecord(next_collection, spec.dimensions, spec.metric, self._clock.now_ms())
                next_collection += 1
                state = CollectionState.new(name, record)
                batch.put(collection_key(name), encode_record(Kind.COLLECTION, record))
            if len(rest) < len(wanted):
                tend[name] = any(isinstance(operation, Tend) and operation.whole for _, operation in wanted)
            states[name], writes = await commit(snapshot.blocks, state, rest, self._config)
            _fill(batch, writes)
            self._count(rest)
        store = msgspec.structs.replace(
            snapshot.store, next_collection=next_collection, commit=snapshot.store.commit + 1
        )
        batch.put(STORE, encode_record(Kind.STORE, store))
        return _Prepared((epochs.first, epochs.last), snapshot, batch, store, positions, states, tend, dropped)

    def _accepted(
        self, delta: VectorDelta, positions: dict[str, int], batch: WriteBatch
    ) -> dict[CollectionName, list[Asked]]:
        """The operations of changes that are new, by collection; positions move on."""
        work: dict[CollectionName, list[Asked]] = {}
        for change in delta.changes:
            if change.source is not None and change.position is not None:
                if change.position <= positions.get(change.source, -1):
                    self._observer.count(names.VECTOR_CHANGES_SKIPPED)
                    continue
                positions[change.source] = change.position
                body = change.position.to_bytes(8, "little")
                batch.put(position_key(change.source), seal(Kind.POSITION, body))
            for spec, operation in change.operations:
                work.setdefault(spec.name, []).append((spec, operation))
        return work

    async def _vouch(self, snapshot: VectorSnapshot) -> Flushed[VectorSnapshot]:
        """The data is there: a write that changes nothing tells when all before it is durable."""
        batch = WriteBatch().put(STORE, encode_record(Kind.STORE, snapshot.store))
        handle = await self._keyvalue.write(batch)
        return Flushed(snapshot, handle.durable)

    # upkeep ---------------------------------------------------------------------------------------

    async def _plan_upkeep(self, snapshot: VectorSnapshot, prepared: _Prepared) -> _Upkeep:
        upkeep = _Upkeep()
        for name, state in prepared.states.items():
            if name not in prepared.tend and state.head.commit < self._upkeep_rests.get(name, 0):
                continue
            patience = 1.0 if name in prepared.tend else PATIENCE
            whole = prepared.tend.get(name, False)
            try:
                done = await maintain(
                    snapshot.blocks, state, self._config, whole=whole, patience=patience, observer=self._observer
                )
            except Exception as error:  # noqa: BLE001 - the data is written: nothing about tidying it may fail the writer
                self._observer.event(names.VECTOR_UPKEEP_FAILED, collection=str(name), why=str(error) or repr(error))
                self.upkeep_errors[name] = error
                self._upkeep_rests[name] = state.head.commit + _UPKEEP_REST_COMMITS
                continue
            self.upkeep_errors.pop(name, None)
            self._upkeep_rests.pop(name, None)
            if done is not None:
                upkeep.states[name] = done[0]
                _fill(upkeep.batch, done[1])
        return upkeep

    # snapshots ------------------------------------------------------------------------------------

    async def _advance(
        self,
        snapshot: VectorSnapshot,
        store: StoreRecord,
        positions: Mapping[str, int],
        epoch: int,
        states: Mapping[CollectionName, CollectionState],
    ) -> VectorSnapshot:
        reader = await self._keyvalue.snapshot()
        advanced = snapshot.advanced(reader, store, positions, epoch, states, self._config.collections_open)
        self._handed_out.append(advanced)
        return advanced

    async def _retire(self) -> None:
        """Close the snapshots before the published one that nobody reads, however long others are read."""
        current = self.published() if self.published else None
        older = list(takewhile(lambda snapshot: snapshot is not current, self._handed_out))
        if len(older) == len(self._handed_out):
            return
        for snapshot in older:
            if not snapshot.holders:
                await snapshot.close()
                self._handed_out.remove(snapshot)

    def _count(self, operations: Sequence[Operation]) -> None:
        written = sum(len(operation.rows) for operation in operations if isinstance(operation, Upsert))
        deleted = sum(len(operation.identities) for operation in operations if isinstance(operation, Delete))
        if written:
            self._observer.count(names.VECTOR_ROWS, written, operation="upsert")
        if deleted:
            self._observer.count(names.VECTOR_ROWS, deleted, operation="delete")


def _since_drop(asked: Sequence[Asked]) -> Sequence[Asked]:
    """What is asked of a collection after it was dropped last."""
    places = [place for place, (_, operation) in enumerate(asked) if isinstance(operation, Drop)]
    return asked[places[-1] + 1 :] if places else asked


def _fill(batch: WriteBatch, operations: Operations) -> None:
    for key, value in operations:
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
