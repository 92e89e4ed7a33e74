"""Verification finds what does not agree, and says it in words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from penstock.blocks import Address, RecordKind, Shelf, fragment_key, fragments_prefix
from penstock.blocks.format.keys import head_key
from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.vector import CollectionName, VectorConfig, VectorStore, VerifyReport
from penstock.vector.format.content import ColumnBlock, IdBlock, PostingBlock, VectorBlock
from penstock.vector.format.keys import Family, collection_prefix
from penstock.vector.format.state import LENGTHS
from penstock.vector.format.store_format import FORMAT, ROW_BLOCKS
from penstock.vector.read.reading import read_head

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
    for key, value in volume.table("keyvalue").entries(fragments_prefix(collection_prefix(0)), None, reverse=False):
        address = FORMAT.address(key)
        if address.shelf == shelf:
            content = FORMAT.decode(shelf.family, value, ROW_BLOCKS[shelf.family])  # type: ignore[index]
            kept = content.take(np.arange(drop_rows, len(content)))
            volume.land("keyvalue", [(key, FORMAT.encode(shelf.family, kept))])
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
        for key, value in volume.table("keyvalue").entries(fragments_prefix(collection_prefix(0)), None, reverse=False):
            if FORMAT.address(key).shelf == shelf:
                content = FORMAT.decode(shelf.family, value, ROW_BLOCKS[shelf.family])  # type: ignore[index]
                doubled = content.take(np.concatenate([[0], np.arange(len(content) - 1)]))
                volume.land("keyvalue", [(key, FORMAT.encode(shelf.family, doubled))])
        problems = (await verified(volume)).problems
        assert any("words in its text" in problem or "under other words" in problem for problem in problems)

    asyncio.run(work())


def test_a_block_that_nobody_lists_is_reported(rows: Make) -> None:
    async def work() -> None:
        volume = MemoryVolume()
        await filled(volume, rows)
        stray = Address(Shelf(Family.VECTORS), 3, 999)
        volume.land("keyvalue", [(fragment_key(collection_prefix(0), stray), b"stray")])
        assert (await verified(volume)).problems == [f"{stray} lies in the store and is not listed"]

    asyncio.run(work())


def test_a_head_that_counts_wrong_is_reported(rows: Make) -> None:
    async def work() -> None:
        volume = MemoryVolume()
        await filled(volume, rows)
        keyvalue = MemoryKeyValue(volume)
        head = await read_head(keyvalue, CollectionName("t", "i", "m"), 0)
        assert head is not None
        volume.land(
            "keyvalue",
            [
                (
                    head_key(collection_prefix(0)),
                    FORMAT.encode_record(RecordKind.HEAD, msgspec.structs.replace(head, rows=7)),
                )
            ],
        )
        assert (await verified(volume)).problems == ["there are 20 visible rows, and the head says 7"]

    asyncio.run(work())


def rewrite(volume: MemoryVolume, shelf: Shelf, change: Callable[[Any], Any]) -> None:
    """Write the first block of a shelf again with other content and a valid checksum, as a bug might."""
    for key, value in volume.table("keyvalue").entries(fragments_prefix(collection_prefix(0)), None, reverse=False):
        if FORMAT.address(key).shelf == shelf:
            content = change(FORMAT.decode(shelf.family, value, ROW_BLOCKS[shelf.family]))  # type: ignore[index]
            volume.land("keyvalue", [(key, FORMAT.encode(shelf.family, content))])
            return
    raise AssertionError(f"no block of {shelf}")


def _another_code(block: PostingBlock) -> PostingBlock:
    return replace(block, codes=np.full_like(block.codes, 0x40))


def _another_list(block: VectorBlock) -> VectorBlock:
    return replace(block, ids=block.ids + 1000)


def _other_words(block: ColumnBlock) -> ColumnBlock:
    return replace(block, values=pa.array(["more words"] * len(block)))


def _another_type(block: ColumnBlock) -> ColumnBlock:
    return replace(block, values=block.values.cast(pa.float64()))


def _another_row(block: IdBlock) -> IdBlock:
    return IdBlock(block.ids - 1)


@pytest.mark.parametrize(
    ("shelf", "change", "problem"),
    [
        (Shelf(Family.POSTINGS), _another_code, "with the code of another vector"),
        (Shelf(Family.CENTROIDS), _another_list, "has rows and no centre"),
        (Shelf(Family.TEXTS), _other_words, "under other words than its text has"),
        (Shelf(Family.COLUMN, 1), _another_type, "attribute 'n' is integer"),
        (Shelf(Family.HIDDEN), _another_row, "against its document's current version"),
        (Shelf(Family.HIDDEN), _another_row, "belongs to no document"),
    ],
    ids=["code", "centre", "words", "type", "shown", "hidden"],
)
def test_an_index_that_says_something_else_than_the_data_is_reported(
    rows: Make, shelf: Shelf, change: Callable[[Any], Any], problem: str
) -> None:
    async def work() -> None:
        volume = MemoryVolume()
        async with await VectorStore.over(MemoryKeyValue(volume), VectorConfig(list_rows=8)) as store:
            collection = await store.collection("t", "i", "m", dimensions=2, metric="cosine")
            vectors = np.random.default_rng(1).standard_normal((20, 2))
            await collection.upsert(rows([f"r{n}" for n in range(20)], vectors, ["two words"] * 20, n=list(range(20))))
            await collection.upsert(rows(["new"], [[1, 1]], ["two words"]), document="d", version="v")
        assert (await verified(volume)).problems == []
        rewrite(volume, shelf, change)
        assert any(problem in found for found in (await verified(volume)).problems)

    asyncio.run(work())


def test_a_word_repeated_beyond_counting_and_a_text_without_words_are_no_problem(rows: Make) -> None:
    async def work() -> None:
        volume = MemoryVolume()
        async with await VectorStore.over(MemoryKeyValue(volume)) as store:
            collection = await store.collection("t", "i", "m", dimensions=2)
            await collection.upsert(rows(["a", "b", "c"], [[1, 1]] * 3, ["again " * 70_000, "?!", None]))
        assert (await verified(volume)).problems == []

    asyncio.run(work())


def test_the_first_problems_are_told_and_the_others_counted(rows: Make) -> None:
    async def work() -> None:
        volume = MemoryVolume()
        async with await VectorStore.over(MemoryKeyValue(volume)) as store:
            collection = await store.collection("t", "i", "m", dimensions=2)
            await collection.upsert(rows([f"r{n}" for n in range(30)], np.ones((30, 2)), ["two words"] * 30))
        rewrite(volume, Shelf(Family.TEXTS), _other_words)
        report = await verified(volume)
        assert (len(report.problems), report.more_problems) == (20, 10)

    asyncio.run(work())
