"""The bounds and the line before them, alone and through the coordinator."""

from __future__ import annotations

import asyncio

import pytest
from tests.coordinator.stores import ROW_BYTES, Bench, PatientHandler, Upserts, WillingHandler, outcome, scenario

from penstock.coordinator import Coordinator, CoordinatorConfig
from penstock.coordinator.admission import Room, Ticket
from penstock.errors import AtCapacity, Closed, InvalidInput
from penstock.testing import Simulation, simulate


def test_room_is_bounded_by_bytes_and_by_writes() -> None:
    room = Room(max_bytes=10, max_writes=2)
    assert room.take(10)
    assert not room.take(1)
    assert room.take(0)
    assert not room.take(0)
    room.leave(10, 2)
    assert (room.bytes, room.writes) == (0, 0)


def test_the_line_moves_in_order_and_a_large_write_is_not_overtaken() -> None:
    room = Room(max_bytes=10, max_writes=10)
    assert room.take(8)
    large, small = room.queue(9), room.queue(1)
    assert room.grant() == []
    assert not room.take(1)
    room.leave(8)
    assert room.grant() == [large, small]


def test_nobody_writes_before_a_granted_ticket_but_those_who_cannot_wait() -> None:
    room = Room(max_bytes=10, max_writes=10)
    first, second = room.queue(4), room.queue(1)
    assert first.granted
    assert second.granted
    assert not room.take(1), "it came later"
    assert not room.take(6, now_or_never=True), "the room is promised"
    assert room.take(5, now_or_never=True)
    assert (room.is_next(first), room.is_next(second)) == (True, False)
    room.claim(first)
    assert room.is_next(second)
    room.claim(second)
    assert (room.bytes, room.writes) == (10, 3)


@pytest.mark.parametrize("granted", [False, True])
def test_a_withdrawn_ticket_leaves_nothing_behind(granted: bool) -> None:
    room = Room(max_bytes=10, max_writes=10)
    room.take(7)
    ticket = room.queue(3 if granted else 4)
    assert ticket.granted == granted
    room.withdraw(ticket)
    assert (room.bytes, room.writes, room.waiting) == (7, 1, 0)
    assert room.take(3)


def test_those_turned_away_hold_no_room() -> None:
    room = Room(max_bytes=1, max_writes=1)
    assert room.take(1)
    tickets: list[Ticket] = [room.queue(1), room.queue(1)]
    assert room.turn_away() == tickets
    room.leave(1)
    assert room.grant() == []


@scenario(max_pending_bytes=2 * ROW_BYTES, max_buffered_bytes=4 * ROW_BYTES)
async def test_writes_wait_when_the_buffer_is_full_and_resume_after_it_drains(bench: Bench) -> None:
    """What is in flight counts like what is pending: it is the same memory."""
    await bench.write(4)
    waiting = [asyncio.create_task(bench.coordinator.write(Upserts(a=n))) for n in range(3)]
    first = await bench.call(1)
    first.land()
    await bench.quiet()
    assert not any(write.done() for write in waiting)
    assert bench.coordinator.watermarks.applied == 4
    first.settle()
    for number in range(2, 10):
        await bench.quiet()
        if len(bench.handler.calls) >= number:
            bench.handler.calls[number - 1].finish()
    assert sorted([(await write).epoch for write in waiting]) == [5, 6, 7]


@scenario(max_pending_writes=2, max_buffered_writes=2)
async def test_writes_wait_when_the_queue_is_deep_enough(bench: Bench) -> None:
    await bench.write(2)
    waiting = asyncio.create_task(bench.coordinator.write(Upserts()))
    call = await bench.call(1)
    assert not waiting.done()
    call.finish()
    assert (await waiting).epoch == 3
    bench.coordinator.abort()


@scenario(max_pending_bytes=100 * ROW_BYTES, max_buffered_bytes=100 * ROW_BYTES, flush_interval_seconds=3600)
async def test_a_writer_that_finds_no_room_makes_the_coordinator_flush(bench: Bench) -> None:
    """The pending bytes are below the threshold, but nothing else can make room for the one who waits."""
    await bench.write(51)
    large = Upserts(**{str(n): n for n in range(50)})
    waiting = asyncio.create_task(bench.coordinator.write(large))
    (await bench.call(1)).finish()
    assert (await waiting).epoch == 52
    bench.coordinator.abort()


@scenario(max_pending_bytes=100 * ROW_BYTES, max_buffered_bytes=100 * ROW_BYTES, flush_interval_seconds=3600)
async def test_a_rejected_try_makes_the_coordinator_flush(bench: Bench) -> None:
    await bench.write(51)
    large = Upserts(**{str(n): n for n in range(50)})
    with pytest.raises(AtCapacity) as error:
        bench.coordinator.try_write(large)
    (await bench.call(1)).finish()
    await bench.quiet()
    assert bench.coordinator.try_write(error.value.rejected).epoch == 52
    bench.coordinator.abort()


