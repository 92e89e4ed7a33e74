"""What operators see, by the names of the table."""

from __future__ import annotations

import asyncio

from tests.coordinator.stores import PatientHandler, Upserts, outcome

from penstock.coordinator import Coordinator, CoordinatorConfig, Mark
from penstock.errors import AtCapacity, StorageFull, Unavailable
from penstock.observability import names
from penstock.testing import RecordingObserver, Simulation, simulate


def test_a_coordinator_tells_what_it_does() -> None:
    observer = RecordingObserver()

    async def main(simulation: Simulation) -> None:
        clock = simulation.clock
        handler: PatientHandler[Upserts] = PatientHandler(Upserts)
        config = CoordinatorConfig(flush_interval_seconds=30, max_pending_writes=2, max_buffered_writes=2)
        coordinator = Coordinator(handler, {}, config, name="vector", clock=clock, observer=observer)
        await coordinator.write(Upserts(a=1))
        await clock.sleep(1)
        await coordinator.write(Upserts(b=2))
        flush = asyncio.create_task(coordinator.flush())
        waiting = asyncio.create_task(coordinator.write(Upserts(c=3)))
        assert isinstance(await outcome(coordinator.write(Upserts(d=4), timeout=0.5)), AtCapacity)
        await clock.sleep(0.5)
        assert observer.gauged(names.COORDINATOR_WAITERS, coordinator="vector", mark="applied") == 1
        assert observer.gauged(names.COORDINATOR_WAITERS, coordinator="vector", mark="durable") == 1
        assert observer.gauged(names.COORDINATOR_PENDING_BYTES) == 0
        assert observer.gauged(names.COORDINATOR_BUFFERED_BYTES) == 20
        handler.calls[0].land()
        await clock.sleep(2)
        handler.calls[0].settle()
        await flush
        await waiting
        ending = asyncio.create_task(outcome(coordinator.shutdown()))
        await clock.sleep(0.001)
        handler.calls[1].fail(Unavailable("busy"))
        await clock.sleep(1)
        handler.calls[2].fail(StorageFull("full"))
        await ending
        await clock.sleep(0.001)
        coordinator.abort()

    simulate(main, 1)
    assert observer.counted(names.COORDINATOR_WRITES, coordinator="vector") == 3
    assert observer.counted(names.COORDINATOR_FLUSHES, reason="size") == 1
    assert observer.counted(names.COORDINATOR_FLUSHES, reason="shutdown") == 1
    assert observer.counted(names.COORDINATOR_REJECTED) == 1
    assert observer.counted(names.COORDINATOR_FAILURES, outcome="retried") == 1
    assert observer.counted(names.COORDINATOR_FAILURES, outcome="failed") == 1
    assert observer.observed(names.COORDINATOR_FLUSH_SECONDS, mark="flushed") == [1.0]
    assert observer.observed(names.COORDINATOR_FLUSH_SECONDS, mark="durable") == [3.0]
    assert observer.observed(names.COORDINATOR_WRITE_SECONDS) == [4.0]
    assert observer.observed(names.COORDINATOR_WAIT_SECONDS) == [3.0]
    for mark, epoch in ((Mark.APPLIED, 3), (Mark.FLUSHED, 2), (Mark.DURABLE, 2)):
        assert observer.gauged(names.COORDINATOR_EPOCH, mark=mark) == epoch
    assert len(observer.spans(names.COORDINATOR_FLUSH)) == 3
    assert [event["error"] for event in observer.events(names.COORDINATOR_RETRYING)] == ["busy"]
    assert "full" in observer.events(names.COORDINATOR_FAILED)[0]["error"]
