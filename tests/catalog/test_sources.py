"""Sources: files and the position they came from appear together, once, however often they are sent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.catalog.samples import CountingStore, data_file, run, small_catalog

from penstock.catalog import Catalog, SourceProgress, catalog_stats, downgrade, split_shard
from penstock.catalog.change.sources import SOURCES_MAX
from penstock.errors import AtCapacity, Conflict, InvalidInput
from penstock.objects import MemoryStore
from penstock.testing import Fate, FaultPlan, FaultyStore, ManualClock, SeededEntropy

QUEUE = "telemetry/queue"


def of_tenants(attempt: str, count: int = 8) -> list[Any]:
    """One file a tenant, under names that no other attempt uses."""
    return [data_file(n, path=f"t{n}/{attempt}.parquet", tenant=f"t{n}") for n in range(count)]


@pytest.mark.parametrize("format", [2, 3])
def test_a_repeated_position_changes_nothing_and_says_so(format: int) -> None:
    async def session() -> None:
        store = CountingStore()
        catalog = await small_catalog(store, format=format)
        assert await catalog.source_progress(QUEUE) == SourceProgress(complete=None, started=None)
        first = await catalog.register([data_file(0)], source=QUEUE, position=7)
        assert (dict(first), first.repeated) == ({"": 1}, ())
        body = (await store.get("lake/metadata/catalog.json")).data
        # Another attempt at the same batch, or at an earlier one, with files of other names.
        for position in (7, 6, 0):
            again = await catalog.register([data_file(1)], source=QUEUE, position=position)
            assert (dict(again), again.repeated) == ({"": 1}, ("",))
        assert (await store.get("lake/metadata/catalog.json")).data == body
        assert (await catalog.plan()).paths == [data_file(0).path]
        other = await small_catalog(store, format=format)
        assert await other.source_progress(QUEUE) == SourceProgress(complete=7, started=7)
        assert (await other.register([data_file(1)], source="another", position=0)).repeated == ()
        assert (await other.register([data_file(2)], source=QUEUE, position=8)).repeated == ()
        assert len(await other.plan()) == 3

    run(session())


def test_files_and_position_are_one_write() -> None:
    async def session() -> None:
        store = CountingStore()
        catalog = await small_catalog(store)
        await catalog.register([data_file(0)], source=QUEUE, position=0)
        store.taken()
        await catalog.register([data_file(1)], source=QUEUE, position=1)
        assert dict(store.taken()) == {"put_if": 1}
        await catalog.register([data_file(2)], source=QUEUE, position=1)
        assert store.taken()["put_if"] == 0
        # A batch that held nothing for the catalog still moves its source.
        await catalog.register([], source=QUEUE, position=2)
        assert (await catalog.source_progress(QUEUE)).complete == 2

    run(session())


def test_one_of_many_processes_registers_a_batch() -> None:
    """A driver that was thought dead goes on beside its successor."""

    async def session() -> None:
        store = MemoryStore()
        catalogs = [await small_catalog(store, inline_files_max=100) for _ in range(6)]
        for position in range(10):
            done = await asyncio.gather(
                *(
                    one.register(
                        [data_file(position, path=f"{at}/{position}.parquet")], source=QUEUE, position=position
                    )
                    for at, one in enumerate(catalogs)
                )
            )
            assert [answer.repeated for answer in done].count(()) == 1
        assert len(await catalogs[0].plan()) == 10

    run(session())


def test_callers_that_share_one_write_register_a_position_once() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        done = await asyncio.gather(
            *(catalog.register([data_file(number)], source=QUEUE, position=3) for number in range(5))
        )
        assert sorted(len(answer.repeated) for answer in done) == [0, 1, 1, 1, 1]
        assert len(await catalog.plan()) == 1

    run(session())


@pytest.mark.parametrize("fate", [Fate.ERROR_AFTER, Fate.REPLY_LOST])
def test_a_commit_whose_answer_was_lost_is_neither_repeated_nor_called_a_repeat(fate: Fate) -> None:
    async def session() -> None:
        clock = ManualClock()
        faulty = FaultyStore(MemoryStore(), FaultPlan.none(), entropy=SeededEntropy(1), clock=clock)
        catalog = await small_catalog(faulty, clock)
        await catalog.register([data_file(0)], source=QUEUE, position=0)
        faulty.script("put_if", fate)
        writing = asyncio.create_task(catalog.register([data_file(1)], source=QUEUE, position=1))
        while not writing.done():
            await clock.run_for(1)
        assert (await writing).repeated == ()
        assert len(await catalog.plan()) == 2

    run(session())


def test_every_shard_takes_the_position_and_a_batch_cut_short_is_finished_by_repeating_it() -> None:
    async def session() -> None:
        store = MemoryStore()
        catalog = await small_catalog(store)
        await catalog.register(of_tenants("b0"), source=QUEUE, position=0)
        await split_shard(catalog, "", ["s1", "s2", "s3"])
        assert await catalog.source_progress(QUEUE) == SourceProgress(complete=0, started=0)
        batch = of_tenants("b1-first")
        owners = {catalog.shard_of(file.tenant, file.table) for file in batch[:1]}
        # The driver dies after the first shard: as if only that one were asked.
        [first] = owners
        mine = [file for file in batch if catalog.shard_of(file.tenant, file.table) == first]
        await cut_short(catalog, mine, first)
        progress = await catalog.source_progress(QUEUE)
        assert (progress.complete, progress.started, progress.is_settled) == (0, 1, False)
        again = await (await small_catalog(store)).register(of_tenants("b1-again"), source=QUEUE, position=1)
        assert again.repeated == (first,)
        assert set(again) == {"s1", "s2", "s3"}
        assert (await catalog.source_progress(QUEUE)).is_settled
        seen = sorted(path for path in (await (await small_catalog(store)).plan()).paths if "b1" in path)
        assert len(seen) == 8
        assert {path.split("/")[0] for path in seen} == {f"t{n}" for n in range(8)}
        # A batch of one tenant moves the shards that get none of its files.
        done = await catalog.register(of_tenants("b2", 1), source=QUEUE, position=2)
        assert set(done) == {"s1", "s2", "s3"}
        assert await catalog.source_progress(QUEUE) == SourceProgress(complete=2, started=2)

    run(session())


async def cut_short(catalog: Catalog, files: list[Any], shard: str) -> None:
    from penstock.catalog.change.files import register_files
    from penstock.catalog.change.sources import source_move
    from penstock.catalog.writer import owned

    move = source_move(QUEUE, 1)
    assert move is not None
    await catalog.shard(shard).commit(
        lambda head, blocks: move.applied(head, lambda: register_files(head, owned(files, shard), blocks)), "register"
    )


def test_a_split_hands_positions_on_and_a_downgrade_keeps_them() -> None:
    async def session() -> None:
        store = MemoryStore()
        catalog = await small_catalog(store)
        await catalog.register([data_file(0)], source=QUEUE, position=41)
        await downgrade(catalog)
        old = json.loads((await store.get("lake/metadata/catalog.json")).data)
        assert old["version"] == 2
        assert old["penstock"]["sources"] == {QUEUE: 41}
        catalog = await small_catalog(store)
        assert (await catalog.register([data_file(1)], source=QUEUE, position=41)).repeated == ("",)
        await split_shard(catalog, "", ["s1", "s2"])
        assert (await catalog.register(of_tenants("again"), source=QUEUE, position=41)).repeated == ("s1", "s2")
        [one, two] = (await catalog_stats(catalog)).shards
        assert one.sources == two.sources == {QUEUE: 41}

    run(session())


def test_a_source_can_be_forgotten_and_begins_anew() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        await catalog.register([data_file(0)], source=QUEUE, position=5)
        await catalog.forget_source(QUEUE)
        await catalog.forget_source("never heard of")
        assert (await catalog.source_progress(QUEUE)).started is None
        assert (await catalog.register([data_file(1)], source=QUEUE, position=0)).repeated == ()
        assert len(await catalog.plan()) == 2

    run(session())


def test_a_refused_registration_does_not_move_its_source() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        await catalog.register([data_file(0)], source=QUEUE, position=0)
        with pytest.raises(Conflict):
            await catalog.register([data_file(0, row_count=5)], source=QUEUE, position=1)
        with pytest.raises(Conflict):
            await catalog.register([data_file(1)], source=QUEUE, position=1, expected_seq=9)
        assert (await catalog.source_progress(QUEUE)).complete == 0
        await catalog.register([data_file(1)], source=QUEUE, position=1, expected_seq=1)
        # A repeat is told so, rather than that the catalog has changed since: it was this very change.
        assert (await catalog.register([data_file(1)], source=QUEUE, position=1, expected_seq=1)).repeated == ("",)

    run(session())


def test_a_batch_that_begins_elsewhere_than_its_shard_stands_is_refused() -> None:
    """Two drivers of one source that cut their batches differently: a row of the overlap would be listed twice."""

    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        await catalog.register([data_file(0)], source=QUEUE, position=4, since=-1)
        with pytest.raises(Conflict, match="begins after 2"):
            await catalog.register([data_file(1)], source=QUEUE, position=9, since=2)
        with pytest.raises(Conflict, match="begins after 6"):
            await catalog.register([data_file(1)], source=QUEUE, position=9, since=6)
        assert (await catalog.register([data_file(1)], source=QUEUE, position=3, since=-1)).repeated == ("",)
        assert (await catalog.register([data_file(1)], source=QUEUE, position=9, since=4)).repeated == ()
        assert (await catalog.register([data_file(1)], source=QUEUE, position=9, since=4)).repeated == ("",)
        for since in (9, 10, -2, True, "4"):
            with pytest.raises(InvalidInput):
                await catalog.register([], source=QUEUE, position=9, since=since)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            await catalog.register([], since=4)
        assert len(await catalog.plan()) == 2

    run(session())


@pytest.mark.parametrize(
    ("source", "position"),
    [
        (QUEUE, None),
        (None, 3),
        ("", 3),
        ("a\nb", 3),
        ("x" * 257, 3),
        (QUEUE, -1),
        (QUEUE, 2**63),
        (QUEUE, True),
        (QUEUE, 1.5),
        (QUEUE, "7"),
        (b"queue", 7),
    ],
)
def test_a_source_or_position_that_cannot_be_kept_is_refused(source: Any, position: Any) -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        with pytest.raises(InvalidInput):
            await catalog.register([data_file(0)], source=source, position=position)
        assert len(await catalog.plan()) == 0

    run(session())


@pytest.mark.slow
def test_more_sources_than_a_head_can_carry_are_refused() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        await asyncio.gather(*(catalog.register([], source=f"s{n}", position=0) for n in range(SOURCES_MAX)))
        with pytest.raises(AtCapacity, match="forget"):
            await catalog.register([data_file(0)], source="one more", position=0)
        await catalog.forget_source("s0")
        await catalog.register([data_file(0)], source="one more", position=0)

    run(session())
