"""Each subscriber at its own speed: marks, refusals, dead letters, and those that nobody asks for any more."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.quiver.worlds import bundle, drained, killed, numbers, opened, run, small, torn

from penstock.errors import NotFound
from penstock.quiver import DeliveryOrder, OrphanPolicy, QuiverConfig, SubscriberConfig
from penstock.testing import ManualClock, RecordingObserver
from penstock.testing.clock import START_MS


def test_two_subscribers_at_different_speeds() -> None:
    async def scenario() -> None:
        store = await opened(torn())
        await store.register("fast")
        await store.register("slow")
        for number in range(24):
            await store.ingest(bundle(number))
        assert await drained(store, "fast") == list(range(24))
        await store.sweep()
        assert len(store.segments) == 3, "the slow one has seen none"
        first = await store.next("slow")
        assert first is not None
        await first.ack()
        await store.sweep()
        assert [meta.segment_seq for meta in store.segments] == [2, 3]
        assert await drained(store, "slow") == list(range(8, 24))
        await store.sweep()
        assert store.segments == []

    run(scenario())


def test_newest_first_delivers_the_newest_and_marks_wait_for_the_oldest() -> None:
    async def scenario() -> None:
        store = await opened(torn())
        await store.register("s", SubscriberConfig(order=DeliveryOrder.NEWEST_FIRST))
        for number in range(24):
            await store.ingest(bundle(number))
        first = await store.next("s")
        assert first is not None
        assert first.segment_seq == 3
        await first.ack()
        known = store.state.subscriptions["s"]
        assert (known.done.mark, known.done.gaps) == (0, {3})
        await drained(store)
        assert known.done.mark == 3

    run(scenario())


def test_a_nack_retries_with_backoff_and_keeps_the_segment_pinned() -> None:
    async def scenario() -> None:
        disk, clock = torn(), ManualClock()
        store = await opened(disk, clock=clock)
        await store.register("s", SubscriberConfig(retry_seconds_first=1.0))
        for number in range(8):
            await store.ingest(bundle(number))
        for attempt in (1, 2, 3):
            delivery = await store.next("s", 0.0)
            assert delivery is not None
            assert delivery.attempt == attempt
            await delivery.nack("busy")
            assert await store.next("s", 0.0) is None, "too soon"
            await store.sweep()
            assert len(store.segments) == 1
            clock.advance(2.0**attempt)
        await killed(disk)
        store = await opened(disk, clock=clock)
        await store.register("s")
        delivery = await store.next("s", 0.0)
        assert delivery is not None
        assert delivery.attempt == 4, "refusals are remembered"

    run(scenario())


def test_a_permanent_refusal_is_a_dead_letter_until_it_is_replayed() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk)
        await store.register("s", SubscriberConfig(attempts_max=1))
        for number in range(16):
            await store.ingest(bundle(number))
        first = await store.next("s")
        second = await store.next("s")
        assert first is not None
        assert second is not None
        await first.nack("cannot parse", permanent=True)
        await second.nack("too often")
        await store.sweep()
        await killed(disk)
        store = await opened(disk)
        await store.register("s")
        assert store.state.subscriptions["s"].rejected == {1: "cannot parse", 2: "too often"}
        assert len(store.segments) == 2
        assert await drained(store) == []
        assert await store.replay("s") == [1, 2]
        assert await drained(store) == list(range(16))
        await store.sweep()
        assert store.segments == []

    run(scenario())


def test_deferred_comes_back_later_and_is_no_refusal() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        store = await opened(torn(), clock=clock)
        await store.register("s")
        for number in range(8):
            await store.ingest(bundle(number))
        delivery = await store.next("s")
        assert delivery is not None
        await delivery.defer(5.0)
        assert await store.next("s", 0.0) is None
        clock.advance(5.0)
        again = await store.next("s", 0.0)
        assert again is not None
        assert again.attempt == 1
        await again.ack()
        await again.nack("too late: the first word counts")
        assert await store.next("s", 0.0) is None

    run(scenario())


def test_a_block_that_raises_refuses_and_one_that_ends_acknowledges() -> None:
    async def scenario() -> None:
        store = await opened(torn())
        await store.register("s", SubscriberConfig(retry_seconds_first=0.001, retry_seconds_max=0.001))
        for number in range(8):
            await store.ingest(bundle(number))
        with pytest.raises(ZeroDivisionError):
            async with await store.next("s"):  # type: ignore[union-attr]
                raise ZeroDivisionError
        assert store.state.subscriptions["s"].attempts == {1: 1}
        store._doors.clock.advance(1.0)  # type: ignore[attr-defined]
        async with await store.next("s"):  # type: ignore[union-attr]
            pass
        assert store.state.subscriptions["s"].done.mark == 1

    run(scenario())


def test_a_subscriber_that_waits_is_told_of_a_new_segment() -> None:
    async def scenario() -> None:
        store = await opened(torn())
        await store.register("s")
        waiting = asyncio.create_task(store.next("s"))
        for number in range(8):
            await store.ingest(bundle(number))
        delivery = await asyncio.wait_for(waiting, 60)
        assert delivery is not None
        assert await numbers(delivery) == list(range(8))

    run(scenario())


def test_deactivate_keeps_data_and_unregister_lets_it_go() -> None:
    async def scenario() -> None:
        store = await opened(torn())
        await store.register("a")
        await store.register("gone")
        for number in range(8):
            await store.ingest(bundle(number))
        await drained(store, "a")
        await store.deactivate("gone")
        with pytest.raises(NotFound):
            await store.next("gone", 0.0)
        await store.sweep()
        assert len(store.segments) == 1
        await store.unregister("gone")
        await store.sweep()
        assert store.segments == []
        with pytest.raises(NotFound):
            await store.unregister("gone")

    run(scenario())


def test_an_orphan_pins_nothing_for_ever() -> None:
    async def scenario() -> None:
        clock, observer = ManualClock(), RecordingObserver()
        config = replace(small(), orphan_policy=OrphanPolicy.RELEASE, orphan_after_hours=1.0, maintenance_seconds=60.0)
        store = await opened(torn(), config, clock=clock, observer=observer)
        await store.register("a")
        await store.register("orphan")
        for number in range(8):
            await store.ingest(bundle(number))
        await drained(store, "a")
        for _ in range(70):
            await store.next("a", 0.0)
            await clock.run_for(60.0)
        assert list(store.state.subscriptions) == ["a"]
        assert store.segments == []

    run(scenario())


class SetClock(ManualClock):
    """A clock that somebody sets: the date jumps, and no time has passed."""

    set_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.set_ms


def releasing() -> QuiverConfig:
    return replace(small(), orphan_policy=OrphanPolicy.RELEASE, orphan_after_hours=1.0, maintenance_seconds=60.0)


def test_a_clock_that_is_set_makes_no_orphans_and_numbers_grow_all_the_same() -> None:
    async def scenario() -> None:
        clock = SetClock()
        store = await opened(torn(), releasing(), clock=clock)
        await store.register("s")
        for number, hours in enumerate((0, 50, -100_000, 3)):
            clock.set_ms = hours * 3_600_000
            await store.ingest(bundle(number))
            await store.flush()
            await clock.run_for(120.0)
        assert list(store.state.subscriptions) == ["s"]
        assert [meta.segment_seq for meta in store.segments] == [1, 2, 3, 4]
        assert await drained(store) == [0, 1, 2, 3]
        await store.close()

    run(scenario())


def test_whoever_waits_or_holds_a_segment_for_hours_is_no_orphan() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        store = await opened(torn(), releasing(), clock=clock)
        for name in ("waits", "holds"):
            await store.register(name)
        await store.ingest(bundle(1))
        await store.flush()
        held = await store.next("holds", 0.0)
        await drained(store, "waits")
        waiting = asyncio.create_task(store.next("waits"))
        await clock.run_for(3 * 3600.0)
        assert set(store.state.subscriptions) == {"waits", "holds"}
        assert held is not None
        await held.ack()
        waiting.cancel()
        await clock.run_for(3 * 3600.0)
        assert list(store.state.subscriptions) == []
        await store.close()

    run(scenario())


def test_a_start_gives_subscribers_time_to_come_back() -> None:
    """Nobody could ask while the store was closed."""

    async def scenario() -> None:
        disk = torn()
        store = await opened(disk, releasing())
        await store.register("s")
        await store.ingest(bundle(1))
        await store.close()
        clock = ManualClock(START_MS + 10 * 3_600_000)
        store = await opened(disk, releasing(), clock=clock)
        await clock.run_for(1800.0)
        await store.register("s")
        assert await drained(store) == [1]
        await store.close()

    run(scenario())
