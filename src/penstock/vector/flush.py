"""The coordinator's flush handler: a delta becomes one write batch, data and source positions together.

A change whose position its source has already passed is left out. A second batch follows if upkeep is asked
for or can wait no longer; it holds no data of its own, and if it cannot be made, whatever the reason, it is left for
later. A collection that turns out to be damaged is set aside: the changes that name it are refused, each whole, and
everything else is written (`refusals`). A flush that is asked for again after it landed writes no data twice: its epochs are in the snapshot that it is
asked on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, TypeAlias

import msgspec

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.coordinator import Epochs, Flushed
from penstock.errors import Corrupt
from penstock.keyvalue import KeyValue, WriteBatch
from penstock.observability import SILENT, Observer, names
from penstock.vector.block import Kind, seal
from penstock.vector.commit import commit
from penstock.vector.config import VectorConfig
from penstock.vector.draft import Operations
from penstock.vector.keys import STORE, CollectionName, collection_key, position_key
from penstock.vector.mend import mended
from penstock.vector.operations import CollectionSpec, Delete, Drop, Operation, Tend, Upsert, VectorDelta
from penstock.vector.reading import collection_keys
from penstock.vector.refusals import Refusals
from penstock.vector.snapshot import VectorSnapshot
from penstock.vector.state import CollectionRecord, CollectionState, StoreRecord, encode_record
from penstock.vector.terms import TextAnalysis
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
    store: StoreRecord
    positions: dict[str, int]
    batch: WriteBatch = field(default_factory=WriteBatch)
    states: dict[CollectionName, CollectionState] = field(default_factory=dict)
    # Where upkeep is asked for, and whether of the whole collection.
    tend: dict[CollectionName, bool] = field(default_factory=dict)
    dropped: set[CollectionName] = field(default_factory=set)
    applied: list[Operation] = field(default_factory=list)
    upkeep: _Upkeep | None = None


class VectorFlushHandler:
    """Writes deltas of a vector store."""

    def __init__(
        self,
        keyvalue: KeyValue,
        config: VectorConfig,
        snapshot: VectorSnapshot,
        refusals: Refusals,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        self._keyvalue = keyvalue
        self._refusals = refusals
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
        """What to write: everything but changes that name a damaged collection."""
        while True:
            store = msgspec.structs.replace(snapshot.store, commit=snapshot.store.commit + 1)
            prepared = _Prepared((epochs.first, epochs.last), snapshot, store, dict(snapshot.positions))
            damaged: dict[CollectionName, Corrupt] = {}
            for name, asked in self._accepted(delta, prepared).items():
                try:
                    await self._prepare_collection(prepared, name, asked)
                except Corrupt as error:
                    damaged[name] = error
            if not damaged:
                prepared.batch.put(STORE, encode_record(Kind.STORE, prepared.store))
                self._count(prepared.applied)
                return prepared
            # Each round leaves out more collections, so the last one comes.
            for name, why in damaged.items():
                self.set_aside(name, why)

    def set_aside(self, name: CollectionName, why: Corrupt) -> None:
        """Take no more writes for a damaged collection."""
        if self._refusals.set_aside(name, why):
            self._observer.event(names.VECTOR_COLLECTION_ASIDE, collection=str(name), why=str(why))

    async def _prepare_collection(self, prepared: _Prepared, name: CollectionName, asked: Sequence[Asked]) -> None:
        snapshot, batch = prepared.base, prepared.batch
        wanted = _since_drop(asked)
        if len(wanted) < len(asked):
            prepared.dropped.add(name)
            for key in await collection_keys(snapshot.blocks, name):
                batch.delete(key)
        rest = [operation for _, operation in wanted if not isinstance(operation, Tend)]
        try:
            state = None if name in prepared.dropped else await self._whole(snapshot, name, batch)
        except Corrupt as error:
            if rest:
                raise
            self._upkeep_failed(name, error)
            return
        if state is None:
            if not rest:
                return
            state = self._created(prepared, wanted[0][0])
        if len(rest) < len(wanted):
            prepared.tend[name] = any(isinstance(operation, Tend) and operation.whole for _, operation in wanted)
        prepared.states[name], writes = await commit(snapshot.blocks, state, rest, self._config)
        _fill(batch, writes)
        prepared.applied += rest

    async def _whole(self, snapshot: VectorSnapshot, name: CollectionName, batch: WriteBatch) -> CollectionState | None:
        """A collection to write to. What was damaged and could be made again is written again."""
        state = await snapshot.state(name)
        if state is None or not state.lost:
            return state
        whole, writes = mended(state)
        _fill(batch, writes)
        self._observer.event(names.VECTOR_COLLECTION_MENDED, collection=str(name), blocks=len(state.rebuilt))
        return whole

    def _created(self, prepared: _Prepared, spec: CollectionSpec) -> CollectionState:
        number = prepared.store.next_collection
        prepared.store = msgspec.structs.replace(prepared.store, next_collection=number + 1)
        record = CollectionRecord(number, spec.dimensions, spec.metric, self._clock.now_ms(), _stored(spec.analysis))
        prepared.batch.put(collection_key(spec.name), encode_record(Kind.COLLECTION, record))
        return CollectionState.new(spec.name, record)

    def _accepted(self, delta: VectorDelta, prepared: _Prepared) -> dict[CollectionName, list[Asked]]:
        """The operations of changes that are new and not refused, by collection; positions move on."""
        work: dict[CollectionName, list[Asked]] = {}
        for change in delta.changes:
            if change.is_stored(prepared.positions):
                self._observer.count(names.VECTOR_CHANGES_SKIPPED)
                continue
            why = self._refusals.judge(change)
            self._refusals.settle(change.receipt, why)
            if why is not None:
                continue
            if change.source is not None and change.position is not None:
                prepared.positions[change.source] = change.position
                body = change.position.to_bytes(8, "little")
                prepared.batch.put(position_key(change.source), seal(Kind.POSITION, body))
            for spec, operation in change.operations:
                if isinstance(operation, Drop):
                    self._refusals.readmit(spec.name)
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
                self._upkeep_failed(name, error)
                self._upkeep_rests[name] = state.head.commit + _UPKEEP_REST_COMMITS
                continue
            self.upkeep_errors.pop(name, None)
            self._upkeep_rests.pop(name, None)
            if done is not None:
                upkeep.states[name] = done[0]
                _fill(upkeep.batch, done[1])
        return upkeep

    def _upkeep_failed(self, name: CollectionName, error: Exception) -> None:
        self._observer.event(names.VECTOR_UPKEEP_FAILED, collection=str(name), why=str(error) or repr(error))
        self.upkeep_errors[name] = error

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


def _stored(analysis: TextAnalysis) -> TextAnalysis | msgspec.UnsetType:
    return msgspec.UNSET if analysis is TextAnalysis.WORDS else analysis


def _fill(batch: WriteBatch, operations: Operations) -> None:
    for key, value in operations:
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
