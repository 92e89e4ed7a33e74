"""What happens when a flush fails: retries within a deadline, then everyone is told and nothing is lost."""

from __future__ import annotations

import asyncio

import pytest
from tests.coordinator.stores import Bench, Upserts, outcome, scenario

from penstock.coordinator import Epochs, Mark, State, Watermarks
from penstock.coordinator.failure import is_transient, refusal, settled_as, unsettled
from penstock.errors import (
    Closed,
    Conflict,
    DeadlineExceeded,
    Fenced,
    OutcomeUnknown,
    PenstockError,
    StorageFull,
    Unavailable,
)

EPOCHS = Epochs(3, 5, attempt=2)


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (Unavailable("x"), True),
        (DeadlineExceeded("x"), True),
        (OutcomeUnknown("x"), True),
        (Fenced("x"), False),
        (StorageFull("x"), False),
        (Conflict("x"), False),
        (ValueError("x"), False),
    ],
)
def test_only_what_may_pass_by_itself_is_transient(error: Exception, transient: bool) -> None:
    assert is_transient(error) is transient


@pytest.mark.parametrize(
    ("error", "rests_as", "refuses_with", "waiters_get"),
    [
        (Fenced("lost the fence"), Fenced, Fenced, Fenced),
        (StorageFull("no room"), StorageFull, StorageFull, StorageFull),
        (OutcomeUnknown("lost"), OutcomeUnknown, OutcomeUnknown, OutcomeUnknown),
        # `Unavailable` promises that nothing was written: true for a refused write, not for an accepted one.
        (Unavailable("no answer"), DeadlineExceeded, DeadlineExceeded, OutcomeUnknown),
        (Closed("gone"), Closed, Closed, OutcomeUnknown),
        (ZeroDivisionError("by zero"), PenstockError, PenstockError, PenstockError),
    ],
)
def test_each_caller_gets_the_error_that_is_true_for_it(
    error: Exception, rests_as: type, refuses_with: type, waiters_get: type
) -> None:
    failure = settled_as(error, EPOCHS, 60)
    assert [type(failure), type(refusal(failure)), type(unsettled(failure))] == [rests_as, refuses_with, waiters_get]
    for told in (failure, refusal(failure), unsettled(failure)):
        assert "epochs 3..5 failed in attempt 2" in str(told)
        assert str(error) in str(told)
        assert "retry()" in told.remedy
    assert failure.__cause__ is error


@scenario()
async def test_a_failed_flush_reaches_every_waiter(bench: Bench) -> None:
    """The mistake to avoid: a flush task dies, writes go on being accepted, and waiters hang."""
    coordinator = bench.coordinator
    await bench.write(2)
    waiters = [
        asyncio.create_task(outcome(waiting))
        for waiting in (
            coordinator.flush(),
            coordinator.flush(1),
            coordinator.flush(until=Mark.FLUSHED),
            coordinator.reached(Mark.DURABLE, 2),
        )
    ]
    call = await bench.call(1)
    during = asyncio.create_task(outcome(coordinator.write_durable(Upserts(b=2))))
    await bench.quiet()
    call.fail(StorageFull("the quota is used up"))
    errors = [await waiter for waiter in (*waiters, during)]
    assert [type(error) for error in errors] == [StorageFull] * 5
    assert len({id(error) for error in errors}) == 5
    assert coordinator.state is State.FAILED
    assert "the quota is used up" in str(coordinator.failure)


@scenario()
async def test_a_failed_coordinator_refuses_writes_with_the_cause_and_answers_later_waiters(bench: Bench) -> None:
    coordinator = bench.coordinator
    handle = await coordinator.write(Upserts(a=1))
    flush = asyncio.create_task(outcome(coordinator.flush()))
    (await bench.call(1)).fail(Fenced("a newer writer took over"))
    await flush
    for attempt in (coordinator.write(Upserts(b=2)), coordinator.write_durable(Upserts(b=2)), handle.durable()):
        with pytest.raises(Fenced, match="a newer writer took over"):
            await attempt
    with pytest.raises(Fenced):
        coordinator.try_write(Upserts(b=2))
    with pytest.raises(Fenced):
        await coordinator.flush()
    with pytest.raises(Fenced):
        await coordinator.shutdown()
    assert coordinator.watermarks == Watermarks(applied=1)


