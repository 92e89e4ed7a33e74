"""A relay's patience, its order, and two of them on one quiver."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.relay.edge import filled, numbers, opened, queue_outlet, rows, stamps, taken, torn

from penstock.errors import Unavailable
from penstock.objects import MemoryStore
from penstock.observability import names
from penstock.quiver import Delivery
from penstock.relay import (
    Delivered,
    NotYet,
    ParquetOutlet,
    QueueOutletConfig,
    Relay,
    RelayConfig,
    RetryLater,
    SendAnswer,
    Undeliverable,
)
from penstock.relay.relay import pause_seconds
from penstock.testing import FaultPlan, FaultyStore, RecordingObserver, SeededEntropy, Simulation, inline, simulate

HOUR = 3600.0


class ScriptedOutlet:
    """Gives these answers, then takes everything."""

    def __init__(self, *answers: SendAnswer | Exception) -> None:
        self._answers = list(answers)
        self.sent: list[int] = []
        self.done: list[int] = []

    async def send(self, delivery: Delivery) -> SendAnswer:
        self.sent.append(delivery.segment_seq)
        answer = self._answers.pop(0) if self._answers else Delivered()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def settled(self, delivery: Delivery) -> None:
        self.done.append(delivery.segment_seq)

    async def close(self) -> None: ...


async def carried(simulation: Simulation, outlet: Any, segments: int = 2, **given: Any) -> Any:
    """The quiver's state once nothing waits any more."""
    store = await opened(torn(simulation.clock), clock=simulation.clock)
    await filled(store, [[rows(number)] for number in range(segments)], "relay")
    doors = {"clock": simulation.clock, "entropy": SeededEntropy(1), **given}
    await Relay(store, "relay", outlet, **doors).run(until_empty=True)
    state = store.state
    await store.close()
    return state


def test_a_segment_is_tried_until_it_is_taken_and_the_next_waits_for_it() -> None:
    async def main(simulation: Simulation) -> None:
        outlet = ScriptedOutlet(RetryLater("away"), Unavailable("away"), RetryLater("away"))
        await carried(simulation, outlet)
        assert outlet.sent == [1, 1, 1, 1, 2]
        assert outlet.done == [1, 2]

    simulate(main, 1)


def test_a_refusal_for_good_is_a_dead_letter_and_holds_nobody_up() -> None:
    async def main(simulation: Simulation) -> None:
        observer = RecordingObserver()
        state = await carried(simulation, ScriptedOutlet(Undeliverable("no")), observer=observer)
        assert sorted(state.subscriptions["relay"].rejected) == [1]
        assert observer.counted(names.RELAY_SEGMENTS, outcome="refused") == 1
        assert observer.counted(names.RELAY_SEGMENTS, outcome="sent") == 1

    simulate(main, 1)


def test_a_segment_whose_turn_has_not_come_is_put_back() -> None:
    async def main(simulation: Simulation) -> None:
        outlet = ScriptedOutlet(NotYet())
        await carried(simulation, outlet)
        assert outlet.sent == [1, 2, 1]

    simulate(main, 1)


def test_pauses_double_with_jitter_up_to_the_maximum() -> None:
    config = RelayConfig(retry_seconds_first=1.0, retry_seconds_max=60.0)
    for failures, longest in ((1, 1.0), (2, 2.0), (5, 16.0), (7, 60.0), (10_000, 60.0)):
        pauses = {pause_seconds(config, failures, SeededEntropy(seed)) for seed in range(50)}
        assert len(pauses) > 10
        assert longest / 2 <= min(pauses) <= max(pauses) <= longest


def test_the_pause_that_the_target_asks_for_is_made() -> None:
    async def main(simulation: Simulation) -> None:
        began = simulation.clock.monotonic()
        await carried(simulation, ScriptedOutlet(RetryLater("busy", after_seconds=500.0)))
        assert simulation.clock.monotonic() - began >= 500.0

    simulate(main, 1)


def test_a_relay_stops_in_the_middle_of_a_pause_and_leaves_the_segment_to_the_next() -> None:
    async def main(simulation: Simulation) -> None:
        store = await opened(torn(simulation.clock), clock=simulation.clock)
        await filled(store, [[rows(1)]], "relay")
        doors = {"clock": simulation.clock, "entropy": SeededEntropy(1)}
        relay = Relay(store, "relay", ScriptedOutlet(RetryLater("away", after_seconds=HOUR)), **doors)  # type: ignore[arg-type]
        running = asyncio.create_task(relay.run())
        await simulation.clock.sleep(1)
        relay.stop()
        await running
        assert simulation.clock.monotonic() < HOUR
        outlet = ScriptedOutlet()
        await Relay(store, "relay", outlet, **doors).run(until_empty=True)  # type: ignore[arg-type]
        assert outlet.sent == [1]
        await store.close()

    simulate(main, 1)


def test_an_idle_relay_stops_at_once() -> None:
    async def main(simulation: Simulation) -> None:
        store = await opened(torn(simulation.clock), clock=simulation.clock)
        relay = Relay(store, "relay", ScriptedOutlet(), clock=simulation.clock, entropy=SeededEntropy(1))
        running = asyncio.create_task(relay.run())
        await simulation.clock.sleep(1)
        relay.stop()
        await running
        await store.close()

    simulate(main, 1)


