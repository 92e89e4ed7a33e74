"""Dead letters: recorded once however often they are written, found by sequence, out of the collector's reach."""

from __future__ import annotations

import asyncio

import pytest

from penstock.buffer import DeadLetters, Descriptor, MetadataRange
from penstock.errors import Corrupt, NotFound
from penstock.objects import MemoryStore

DESCRIPTOR = Descriptor(12, "ingest/x.batch", (MetadataRange(0, 99, b"\x00\xff"),))


def test_a_record_tells_sequence_location_reason_and_metadata() -> None:
    async def main() -> None:
        letters = DeadLetters(MemoryStore(), "ingest")
        written = await letters.record(DESCRIPTOR, NotFound("no such object"), 1234)
        assert await letters.read(12) == written
        assert (written.sequence, written.location, written.reason) == (12, "ingest/x.batch", "missing")
        assert (written.recorded_ms, written.metadata, written.body_key) == (1234, DESCRIPTOR.metadata, None)
        assert "no such object" in written.error

    asyncio.run(main())


def test_unreadable_bytes_are_kept_beside_the_record() -> None:
    async def main() -> None:
        store = MemoryStore()
        await store.put("ingest/x.batch", b"broken")
        written = await DeadLetters(store, "ingest").record(DESCRIPTOR, Corrupt("broken"), 0)
        assert written.reason == "unreadable"
        assert written.body_key is not None
        assert written.body_key.startswith("ingest-dead-letters/")
        assert (await store.get(written.body_key)).data == b"broken"

    asyncio.run(main())


def test_bytes_that_vanish_meanwhile_are_no_obstacle() -> None:
    async def main() -> None:
        assert (await DeadLetters(MemoryStore(), "ingest").record(DESCRIPTOR, Corrupt("broken"), 0)).body_key is None

    asyncio.run(main())


def test_recording_one_again_leaves_one() -> None:
    async def main() -> None:
        store = MemoryStore()
        letters = DeadLetters(store, "ingest")
        for now_ms in (1, 2):
            await letters.record(DESCRIPTOR, NotFound("gone"), now_ms)
        assert len([meta async for page in store.list("") for meta in page]) == 1

    asyncio.run(main())


def test_they_are_found_by_their_range_of_sequences() -> None:
    async def main() -> None:
        store = MemoryStore()
        await store.put("ingest-dead-letters/notes.txt", b"a person was here")
        letters = DeadLetters(store, "ingest")
        for sequence in (0, 3, 9, 10, 2**64 - 1):
            await letters.record(Descriptor(sequence, "x"), NotFound("gone"), 0)
        assert await letters.sequences(0, 11) == {0, 3, 9, 10}
        assert await letters.sequences(3, 10) == {3, 9}
        assert await letters.sequences(4, 9) == set()
        assert await letters.sequences(11, 2**64) == {2**64 - 1}

    asyncio.run(main())


def test_a_record_that_is_none_is_refused_and_a_missing_one_is_not_found() -> None:
    async def main() -> None:
        store = MemoryStore()
        letters = DeadLetters(store, "ingest")
        with pytest.raises(NotFound):
            await letters.read(1)
        await store.put(f"ingest-dead-letters/{1:020d}.json", b"{}")
        with pytest.raises(Corrupt):
            await letters.read(1)

    asyncio.run(main())
