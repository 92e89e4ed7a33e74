"""What readers see: the newest snapshot, whole, before they are told of it; and views that never change."""

from __future__ import annotations

import asyncio

from tests.coordinator.stores import Bench, Samples, Upserts, WillingHandler, outcome, scenario

from penstock.coordinator import Coordinator, Mark, Published, View
from penstock.coordinator.snapshots import Broadcast
from penstock.errors import OutcomeUnknown, StorageFull, Unavailable
from penstock.testing import Simulation, simulate


async def _flush(bench: Bench, number: int) -> None:
    flush = asyncio.create_task(bench.coordinator.flush())
    (await bench.call(number)).finish()
    await flush


@scenario()
async def test_a_snapshot_is_seen_before_the_mark_moves(bench: Bench) -> None:
    coordinator = bench.coordinator
    seen = []

    async def reader(epoch: int) -> None:
        await coordinator.reached(Mark.FLUSHED, epoch)
        seen.append(coordinator.current.epoch >= epoch and coordinator.current.snapshot["a"] >= epoch)

    readers = []
    for epoch in (1, 2, 3):
        await bench.write(a=epoch)
        readers += [asyncio.create_task(reader(epoch)) for _ in range(3)]
        await _flush(bench, epoch)
    await asyncio.gather(*readers)
    assert seen == [True] * 9


def test_the_broadcast_is_published_before_any_waiter_is_released() -> None:
    """The order inside one step, where no task could look: a subscriber that polls must not be behind."""
    order = []

    class Spying(Broadcast[object]):
        def publish(self, snapshot: object, epoch: int) -> None:
            order.append(("published", epoch))
            super().publish(snapshot, epoch)

    async def main(simulation: Simulation) -> None:
        coordinator = Coordinator(WillingHandler(Upserts), {}, clock=simulation.clock)
        coordinator._broadcast = Spying({})  # type: ignore[assignment]
        release = coordinator._waiters[Mark.FLUSHED].release
        coordinator._waiters[Mark.FLUSHED].release = (  # type: ignore[method-assign]
            lambda epoch: (order.append(("released", epoch)), release(epoch))[1]
        )
        for number in range(3):
            await coordinator.write_durable(Upserts(a=number))

    simulate(main, 1)
    assert order == [(what, epoch) for epoch in (1, 2, 3) for what in ("published", "released")]


@scenario()
async def test_a_subscriber_begins_with_the_current_snapshot_and_sees_each_new_one(bench: Bench) -> None:
    subscription = bench.coordinator.subscribe()
    assert await anext(subscription) == Published({}, 0)
    coming = asyncio.create_task(anext(subscription))
    await bench.write(a=1)
    await _flush(bench, 1)
    assert await coming == Published({"a": 1}, 1) == subscription.latest


@scenario()
async def test_a_slow_subscriber_gets_the_newest_and_may_skip_what_came_between(bench: Bench) -> None:
    subscription = bench.coordinator.subscribe()
    await anext(subscription)
    for number in (1, 2, 3):
        await bench.write(a=number)
        await _flush(bench, number)
    assert await anext(subscription) == Published({"a": 3}, 3)
    waiting = asyncio.create_task(anext(subscription))
    await bench.quiet()
    assert not waiting.done()
    waiting.cancel()


@scenario()
async def test_a_subscription_ends_with_the_shutdown_after_the_last_snapshot(bench: Bench) -> None:
    async def follow() -> list[int]:
        return [published.epoch async for published in bench.coordinator.subscribe()]

    following = asyncio.create_task(follow())
    await bench.write()
    await bench.quiet()
    ending = asyncio.create_task(bench.coordinator.shutdown())
    (await bench.call(1)).finish()
    await ending
    assert await following == [0, 1]


@scenario()
async def test_a_cancelled_subscriber_takes_nothing_from_the_others(bench: Bench) -> None:
    subscriptions = [bench.coordinator.subscribe() for _ in range(2)]
    for subscription in subscriptions:
        await anext(subscription)
    impatient, patient = (asyncio.create_task(anext(subscription)) for subscription in subscriptions)
    await bench.quiet()
    impatient.cancel()
    await bench.write(a=1)
    await _flush(bench, 1)
    assert (await patient).epoch == 1
    assert (await anext(subscriptions[0])).epoch == 1