@pytest.mark.slow
def test_it_goes_on_by_itself_after_hours_without_object_storage() -> None:
    async def main(simulation: Simulation) -> None:
        clock, disk, observer = simulation.clock, torn(simulation.clock), RecordingObserver()
        inner = MemoryStore(clock=clock)
        away = FaultyStore(inner, FaultPlan(error_before=1.0), entropy=simulation.entropy.fork("away"), clock=clock)
        store = await opened(disk, clock=clock)
        await filled(store, [[rows(number)] for number in range(20)], "queue")
        outlet = queue_outlet(away, store, disk, clock=clock, observer=observer)
        relay = Relay(store, "queue", outlet, clock=clock, entropy=SeededEntropy(1), observer=observer)
        running = asyncio.create_task(relay.run())
        await clock.sleep(8 * HOUR)
        assert store.state.lag("queue") == 20, "nothing is lost or given up"
        assert observer.gauged(names.RELAY_STALLED_SECONDS, subscriber="queue") > 7.9 * HOUR
        tries = observer.counted(names.RELAY_RETRIES, subscriber="queue")
        assert 8 * 30 < tries < 8 * 120, "about one attempt a minute"
        away.faults = FaultPlan()
        await clock.sleep(200)
        assert store.state.lag("queue") == 0
        assert len(observer.events(names.RELAY_STALLED)) == 1
        assert len(observer.events(names.RELAY_RESUMED)) == 1
        relay.stop()
        await running
        await store.close()
        assert numbers(await taken(inner, clock=clock)) == [number for number in range(20) for _ in range(16)]

    simulate(main, 1, steps_max=3_000_000)


def test_two_subscribers_on_one_quiver_each_get_everything_at_their_own_pace() -> None:
    """The files go on while the queue is away; a segment stays until both have it, and goes then."""

    async def main(simulation: Simulation) -> None:
        clock, disk = simulation.clock, torn(simulation.clock)
        inner = MemoryStore(clock=clock)
        away = FaultyStore(inner, FaultPlan(error_before=1.0), entropy=simulation.entropy.fork("away"), clock=clock)
        store = await opened(disk, clock=clock)
        await filled(store, [[rows(number)] for number in range(5)], "queue", "parquet")
        doors = {"clock": clock, "entropy": SeededEntropy(1)}
        relays = [
            Relay(store, "queue", queue_outlet(away, store, disk, clock=clock), **doors),  # type: ignore[arg-type]
            Relay(store, "parquet", ParquetOutlet("/files", disk=disk, offload=inline), **doors),  # type: ignore[arg-type]
        ]
        running = [asyncio.create_task(relay.run()) for relay in relays]
        await clock.sleep(HOUR)
        assert (store.state.lag("queue"), store.state.lag("parquet")) == (5, 0)
        assert len(store.segments) == 5, "kept for the one that is behind"
        away.faults = FaultPlan()
        await clock.sleep(300)
        assert (store.state.lag("queue"), store.state.lag("parquet")) == (0, 0)
        await store.sweep()
        assert store.segments == []
        for relay in relays:
            relay.stop()
        await asyncio.gather(*running)
        await store.close()
        everything = [number for number in range(5) for _ in range(16)]
        assert numbers(await taken(inner, clock=clock)) == everything
        files = [disk.read(f"/files/{name}")[0] for name, _ in disk.scan("/files")]
        tables = [pq.read_table(pa.BufferReader(body)) for body in files]
        assert pa.concat_tables(tables).column("n").to_pylist() == everything

    simulate(main, 1, steps_max=3_000_000)


def test_a_segment_is_cut_into_parts_that_name_each_other() -> None:
    async def main(simulation: Simulation) -> None:
        clock, disk = simulation.clock, torn(simulation.clock)
        inner = MemoryStore(clock=clock)
        store = await opened(disk, clock=clock)
        await filled(store, [[rows(1, 40)], [rows(2, 4)]], "queue")
        outlet = queue_outlet(inner, store, disk, clock=clock, config=QueueOutletConfig(part_bytes=96))
        doors = {"clock": clock, "entropy": SeededEntropy(1)}
        await Relay(store, "queue", outlet, **doors).run(until_empty=True)  # type: ignore[arg-type]
        await store.close()
        batches = await taken(inner, clock=clock)
        found = stamps(batches)
        assert [(one.segment_seq, one.ordinal, one.part, one.parts) for one in found] == [
            (1, 1, 1, 4),
            (1, 1, 2, 4),
            (1, 1, 3, 4),
            (1, 1, 4, 4),
            (2, 2, 1, 1),
        ]
        assert {tuple(one.signals) for one in found} == {("logs",)}
        assert numbers(batches) == [1] * 40 + [2] * 4

    simulate(main, 1)


def test_a_replayed_segment_is_sent_again_under_a_new_stamp() -> None:
    """Somebody has asked for it: that is no repeat."""

    async def main(simulation: Simulation) -> None:
        clock, disk = simulation.clock, torn(simulation.clock)
        inner = MemoryStore(clock=clock)
        store = await opened(disk, clock=clock)
        await filled(store, [[rows(1)]], "queue", "keeps_it")
        outlet = queue_outlet(inner, store, disk, clock=clock)
        relay = Relay(store, "queue", outlet, clock=clock, entropy=SeededEntropy(1))
        await relay.run(until_empty=True)
        assert await store.replay("queue", [1]) == [1]
        await relay.run(until_empty=True)
        await store.close()
        assert [one.ordinal for one in stamps(await taken(inner, clock=clock)) if one.part == 1] == [1, 2]

    simulate(main, 1)
