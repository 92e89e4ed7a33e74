"""What the consumer promises: one at a time, in order, fenced by its successor, and moved by success alone."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from tests.buffer.consumers import MANIFEST, consumer, fill, filled, queued, the_next
from tests.buffer.simulated import simulated

from penstock.buffer import (
    Consumer,
    Manifest,
    Watermark,
)
from penstock.errors import Closed, Fenced, InvalidInput, PenstockError, Unavailable
from penstock.objects import MemoryStore
from penstock.observability import names
from penstock.testing import Fate, FaultPlan, RecordingObserver, Simulation

# Reading -----------------------------------------------------------------------------------------


@simulated
async def test_batches_come_in_the_order_of_the_queue_with_their_data_metadata_and_sequence(
    simulation: Simulation,
) -> None:
    made = consumer(simulation, await filled(simulation, 3))
    for number in range(3):
        batch = await the_next(made)
        assert batch.sequence == number
        assert [bytes(record) for record in batch.records] == [b"%d" % number]
        assert [one.payload for one in batch.metadata] == [b"m%d" % number]
        found = batch.metadata_of(0)
        assert found is not None
        assert found.payload == b"m%d" % number
    assert await made.next_batch() is None


@simulated
async def test_an_empty_queue_has_no_next_batch_until_something_is_produced(simulation: Simulation) -> None:
    store = await filled(simulation, 0)
    made = consumer(simulation, store)
    assert await made.next_batch() is None
    assert await made.next_descriptors(5) == []
    await fill(simulation, store, range(1))
    assert (await the_next(made)).sequence == 0


@simulated
async def test_reading_ahead_hands_out_each_batch_once_and_fetches_none(simulation: Simulation) -> None:
    store = await filled(simulation, 5)
    made = consumer(simulation, store)
    await made.start()
    store.faults = FaultPlan(error_before=1.0, verbs=frozenset({"get_range", "head"}))
    assert [one.sequence for one in await made.next_descriptors(3)] == [0, 1, 2]
    assert [one.sequence for one in await made.next_descriptors(3)] == [3, 4]
    assert await made.next_descriptors(3) == []
    assert await queued(store) == [0, 1, 2, 3, 4], "reading ahead takes nothing off the queue"
    assert made.last_acked is None


@simulated
async def test_reading_ahead_and_next_batch_share_one_cursor(simulation: Simulation) -> None:
    made = consumer(simulation, await filled(simulation, 4))
    assert [one.sequence for one in await made.next_descriptors(2)] == [0, 1]
    assert (await the_next(made)).sequence == 2
    assert [one.sequence for one in await made.next_descriptors(2)] == [3]


@simulated
async def test_a_cancelled_next_batch_does_not_move_the_cursor(simulation: Simulation) -> None:
    store = await filled(simulation, 2)
    made = consumer(simulation, store)
    await made.start()
    for patience in (0.0, 0.5, 1.0, 1.5, 2.5):
        # The manifest takes a second, and so does the batch: each patience ends somewhere else.
        store.faults = FaultPlan(reply_lost=1.0, timeout_seconds=1.0, verbs=frozenset({"get"}))
        with pytest.raises((TimeoutError, Unavailable)):
            async with asyncio.timeout(patience):
                await made.next_batch()
    store.faults = FaultPlan.none()
    assert (await the_next(made)).sequence == 0


@simulated
async def test_a_failed_next_batch_does_not_move_the_cursor(simulation: Simulation) -> None:
    store = await filled(simulation, 1)
    made = consumer(simulation, store)
    await made.start()
    store.script("get", Fate.SERVED, Fate.ERROR_BEFORE)
    with pytest.raises(Unavailable):
        await made.next_batch()
    assert (await the_next(made)).sequence == 0


@simulated
async def test_concurrent_fetches_do_not_block_the_owner(simulation: Simulation) -> None:
    """A fetch that never ends, and the consumer reads ahead, fetches others and acknowledges."""
    store = await filled(simulation, 3)
    made = consumer(simulation, store)
    handle, descriptors = made.fetch_handle(), await made.next_descriptors(2)
    store.script("get", Fate.REQUEST_LOST)
    stuck = asyncio.create_task(handle.fetch(descriptors[1]))
    await simulation.clock.sleep(1.0)
    assert (await handle.fetch(descriptors[0])).sequence == 0
    await made.ack_through(0)
    assert [one.sequence for one in await made.next_descriptors(5)] == [2]
    assert not stuck.done()
    with pytest.raises(Unavailable):
        await stuck


@simulated
async def test_a_loop_over_the_consumer_gets_every_batch_those_to_come_included_until_it_is_closed(
    simulation: Simulation,
) -> None:
    store = await filled(simulation, 3)
    made, seen = consumer(simulation, store, poll_seconds=0.5), list[int]()

    async def loop() -> None:
        async for batch in made:
            seen.append(batch.sequence)
            await made.ack(batch.sequence)

    looping = asyncio.create_task(loop())
    await simulation.clock.sleep(2.0)
    assert seen == [0, 1, 2]
    await fill(simulation, store, range(3, 5))
    await simulation.clock.sleep(1.0)
    assert seen == [0, 1, 2, 3, 4]
    await made.close()
    await looping
    assert await queued(store) == []


@simulated
async def test_a_loop_that_an_error_ended_goes_on_where_it_ended(simulation: Simulation) -> None:
    store = await filled(simulation, 3)
    made = consumer(simulation, store)
    await made.start()
    store.script("get", Fate.SERVED, Fate.SERVED, Fate.SERVED, Fate.ERROR_BEFORE)
    seen = []
    with pytest.raises(Unavailable):
        async for batch in made:
            seen.append(batch.sequence)
    async for batch in made:
        seen.append(batch.sequence)
        if len(seen) == 3:
            break
    assert seen == [0, 1, 2]
    await consumer(simulation, store).start()
    with pytest.raises(Fenced):
        async for _ in made:
            pass


@simulated
async def test_next_descriptors_refuses_a_senseless_number(simulation: Simulation) -> None:
    made = consumer(simulation, await filled(simulation, 1))
    for wrong in (0, -1):
        with pytest.raises(InvalidInput):
            await made.next_descriptors(wrong)


# Acknowledging -----------------------------------------------------------------------------------


@simulated
async def test_acknowledgements_are_exactly_in_order(simulation: Simulation) -> None:
    made = consumer(simulation, await filled(simulation, 4))
    await made.next_descriptors(3)
    for wrong in (1, 2, 3, 99):
        with pytest.raises(InvalidInput, match="the next one is 0"):
            await made.ack(wrong)
    await made.ack(0)
    with pytest.raises(InvalidInput, match="the next one is 1"):
        await made.ack(0)
    await made.ack(1)
    assert made.last_acked == 1


@simulated
async def test_the_first_acknowledgement_must_be_of_the_first_batch_handed_out(simulation: Simulation) -> None:
    store = await filled(simulation, 4)
    made = consumer(simulation, store, last_acked=1)
    with pytest.raises(InvalidInput, match="nothing handed out"):
        await made.ack(2)
    await made.next_descriptors(2)
    with pytest.raises(InvalidInput, match="the next one is 2"):
        await made.ack(3)
    await made.ack(2)


@simulated
async def test_acknowledged_batches_leave_the_queue_every_so_many_acknowledgements(simulation: Simulation) -> None:
    store = await filled(simulation, 7)
    made = consumer(simulation, store, dequeue_every_acks=3)
    await made.next_descriptors(7)
    sizes = []
    for sequence in range(7):
        await made.ack(sequence)
        sizes.append(len(await queued(store)))
    assert sizes == [7, 7, 4, 4, 4, 1, 1]
    await made.flush()
    assert await queued(store) == []


@simulated
async def test_a_run_is_acknowledged_in_one_write_however_long_it_is(simulation: Simulation) -> None:
    store, observer = await filled(simulation, 9), RecordingObserver()
    made = consumer(simulation, store, observer=observer)
    await made.next_descriptors(9)
    writes = observer.counted(names.REGISTER_COMMITS)
    await made.ack_through(6)
    assert observer.counted(names.REGISTER_COMMITS) == writes + 1
    assert observer.counted(names.BUFFER_ACKS) == 7
    assert await queued(store) == [7, 8]
    assert made.last_acked == 6
    for wrong in (0, 6):
        with pytest.raises(InvalidInput, match="6 is already acknowledged"):
            await made.ack_through(wrong)
    with pytest.raises(InvalidInput, match="the last one handed out is 8"):
        await made.ack_through(9)
    await made.ack(7)


@simulated
async def test_a_storage_error_leaves_an_acknowledgement_undone_and_safe_to_repeat(simulation: Simulation) -> None:
    store = await filled(simulation, 3)
    made = consumer(simulation, store, manifest_deadline_seconds=5.0, dequeue_every_acks=1)
    await made.next_descriptors(3)
    store.faults = FaultPlan(error_before=1.0)
    for call in (lambda: made.ack(0), lambda: made.ack_through(2)):
        with pytest.raises(Unavailable):
            await call()
        assert made.last_acked is None
    store.faults = FaultPlan.none()
    assert await queued(store) == [0, 1, 2]
    await made.ack(0)
    await made.ack_through(2)
    assert await queued(store) == []


@pytest.mark.parametrize("fate", [Fate.ERROR_AFTER, Fate.REPLY_LOST, Fate.REQUEST_LOST])
def test_a_dequeue_whose_answer_was_lost_is_found_out_by_reading_again(fate: Fate) -> None:
    @simulated
    async def check(simulation: Simulation) -> None:
        store = await filled(simulation, 3)
        made = consumer(simulation, store)
        await made.next_descriptors(3)
        store.script("put_if", fate)
        await made.ack_through(1)
        assert await queued(store) == [2]
        assert made.last_acked == 1

    check()


@simulated
async def test_a_lost_descriptor_stalls_the_frontier_and_a_restart_hands_it_out_again(simulation: Simulation) -> None:
    store = await filled(simulation, 5)
    made, watermark = consumer(simulation, store), Watermark()
    for descriptor in await made.next_descriptors(5):
        watermark.begin(descriptor.sequence)
    for sequence in (0, 1, 3, 4):  # the worker that had 2 is gone
        watermark.complete(sequence)
    assert watermark.value == 1
    await made.ack_through(watermark.value)
    assert await made.next_descriptors(5) == []
    successor = consumer(simulation, store, last_acked=watermark.value)
    assert [one.sequence for one in await successor.next_descriptors(5)] == [2, 3, 4]


@pytest.mark.parametrize("wrong", [True, 0.0, 2.5, "0", None, b"0"])
def test_a_sequence_is_a_whole_number_wherever_one_is_given(wrong: Any) -> None:
    @simulated
    async def check(simulation: Simulation) -> None:
        store = await filled(simulation, 4)
        made, watermark = consumer(simulation, store), Watermark()
        await made.next_descriptors(4)
        for call in (made.ack, made.ack_through, made.next_descriptors):
            with pytest.raises(InvalidInput, match="whole number"):
                await call(wrong)
        for mark in (watermark.begin, watermark.complete):
            with pytest.raises(InvalidInput, match="whole number"):
                mark(wrong)
        assert (made.last_acked, await queued(store)) == (None, [0, 1, 2, 3])

    check()


# Fencing -----------------------------------------------------------------------------------------


@simulated
async def test_a_zombie_is_fenced_at_its_next_read_or_acknowledgement_and_changes_nothing(
    simulation: Simulation,
) -> None:
    store = await filled(simulation, 4)
    observer = RecordingObserver()
    zombie = consumer(simulation, store, observer=observer)
    assert await zombie.start() == 1
    await zombie.next_descriptors(2)
    await zombie.ack(0)
    successor = consumer(simulation, store, last_acked=0)
    assert await successor.start() == 2
    handle = zombie.fetch_handle()
    for call in (
        lambda: zombie.ack(1),
        lambda: zombie.ack_through(1),
        lambda: zombie.next_batch(),
        lambda: zombie.next_descriptors(1),
        lambda: zombie.flush(),
        lambda: zombie.len(),
    ):
        with pytest.raises(Fenced):
            await call()
    assert zombie.last_acked == 0
    assert await queued(store) == [1, 2, 3]
    batch = await the_next(successor)
    assert batch.sequence == 1
    assert (await handle.fetch(batch.descriptor)).sequence == 1, "a stale handle still fetches"
    assert len(observer.events(names.BUFFER_FENCED)) == 1
    await zombie.close()


@simulated
async def test_the_fence_never_takes_the_sentinel_and_wraps_to_zero(simulation: Simulation) -> None:
    store = MemoryStore(clock=simulation.clock)
    await store.put(MANIFEST, Manifest.empty().with_fence(2**64 - 3).body)
    fences = [await consumer(simulation, store).start() for _ in range(3)]
    assert fences == [2**64 - 2, 0, 1]


@simulated
async def test_two_consumers_that_start_at_once_never_hold_the_same_fence(simulation: Simulation) -> None:
    store = await filled(simulation, 1)
    store.faults = FaultPlan(error_after=0.4, verbs=frozenset({"put_if"}))
    rivals = [consumer(simulation, store) for _ in range(3)]
    started = await asyncio.gather(*(rival.start() for rival in rivals), return_exceptions=True)
    fences = [fence for fence in started if isinstance(fence, int)]
    assert len(set(fences)) == len(fences)
    store.faults = FaultPlan.none()
    alive = [rival for rival in rivals if not isinstance(await _attempt(rival), Fenced)]
    assert len(alive) <= 1


async def _attempt(rival: Consumer) -> PenstockError | None:
    try:
        await rival.len()
    except PenstockError as error:
        return error
    return None


# Resuming ----------------------------------------------------------------------------------------


@simulated
async def test_a_consumer_resumes_right_behind_the_last_persisted_sequence(simulation: Simulation) -> None:
    """The sink had 0 to 2 when the writer died before its acknowledgement: they are not delivered again."""
    store = await filled(simulation, 5)
    died = consumer(simulation, store)
    await died.next_descriptors(3)
    resumed = consumer(simulation, store, last_acked=2)
    await resumed.start()
    assert await queued(store) == [3, 4], "starting drops what the sink has"
    assert (await the_next(resumed)).sequence == 3
    await resumed.ack(3)


@simulated
async def test_without_a_position_a_consumer_begins_with_what_the_queue_holds(simulation: Simulation) -> None:
    store = await filled(simulation, 4)
    first = consumer(simulation, store)
    await first.next_descriptors(2)
    await first.ack_through(1)
    second = consumer(simulation, store)
    assert (await the_next(second)).sequence == 2


@pytest.mark.parametrize("wrong", [True, 1.5, "1", b"1"])
def test_a_position_is_a_whole_number(wrong: Any) -> None:
    """A true would count as 1, and take two batches off that nobody has stored."""
    with pytest.raises(InvalidInput, match="whole number"):
        Consumer(MemoryStore(), last_acked=wrong)


@simulated
async def test_a_position_that_this_queue_never_gave_is_refused_before_anybody_is_fenced(
    simulation: Simulation,
) -> None:
    store = await filled(simulation, 3)
    running = consumer(simulation, store)
    await running.start()
    for wrong in (3, 1000, -1):
        with pytest.raises(InvalidInput, match="is not a position of this queue"):
            await consumer(simulation, store, last_acked=wrong).start()
    assert await queued(store) == [0, 1, 2]
    assert (await the_next(running)).sequence == 0


@simulated
async def test_a_position_behind_which_batches_are_gone_is_refused(simulation: Simulation) -> None:
    """A sink restored from an old backup must not skip what it never had in silence."""
    store = await filled(simulation, 5)
    first = consumer(simulation, store)
    await first.next_descriptors(4)
    await first.ack_through(3)
    with pytest.raises(InvalidInput, match="batches behind last_acked = 1 are gone"):
        await consumer(simulation, store, last_acked=1).start()
    assert (await the_next(first)).sequence == 4


@simulated
async def test_a_gap_of_any_size_is_refused_without_counting_through_it(simulation: Simulation) -> None:
    store = MemoryStore(clock=simulation.clock)
    await store.put(MANIFEST, struct.pack("<IQQH", 0, 2**63, 0, 1))
    with pytest.raises(InvalidInput, match="are gone"):
        await consumer(simulation, store, last_acked=5).start()


# Looking, and life -------------------------------------------------------------------------------


@simulated
async def test_length_and_lag_count_what_is_not_acknowledged(simulation: Simulation) -> None:
    store, observer = await filled(simulation, 3), RecordingObserver()
    made = consumer(simulation, store, observer=observer)
    await simulation.clock.sleep(5.0)
    assert await made.len() == 3
    assert (await made.lag()).seconds == pytest.approx(5.0, abs=0.2)
    await made.next_descriptors(2)
    assert await made.len() == 3, "handed out is not acknowledged"
    await made.ack(0)
    assert await made.len() == 2, "acknowledged is not waiting, though it is still in the manifest"
    assert observer.gauged(names.BUFFER_LAG_BATCHES) == 2
    assert observer.gauged(names.BUFFER_QUEUE_BATCHES) == 3
    await made.next_descriptors(1)
    await made.ack_through(2)
    assert (await made.lag()).batches == 0
    assert (await made.lag()).seconds == 0.0
    assert observer.counted(names.BUFFER_ACKS) == 3


@simulated
async def test_close_takes_off_what_is_acknowledged_and_refuses_what_comes_after(simulation: Simulation) -> None:
    store = await filled(simulation, 3)
    async with consumer(simulation, store, collect=True) as made:
        await made.next_descriptors(2)
        await made.ack(0)
    assert await queued(store) == [1, 2]
    with pytest.raises(Closed):
        await made.next_batch()
    with pytest.raises(Closed):
        await made.ack(1)
    await made.close()


@simulated
async def test_a_consumer_closed_at_any_step_of_its_start_leaves_nothing_running(simulation: Simulation) -> None:
    store = await filled(simulation, 3)
    for steps in range(200):
        made = consumer(simulation, store, collect=True)
        starting = asyncio.create_task(made.start())
        for _ in range(steps):
            await asyncio.sleep(0)
        started = starting.done()
        await made.close()
        await asyncio.gather(starting, return_exceptions=True)
        collectors = [task for task in asyncio.all_tasks() if task.get_name() == "buffer collector" and not task.done()]
        assert not collectors, f"closed after {steps} steps"
        if started:
            return
    raise AssertionError("it never started")


@simulated
async def test_a_consumer_collects_what_was_consumed_while_it_runs(simulation: Simulation) -> None:
    store = await filled(simulation, 2)
    await simulation.clock.sleep(1.0)
    await fill(simulation, store, range(2, 3))
    made = consumer(simulation, store, collect=True, collect_interval_seconds=10.0, collector_grace_seconds=30.0)
    await made.next_descriptors(2)
    await made.ack_through(1)
    await simulation.clock.sleep(60.0)
    left = [meta.key async for page in store.list("ingest/") for meta in page if meta.key.endswith(".batch")]
    manifest = Manifest((await store.get(MANIFEST)).data)
    assert left == [manifest.location_of(2)]
    await made.close()


@simulated
async def test_a_start_that_failed_half_way_can_be_made_again(simulation: Simulation) -> None:
    store = await filled(simulation, 3)
    made = consumer(simulation, store, last_acked=0, manifest_deadline_seconds=3.0)
    store.faults = FaultPlan(error_before=0.7)
    for _ in range(50):
        try:
            await made.start()
            break
        except PenstockError:
            continue
    store.faults = FaultPlan.none()
    assert (await the_next(made)).sequence == 1
    assert await queued(store) == [1, 2]
