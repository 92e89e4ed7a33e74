"""Damaged blocks: named, and everything else still answers and says that it is partial."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.blocks import fragments_prefix, pages_prefix
from penstock.blocks.format.keys import head_key
from penstock.errors import Corrupt
from penstock.keyvalue import MemoryFollower, MemoryKeyValue, MemoryVolume
from penstock.keyvalue.port import prefix_end
from penstock.observability import names
from penstock.testing import RecordingObserver
from penstock.vector import (
    ALL_LISTS,
    Collection,
    CollectionName,
    VectorConfig,
    VectorReader,
    VectorStore,
    attribute,
    partial_blocks,
)
from penstock.vector.format.keys import COLLECTIONS, Family, collection_key, collection_prefix
from penstock.vector.format.store_format import FORMAT

Make = Callable[..., pa.Table]
_IDS = [f"r{n}" for n in range(60)]
_VECTORS = np.random.default_rng(1).standard_normal((60, 2)).astype(np.float32)


async def filled(volume: MemoryVolume, rows: Make) -> None:
    async with await VectorStore.over(MemoryKeyValue(volume), VectorConfig(list_rows=8)) as store:
        collection = await store.collection("t", "i", "m", dimensions=2, metric="l2")
        await collection.upsert(rows(_IDS, _VECTORS, [f"word{n % 3}" for n in range(60)], n=list(range(60))))


def damage(volume: MemoryVolume, family: Family, *, remove: bool = False) -> str:
    """Flip a bit of one block, or take it away; returns its name."""
    for key, value in volume.table("keyvalue").entries(fragments_prefix(collection_prefix(0)), None, reverse=False):
        address = FORMAT.address(key)
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
        assert observer.events(names.BLOCKS_CORRUPT)[0]["block"] == name
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
        before = list(volume.table("keyvalue").entries(COLLECTIONS, None, reverse=False))
        store, collection = await opened(volume)
        with pytest.raises(Corrupt, match="dictionary"):
            await collection.upsert(rows(["r1"], [[1, 1]]), durable=True)
        await store.close()
        assert list(volume.table("keyvalue").entries(COLLECTIONS, None, reverse=False)) == before

    run(work)


def test_upkeep_that_meets_a_damaged_list_leaves_it_and_writing_goes_on(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await filled(volume, rows)
        damage(volume, Family.POSTINGS)
        observer = RecordingObserver()
        store, collection = await opened(volume, observer=observer)
        await collection.delete(_IDS[:50], durable=True)
        await store.tend()
        assert observer.events(names.VECTOR_UPKEEP_FAILED)
        await collection.upsert(rows(["new"], [[0, 0]]), durable=True)
        assert (await collection.search([[0.0, 0.0]], 1))["id"].to_pylist() == ["new"]
        await store.close()

    run(work)


async def lived_in(volume: MemoryVolume, rows: Make) -> None:
    """Two collections with blocks of every kind."""
    async with await VectorStore.over(MemoryKeyValue(volume), VectorConfig(list_rows=8)) as store:
        for model in ("m", "untouched"):
            collection = await store.collection("t", "i", model, dimensions=2, metric="l2")
            await collection.upsert(rows(_IDS, _VECTORS, [f"word{n % 3}" for n in range(60)], n=list(range(60))))
            await collection.delete(_IDS[:1])
            await collection.upsert(rows(["later"], [[9, 9]]), document="d", version="v", source="s", position=1)


def every_value(volume: MemoryVolume) -> dict[str, tuple[bytes, bytes]]:
    """One value of each kind that makes up the first collection, by its name."""
    found: dict[str, tuple[bytes, bytes]] = {}
    table, (pages, fragments) = (
        volume.table("keyvalue"),
        (pages_prefix(collection_prefix(0)), fragments_prefix(collection_prefix(0))),
    )
    for key, value in table.entries(pages, prefix_end(pages), reverse=False):
        shelf, low = FORMAT.page(key)
        found.setdefault(f"the directory of {shelf} of t/i/m, page {low}", (key, value))
    families = set()
    for key, value in table.entries(fragments, prefix_end(fragments), reverse=False):
        address = FORMAT.address(key)
        if address.shelf not in families:
            families.add(address.shelf)
            found[f"{address} of t/i/m"] = (key, value)
    return found


def test_whatever_is_damaged_is_named_and_everything_else_answers(rows: Make) -> None:
    """No answer shows a row that should not be there, and one that lacks a row says so."""

    async def work(volume: MemoryVolume) -> None:
        await lived_in(volume, rows)
        everything: set[Any] = set()
        visible = set(_IDS[1:])
        for name, (key, value) in every_value(volume).items():
            broken = bytearray(value)
            # A bit of the body, or of the version: a block of this store cannot be of a newer format.
            broken[4 if "directory" in name or "postings" in name else -1] ^= 2
            volume.land("keyvalue", [(key, bytes(broken))])
            store, collection = await opened(volume)
            answers = [
                await collection.search([[0.0, 0.0]], 100, probes=ALL_LISTS, columns=["text"]),
                await collection.search(text="word0 word1 word2", k=100),
                await collection.search([[0.0, 0.0]], 100, filter=attribute("n") >= 0),
                await collection.search([[0.0, 0.0]], 100, filter=~(attribute("n") < 0)),
                await collection.search([[0.0, 0.0]], 100, filter=~(attribute("n") >= 0)),
            ]
            named = {block for answer in answers for block in partial_blocks(answer)}
            for answer, expected in zip(answers, [visible] * 4 + [everything], strict=True):
                ids = set(answer["id"].to_pylist())
                assert ids <= expected, name
                assert ids == expected or partial_blocks(answer), name
            (report, untouched) = await store.verify()
            assert any(name in problem for problem in report.problems), name
            assert named <= {name}
            assert named or "dictionary" in name or "documents" in name, name
            other = await store.collection("t", "i", "untouched")
            assert untouched.sound
            assert set((await other.search([[0.0, 0.0]], 100, probes=ALL_LISTS))["id"].to_pylist()) == visible
            await store.close()
            volume.land("keyvalue", [(key, value)])

    run(work)


def test_directories_and_centres_are_made_again_from_what_lies_in_the_store(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await lived_in(volume, rows)
        store, collection = await opened(volume)
        whole = await collection.search(_VECTORS, 10, probes=ALL_LISTS)
        await store.close()
        for name, (key, value) in every_value(volume).items():
            if "directory of" in name or name.startswith("centroids"):
                volume.land("keyvalue", [(key, value[:-1] + bytes([value[-1] ^ 1]))])
        store, collection = await opened(volume)
        answer = await collection.search(_VECTORS, 10, probes=ALL_LISTS)
        assert len(partial_blocks(answer)) == 7
        assert answer.to_pylist() == whole.to_pylist()
        assert (await collection.search(text="word1", k=60)).num_rows == 20
        await store.close()

    run(work)


def test_pages_and_centres_that_were_made_again_are_written_again_with_the_next_write(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await lived_in(volume, rows)
        for name, (key, value) in every_value(volume).items():
            if "directory of" in name or name.startswith("centroids"):
                volume.land("keyvalue", [(key, value[:-1] + bytes([value[-1] ^ 1]))])
        observer = RecordingObserver()
        store, collection = await opened(volume, observer=observer)
        assert not (await collection.verify()).sound
        await collection.upsert(rows(["new"], [[0, 0]]), durable=True)
        assert len(observer.events(names.VECTOR_COLLECTION_MENDED)) == 1
        await store.compact()
        assert (await collection.verify()).problems == []
        await store.close()
        store, collection = await opened(volume)
        assert (await collection.verify()).problems == []
        assert (await collection.get([*_IDS, "new"])).num_rows == 60
        await store.close()

    run(work)


def test_a_follower_notices_that_a_block_was_restored(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await lived_in(volume, rows)
        key, value = next(pair for name, pair in every_value(volume).items() if "directory of names" in name)
        volume.land("keyvalue", [(key, value[:-1])])
        async with VectorReader(
            MemoryFollower(volume, poll_interval_ms=0.001), VectorConfig(staleness_seconds=0.0)
        ) as reader:
            collection = await reader.collection("t", "i", "m")
            assert partial_blocks(await collection.search([[0.0, 0.0]]))
            volume.land("keyvalue", [(key, value)])
            assert not partial_blocks(await collection.search([[0.0, 0.0]]))

    run(work)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (collection_key(CollectionName("t", "i", "m")), "the record of t/i/m"),
        (head_key(collection_prefix(0)), "the head of t/i/m"),
    ],
    ids=["record", "head"],
)
def test_a_collection_whose_record_is_damaged_is_named_and_others_answer(rows: Make, key: bytes, name: str) -> None:
    async def work(volume: MemoryVolume) -> None:
        await lived_in(volume, rows)
        value = volume.table("keyvalue").get(key)
        volume.land("keyvalue", [(key, value[:-1])])
        store = await VectorStore.over(MemoryKeyValue(volume))
        with pytest.raises(Corrupt, match=name):
            await store.collection("t", "i", "m")
        other = await store.collection("t", "i", "untouched")
        assert (await other.search([[0.0, 0.0]], 100, probes=ALL_LISTS)).num_rows == 59
        await store.close()

    run(work)


def test_a_compaction_that_meets_damage_says_so_and_the_others_are_compacted(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await lived_in(volume, rows)
        for kind in ("postings", "deleted, "):
            name, (key, value) = next(item for item in every_value(volume).items() if item[0].startswith(kind))
            volume.land("keyvalue", [(key, value[:-1])])
            store, _ = await opened(volume)
            other = await store.collection("t", "i", "untouched")
            await other.delete(_IDS[10:20], durable=True)
            with pytest.raises(Corrupt, match=name):
                await store.compact()
            assert (await other.stats()).dead_rows == 0
            await other.upsert(rows(_IDS[10:20], _VECTORS[10:20]), durable=True)
            await store.close()
            volume.land("keyvalue", [(key, value)])

    run(work)