@scenario(max_pending_writes=1, max_buffered_writes=1)
async def test_a_write_is_handed_back_on_timeout(bench: Bench) -> None:
    await bench.write()
    mine = Upserts(b=2)
    began = bench.clock.monotonic()
    with pytest.raises(AtCapacity, match=r"no room within 2\.5 s") as error:
        await bench.coordinator.write(mine, timeout=2.5)
    assert error.value.rejected is mine
    assert bench.clock.monotonic() - began == pytest.approx(2.5)
    assert bench.coordinator.watermarks.applied == 1
    (await bench.call(1)).finish()
    await bench.quiet()
    assert (await bench.coordinator.write(mine, timeout=2.5)).epoch == 2
    bench.coordinator.abort()


@scenario(max_pending_writes=1, max_buffered_writes=1)
async def test_a_timeout_and_room_at_the_same_moment_never_both_happen(bench: Bench) -> None:
    await bench.write()
    call = await bench.call(1)
    mine = Upserts(b=2)
    waiting = asyncio.create_task(outcome(bench.coordinator.write(mine, timeout=1.0)))
    await bench.clock.sleep(1.0 - 0.001)
    call.finish()
    result = await waiting
    taken = bench.coordinator.watermarks.applied == 2
    assert taken != isinstance(result, AtCapacity)
    bench.coordinator.abort()


@scenario(max_pending_writes=1, max_buffered_writes=1)
async def test_a_cancelled_writer_that_waits_is_not_taken(bench: Bench) -> None:
    await bench.write()
    waiting = [asyncio.create_task(bench.coordinator.write(Upserts(a=n))) for n in range(3)]
    call = await bench.call(1)
    waiting[1].cancel()
    call.finish()
    await bench.quiet()
    bench.handler.calls[1].finish()
    await bench.quiet()
    assert waiting[1].cancelled()
    assert {(await waiting[0]).epoch, (await waiting[2]).epoch} == {2, 3}
    assert bench.coordinator.watermarks.applied == 3
    bench.coordinator.abort()


@scenario(max_pending_writes=1, max_buffered_writes=1)
async def test_a_writer_cancelled_at_the_moment_it_gets_room_is_taken_or_cancelled_never_both(bench: Bench) -> None:
    await bench.write()
    waiting = asyncio.create_task(bench.coordinator.write(Upserts(b=2)))
    call = await bench.call(1)
    call.finish()
    for _ in range(bench.coordinator.watermarks.applied + len(bench.handler.calls)):
        await asyncio.sleep(0)
    waiting.cancel()
    await bench.quiet()
    assert bench.coordinator.watermarks.applied == (1 if waiting.cancelled() else 2)
    # The room of a cancelled writer is free for the next one.
    if waiting.cancelled():
        assert bench.coordinator.try_write(Upserts(c=3)).epoch == 2
    bench.coordinator.abort()


@scenario(max_pending_writes=1, max_buffered_writes=1)
async def test_writers_that_wait_are_refused_by_a_shutdown(bench: Bench) -> None:
    await bench.write()
    waiting = asyncio.create_task(outcome(bench.coordinator.write(Upserts(b=2))))
    call = await bench.call(1)
    ending = asyncio.create_task(bench.coordinator.shutdown())
    assert isinstance(await waiting, Closed)
    call.finish()
    await ending
    assert bench.coordinator.watermarks.applied == 1


@scenario(max_pending_writes=1, max_buffered_writes=1)
async def test_a_writer_granted_room_before_a_shutdown_is_taken_and_flushed_or_refused(bench: Bench) -> None:
    await bench.write()
    waiting = asyncio.create_task(outcome(bench.coordinator.write(Upserts(b=2))))
    (await bench.call(1)).finish()
    for _ in range(3):
        await asyncio.sleep(0)
    ending = asyncio.create_task(bench.coordinator.shutdown())
    await bench.quiet()
    if len(bench.handler.calls) == 2:
        bench.handler.calls[1].finish()
    await ending
    taken = bench.coordinator.watermarks.applied == 2
    assert taken != isinstance(await waiting, Closed)
    assert bench.coordinator.watermarks.durable == bench.coordinator.watermarks.applied


@scenario(max_pending_bytes=5 * ROW_BYTES, max_buffered_bytes=5 * ROW_BYTES)
async def test_a_write_larger_than_the_whole_bound_is_refused_and_nobody_waits_for_it(bench: Bench) -> None:
    mine = Upserts(**{str(n): n for n in range(6)})
    for attempt in (bench.coordinator.write(mine), bench.coordinator.write(mine, timeout=1)):
        with pytest.raises(InvalidInput, match="a write of 60 bytes"):
            await attempt
    with pytest.raises(InvalidInput, match="split it"):
        bench.coordinator.try_write(mine)
    assert bench.coordinator.watermarks.applied == 0


