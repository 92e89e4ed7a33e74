"""What the flush of a time-series store writes: samples of accepted changes, their positions, and upkeep after them.

A change whose position its source has already passed is left out. Everything of a tenant (dictionary, labels, index and
samples) and the positions of sources are one write batch. A second batch follows if upkeep is asked for; it holds no
data of its own, and if it cannot be made it is left for later. A damaged tenant or hour is set aside: changes that name
it are refused, each whole, and everything else is written (`write.refusals`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from penstock.blocks import FlushPlan, StateChanges
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Corrupt, PenstockError
from penstock.observability import SILENT, Observer, names
from penstock.timeseries.config import TimeSeriesConfig
from penstock.timeseries.format.keys import BUCKET_MS, tenant_key
from penstock.timeseries.format.state import LABELS, SeriesStoreRecord, TenantRecord, TenantState
from penstock.timeseries.format.store_format import FORMAT, FORMAT_VERSION, TENANT_RECORD
from penstock.timeseries.operations import Expire, Fold, SeriesDelta, TenantSamples
from penstock.timeseries.read.states import SeriesSnapshot
from penstock.timeseries.samples import SampleBatch
from penstock.timeseries.upkeep.expire import expire_hours, mended_pages
from penstock.timeseries.upkeep.fold import fold_step
from penstock.timeseries.write.commit import commit_samples
from penstock.timeseries.write.periods import DamagedHour, TooManySeries
from penstock.timeseries.write.refusals import SampleRefusals, excess_changes

__all__ = ["SeriesFlushPlanner"]

Plan: TypeAlias = FlushPlan[SeriesStoreRecord, str, TenantState]
Changed: TypeAlias = StateChanges[str, TenantState]


@dataclass(slots=True)
class _TenantWork:
    """What a flush does for one tenant."""

    batches: list[SampleBatch] = field(default_factory=list)
    expire: int | None = None
    # Whether upkeep is asked for, and of hours that are not closed too.
    fold: bool | None = None


class SeriesFlushPlanner:
    """Turns deltas of a time-series store into what is written."""

    def __init__(
        self,
        config: TimeSeriesConfig,
        refusals: SampleRefusals,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        self._config = config
        self._refusals = refusals
        self._clock = clock
        self._observer = observer
        # Why the last step of a tenant's upkeep could not be made.
        self.upkeep_errors: dict[str, Exception] = {}

    def empty(self) -> SeriesDelta:
        return SeriesDelta()

    async def plan(self, delta: SeriesDelta, snapshot: SeriesSnapshot) -> Plan:
        """What to write: everything but changes that name something damaged."""
        refused: dict[int, PenstockError] = {}
        while True:
            commit = snapshot.record.commit + 1
            # A store of an older format becomes one of this with its first write.
            record = msgspec.structs.replace(snapshot.record, format=FORMAT_VERSION, commit=commit)
            plan: Plan = FlushPlan(record, dict(snapshot.positions))
            work = self._accepted(delta, plan, refused)
            failed = False
            for tenant, asked in work.items():
                try:
                    await self._plan_tenant(plan, snapshot, tenant, asked)
                except (Corrupt, TooManySeries) as error:
                    failed = True
                    self._blame(delta, tenant, error, refused)
            if not failed:
                break
        self._count(work)
        folding = {tenant: asked.fold for tenant, asked in work.items() if asked.fold is not None}
        plan.then = lambda flushed: self._plan_upkeep(flushed, plan, folding)
        return plan

    def set_aside(self, tenant: str, hour: int | None, why: PenstockError) -> None:
        """Take no more writes for a damaged tenant, or for one hour of it."""
        if self._refusals.set_aside(tenant, hour, why):
            self._observer.event(names.TIMESERIES_ASIDE, tenant=tenant, why=str(why))

    def _blame(self, delta: SeriesDelta, tenant: str, error: PenstockError, refused: dict[int, PenstockError]) -> None:
        """Find out what must be left out next time: each round leaves out more, so the last one comes."""
        match error:
            case TooManySeries():
                # Nothing is damaged: the changes of this flush that bring more new series than fit are refused.
                taken = [change for change in delta.changes if id(change) not in refused]
                refused.update({id(change): error for change in excess_changes(taken, tenant, error)})
            case DamagedHour():
                self.set_aside(tenant, error.hour, error)
            case _:
                self.set_aside(tenant, None, error)

    def _accepted(self, delta: SeriesDelta, plan: Plan, refused: dict[int, PenstockError]) -> dict[str, _TenantWork]:
        """What is asked of each tenant by changes that are new and not refused; positions move on."""
        work: dict[str, _TenantWork] = {}
        for change in delta.changes:
            if change.is_stored(plan.positions):
                self._observer.count(names.TIMESERIES_CHANGES_SKIPPED)
                continue
            why = refused.get(id(change))
            why = self._refusals.judge(change) if why is None else self._refusals.stall(change, why)
            self._refusals.settle(change.receipt, why)
            if why is not None:
                continue
            if change.source is not None and change.position is not None:
                plan.move_on(FORMAT, change.source, change.position)
            for operation in change.operations:
                asked = work.setdefault(operation.tenant, _TenantWork())
                match operation:
                    case TenantSamples():
                        asked.batches.append(operation.batch)
                    case Fold():
                        asked.fold = bool(asked.fold) or operation.whole
                    case Expire():
                        asked.expire = max(operation.before_hour, asked.expire or operation.before_hour)
                        self._refusals.readmit(operation.tenant, operation.before_hour)
        return work

    async def _plan_tenant(self, plan: Plan, snapshot: SeriesSnapshot, tenant: str, asked: _TenantWork) -> None:
        state = await snapshot.state(tenant)
        if state is None:
            if not any(len(batch) or batch.metadata for batch in asked.batches):
                return
            state = self._created(plan, tenant)
        mended = mended_pages(state)
        before = max((hour for hour in (asked.expire, self._retained_from()) if hour is not None), default=None)
        state, operations = expire_hours(state, before, self._observer)
        first = state.head.first_hour
        batches = asked.batches
        if not isinstance(first, msgspec.UnsetType):
            batches = [self._unexpired(batch, first * BUCKET_MS) for batch in batches]
        known = len(state.directory(LABELS)) and int(state.directory(LABELS).rows.sum())
        state, written = await commit_samples(snapshot.blocks, state, batches, self._config.bucket_series_max)
        if fresh := int(state.directory(LABELS).rows.sum()) - known:
            self._observer.count(names.TIMESERIES_SERIES_CREATED, fresh)
        plan.changes.commit(tenant, state, [*mended, *operations, *written])

    def _created(self, plan: Plan, tenant: str) -> TenantState:
        number = plan.record.next_tenant
        plan.record = msgspec.structs.replace(plan.record, next_tenant=number + 1)
        record = TenantRecord(number, self._clock.now_ms())
        plan.changes.batch.put(tenant_key(tenant), FORMAT.encode_record(TENANT_RECORD, record))
        return TenantState.new(tenant, record)

    def _retained_from(self) -> int | None:
        """The first hour that retention keeps, if it removes any."""
        if math.isinf(self._config.retention_seconds):
            return None
        return (self._clock.now_ms() - int(1000 * self._config.retention_seconds)) // BUCKET_MS

    def _unexpired(self, batch: SampleBatch, start_ms: int) -> SampleBatch:
        kept = batch.timestamps_ms >= start_ms
        if kept.all():
            return batch
        self._observer.count(names.TIMESERIES_SAMPLES_EXPIRED, int((~kept).sum()))
        return batch.take(kept)

    # upkeep ---------------------------------------------------------------------------------------

    async def _plan_upkeep(self, snapshot: SeriesSnapshot, plan: Plan, folding: Mapping[str, bool]) -> Changed:
        upkeep: Changed = StateChanges()
        for tenant, whole in folding.items():
            state = plan.changes.states.get(tenant)
            if state is None:
                continue
            try:
                done = await fold_step(
                    snapshot.blocks,
                    state,
                    self._config,
                    self._clock.now_ms(),
                    whole=whole,
                    observer=self._observer,
                )
            except Exception as error:  # noqa: BLE001 - the data is written: nothing about tidying it may fail the writer
                self._observer.event(names.TIMESERIES_UPKEEP_FAILED, tenant=tenant, why=str(error) or repr(error))
                self.upkeep_errors[tenant] = error
                continue
            self.upkeep_errors.pop(tenant, None)
            if done is not None:
                upkeep.commit(tenant, *done)
        return upkeep

    def _count(self, work: dict[str, _TenantWork]) -> None:
        written = sum(len(batch) for asked in work.values() for batch in asked.batches)
        if written:
            self._observer.count(names.TIMESERIES_SAMPLES, written)
