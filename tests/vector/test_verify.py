"""Verification finds what does not agree, and says it in words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.vector import CollectionName, VectorConfig, VectorStore, VerifyReport
from penstock.vector.block import Kind
from penstock.vector.blocks import CONTENT
from penstock.vector.keys import Address, Family, Shelf, fragment_key, fragments_prefix, head_key, parse_fragment_key
from penstock.vector.reading import read_head
from penstock.vector.state import LENGTHS, encode_record

Make = Callable[..., pa.Table]


async def filled(volume: MemoryVolume, rows: Make) -> None:
    async with await VectorStore.over(MemoryKeyValue(volume), VectorConfig(list_rows=8)) as store:
        collection = await store.collection("t", "i", "m", dimensions=2, metric="l2")
        vectors = np.random.default_rng(1).standard_normal((20, 2))
        await collection.upsert(rows([f"r{n}" for n in range(20)], vectors, ["two words"] * 20))


async def verified(volume: MemoryVolume) -> VerifyReport:
    async with await VectorStore.over(MemoryKeyValue(volume)) as store:
        (report,) = await store.verify()
        return report


def tamper(volume: MemoryVolume, shelf: Shelf, *, drop_rows: int) -> None:
    """Write a block again with a valid checksum and fewer rows, as a bug might."""
    for key, value in volume.table("keyvalue").entries(fragments_prefix(0), None, reverse=False):
        address = parse_fragment_key(key)
        if address.shelf == shelf:
            content = CONTENT[shelf.family].decode(shelf.family, value)
            kept = content.take(np.arange(drop_rows, len(content)))
            volume.land("keyvalue", [(key, kept.encode(shelf.family))])
            return


def test_a_sound_store_has_no_problems(rows: Make) -> None:
    async def work() -> None:
        volume = MemoryVolume()
        await filled(volume, rows)
        report = await verified(volume)
        assert report.sound
        assert report.rows == 20
        assert report.blocks > 5

    asyncio.run(work())


@pytest.mark.parametrize(
    "shelf", [Shelf(family) for family in (Family.VECTORS, Family.NAMES, Family.POSTINGS, Family.DICTIONARY)]
)
def test_a_block_with_fewer_rows_than_listed_is_reported(rows: Make, shelf: Shelf) -> None:
    async def work() -> None:
        volume = MemoryVolume()
        await filled(volume, rows)
        tamper(volume, shelf, drop_rows=1)
        report = await verified(volume)
        assert any(f"{shelf}, bucket" in problem and "are listed" in problem for problem in report.problems)

    asyncio.run(work())


@pytest.mark.parametrize("shelf", [LENGTHS, Shelf(Family.TERMS)], ids=str)
def test_words_that_do_not_fit_their_texts_are_reported(rows: Make, shelf: Shelf) -> None:
    """The rows are there in number, and say something else."""

    async def work() -> None:
        volume = MemoryVolume()
        await filled(volume, rows)
        for key, value in volume.table("keyvalue").entries(fragments_prefix(0), None, reverse=False):
            if parse_fragment_key(key).shelf == shelf:
                content = CONTENT[shelf.family].decode(shelf.family, value)
                doubled = content.take(np.concatenate([[0], np.arange(len(content) - 1)]))
                volume.land("keyvalue", [(key, doubled.encode(shelf.family))])
        assert any("words in its text" in problem for problem in (await verified(volume)).problems)

    asyncio.run(work())


def test_a_block_that_nobody_lists_is_reported(rows: Make) -> None:
    async def work() -> None:
        volume = MemoryVolume()
        await filled(volume, rows)
        stray = Address(Shelf(Family.VECTORS), 3, 999)
        volume.land("keyvalue", [(fragment_key(0, stray), b"stray")])
        assert (await verified(volume)).problems == [f"{stray} lies in the store and is not listed"]

    asyncio.run(work())


def test_a_head_that_counts_wrong_is_reported(rows: Make) -> None:
    async def work() -> None:
        volume = MemoryVolume()
        await filled(volume, rows)
        keyvalue = MemoryKeyValue(volume)
        head = await read_head(keyvalue, CollectionName("t", "i", "m"), 0)
        assert head is not None
        volume.land("keyvalue", [(head_key(0), encode_record(Kind.HEAD, msgspec.structs.replace(head, rows=7)))])
        assert (await verified(volume)).problems == ["there are 20 visible rows, and the head says 7"]

    asyncio.run(work())