@scenario(max_pending_writes=1, max_buffered_writes=1)
async def test_a_failed_flush_reaches_writers_that_wait_for_room(bench: Bench) -> None:
    await bench.write()
    waiting = [asyncio.create_task(outcome(bench.coordinator.write(Upserts(a=n)))) for n in range(2)]
    (await bench.call(1)).fail(StorageFull("full"))
    assert [type(await write) for write in waiting] == [StorageFull] * 2
    assert bench.coordinator.watermarks.applied == 1


@scenario()
async def test_what_was_accepted_is_kept_and_a_retry_resumes(bench: Bench) -> None:
    coordinator = bench.coordinator
    await bench.write(a=1)
    flush = asyncio.create_task(outcome(coordinator.flush()))
    call = await bench.call(1)
    await bench.write(b=2)
    call.fail(StorageFull("full"))
    await flush
    assert [delta.rows for delta in coordinator.view().deltas] == [{"a": 1}, {"b": 2}]
    retry = asyncio.create_task(coordinator.retry())
    again = await bench.call(2)
    assert (again.delta.rows, again.epochs) == ({"a": 1}, Epochs(1, 1, attempt=2))
    again.finish()
    (await bench.call(3)).finish()
    assert await retry == 2
    assert coordinator.current.snapshot == {"a": 1, "b": 2}
    assert (await coordinator.write(Upserts(c=3))).epoch == 3
    assert coordinator.state is State.ACCUMULATING


@scenario()
async def test_a_retry_that_fails_again_says_so(bench: Bench) -> None:
    await bench.write()
    flush = asyncio.create_task(outcome(bench.coordinator.flush()))
    (await bench.call(1)).fail(StorageFull("full"))
    await flush
    retry = asyncio.create_task(outcome(bench.coordinator.retry()))
    (await bench.call(2)).fail(StorageFull("still full"))
    assert "still full" in str(await retry)
    assert bench.coordinator.state is State.FAILED


@scenario()
async def test_a_shutdown_that_fails_can_be_retried(bench: Bench) -> None:
    await bench.write()
    ending = asyncio.create_task(outcome(bench.coordinator.shutdown()))
    (await bench.call(1)).fail(StorageFull("full"))
    assert isinstance(await ending, StorageFull)
    retry = asyncio.create_task(bench.coordinator.retry())
    (await bench.call(2)).finish()
    await retry
    await bench.coordinator.shutdown()
    assert isinstance(await outcome(bench.coordinator.write(Upserts(a=1))), Closed)


@scenario(retry_deadline_seconds=60, retry_pause_seconds=0.1, retry_pause_seconds_max=5)
async def test_a_transient_error_is_retried_and_no_waiter_notices(bench: Bench) -> None:
    await bench.write()
    flush = asyncio.create_task(bench.coordinator.flush())
    for attempt in range(1, 6):
        (await bench.call(attempt)).fail(Unavailable("the store is restarting"))
        await bench.clock.sleep(5)
    assert (await bench.coordinator.write(Upserts(b=2))).epoch == 2
    (await bench.call(6)).finish()
    assert await flush == 1
    assert bench.handler.ranges == [(1, 1, attempt) for attempt in range(1, 7)]
    assert all(call.delta is bench.handler.calls[0].delta for call in bench.handler.calls)


@scenario(retry_deadline_seconds=10, retry_pause_seconds=1, retry_pause_seconds_max=1)
async def test_transient_errors_that_outlast_the_deadline_come_to_rest(bench: Bench) -> None:
    await bench.write()
    flush = asyncio.create_task(outcome(bench.coordinator.flush()))
    began = bench.clock.monotonic()
    answered = 0
    while not flush.done():
        await bench.clock.sleep(0.5)
        for call in bench.handler.calls[answered:]:
            call.fail(Unavailable("no answer"))
            answered += 1
    assert isinstance(await flush, OutcomeUnknown)
    assert 10 <= bench.clock.monotonic() - began < 12
    assert isinstance(bench.coordinator.failure, DeadlineExceeded)
    assert isinstance(await outcome(bench.coordinator.write(Upserts(a=1))), Unavailable)


