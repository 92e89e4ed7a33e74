"""Writing, flushing and waiting: the promises a caller builds on."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest
from tests.coordinator.stores import (
    ROW_BYTES,
    Bench,
    PatientHandler,
    Samples,
    Upserts,
    WillingHandler,
    outcome,
    scenario,
)

from penstock.coordinator import Coordinator, CoordinatorConfig, Flushed, Mark, State, Watermarks
from penstock.errors import AtCapacity, Closed, InvalidInput, OutcomeUnknown
from penstock.testing import Simulation, simulate


@scenario()
async def test_epochs_are_monotonic_and_begin_at_one(bench: Bench) -> None:
    epochs = [(await bench.coordinator.write(Upserts(a=n))).epoch for n in range(5)]
    assert epochs == [1, 2, 3, 4, 5]
    assert bench.coordinator.watermarks == Watermarks(applied=5, flushed=0, durable=0)


@scenario()
async def test_writes_are_applied_in_order_so_the_last_one_wins(bench: Bench) -> None:
    await bench.write(a="first", b="only")
    await bench.write(a="last")
    flush = asyncio.create_task(bench.coordinator.flush())
    call = await bench.call(1)
    assert call.delta.rows == {"a": "last", "b": "only"}
    call.finish()
    assert await flush == 2
    assert bench.coordinator.current.snapshot == {"a": "last", "b": "only"}


def test_a_delta_with_append_semantics_keeps_every_write_in_order() -> None:
    """The coordinator is generic: the same one serves a store that adds up instead of overwriting."""

    async def main(simulation: Simulation) -> None:
        handler = WillingHandler(Samples)
        async with Coordinator(handler, {}, clock=simulation.clock) as coordinator:
            for number in range(6):
                await coordinator.write(Samples(cpu=number))
                if number % 2:
                    await coordinator.flush(until=Mark.FLUSHED)
            await coordinator.write_durable(Samples(cpu=6, memory=0))
            assert coordinator.current.snapshot == {"cpu": (0, 1, 2, 3, 4, 5, 6), "memory": (0,)}

    for seed in range(10):
        simulate(main, seed)


@scenario()
async def test_the_callers_delta_is_copied_from_and_never_kept(bench: Bench) -> None:
    mine = Upserts(a=1)
    await bench.coordinator.write(mine)
    await bench.write(b=2)
    mine.rows["a"] = "changed after the write"
    assert mine.rows.keys() == {"a"}
    assert [delta.rows for delta in bench.coordinator.view().deltas] == [{"a": 1, "b": 2}]
    bench.coordinator.abort()


@scenario()
async def test_a_flush_covers_writes_made_during_an_earlier_flush(bench: Bench) -> None:
    """The race of the old stores: write, then flush, while a flush that does not hold the write is running."""
    await bench.write()
    earlier = asyncio.create_task(bench.coordinator.flush())
    first = await bench.call(1)
    await bench.write()
    later = asyncio.create_task(bench.coordinator.flush())
    first.finish()
    second = await bench.call(2)
    assert earlier.done()
    assert not later.done()
    second.finish()
    assert await later == 2
    assert bench.handler.ranges == [(1, 1, 1), (2, 2, 1)]


@scenario()
async def test_flushes_hold_contiguous_ranges_of_epochs(bench: Bench) -> None:
    for count in (3, 1, 4):
        await bench.write(count)
        flush = asyncio.create_task(bench.coordinator.flush())
        (await bench.call(len(bench.handler.calls) + 1)).finish()
        await flush
    assert bench.handler.ranges == [(1, 3, 1), (4, 4, 1), (5, 8, 1)]


@scenario()
async def test_durable_means_that_the_store_said_so(bench: Bench) -> None:
    handle = await bench.coordinator.write(Upserts(a=1))
    flush = asyncio.create_task(bench.coordinator.flush())
    call = await bench.call(1)
    call.land()
    await handle.flushed()
    await bench.clock.sleep(3600)
    assert bench.coordinator.watermarks == Watermarks(applied=1, flushed=1, durable=0)
    assert not flush.done()
    call.settle()
    await handle.durable()
    assert await flush == 1


@scenario()
async def test_the_next_flush_need_not_wait_for_the_durability_of_the_last(bench: Bench) -> None:
    await bench.write()
    flush = asyncio.create_task(bench.coordinator.flush())
    first = await bench.call(1)
    first.land()
    await bench.write()
    visible = asyncio.create_task(bench.coordinator.flush(until=Mark.FLUSHED))
    second = await bench.call(2)
    second.finish()
    assert await visible == 2
    await bench.quiet()
    assert bench.coordinator.watermarks == Watermarks(applied=2, flushed=2, durable=0)
    first.settle()
    assert await flush == 1
    assert bench.coordinator.watermarks.durable == 2


@scenario(max_unsettled_flushes=2)
async def test_the_number_of_flushes_that_are_not_durable_is_bounded(bench: Bench) -> None:
    for number in (1, 2):
        await bench.write()
        flush = asyncio.create_task(bench.coordinator.flush(until=Mark.FLUSHED))
        (await bench.call(number)).land()
        await flush
    await bench.write()
    third = asyncio.create_task(bench.coordinator.flush(until=Mark.FLUSHED))
    await bench.quiet()
    assert len(bench.handler.calls) == 2
    bench.handler.calls[0].settle()
    (await bench.call(3)).land()
    await third


@scenario()
async def test_flushing_a_durable_epoch_returns_at_once(bench: Bench) -> None:
    await bench.write(2)
    flush = asyncio.create_task(bench.coordinator.flush(1))
    (await bench.call(1)).finish()
    await flush
    await bench.write()
    assert await bench.coordinator.flush(2) == 2
    await bench.quiet()
    assert len(bench.handler.calls) == 1


@scenario()
async def test_a_flush_with_nothing_new_does_nothing(bench: Bench) -> None:
    assert await bench.coordinator.flush() == 0
    await bench.quiet()
    assert bench.handler.calls == []
    assert bench.coordinator.state is State.IDLE


@scenario()
async def test_an_epoch_that_was_never_given_out_is_neither_flushed_nor_waited_for(bench: Bench) -> None:
    await bench.write()
    for epoch in (2, -1):
        with pytest.raises(InvalidInput, match=f"epoch {epoch} "):
            await bench.coordinator.flush(epoch)
        for mark in Mark:
            with pytest.raises(InvalidInput, match=f"epoch {epoch} "):
                await bench.coordinator.reached(mark, epoch)
    assert bench.coordinator.watermarks == Watermarks(applied=1)


@scenario()
async def test_flushes_asked_for_together_share_one(bench: Bench) -> None:
    await bench.write(3)
    flushes = [asyncio.create_task(bench.coordinator.flush(epoch)) for epoch in (1, 2, 3, None)]
    (await bench.call(1)).finish()
    assert await asyncio.gather(*flushes) == [1, 2, 3, 3]
    assert bench.handler.ranges == [(1, 3, 1)]


@scenario()
async def test_write_durable_returns_a_write_that_is_durable(bench: Bench) -> None:
    writing = asyncio.create_task(bench.coordinator.write_durable(Upserts(a=1)))
    call = await bench.call(1)
    call.land()
    await bench.quiet()
    assert not writing.done()
    call.settle()
    assert (await writing).epoch == bench.coordinator.watermarks.durable == 1


@scenario(commit_delay_seconds=0.05, flush_interval_seconds=900)
async def test_whoever_waits_makes_a_flush_due_soon(bench: Bench) -> None:
    handle = await bench.coordinator.write(Upserts(a=1))
    await handle.wait(Mark.APPLIED)
    await bench.clock.sleep(10)
    assert bench.handler.calls == []
    waiting = asyncio.create_task(handle.durable())
    await bench.clock.sleep(0.06)
    (await bench.call(1)).finish()
    await waiting


@scenario(commit_delay_seconds=0.05, flush_interval_seconds=900)
async def test_those_who_wait_share_a_flush(bench: Bench) -> None:
    """Group commit: the first to wait decides when, and everything written until then goes along."""
    waiting = []
    for number in range(8):
        handle = await bench.coordinator.write(Upserts(a=number))
        waiting.append(asyncio.create_task(handle.wait(Mark.FLUSHED if number % 2 else Mark.DURABLE)))
        await bench.clock.sleep(0.005)
    assert bench.handler.calls == []
    await bench.clock.sleep(0.02)
    (await bench.call(1)).finish()
    await asyncio.gather(*waiting)
    assert bench.handler.ranges == [(1, 8, 1)]


@scenario(commit_delay_seconds=0.05, flush_interval_seconds=900)
async def test_those_who_wait_during_a_flush_share_the_next_one(bench: Bench) -> None:
    """However slow the store and however many wait, one flush is with the handler, and none begins for each write."""
    first = asyncio.create_task((await bench.coordinator.write(Upserts(a=0))).durable())
    await bench.clock.sleep(0.06)
    call = await bench.call(1)
    waiting = []
    for number in range(50):
        handle = await bench.coordinator.write(Upserts(a=number))
        waiting.append(asyncio.create_task(handle.durable()))
        await bench.clock.sleep(0.01)
    call.finish()
    (await bench.call(2)).finish()
    await asyncio.gather(first, *waiting)
    assert bench.handler.ranges == [(1, 1, 1), (2, 51, 1)]


@scenario(commit_delay_seconds=0.05, flush_interval_seconds=900)
async def test_waiting_for_what_a_flush_has_taken_asks_for_no_other(bench: Bench) -> None:
    handle = await bench.coordinator.write(Upserts(a=1))
    flush = asyncio.create_task(bench.coordinator.flush())
    call = await bench.call(1)
    await bench.write(b=2)
    waiting = asyncio.create_task(handle.durable())
    await bench.clock.sleep(1)
    call.finish()
    await asyncio.gather(flush, waiting)
    await bench.clock.sleep(1)
    assert bench.handler.ranges == [(1, 1, 1)]


@scenario(commit_delay_seconds=float("inf"), flush_interval_seconds=900)
async def test_an_infinite_commit_delay_leaves_flushes_to_those_who_ask(bench: Bench) -> None:
    handle = await bench.coordinator.write(Upserts(a=1))
    waiting = asyncio.create_task(handle.durable())
    await bench.clock.sleep(100)
    assert bench.handler.calls == []
    assert not waiting.done()
    bench.coordinator.abort()
    assert isinstance(await outcome(waiting), OutcomeUnknown)


@scenario()
async def test_by_default_a_write_is_visible_about_a_second_later(bench: Bench) -> None:
    await bench.write()
    await bench.clock.sleep(1.01)
    (await bench.call(1)).finish()
    await bench.quiet()
    assert bench.coordinator.current.snapshot == {"a": 1}


@scenario(flush_interval_seconds=30)
async def test_the_timer_flushes_what_nobody_asked_for(bench: Bench) -> None:
    handle = await bench.coordinator.write(Upserts(a=1))
    await bench.clock.sleep(29.9)
    await bench.write(b=2)
    assert bench.handler.calls == []
    await bench.clock.sleep(0.2)
    (await bench.call(1)).finish()
    await handle.durable()
    assert bench.handler.ranges == [(1, 2, 1)]


@scenario(flush_interval_seconds=30)
async def test_the_timer_counts_from_the_oldest_write_that_is_pending(bench: Bench) -> None:
    await bench.write()
    await bench.clock.sleep(20)
    flush = asyncio.create_task(bench.coordinator.flush())
    (await bench.call(1)).finish()
    await flush
    await bench.clock.sleep(5)
    await bench.write()
    await bench.clock.sleep(29)
    assert len(bench.handler.calls) == 1
    await bench.clock.sleep(1.1)
    (await bench.call(2)).finish()


@scenario(flush_interval_seconds=float("inf"))
async def test_an_infinite_interval_turns_the_timer_off(bench: Bench) -> None:
    await bench.write()
    await bench.clock.sleep(1e6)
    assert bench.handler.calls == []


@scenario(max_pending_bytes=3 * ROW_BYTES)
async def test_size_flushes_when_the_buffer_holds_enough_bytes(bench: Bench) -> None:
    await bench.write(2)
    await bench.quiet()
    assert bench.handler.calls == []
    await bench.write()
    assert (await bench.call(1)).epochs.last == 3


@scenario(max_pending_writes=3)
async def test_size_flushes_when_the_buffer_holds_enough_writes(bench: Bench) -> None:
    for _ in range(3):
        await bench.coordinator.write(Upserts())
    assert (await bench.call(1)).epochs.last == 3


@scenario()
async def test_an_empty_delta_is_a_write_like_any_other(bench: Bench) -> None:
    """A source position may move although the input held nothing for this store."""
    writing = asyncio.create_task(bench.coordinator.write_durable(Upserts(position=7)))
    call = await bench.call(1)
    assert call.delta.position == 7
    call.finish()
    assert (await writing).epoch == 1


@scenario()
async def test_states_follow_what_is_held(bench: Bench) -> None:
    coordinator = bench.coordinator
    assert coordinator.state is State.IDLE
    await bench.write()
    assert coordinator.state is State.ACCUMULATING
    flush = asyncio.create_task(coordinator.flush())
    call = await bench.call(1)
    assert coordinator.state is State.FLUSHING
    call.land()
    await bench.quiet()
    assert coordinator.state is State.FLUSHING
    call.settle()
    await flush
    assert coordinator.state is State.IDLE


@scenario()
async def test_a_paused_coordinator_takes_writes_and_begins_no_flush(bench: Bench) -> None:
    await bench.coordinator.pause()
    await bench.write()
    flush = asyncio.create_task(bench.coordinator.flush())
    await bench.clock.sleep(3600)
    assert bench.handler.calls == []
    bench.coordinator.resume()
    (await bench.call(1)).finish()
    assert await flush == 1


@scenario()
async def test_a_pause_begins_when_no_flush_is_with_the_handler(bench: Bench) -> None:
    await bench.write()
    flush = asyncio.create_task(bench.coordinator.flush())
    call = await bench.call(1)
    pausing = asyncio.create_task(bench.coordinator.pause())
    await bench.quiet()
    assert not pausing.done()
    call.land()
    await pausing
    call.settle()
    assert await flush == 1


@scenario()
async def test_shutdown_flushes_what_is_pending(bench: Bench) -> None:
    await bench.write(2)
    ending = asyncio.create_task(bench.coordinator.shutdown())
    call = await bench.call(1)
    call.land()
    await bench.quiet()
    assert not ending.done()
    call.settle()
    await ending
    assert bench.coordinator.watermarks == Watermarks(2, 2, 2)


@scenario()
async def test_shutdown_ends_a_pause(bench: Bench) -> None:
    await bench.coordinator.pause()
    await bench.write()
    ending = asyncio.create_task(bench.coordinator.shutdown())
    (await bench.call(1)).finish()
    await ending
    await bench.coordinator.pause()


@scenario()
async def test_writes_are_refused_after_a_shutdown_and_reads_go_on(bench: Bench) -> None:
    await bench.coordinator.shutdown()
    with pytest.raises(Closed):
        await bench.coordinator.write(Upserts(a=1))
    with pytest.raises(Closed):
        bench.coordinator.try_write(Upserts(a=1))
    assert await bench.coordinator.flush() == 0
    assert bench.coordinator.view().epoch == 0
    await bench.coordinator.shutdown()


@scenario()
async def test_a_cancelled_shutdown_goes_on_and_can_be_awaited_again(bench: Bench) -> None:
    await bench.write()
    ending = asyncio.create_task(bench.coordinator.shutdown())
    call = await bench.call(1)
    ending.cancel()
    await bench.quiet()
    call.finish()
    await bench.coordinator.shutdown()
    assert bench.coordinator.watermarks.durable == 1


@scenario()
async def test_abort_stops_at_once_and_answers_everyone(bench: Bench) -> None:
    await bench.write()
    flush = asyncio.create_task(bench.coordinator.flush())
    await bench.call(1)
    await bench.write()
    pending = asyncio.create_task(bench.coordinator.reached(Mark.FLUSHED, 2))
    await bench.quiet()
    bench.coordinator.abort()
    bench.coordinator.abort()
    assert [type(await outcome(waiter)) for waiter in (flush, pending)] == [OutcomeUnknown] * 2
    assert isinstance(await outcome(bench.coordinator.write(Upserts(a=1))), Closed)
    assert isinstance(await outcome(bench.coordinator.retry()), Closed)
    assert len(bench.coordinator.view().deltas) == 2
    await bench.clock.sleep(100)
    assert len(bench.handler.calls) == 1


@scenario()
async def test_leaving_the_context_shuts_down_and_a_failing_shutdown_leaves_nothing_running(bench: Bench) -> None:
    async def leave() -> None:
        async with bench.coordinator:
            await bench.write()

    leaving = asyncio.create_task(leave())
    call = await bench.call(1)
    call.fail(ValueError("the disk is on fire"))
    with pytest.raises(Exception, match="the disk is on fire"):
        await leaving
    with pytest.raises(Closed):
        bench.coordinator.try_write(Upserts(a=1))


def test_a_flush_runs_in_the_coordinators_context_and_not_in_a_callers() -> None:
    """A caller's trace or log context must not be pinned on a flush that serves many callers."""
    request: ContextVar[str] = ContextVar("request", default="none")
    seen: list[str] = []

    class Listener(PatientHandler[Upserts]):
        async def flush(self, delta, snapshot, epochs):  # type: ignore[no-untyped-def]
            seen.append(request.get())
            return Flushed(snapshot, lambda: asyncio.sleep(0))

    async def caller(coordinator: Coordinator[Upserts, object]) -> None:
        request.set("of one caller")
        await coordinator.write_durable(Upserts(a=1))

    async def main() -> None:
        async with Coordinator(Listener(Upserts), {}) as coordinator:
            await asyncio.create_task(caller(coordinator))

    asyncio.run(main())
    assert seen == ["none"]


def test_a_tight_loop_of_writes_lets_flushes_overlap() -> None:
    async def main(simulation: Simulation) -> None:
        handler = WillingHandler(Upserts, land_seconds=0, settle_seconds=0)
        config = CoordinatorConfig(max_pending_writes=100, max_buffered_writes=1_000_000)
        coordinator = Coordinator(handler, {}, config, clock=simulation.clock)
        for _ in range(10_000):
            await coordinator.write(Upserts())
        assert len(handler.flushed) > 3
        await coordinator.shutdown()

    simulate(main, 1)


def test_a_coordinator_is_made_inside_a_running_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        Coordinator(PatientHandler(Upserts), {})


def test_the_error_of_a_full_coordinator_says_what_is_held() -> None:
    async def main() -> None:
        coordinator = Coordinator(
            PatientHandler(Upserts), {}, CoordinatorConfig(max_pending_writes=1, max_buffered_writes=1)
        )
        coordinator.try_write(Upserts(a=1))
        with pytest.raises(AtCapacity, match="1 of 1 writes and 10 of 134217728 bytes are held"):
            coordinator.try_write(Upserts(b=2))
        coordinator.abort()

    asyncio.run(main())
