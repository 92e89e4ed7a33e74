"""Damaged blocks: named, and everything else still answers and says that it is partial."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import Corrupt
from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.observability import names
from penstock.testing import RecordingObserver
from penstock.vector import ALL_LISTS, Collection, VectorConfig, VectorStore, attribute, partial_blocks
from penstock.vector.keys import Family, fragments_prefix, pages_prefix, parse_fragment_key, parse_page_key

Make = Callable[..., pa.Table]
_IDS = [f"r{n}" for n in range(60)]
_VECTORS = np.random.default_rng(1).standard_normal((60, 2)).astype(np.float32)


async def filled(volume: MemoryVolume, rows: Make) -> None:
    async with await VectorStore.over(MemoryKeyValue(volume), VectorConfig(list_rows=8)) as store:
        collection = await store.collection("t", "i", "m", dimensions=2, metric="l2")
        await collection.upsert(rows(_IDS, _VECTORS, [f"word{n % 3}" for n in range(60)], n=list(range(60))))


def damage(volume: MemoryVolume, family: Family, *, remove: bool = False) -> str:
    """Flip a bit of one block, or take it away; returns its name."""
    for key, value in volume.table("keyvalue").entries(fragments_prefix(0), None, reverse=False):
        address = parse_fragment_key(key)
        if address.shelf.family is family:
            broken = bytes([*value[:-1], value[-1] ^ 1])
            volume.land("keyvalue", [(key, None if remove else broken)])
            return f"{address} of t/i/m"
    raise AssertionError(f"no block of {family.name}")


def run(work: Callable[[MemoryVolume], object]) -> None:
    asyncio.run(work(MemoryVolume()))  # type: ignore[arg-type]


async def opened(volume: MemoryVolume, **options: object) -> tuple[VectorStore, Collection]:
    store = await VectorStore.over(MemoryKeyValue(volume), VectorConfig(list_rows=8), **options)  # type: ignore[arg-type]
    return store, await store.collection("t", "i", "m")


@pytest.mark.parametrize("remove", [False, True])
def test_a_list_that_cannot_be_read_is_named_and_the_others_answer(rows: Make, remove: bool) -> None:
    async def work(volume: MemoryVolume) -> None:
        await filled(volume, rows)
        name = damage(volume, Family.POSTINGS, remove=remove)
        observer = RecordingObserver()
        store, collection = await opened(volume, observer=observer)
        for _ in range(2):
            answer = await collection.search([[0.0, 0.0]], 60, probes=ALL_LISTS)
            assert partial_blocks(answer) == [name]
            assert 40 <= answer.num_rows < 60
        assert observer.counted(names.VECTOR_SEARCHES_PARTIAL) == 2
        assert observer.events(names.VECTOR_BLOCK_CORRUPT)[0]["block"] == name
        await store.close()

    run(work)


def test_rows_whose_vectors_cannot_be_read_are_ranked_by_their_codes(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await filled(volume, rows)
        name = damage(volume, Family.VECTORS)
        store, collection = await opened(volume)
        answer = await collection.search([[0.0, 0.0]], 60, probes=ALL_LISTS)
        assert partial_blocks(answer) == [name]
        assert sorted(answer["id"].to_pylist()) == sorted(_IDS)
        expected = -np.sort(np.linalg.norm(_VECTORS, axis=1))
        assert np.allclose(answer["score"].to_numpy(), expected, rtol=0.02)
        await store.close()

    run(work)


def test_few_selected_rows_of_which_one_cannot_be_read_are_ranked_by_their_codes(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        async with await VectorStore.over(MemoryKeyValue(volume), VectorConfig(list_rows=8)) as store:
            collection = await store.collection("t", "i", "m", dimensions=2, metric="dot")
            await collection.upsert(rows(_IDS, _VECTORS, number=list(range(60))), durable=True)
        name = damage(volume, Family.VECTORS)
        store, collection = await opened(volume)
        answer = await collection.search([[1.0, 1.0]], 60, filter=attribute("number") < 30)
        assert partial_blocks(answer) == [name]
        assert sorted(answer["id"].to_pylist()) == sorted(_IDS[:30])
        await store.close()

    run(work)


def test_words_names_and_columns_that_cannot_be_read_make_an_answer_partial(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await filled(volume, rows)
        terms, columns = damage(volume, Family.TERMS), damage(volume, Family.COLUMN)
        store, collection = await opened(volume)
        assert partial_blocks(await collection.search(text="word1")) == [terms]
        filtered = await collection.search([[0.0, 0.0]], filter=attribute("n") >= 0)
        assert partial_blocks(filtered) in ([columns], [])
        assert partial_blocks(await collection.search([[0.0, 0.0]])) == []
        await store.close()
        name = damage(volume, Family.NAMES)
        store, collection = await opened(volume)
        answer = await collection.search([[0.0, 0.0]])
        assert partial_blocks(answer) == [name]
        assert answer.num_rows == 0
        await store.close()

    run(work)


def test_a_get_that_cannot_be_whole_is_an_error_that_names_the_block(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await filled(volume, rows)
        name = damage(volume, Family.DICTIONARY)
        store, collection = await opened(volume)
        with pytest.raises(Corrupt, match=name):
            await collection.get(["r1"])
        await store.close()

    run(work)


def test_a_write_that_needs_a_damaged_dictionary_fails_loudly_and_changes_nothing(rows: Make) -> None:
    """Guessing that an id is new would double its row."""

    async def work(volume: MemoryVolume) -> None:
        await filled(volume, rows)
        damage(volume, Family.DICTIONARY)
        before = list(volume.table("keyvalue").entries(b"", None, reverse=False))
        store, collection = await opened(volume)
        with pytest.raises(Corrupt, match="dictionary"):
            await collection.upsert(rows(["r1"], [[1, 1]]), durable=True)
        with pytest.raises(Corrupt):
            await store.close()
        assert list(volume.table("keyvalue").entries(b"", None, reverse=False)) == before

    run(work)


def test_upkeep_that_meets_a_damaged_list_leaves_it_and_the_flush_goes_on(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await filled(volume, rows)
        damage(volume, Family.POSTINGS)
        observer = RecordingObserver()
        store, collection = await opened(volume, observer=observer)
        await collection.delete(_IDS[:50], durable=True)
        assert observer.events(names.VECTOR_UPKEEP_FAILED)
        await collection.upsert(rows(["new"], [[0, 0]]), durable=True)
        assert (await collection.search([[0.0, 0.0]], 1))["id"].to_pylist() == ["new"]
        await store.close()

    run(work)


def test_a_directory_that_cannot_be_read_is_an_error_that_names_it(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await filled(volume, rows)
        key, value = next(iter(volume.table("keyvalue").entries(pages_prefix(0), None, reverse=False)))
        volume.land("keyvalue", [(key, value[:-1])])
        shelf, _ = parse_page_key(key)
        with pytest.raises(Corrupt, match=f"directory of {shelf} of t/i/m"):
            await opened(volume)

    run(work)
