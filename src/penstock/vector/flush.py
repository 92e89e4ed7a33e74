"""What the flush of a vector store writes: operations of accepted changes, their positions, and upkeep after them.

A change whose position its source has already passed is left out. A second batch follows if upkeep is asked
for or can wait no longer; it holds no data of its own, and if it cannot be made, whatever the reason, it is left for
later. A collection that turns out to be damaged is set aside: the changes that name it are refused, each whole, and
everything else is written (`refusals`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from penstock.blocks import FlushPlan, StateChanges, fill
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Corrupt
from penstock.keyvalue import WriteBatch
from penstock.observability import SILENT, Observer, names
from penstock.vector.config import VectorConfig
from penstock.vector.format.analysis import StoredAnalysis
from penstock.vector.format.keys import CollectionName, collection_key
from penstock.vector.format.state import CollectionRecord, CollectionState, StoreRecord
from penstock.vector.format.store_format import COLLECTION_RECORD, FORMAT
from penstock.vector.operations import CollectionSpec, Delete, DropCollection, Operation, Tend, Upsert, VectorDelta
from penstock.vector.read.reading import collection_keys
from penstock.vector.read.records import VectorSnapshot
from penstock.vector.upkeep.mend import mended
from penstock.vector.upkeep.steps import PATIENCE, maintain
from penstock.vector.write.commit import commit
from penstock.vector.write.refusals import Refusals

__all__ = ["VectorFlushPlanner"]

# Flushes of a collection that leave its upkeep alone after it failed: each attempt may take long and lead nowhere again.
_UPKEEP_REST_COMMITS: Final = 16

Asked: TypeAlias = tuple[CollectionSpec, Operation]
Changed: TypeAlias = StateChanges[CollectionName, CollectionState]
Plan: TypeAlias = FlushPlan[StoreRecord, CollectionName, CollectionState]


@dataclass(slots=True)
class _Gathering:
    """A plan in the making, and what it was made on."""

    base: VectorSnapshot
    plan: Plan
    # Where upkeep is asked for, and whether of the whole collection.
    tend: dict[CollectionName, bool] = field(default_factory=dict)
    applied: list[Operation] = field(default_factory=list)


class VectorFlushPlanner:
    """Turns deltas of a vector store into what is written."""

    def __init__(
        self,
        config: VectorConfig,
        refusals: Refusals,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        self._refusals = refusals
        self._config = config
        self._clock = clock
        self._observer = observer
        # Why the last step of a collection's upkeep could not be made, and the commit from which flushes try it again.
        self.upkeep_errors: dict[CollectionName, Exception] = {}
        self._upkeep_rests: dict[CollectionName, int] = {}

    def empty(self) -> VectorDelta:
        return VectorDelta()

    async def plan(self, delta: VectorDelta, snapshot: VectorSnapshot) -> Plan:
        """What to write: everything but changes that name a damaged collection."""
        while True:
            record = msgspec.structs.replace(snapshot.record, commit=snapshot.record.commit + 1)
            gathering = _Gathering(snapshot, FlushPlan(record, dict(snapshot.positions)))
            damaged: dict[CollectionName, Corrupt] = {}
            for name, asked in self._accepted(delta, gathering.plan).items():
                try:
                    await self._plan_collection(gathering, name, asked)
                except Corrupt as error:
                    damaged[name] = error
            if not damaged:
                break
            # Each round leaves out more collections, so the last one comes.
            for name, why in damaged.items():
                self.set_aside(name, why)
        self._count(gathering.applied)
        plan, tend = gathering.plan, gathering.tend
        plan.then = lambda flushed: self._plan_upkeep(flushed, plan, tend)
        return plan

    def set_aside(self, name: CollectionName, why: Corrupt) -> None:
        """Take no more writes for a damaged collection."""
        if self._refusals.set_aside(name, why):
            self._observer.event(names.VECTOR_COLLECTION_ASIDE, collection=str(name), why=str(why))

    async def _plan_collection(self, gathering: _Gathering, name: CollectionName, asked: Sequence[Asked]) -> None:
        snapshot, plan, batch = gathering.base, gathering.plan, gathering.plan.changes.batch
        wanted = _since_drop(asked)
        if len(wanted) < len(asked):
            plan.dropped.add(name)
            for key in await collection_keys(snapshot.blocks, name):
                batch.delete(key)
        rest = [operation for _, operation in wanted if not isinstance(operation, Tend)]
        try:
            state = None if name in plan.dropped else await self._whole(snapshot, name, batch)
        except Corrupt as error:
            if rest:
                raise
            self._upkeep_failed(name, error)
            return
        if state is None:
            if not rest:
                return
            state = self._created(plan, wanted[0][0])
        if len(rest) < len(wanted):
            gathering.tend[name] = any(isinstance(operation, Tend) and operation.whole for _, operation in wanted)
        plan.changes.commit(name, *await commit(snapshot.blocks, state, rest, self._config))
        gathering.applied += rest

    async def _whole(self, snapshot: VectorSnapshot, name: CollectionName, batch: WriteBatch) -> CollectionState | None:
        """A collection to write to. What was damaged and could be made again is written again."""
        state = await snapshot.state(name)
        if state is None or not state.lost:
            return state
        whole, writes = mended(state)
        fill(batch, writes)
        self._observer.event(names.VECTOR_COLLECTION_MENDED, collection=str(name), blocks=len(state.rebuilt))
        return whole

    def _created(self, plan: Plan, spec: CollectionSpec) -> CollectionState:
        number = plan.record.next_collection
        plan.record = msgspec.structs.replace(plan.record, next_collection=number + 1)
        record = CollectionRecord(
            number, spec.dimensions, spec.metric, self._clock.now_ms(), StoredAnalysis.newest(spec.analysis)
        )
        plan.changes.batch.put(collection_key(spec.name), FORMAT.encode_record(COLLECTION_RECORD, record))
        return CollectionState.new(spec.name, record)

    def _accepted(self, delta: VectorDelta, plan: Plan) -> dict[CollectionName, list[Asked]]:
        """The operations of changes that are new and not refused, by collection; positions move on."""
        work: dict[CollectionName, list[Asked]] = {}
        for change in delta.changes:
            if change.is_stored(plan.positions):
                self._observer.count(names.VECTOR_CHANGES_SKIPPED)
                continue
            why = self._refusals.judge(change)
            self._refusals.settle(change.receipt, why)
            if why is not None:
                continue
            if change.source is not None and change.position is not None:
                plan.move_on(FORMAT, change.source, change.position)
            for spec, operation in change.operations:
                if isinstance(operation, DropCollection):
                    self._refusals.readmit(spec.name)
                work.setdefault(spec.name, []).append((spec, operation))
        return work

    # upkeep ---------------------------------------------------------------------------------------

    async def _plan_upkeep(self, snapshot: VectorSnapshot, plan: Plan, tend: dict[CollectionName, bool]) -> Changed:
        upkeep: Changed = StateChanges()
        for name, state in plan.changes.states.items():
            if name not in tend and state.head.commit < self._upkeep_rests.get(name, 0):
                continue
            patience = 1.0 if name in tend else PATIENCE
            whole = tend.get(name, False)
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
                upkeep.commit(name, *done)
        return upkeep

    def _upkeep_failed(self, name: CollectionName, error: Exception) -> None:
        self._observer.event(names.VECTOR_UPKEEP_FAILED, collection=str(name), why=str(error) or repr(error))
        self.upkeep_errors[name] = error

    def _count(self, operations: Sequence[Operation]) -> None:
        written = sum(len(operation.rows) for operation in operations if isinstance(operation, Upsert))
        deleted = sum(len(operation.identities) for operation in operations if isinstance(operation, Delete))
        if written:
            self._observer.count(names.VECTOR_ROWS, written, operation="upsert")
        if deleted:
            self._observer.count(names.VECTOR_ROWS, deleted, operation="delete")


def _since_drop(asked: Sequence[Asked]) -> Sequence[Asked]:
    """What is asked of a collection after it was dropped last."""
    places = [place for place, (_, operation) in enumerate(asked) if isinstance(operation, DropCollection)]
    return asked[places[-1] + 1 :] if places else asked
