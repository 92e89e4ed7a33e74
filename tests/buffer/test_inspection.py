"""Looking from outside: everything is seen, nothing is touched."""

from __future__ import annotations

import asyncio
import struct

import pytest

from penstock.buffer.format.batch import encode_batch
from penstock.buffer.format.manifest import DescriptorDraft, Manifest
from penstock.buffer.inspection import queued_now, read_batches, read_manifest
from penstock.errors import Corrupt, NotFound, Unsupported
from penstock.objects import MemoryStore


def test_a_queue_that_was_never_written_is_not_found_and_a_damaged_one_is_refused() -> None:
    async def main() -> None:
        store = MemoryStore()
        with pytest.raises(NotFound, match="no queue at 'q'"):
            await read_manifest(store, "q")
        await store.put("q", struct.pack("<I", 99) + Manifest.empty().body)
        with pytest.raises(Corrupt, match="the queue at 'q' in memory:// cannot be read"):
            await read_manifest(store, "q")
        await store.put("q", b"some other object, not a manifest")
        with pytest.raises(Unsupported, match=r"'q' in memory:// cannot be read.* of version"):
            await read_manifest(store, "q")

    asyncio.run(main())


def test_every_batch_is_checked_in_order_also_behind_a_damaged_one() -> None:
    async def main() -> None:
        store = MemoryStore()
        for number in (0, 2, 3, 4, 5):
            await store.put(f"b{number}", encode_batch([b"abc"] * number))
        await store.put("b3", b"damaged")
        manifest = Manifest.empty().append([DescriptorDraft(f"b{number}") for number in range(6)])
        readings = [reading async for reading in read_batches(store, list(manifest))]
        assert [reading.descriptor.sequence for reading in readings] == list(range(6))
        assert [len(reading.batch.records) for reading in readings if reading.batch is not None] == [0, 2, 4, 5]
        assert [reading.descriptor.sequence for reading in readings if reading.error is not None] == [1, 3]

    asyncio.run(main())


def test_missing_sequences_are_found_between_entries_and_at_the_end() -> None:
    async def main() -> None:
        store = MemoryStore()
        for sequences, next_sequence, jump in (((3, 4, 7), 8, "from 4 to 7"), ((3, 4), 10, "from 4 to 10")):
            entries = [DescriptorDraft("x").encode(sequence) for sequence in sequences]
            await store.put("q", b"".join(entries) + struct.pack("<IQQH", len(entries), next_sequence, 0, 1))
            with pytest.raises(Corrupt, match=f"sequences jump {jump}"):
                await read_manifest(store, "q")

    asyncio.run(main())


def test_whoever_only_counts_finds_a_queue_that_was_never_written_empty() -> None:
    async def main() -> None:
        store = MemoryStore()
        assert len(await queued_now(store, "q")) == 0
        await store.put("q", Manifest.empty().append([DescriptorDraft("b0"), DescriptorDraft("b1")]).body)
        assert [entry.location for entry in await queued_now(store, "q")] == ["b0", "b1"]

    asyncio.run(main())
