"""What a runner holds at once: admitted in order, bounded by what was seen, never stuck."""

from __future__ import annotations

import asyncio

from penstock.buffer import ConsumedBatch, Descriptor, decode_batch, encode_batch
from penstock.buffer.consuming.in_flight import InFlight, Slot
from penstock.errors import NotFound


def batch(sequence: int, size: int) -> ConsumedBatch:
    return ConsumedBatch(Descriptor(sequence, "x"), decode_batch(encode_batch([bytes(size - 12)])))


async def admitted(flights: InFlight, sequence: int) -> Slot | None:
    """The slot, or None when there is no room for it now."""
    task = asyncio.create_task(flights.admit(Descriptor(sequence, "x")))
    for _ in range(5):
        await asyncio.sleep(0)
    if task.done():
        return task.result()
    task.cancel()
    return None


def test_the_first_goes_alone_and_the_others_count_as_the_largest_so_far() -> None:
    async def main() -> None:
        flights = InFlight(8, 100)
        first = await admitted(flights, 0)
        assert first is not None
        assert await admitted(flights, 1) is None, "nobody knows how large they are"
        await flights.fetched(first, batch(0, 30))
        second = await admitted(flights, 1)
        assert second is not None
        assert await admitted(flights, 2) is not None
        assert await admitted(flights, 3) is None
        assert flights.held_bytes == 90
        await flights.fetched(second, batch(1, 20))
        assert flights.held_bytes == 80
        assert await admitted(flights, 3) is None

    asyncio.run(main())


def test_what_is_ready_is_a_run_from_the_head_and_nothing_behind_a_gap() -> None:
    async def main() -> None:
        flights = InFlight(8, 1000)
        slots = [await flights.admit(Descriptor(0, "x"))]
        await flights.fetched(slots[0], batch(0, 20))
        slots += [await flights.admit(Descriptor(sequence, "x")) for sequence in (1, 2, 3)]
        await flights.fetched(slots[1], NotFound("gone"))
        await flights.fetched(slots[3], batch(3, 20))
        assert await flights.ready() == slots[:2]
        await flights.release(2)
        waiting = asyncio.create_task(flights.ready())
        await asyncio.sleep(0)
        assert not waiting.done()
        await flights.fetched(slots[2], batch(2, 20))
        assert await waiting == slots[2:]
        await flights.release(2)
        await flights.end()
        assert await flights.ready() == []
        assert flights.held_bytes == 0

    asyncio.run(main())
