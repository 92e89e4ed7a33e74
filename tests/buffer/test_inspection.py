"""Looking from outside: everything is seen, nothing is touched."""

from __future__ import annotations

import asyncio
import struct

import pytest

from penstock.buffer.batch import encode_batch
from penstock.buffer.inspection import check_batches, gaps_of, read_batches, read_manifest
from penstock.buffer.manifest import Draft, Manifest
from penstock.errors import Corrupt, NotFound
from penstock.objects import MemoryStore


def test_a_queue_that_was_never_written_is_not_found_and_a_damaged_one_is_refused() -> None:
    async def main() -> None:
        store = MemoryStore()
        with pytest.raises(NotFound, match="no queue at 'q'"):
            await read_manifest(store, "q")
        await store.put("q", struct.pack("<I", 99) + Manifest.empty().body)
        with pytest.raises(Corrupt):
            await read_manifest(store, "q")

    asyncio.run(main())


def test_every_batch_is_checked_in_order_also_behind_a_damaged_one() -> None:
    async def main() -> None:
        store = MemoryStore()
        for number in (0, 2, 3, 4, 5):
            await store.put(f"b{number}", encode_batch([b"abc"] * number))
        await store.put("b3", b"damaged")
        manifest = Manifest.empty().append([Draft(f"b{number}") for number in range(6)])
        checks = [check async for check in check_batches(store, manifest)]
        assert [check.descriptor.sequence for check in checks] == list(range(6))
        assert [(check.records, check.record_bytes) for check in checks] == [
            (0, 0),
            (0, 0),
            (2, 6),
            (0, 0),
            (4, 12),
            (5, 15),
        ]
        assert [check.descriptor.sequence for check in checks if check.error is not None] == [1, 3]
        assert [len(batch.records) async for batch in read_batches(store, manifest.after(3, 9))] == [4, 5]

    asyncio.run(main())


def test_missing_sequences_are_found_between_entries_and_at_the_end() -> None:
    sound = Manifest.empty().append([Draft("a"), Draft("b")])
    assert gaps_of(sound) == []
    assert gaps_of(Manifest.empty()) == []
    entries = [Draft("x").encode(sequence) for sequence in (3, 4, 7)]
    assert gaps_of(Manifest(b"".join(entries) + struct.pack("<IQQH", 3, 10, 0, 1))) == [(4, 7), (7, 10)]