@scenario()
async def test_a_flush_of_unknown_outcome_is_repeated_with_the_same_epochs_and_marked_as_a_repeat(bench: Bench) -> None:
    await bench.write()
    flush = asyncio.create_task(bench.coordinator.flush())
    first = await bench.call(1)
    assert not first.epochs.repeat
    first.fail(OutcomeUnknown("the answer was lost"))
    await bench.write()
    await bench.clock.sleep(1)
    second = await bench.call(2)
    assert second.epochs == Epochs(1, 1, attempt=2)
    assert second.epochs.repeat
    second.finish()
    assert await flush == 1


@scenario()
async def test_a_flush_that_landed_and_is_not_known_to_be_durable_is_repeated(bench: Bench) -> None:
    handle = await bench.coordinator.write(Upserts(a=1))
    flush = asyncio.create_task(bench.coordinator.flush())
    call = await bench.call(1)
    call.land()
    await handle.flushed()
    call.lose(Unavailable("the log could not be uploaded"))
    await bench.clock.sleep(1)
    assert not flush.done()
    again = await bench.call(2)
    assert again.epochs == Epochs(1, 1, attempt=2)
    again.finish()
    assert await flush == 1


@scenario()
async def test_what_was_written_on_top_of_a_failed_flush_is_repeated_after_it(bench: Bench) -> None:
    """A later write of the same row must not end up below an earlier one, nor be seen to go back."""
    coordinator = bench.coordinator
    for number in (1, 2):
        await bench.write(a=number)
        flush = asyncio.create_task(coordinator.flush(until=Mark.FLUSHED))
        (await bench.call(number)).land()
        await flush
    bench.handler.calls[0].lose(OutcomeUnknown("lost"))
    await bench.clock.sleep(1)
    assert bench.handler.calls[1].abandoned
    third = await bench.call(3)
    third.finish()
    await bench.quiet()
    assert coordinator.current.snapshot == {"a": 2}
    assert coordinator.watermarks == Watermarks(2, 2, 1)
    (await bench.call(4)).finish()
    await coordinator.flush()
    assert bench.handler.ranges == [(1, 1, 1), (2, 2, 1), (1, 1, 2), (2, 2, 2)]
    assert coordinator.current.snapshot == {"a": 2}


@scenario()
async def test_a_flush_that_runs_while_an_earlier_one_fails_is_never_cut_off_and_is_repeated(bench: Bench) -> None:
    coordinator = bench.coordinator
    await bench.write(a=1)
    flush = asyncio.create_task(coordinator.flush(until=Mark.FLUSHED))
    first = await bench.call(1)
    first.land()
    await flush
    await bench.write(a=2)
    durable = asyncio.create_task(coordinator.flush())
    second = await bench.call(2)
    first.lose(Unavailable("lost"))
    await bench.clock.sleep(10)
    assert len(bench.handler.calls) == 2
    second.land()
    await bench.clock.sleep(1)
    for number in (3, 4):
        (await bench.call(number)).finish()
    assert await durable == 2
    assert bench.handler.ranges == [(1, 1, 1), (2, 2, 1), (1, 1, 2), (2, 2, 2)]


@scenario()
async def test_a_repeat_waits_until_everything_before_it_is_durable(bench: Bench) -> None:
    """A store that died has lost the earlier flush too; a repeat on top of nothing would put the later one first."""
    coordinator = bench.coordinator
    await bench.write(a=1)
    flush = asyncio.create_task(coordinator.flush(until=Mark.FLUSHED))
    first = await bench.call(1)
    first.land()
    await flush
    await bench.write(a=2)
    everything = asyncio.create_task(coordinator.flush())
    (await bench.call(2)).fail(OutcomeUnknown("the store died"))
    await bench.clock.sleep(30)
    assert len(bench.handler.calls) == 2
    first.lose(OutcomeUnknown("the store died"))
    await bench.clock.sleep(10)
    for number in (3, 4):
        (await bench.call(number)).finish()
        await bench.quiet()
    assert await everything == 2
    assert bench.handler.ranges == [(1, 1, 1), (2, 2, 1), (1, 1, 2), (2, 2, 2)]