@scenario()
async def test_a_write_of_a_negative_size_is_refused(bench: Bench) -> None:
    mine = Upserts(a=1)
    mine.size_bytes = -1
    with pytest.raises(InvalidInput, match="a write of -1 bytes"):
        await bench.coordinator.write(mine)


class Unmergeable(Upserts):
    """Cannot be merged into anything."""

    def __init__(self) -> None:
        super().__init__(a=1)
        # Upserts.merge reads the rows of what it takes in.
        del self.rows


@scenario(max_pending_writes=1, max_buffered_writes=1)
async def test_a_delta_that_cannot_be_merged_is_not_taken_and_costs_no_room(bench: Bench) -> None:
    with pytest.raises(AttributeError):
        await bench.coordinator.write(Unmergeable())
    await bench.write()
    waiting = asyncio.create_task(outcome(bench.coordinator.write(Unmergeable())))
    await bench.quiet()
    next_one = asyncio.create_task(bench.coordinator.write(Upserts(b=2)))
    (await bench.call(1)).finish()
    assert isinstance(await waiting, AttributeError)
    assert (await next_one).epoch == 2
    bench.coordinator.abort()


def test_writers_are_let_in_in_the_order_of_their_arrival() -> None:
    """On asyncio's own loop, which runs callbacks in order."""

    async def main() -> None:
        handler: PatientHandler[Upserts] = PatientHandler(Upserts)
        config = CoordinatorConfig(max_pending_writes=3, max_buffered_writes=3)
        coordinator = Coordinator(handler, {}, config)
        writes = [asyncio.create_task(coordinator.write(Upserts(a=n))) for n in range(50)]
        finished = 0
        while not all(write.done() for write in writes):
            await asyncio.sleep(0)
            for call in handler.calls[finished:]:
                call.finish()
                finished += 1
        assert [write.result().epoch for write in writes] == list(range(1, 51))
        coordinator.abort()

    asyncio.run(main())


@pytest.mark.slow
def test_a_caller_that_lets_others_run_keeps_its_place() -> None:
    """Every write of 20,000 callers comes in the order of the calls, though many of them yield."""

    async def main() -> None:
        coordinator = Coordinator(WillingHandler(Upserts), {})
        writes = [asyncio.create_task(coordinator.write(Upserts(a=n))) for n in range(20_000)]
        epochs = [(await write).epoch for write in writes]
        assert epochs == list(range(1, 20_001))
        coordinator.abort()

    asyncio.run(main())


@pytest.mark.parametrize("writes_max", [100, 1_000_000])
def test_tight_loops_beside_each_other_write_in_the_order_of_their_calls(writes_max: int) -> None:
    """Under any order in which the loop wakes them, with room and without."""

    async def main(simulation: Simulation) -> None:
        handler = WillingHandler(Upserts, land_seconds=0, settle_seconds=0)
        config = CoordinatorConfig(max_pending_writes=writes_max // 2, max_buffered_writes=writes_max)
        coordinator = Coordinator(handler, {}, config, clock=simulation.clock)
        accepted: dict[int, int] = {}
        calls = 0

        async def caller() -> None:
            nonlocal calls
            for _ in range(400):
                call = calls = calls + 1
                accepted[(await coordinator.write(Upserts())).epoch] = call

        await asyncio.gather(*(caller() for _ in range(5)))
        assert [accepted[epoch] for epoch in sorted(accepted)] == list(range(1, 2001))
        await coordinator.shutdown()

    for seed in range(3):
        simulate(main, seed)


def test_a_caller_cancelled_while_it_lets_others_run_is_not_taken() -> None:
    async def main() -> None:
        coordinator = Coordinator(WillingHandler(Upserts), {})
        writes = [asyncio.create_task(coordinator.write(Upserts(a=n))) for n in range(1100)]
        await asyncio.sleep(0)
        waiting = [write for write in writes if not write.done()]
        waiting[0].cancel()
        waiting[-1].cancel()
        await asyncio.gather(*writes, return_exceptions=True)
        assert coordinator.watermarks.applied == 1098
        assert coordinator._machine.room.writes == 1098
        assert [write.result().epoch for write in writes if not write.cancelled()] == list(range(1, 1099))
        coordinator.abort()

    asyncio.run(main())


def test_a_try_is_not_refused_because_a_caller_lets_others_run() -> None:
    async def main() -> None:
        coordinator = Coordinator(WillingHandler(Upserts), {})
        writes = [asyncio.create_task(coordinator.write(Upserts(a=n))) for n in range(1025)]
        await asyncio.sleep(0)
        assert not writes[-1].done()
        assert coordinator.try_write(Upserts(a=1)).epoch == 1025
        assert (await writes[-1]).epoch == 1026
        coordinator.abort()

    asyncio.run(main())
