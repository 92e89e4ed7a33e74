"""What the consumer does with a batch it cannot read: halt, or set it aside with a record, never lose it in silence."""

from __future__ import annotations

import pytest
from tests.buffer.consumers import MANIFEST, consumer, fill, filled, queued, the_next
from tests.buffer.simulated import simulated

from penstock.buffer import (
    DeadLetterPolicy,
    DeadLetters,
    DescriptorDraft,
    Manifest,
)
from penstock.errors import Corrupt, Fenced, InvalidInput, NotFound, PenstockError, Unavailable
from penstock.observability import names
from penstock.testing import Fate, FaultyStore, RecordingObserver, Simulation

# Dead letters ------------------------------------------------------------------------------------


async def destroy(store: FaultyStore, sequence: int, body: bytes | None) -> str:
    manifest = Manifest((await store.get(MANIFEST)).data)
    location = manifest.location_of(sequence)
    assert location is not None
    if body is None:
        await store.delete(location)
    else:
        await store.put(location, body)
    return location


@pytest.mark.parametrize(("body", "error"), [(None, NotFound), (b"garbage", PenstockError), (b"", Corrupt)])
def test_an_unreadable_batch_halts_the_consumer_until_it_is_repaired(
    body: bytes | None, error: type[PenstockError]
) -> None:
    @simulated
    async def check(simulation: Simulation) -> None:
        store = await filled(simulation, 2)
        location = Manifest((await store.get(MANIFEST)).data)[0].location
        sound = (await store.get(location)).data
        await destroy(store, 0, body)
        made = consumer(simulation, store)
        for _ in range(2):
            with pytest.raises(error):
                await made.next_batch()
        await store.put(location, sound)
        assert (await the_next(made)).sequence == 0

    check()


@simulated
async def test_an_entry_whose_location_nothing_can_have_is_set_aside_like_any_other(simulation: Simulation) -> None:
    store = await filled(simulation, 0)
    await store.put(MANIFEST, Manifest.empty().append([DescriptorDraft("../../etc/passwd")]).body)
    await fill(simulation, store, range(1, 2))
    made = consumer(simulation, store, dead_letter=DeadLetterPolicy.SET_ASIDE)
    assert (await the_next(made)).sequence == 1
    letter = await DeadLetters(store, "ingest").read(0)
    assert (letter.location, letter.reason, letter.body_key) == ("../../etc/passwd", "unreadable", None)


@pytest.mark.parametrize(("body", "reason"), [(None, "missing"), (b"garbage", "unreadable")])
def test_an_unreadable_batch_is_set_aside_with_a_record_and_the_queue_goes_on(body: bytes | None, reason: str) -> None:
    @simulated
    async def check(simulation: Simulation) -> None:
        store, observer = await filled(simulation, 3), RecordingObserver()
        location = await destroy(store, 1, body)
        made = consumer(simulation, store, observer=observer, dead_letter=DeadLetterPolicy.SET_ASIDE)
        assert (await the_next(made)).sequence == 0
        assert (await the_next(made)).sequence == 2
        assert await queued(store) == [0, 1, 2], "what lies before it is not acknowledged, so nothing may leave"
        letter = await DeadLetters(store, "ingest").read(1)
        assert (letter.sequence, letter.location, letter.reason) == (1, location, reason)
        assert [one.payload for one in letter.metadata] == [b"m1"]
        if body is not None:
            assert letter.body_key is not None
            assert (await store.get(letter.body_key)).data == body
        assert observer.counted(names.BUFFER_DEAD_LETTERS, reason=reason) == 1
        assert [event["sequence"] for event in observer.events(names.BUFFER_DEAD_LETTER)] == [1]
        await made.ack(0)
        await made.ack(2)
        await made.flush()
        assert await queued(store) == []

    check()


@simulated
async def test_a_dead_letter_is_recorded_before_it_leaves_the_queue(simulation: Simulation) -> None:
    store = await filled(simulation, 2)
    await destroy(store, 0, None)
    made = consumer(simulation, store, dead_letter=DeadLetterPolicy.SET_ASIDE)
    await made.start()
    store.script("put", Fate.ERROR_BEFORE)
    with pytest.raises(Unavailable):
        await made.next_batch()
    assert await queued(store) == [0, 1]
    assert (await the_next(made)).sequence == 1
    assert await queued(store) == [1], "at the head of the queue it leaves at once"