@scenario()
async def test_writes_before_the_failed_one_become_durable_by_themselves(bench: Bench) -> None:
    coordinator = bench.coordinator
    handles = []
    for number in (1, 2):
        handles.append(await coordinator.write(Upserts(a=number)))
        flush = asyncio.create_task(coordinator.flush(until=Mark.FLUSHED))
        (await bench.call(number)).land()
        await flush
    bench.handler.calls[1].lose(Fenced("taken over"))
    await bench.quiet()
    early = asyncio.create_task(outcome(handles[0].durable()))
    assert isinstance(await outcome(handles[1].durable()), Fenced)
    await bench.quiet()
    assert not early.done()
    bench.handler.calls[0].settle()
    assert await early is None
    assert coordinator.watermarks == Watermarks(2, 2, 1)


@scenario()
async def test_a_pause_holds_back_repeats(bench: Bench) -> None:
    await bench.write()
    flush = asyncio.create_task(bench.coordinator.flush())
    call = await bench.call(1)
    pausing = asyncio.create_task(bench.coordinator.pause())
    await bench.quiet()
    call.fail(Unavailable("later"))
    await pausing
    await bench.clock.sleep(100)
    assert len(bench.handler.calls) == 1
    bench.coordinator.resume()
    (await bench.call(2)).finish()
    assert await flush == 1


@scenario()
async def test_a_cancelled_waiter_neither_stops_the_flush_nor_loses_the_write(bench: Bench) -> None:
    writing = asyncio.create_task(bench.coordinator.write_durable(Upserts(a=1)))
    call = await bench.call(1)
    writing.cancel()
    await bench.quiet()
    call.finish()
    await bench.quiet()
    assert bench.coordinator.watermarks == Watermarks(1, 1, 1)


def test_deltas_that_cannot_be_merged_for_a_flush_are_kept_and_everyone_is_told() -> None:
    """Views make a flush merge several deltas; a store whose merge fails there must not lose any."""

    class Moody(Upserts):
        willing = True

        def merge(self, later: Upserts) -> None:
            if not Moody.willing:
                raise ArithmeticError("not now")
            super().merge(later)

    @scenario()
    async def run(bench: Bench) -> None:
        Moody.willing = True
        bench.coordinator._machine.pending._empty = Moody
        for number in range(3):
            await bench.write(**{str(number): number})
            bench.coordinator.view()
        Moody.willing = False
        assert "not now" in str(await outcome(bench.coordinator.flush()))
        Moody.willing = True
        retry = asyncio.create_task(bench.coordinator.retry())
        (await bench.call(1)).finish()
        assert await retry == 3
        assert bench.coordinator.current.snapshot == {"0": 0, "1": 1, "2": 2}

    run()


def test_the_end_of_the_loop_answers_those_who_still_wait() -> None:
    """asyncio.run cancels every task, the flush among them: that is no reason to try again."""
    answers: list[object] = []

    class Sleeper:
        def empty(self) -> Upserts:
            return Upserts()

        async def flush(self, delta: Upserts, snapshot: object, epochs: Epochs) -> object:
            await asyncio.Event().wait()
            raise AssertionError

    async def main() -> None:
        from penstock.coordinator import Coordinator

        coordinator = Coordinator(Sleeper(), {})  # type: ignore[arg-type, var-annotated]
        await coordinator.write(Upserts(a=1))
        coordinator._machine.ask_flush()
        await asyncio.sleep(0)
        carrier = next(iter(coordinator._carriers.values()))
        waiting = asyncio.create_task(outcome(coordinator.flush()))
        await asyncio.sleep(0)
        carrier.cancel()
        answers.append(await waiting)
        answers.append(coordinator.state)

    asyncio.run(main())
    assert isinstance(answers[0], OutcomeUnknown)
    assert answers[1] is State.FAILED