@scenario()
async def test_a_view_includes_what_is_not_flushed_yet(bench: Bench) -> None:
    coordinator = bench.coordinator
    await bench.write(a=1)
    await _flush(bench, 1)
    await bench.write(a=2)
    flush = asyncio.create_task(coordinator.flush())
    call = await bench.call(2)
    await bench.write(a=3)
    view = coordinator.view()
    assert (view.snapshot, [delta.rows for delta in view.deltas], view.epoch) == ({"a": 1}, [{"a": 2}, {"a": 3}], 3)
    call.land()
    await bench.quiet()
    later = coordinator.view()
    assert (later.snapshot, [delta.rows for delta in later.deltas], later.epoch) == ({"a": 2}, [{"a": 3}], 3)
    call.settle()
    await flush


@scenario()
async def test_a_view_never_changes(bench: Bench) -> None:
    coordinator = bench.coordinator
    await bench.write(a=1)
    view = coordinator.view()
    before = (dict(view.snapshot), [dict(delta.rows) for delta in view.deltas])
    await bench.write(a=2)
    coordinator.view()
    await bench.write(a=3)
    await _flush(bench, 1)
    assert (view.snapshot, [delta.rows for delta in view.deltas]) == before == ({}, [{"a": 1}])


def test_views_of_an_appending_store_add_up_to_all_that_was_written() -> None:
    def read(view: View[Samples, dict[str, tuple[int, ...]]]) -> tuple[int, ...]:
        state = view.snapshot
        for delta in view.deltas:
            state = delta.onto(state)
        return state.get("cpu", ())

    async def main(simulation: Simulation) -> None:
        coordinator = Coordinator(WillingHandler(Samples), {}, clock=simulation.clock)
        views = []
        for number in range(40):
            epoch = (await coordinator.write(Samples(cpu=number))).epoch
            views.append((coordinator.view(), epoch))
            if simulation.entropy.chance(0.2):
                coordinator.try_write(Samples(cpu=number + 0.5))
                flush = asyncio.create_task(coordinator.flush(until=Mark.FLUSHED))
                await simulation.clock.sleep(simulation.entropy.uniform(0, 0.02))
                views.append((coordinator.view(), epoch + 1))
                await flush
        await coordinator.shutdown()
        everything = coordinator.current.snapshot["cpu"]
        for view, epoch in views:
            assert view.epoch == epoch
            assert read(view) == everything[:epoch]  # type: ignore[arg-type]

    for seed in range(30):
        simulate(main, seed)


@scenario()
async def test_a_repeat_never_publishes_later_writes_whose_answer_was_lost(bench: Bench) -> None:
    """The store holds both flushes, the readers were told of the first: a repeat of it would show them the second."""
    coordinator = bench.coordinator
    await bench.write(a=1)
    flush = asyncio.create_task(coordinator.flush(until=Mark.FLUSHED))
    first = await bench.call(1)
    first.land()
    await flush
    await bench.write(b=2)
    everything = asyncio.create_task(coordinator.flush())
    (await bench.call(2)).fail(OutcomeUnknown("landed, and the answer was lost"))
    first.lose(Unavailable("not known to be durable"))
    await bench.clock.sleep(1)
    repeat = await bench.call(3)
    repeat.delta.rows["b"] = "what the store would show"
    repeat.finish()
    await bench.quiet()
    assert coordinator.current == Published({"a": 1}, 1)
    (await bench.call(4)).finish()
    await everything
    assert coordinator.current.epoch == 2


@scenario()
async def test_a_failed_coordinator_still_answers_reads(bench: Bench) -> None:
    await bench.write(a=1)
    await _flush(bench, 1)
    await bench.write(a=2)
    flush = asyncio.create_task(outcome(bench.coordinator.flush()))
    (await bench.call(2)).fail(StorageFull("full"))
    await flush
    view = bench.coordinator.view()
    assert (view.snapshot, [delta.rows for delta in view.deltas]) == ({"a": 1}, [{"a": 2}])
    assert await anext(bench.coordinator.subscribe()) == Published({"a": 1}, 1)
