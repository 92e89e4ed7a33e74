"""Replaying dead letters: once each, also across kills, and never on a guess."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from tests.buffer.consumers import MANIFEST, consumer, filled, queued, the_next
from tests.buffer.simulated import simulated

from penstock.buffer import (
    Collector,
    CollectorConfig,
    DeadLetterPolicy,
    DeadLetters,
    Descriptor,
    Manifest,
    ProducerConfig,
    Replayed,
    Replayer,
    encode_batch,
)
from penstock.errors import Conflict, Corrupt, InvalidInput, NotFound, OutcomeUnknown, PenstockError, Unavailable
from penstock.testing import Fate, FaultyStore, Simulation


async def with_dead_letter(simulation: Simulation, *, acknowledged: bool = True) -> tuple[FaultyStore, str]:
    """Three batches, of which the second was missing; the location that it had."""
    store = await filled(simulation, 3)
    location = Manifest((await store.get(MANIFEST)).data)[1].location
    await store.delete(location)
    made = consumer(simulation, store, dead_letter=DeadLetterPolicy.SET_ASIDE)
    for sequence in (0, 2):
        assert (await the_next(made)).sequence == sequence
    if acknowledged:
        await made.ack_through(2)
    return store, location


def replayer(simulation: Simulation, store: FaultyStore) -> Replayer:
    entropy = simulation.entropy.fork("replayer")
    return Replayer(store, ProducerConfig(manifest_deadline_seconds=5.0), clock=simulation.clock, entropy=entropy)


async def delivered(simulation: Simulation, store: FaultyStore) -> list[bytes]:
    made, records = consumer(simulation, store), []
    while batch := await made.next_batch():
        records += [bytes(record) for record in batch.records]
        await made.ack(batch.sequence)
    await made.close()
    return records


@simulated
async def test_a_batch_that_was_put_back_is_queued_again_with_its_metadata_under_a_new_sequence(
    simulation: Simulation,
) -> None:
    store, location = await with_dead_letter(simulation)
    made = replayer(simulation, store)
    with pytest.raises(Corrupt, match="dead letter 1 cannot be replayed"):
        await made.replay(1)
    assert await queued(store) == []
    await store.put(location, encode_batch([b"1"]))
    assert await made.replay(1) == Replayed(1, 3, is_new=True)
    batch = await the_next(consumer(simulation, store))
    assert batch.sequence == 3
    assert [bytes(record) for record in batch.records] == [b"1"]
    assert [one.payload for one in batch.metadata] == [b"m1"]


@simulated
async def test_a_batch_whose_bytes_were_kept_beside_the_letter_is_replayed_from_there(simulation: Simulation) -> None:
    """As after an upgrade of a reader that did not know the version."""
    store, location = await with_dead_letter(simulation)
    letters = DeadLetters(store, "ingest")
    await store.put(location, encode_batch([b"from a newer writer"]))
    await letters.record(Descriptor(1, location), Corrupt("as it was to an older reader"), 0)
    await store.delete(location)
    await replayer(simulation, store).replay(1)
    assert await delivered(simulation, store) == [b"from a newer writer"]


@simulated
async def test_replaying_once_more_does_nothing_and_says_where_it_was_queued(simulation: Simulation) -> None:
    store, location = await with_dead_letter(simulation)
    await store.put(location, encode_batch([b"1"]))
    await replayer(simulation, store).replay(1)
    for _ in range(2):
        assert await replayer(simulation, store).replay(1) == Replayed(1, 3, is_new=False)
    assert await delivered(simulation, store) == [b"1"]
    assert await replayer(simulation, store).replay(1) == Replayed(1, 3, is_new=False)
    assert await queued(store) == []
    assert (await replayer(simulation, store).replay(1, again=True)).queued_as == 4


@simulated
async def test_a_letter_whose_entry_is_still_queued_is_not_replayed(simulation: Simulation) -> None:
    """A consumer that starts again would deliver the batch as well, now that it can be read."""
    store, location = await with_dead_letter(simulation, acknowledged=False)
    await store.put(location, encode_batch([b"1"]))
    with pytest.raises(InvalidInput, match="still queued"):
        await replayer(simulation, store).replay(1)


@simulated
async def test_what_is_no_dead_letter_is_not_found(simulation: Simulation) -> None:
    store, _ = await with_dead_letter(simulation)
    with pytest.raises(NotFound, match="no dead letter 7"):
        await replayer(simulation, store).replay(7)
    odd: Any
    for odd in (None, "7", 7.0, True):
        with pytest.raises(InvalidInput, match="a sequence is a whole number"):
            await replayer(simulation, store).replay(odd)


@pytest.mark.cases(quick=24)
@pytest.mark.parametrize("verb", ["put_if", "put"])
@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("fate", [Fate.ERROR_BEFORE, Fate.ERROR_AFTER, Fate.CRASH_BEFORE, Fate.CRASH_AFTER])
def test_a_replay_that_is_cut_off_anywhere_is_finished_by_the_next_and_delivered_once(
    verb: str, step: int, fate: Fate
) -> None:
    """Every write fails from this step on, or its process is killed, before or after it landed; then all is well."""

    @simulated
    async def check(simulation: Simulation) -> None:
        store, location = await with_dead_letter(simulation)
        await store.put(location, encode_batch([b"1"]))
        store.script(verb, *[Fate.SERVED] * step, *[fate] * 100)

        async def command() -> None:
            made = replayer(simulation, store)
            with suppress(PenstockError):
                await made.replay(1)
            await made.close()

        await simulation.start("command", command()).join()
        store._scripts.clear()
        assert (await replayer(simulation, store).replay(1)).queued_as == 3
        assert await delivered(simulation, store) == [b"1"]

    check()


@simulated
async def test_a_replay_that_was_cut_off_long_ago_gets_a_new_object(simulation: Simulation) -> None:
    store, location = await with_dead_letter(simulation)
    await store.put(location, encode_batch([b"1"]))
    store.script("put_if", Fate.SERVED, *[Fate.ERROR_BEFORE] * 100)
    made = replayer(simulation, store)
    with pytest.raises(Unavailable):
        await made.replay(1)
    await made.close()
    store._scripts.clear()
    await simulation.clock.sleep(2000.0)
    await Collector(store, CollectorConfig(), clock=simulation.clock).collect()
    await store.put(location, encode_batch([b"1"]))
    await replayer(simulation, store).replay(1)
    assert await delivered(simulation, store) == [b"1"]


@simulated
async def test_a_replay_that_was_cut_off_before_a_consumer_started_gets_a_new_object(simulation: Simulation) -> None:
    """That consumer's collector may have taken the old one for garbage."""
    store, location = await with_dead_letter(simulation)
    await store.put(location, encode_batch([b"1"]))
    store.script("put_if", Fate.SERVED, *[Fate.ERROR_BEFORE] * 100)
    made = replayer(simulation, store)
    with pytest.raises(Unavailable):
        await made.replay(1)
    await made.close()
    store._scripts.clear()
    cut_off = (await DeadLetters(store, "ingest").read(1)).replay
    assert cut_off is not None
    await consumer(simulation, store).start()
    assert (await replayer(simulation, store).replay(1)).queued_as == 3
    assert Manifest((await store.get(MANIFEST)).data)[0].location != cut_off.location
    assert await delivered(simulation, store) == [b"1"]