@simulated
async def test_a_consumer_may_start_behind_a_dead_letter(simulation: Simulation) -> None:
    store = await filled(simulation, 3)
    await destroy(store, 1, None)
    first = consumer(simulation, store, dead_letter=DeadLetterPolicy.SET_ASIDE)
    assert (await the_next(first)).sequence == 0
    await first.ack_through(0)
    assert (await the_next(first)).sequence == 2
    successor = consumer(simulation, store, last_acked=0)
    assert (await the_next(successor)).sequence == 2


@simulated
async def test_a_passing_fault_is_never_a_dead_letter(simulation: Simulation) -> None:
    store = await filled(simulation, 1)
    made = consumer(simulation, store, dead_letter=DeadLetterPolicy.SET_ASIDE)
    await made.start()
    store.script("get", Fate.SERVED, Fate.THROTTLED)
    with pytest.raises(Unavailable):
        await made.next_batch()
    assert await DeadLetters(store, "ingest").sequences(0, 10) == set()
    assert (await the_next(made)).sequence == 0


@simulated
async def test_a_zombie_records_no_dead_letter_of_what_its_successor_consumed(simulation: Simulation) -> None:
    store = await filled(simulation, 2)
    zombie = consumer(simulation, store, dead_letter=DeadLetterPolicy.SET_ASIDE)
    descriptor = (await zombie.next_descriptors(1))[0]
    successor = consumer(simulation, store)
    await successor.next_descriptors(1)
    await successor.ack_through(0)
    await store.delete(descriptor.location)
    with pytest.raises(NotFound):
        await zombie.fetch(descriptor)
    with pytest.raises(Fenced):
        await zombie.set_aside(descriptor, NotFound("gone"))
    assert await DeadLetters(store, "ingest").sequences(0, 10) == set()


@simulated
async def test_a_batch_that_this_consumer_did_not_hand_out_cannot_be_set_aside(simulation: Simulation) -> None:
    """Taken off the queue with it, everything before it would be lost, and nobody has read it."""
    store = await filled(simulation, 5)
    predecessor = consumer(simulation, store)
    of_predecessor = await predecessor.next_descriptors(5)
    made = consumer(simulation, store, dead_letter=DeadLetterPolicy.SET_ASIDE)
    for descriptor in of_predecessor:
        with pytest.raises(InvalidInput, match="did not hand it out"):
            await made.set_aside(descriptor, NotFound("gone"))
    mine = await made.next_descriptors(2)
    for descriptor in of_predecessor[2:]:
        with pytest.raises(InvalidInput, match="did not hand it out"):
            await made.set_aside(descriptor, NotFound("gone"))
    assert await queued(store) == [0, 1, 2, 3, 4]
    assert await DeadLetters(store, "ingest").sequences(0, 10) == set()
    await made.set_aside(mine[1], NotFound("gone"))
    assert await queued(store) == [0, 1, 2, 3, 4], "the one before it is not acknowledged"
    assert (await the_next(made)).sequence == 2


@simulated
async def test_what_was_acknowledged_and_is_still_in_the_manifest_cannot_be_set_aside(simulation: Simulation) -> None:
    store = await filled(simulation, 3)
    made = consumer(simulation, store, dead_letter=DeadLetterPolicy.SET_ASIDE)
    descriptors = await made.next_descriptors(3)
    await made.ack(0)
    with pytest.raises(InvalidInput, match="did not hand it out"):
        await made.set_aside(descriptors[0], NotFound("gone"))
    await made.set_aside(descriptors[1], NotFound("gone"))
    with pytest.raises(InvalidInput):
        await made.set_aside(descriptors[1], NotFound("gone"))
    await made.ack(2)
    await made.flush()
    assert await queued(store) == []


@simulated
async def test_what_is_no_longer_queued_cannot_be_set_aside(simulation: Simulation) -> None:
    made = consumer(simulation, await filled(simulation, 1), dead_letter=DeadLetterPolicy.SET_ASIDE)
    descriptor = (await made.next_descriptors(1))[0]
    await made.ack_through(0)
    with pytest.raises(InvalidInput, match="not in the queue"):
        await made.set_aside(descriptor, NotFound("gone"))