@simulated
async def test_a_replay_that_may_have_been_consumed_is_not_repeated_on_a_guess(simulation: Simulation) -> None:
    store, location = await with_dead_letter(simulation)
    await store.put(location, encode_batch([b"1"]))
    # The intent and the entry land, and the process dies before it can say so in the letter.
    store.script("put_if", Fate.SERVED, Fate.SERVED, *[Fate.ERROR_BEFORE] * 100)
    made = replayer(simulation, store)
    with pytest.raises(Unavailable):
        await made.replay(1)
    store._scripts.clear()
    assert await delivered(simulation, store) == [b"1"]
    with pytest.raises(OutcomeUnknown, match="gone past 3"):
        await replayer(simulation, store).replay(1)
    assert await queued(store) == []
    assert (await replayer(simulation, store).replay(1, again=True)).queued_as == 4


@simulated
async def test_two_that_replay_one_letter_at_once_queue_it_once(simulation: Simulation) -> None:
    store, location = await with_dead_letter(simulation)
    await store.put(location, encode_batch([b"1"]))
    rivals = [replayer(simulation, store).replay(1) for _ in range(3)]
    outcomes = await asyncio.gather(*rivals, return_exceptions=True)
    assert all(not isinstance(one, BaseException) or isinstance(one, Conflict) for one in outcomes), outcomes
    assert await delivered(simulation, store) == [b"1"]
