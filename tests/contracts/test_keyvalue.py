"""One contract for every key-value store: what a caller may rely on, whatever lies underneath."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import Closed, Fenced, InvalidInput, NotFound, PermissionDenied, Unavailable
from penstock.keyvalue import (
    Entry,
    KeyValue,
    MemoryFollower,
    MemoryKeyValue,
    MemoryVolume,
    Reader,
    WriteBatch,
    open_follower,
    open_keyvalue,
    prefix_end,
)
from penstock.testing.servers.object_stores import AzureServer, S3Server

# How long a follower on a real server may take before the test gives up; it is asked to poll every 20 ms.
FOLLOWER_BOUND_SECONDS = 60.0


class Medium(Protocol):
    """Somewhere that writers and followers of one store meet."""

    async def open(self) -> KeyValue: ...

    async def follow(self) -> Reader: ...


@dataclass
class MemoryMedium:
    volume: MemoryVolume = field(default_factory=MemoryVolume)

    async def open(self) -> KeyValue:
        return MemoryKeyValue(self.volume)

    async def follow(self) -> Reader:
        return MemoryFollower(self.volume)


@dataclass
class SlateMedium:
    url: str
    path: str
    access: dict[str, Any] = field(default_factory=dict)

    async def open(self) -> KeyValue:
        return await open_keyvalue(self.url, self.path, flush_interval_ms=2, **self.access)

    async def follow(self) -> Reader:
        return await open_follower(self.url, self.path, poll_interval_ms=20, **self.access)


def remote(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.integration)


@pytest.fixture(params=["memory", "directory", remote("seaweedfs"), remote("azurite")])
def medium(request: pytest.FixtureRequest, tmp_path: Path) -> Medium:
    if request.param == "memory":
        return MemoryMedium()
    if request.param == "directory":
        return SlateMedium(tmp_path.as_uri(), "store")
    path = f"{tmp_path.parent.name}/{tmp_path.name}"
    if request.param == "seaweedfs":
        return SlateMedium("s3://penstock/keyvalue", path, request.getfixturevalue("s3_server").options)
    return SlateMedium("az://penstock/keyvalue", path, request.getfixturevalue("azure_server").options)


Scenario = Callable[[KeyValue], Awaitable[Any]]


def with_store(medium: Medium, scenario: Scenario) -> None:
    """Run a scenario on a freshly opened store and close it."""

    async def run() -> None:
        store = await medium.open()
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(run())


async def gather(blocks: AsyncIterator[list[Entry]]) -> list[Entry]:
    return [entry async for block in blocks for entry in block]


async def put(store: KeyValue, **entries: bytes) -> None:
    batch = WriteBatch()
    for key, value in entries.items():
        batch.put(key.encode(), value)
    await (await store.write(batch)).durable()


def test_a_write_is_visible_to_its_writer_before_it_is_durable(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        handle = await store.write(WriteBatch().put(b"key", b"value"))
        assert await store.get(b"key") == b"value"
        await handle.durable()
        assert await store.get(b"key") == b"value"

    with_store(medium, scenario)


def test_a_missing_key_reads_as_none_and_an_empty_value_as_empty(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        await put(store, empty=b"")
        assert await store.get(b"missing") is None
        assert await store.get(b"empty") == b""

    with_store(medium, scenario)


def test_the_last_operation_on_a_key_within_a_batch_wins(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        batch = WriteBatch().put(b"a", b"1").put(b"b", b"1").delete(b"a").delete(b"b").put(b"b", b"2")
        await (await store.write(batch)).durable()
        assert await store.get_many([b"a", b"b"]) == [None, b"2"]

    with_store(medium, scenario)


def test_a_deleted_key_is_gone_from_reads_and_scans(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        await put(store, a=b"1", b=b"2")
        await (await store.write(WriteBatch().delete(b"a").delete(b"never"))).durable()
        assert await store.get(b"a") is None
        assert await gather(store.scan()) == [(b"b", b"2")]

    with_store(medium, scenario)


def test_an_empty_batch_changes_nothing_and_is_durable(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        await (await store.write(WriteBatch())).durable()
        assert await gather(store.scan()) == []

    with_store(medium, scenario)


def test_a_batch_changed_after_the_write_does_not_change_the_store(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        batch = WriteBatch().put(b"key", b"written")
        handle = await store.write(batch)
        batch.put(b"key", b"later").put(b"other", b"later")
        await handle.durable()
        assert await gather(store.scan()) == [(b"key", b"written")]

    with_store(medium, scenario)


def test_many_keys_are_read_in_the_order_asked(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        await put(store, **{f"k{i:03}": b"%d" % i for i in range(200)})
        asked = [b"k%03d" % i for i in (199, 0, 7, 7)] + [b"missing"]
        assert await store.get_many(asked) == [b"199", b"0", b"7", b"7", None]
        assert await store.get_many([]) == []

    with_store(medium, scenario)


def test_a_scan_returns_the_half_open_range_in_key_order(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        await put(store, c=b"3", a=b"1", d=b"4", b=b"2")
        assert await gather(store.scan(b"b", b"d")) == [(b"b", b"2"), (b"c", b"3")]
        assert await gather(store.scan(b"b", b"d", reverse=True)) == [(b"c", b"3"), (b"b", b"2")]
        assert [key for key, _ in await gather(store.scan(reverse=True))] == [b"d", b"c", b"b", b"a"]
        assert await gather(store.scan(b"c", b"c")) == []
        assert await gather(store.scan(b"d", b"a")) == []

    with_store(medium, scenario)


def test_a_prefix_scan_stops_where_the_prefix_ends(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        keys = [b"a", b"a\x00", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xff\x01"]
        batch = WriteBatch()
        for key in keys:
            batch.put(key, key)
        await (await store.write(batch)).durable()
        for prefix in (b"a", b"a\xff", b"\xff", b"\xff\xff", b"b", b"c", b""):
            found = [key for key, _ in await gather(store.scan_prefix(prefix))]
            assert found == sorted(key for key in keys if key.startswith(prefix))
            backwards = [key for key, _ in await gather(store.scan_prefix(prefix, reverse=True))]
            assert backwards == found[::-1]

    with_store(medium, scenario)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_comes_in_blocks_of_about_the_size_asked(medium: Medium, reverse: bool) -> None:
    async def scenario(store: KeyValue) -> None:
        await put(store, **{f"k{i:03}": b"x" * 1000 for i in range(100)})
        blocks = [block async for block in store.scan(block_bytes=10_000, reverse=reverse)]
        assert [key for block in blocks for key, _ in block] == sorted(
            (b"k%03d" % i for i in range(100)), reverse=reverse
        )
        assert len(blocks) > 5
        # A block may pass its size by one entry, never by more.
        assert all(sum(len(k) + len(v) for k, v in block) < 10_000 + 1004 for block in blocks)

    with_store(medium, scenario)


def test_a_scan_shows_the_moment_it_began(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        await put(store, **{f"k{i:03}": b"old" for i in range(100)})
        scan = store.scan(block_bytes=60)
        entries = await anext(scan)
        await put(store, **{f"k{i:03}": b"new" for i in range(200)})
        entries += [entry async for block in scan for entry in block]
        assert entries == [(b"k%03d" % i, b"old") for i in range(100)]

    with_store(medium, scenario)


def test_a_snapshot_does_not_see_later_writes(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        await put(store, kept=b"old", deleted=b"old")
        snapshot = await store.snapshot()
        await (await store.write(WriteBatch().put(b"kept", b"new").delete(b"deleted").put(b"z", b"new"))).durable()
        assert await snapshot.get_many([b"kept", b"deleted", b"z"]) == [b"old", b"old", None]
        assert await gather(snapshot.scan()) == [(b"deleted", b"old"), (b"kept", b"old")]
        assert await gather(snapshot.scan_prefix(b"k")) == [(b"kept", b"old")]
        assert await store.get_many([b"kept", b"deleted", b"z"]) == [b"new", None, b"new"]
        await snapshot.close()

    with_store(medium, scenario)


def test_a_snapshot_sees_writes_that_are_not_durable_yet(medium: Medium) -> None:
    """Readers of the newest view must see what the writer sees, or a flush would be a precondition of reading."""

    async def scenario(store: KeyValue) -> None:
        await store.write(WriteBatch().put(b"key", b"value"))
        snapshot = await store.snapshot()
        assert await snapshot.get(b"key") == b"value"

    with_store(medium, scenario)


def test_a_closed_snapshot_says_so_and_its_store_goes_on(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        await put(store, key=b"value")
        snapshot = await store.snapshot()
        await snapshot.close()
        await snapshot.close()
        with pytest.raises(Closed, match="snapshot"):
            await snapshot.get(b"key")
        assert await store.get(b"key") == b"value"

    with_store(medium, scenario)


def test_what_was_written_is_there_after_reopening(medium: Medium) -> None:
    async def scenario() -> None:
        store = await medium.open()
        await store.write(WriteBatch().put(b"key", b"value"))  # close() itself makes it durable
        await store.close()
        reopened = await medium.open()
        assert await reopened.get(b"key") == b"value"
        await reopened.close()

    asyncio.run(scenario())


def test_flush_makes_everything_written_so_far_durable(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        handles = [await store.write(WriteBatch().put(b"k%d" % i, b"v")) for i in range(10)]
        await store.flush()
        second = await medium.open()
        assert len(await gather(second.scan())) == 10
        # Already durable, so even the fenced writer can say so.
        await asyncio.gather(*(handle.durable() for handle in handles))
        await second.close()

    with_store(medium, scenario)


def test_a_second_writer_fences_the_first(medium: Medium) -> None:
    async def scenario() -> None:
        first = await medium.open()
        await put(first, key=b"first")
        second = await medium.open()
        with pytest.raises(Fenced):
            await put(first, key=b"late", other=b"late")
        with pytest.raises(Fenced):
            await first.write(WriteBatch().put(b"key", b"later"))
        with pytest.raises(Fenced):
            await first.flush()
        assert await second.get_many([b"key", b"other"]) == [b"first", None]
        await put(second, key=b"second")
        assert await second.get(b"key") == b"second"
        await first.close()
        await second.close()

    asyncio.run(scenario())


def test_closing_a_fenced_writer_is_silent_unless_writes_are_lost_by_it(medium: Medium) -> None:
    async def scenario() -> None:
        durable_only = await medium.open()
        await put(durable_only, key=b"durable")
        with_loss = await medium.open()
        await durable_only.close()
        third = await medium.open()
        await with_loss.write(WriteBatch().put(b"key", b"never waited for"))
        with pytest.raises(Fenced):
            await with_loss.close()
        assert await third.get(b"key") == b"durable"
        await third.close()

    asyncio.run(scenario())


def test_a_closed_store_refuses_every_verb_by_name(medium: Medium) -> None:
    async def scenario() -> None:
        store = await medium.open()
        await put(store, key=b"value")
        snapshot = await store.snapshot()
        scan = store.scan(block_bytes=1)
        await store.close()
        await store.close()
        verbs: list[Callable[[], Awaitable[Any]]] = [
            lambda: store.get(b"key"),
            lambda: store.get_many([b"key"]),
            lambda: gather(store.scan()),
            lambda: gather(store.scan_prefix(b"k")),
            lambda: gather(scan),
            lambda: store.write(WriteBatch().put(b"key", b"late")),
            lambda: store.write(WriteBatch()),
            store.snapshot,
            store.flush,
            lambda: snapshot.get(b"key"),
        ]
        for verb in verbs:
            with pytest.raises(Closed, match="closed"):
                await verb()

    asyncio.run(scenario())


def test_a_follower_sees_durable_writes_within_its_bound(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        await put(store, a=b"1")
        follower = await medium.follow()
        assert await follower.get(b"a") == b"1"
        for round_ in range(3):
            await put(store, a=b"%d" % round_, b=b"%d" % round_)
            async with asyncio.timeout(FOLLOWER_BOUND_SECONDS):
                while await follower.get(b"b") != b"%d" % round_:
                    pass
            assert await follower.get_many([b"a", b"b"]) == [b"%d" % round_] * 2
        assert [key for key, _ in await gather(follower.scan(reverse=True))] == [b"b", b"a"]
        assert await gather(follower.scan_prefix(b"b")) == [(b"b", b"2")]
        await follower.close()
        with pytest.raises(Closed, match="closed"):
            await follower.get(b"a")
        await follower.close()

    with_store(medium, scenario)


def test_a_follower_does_not_fence_the_writer(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        await put(store, a=b"1")
        follower = await medium.follow()
        await put(store, a=b"2")
        await follower.close()
        await put(store, a=b"3")
        assert await store.get(b"a") == b"3"

    with_store(medium, scenario)


def test_bad_input_is_refused_and_nothing_is_done(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        for verb in (store.get(b""), store.get_many([b"a", b""])):
            with pytest.raises(InvalidInput, match="key to read is empty"):
                await verb
        with pytest.raises(InvalidInput, match="'text'"):
            await store.get("text")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="blocks of 0 bytes"):
            await gather(store.scan(block_bytes=0))
        assert await gather(store.scan()) == []

    with_store(medium, scenario)


def test_concurrent_writers_of_one_store_each_get_their_answer(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        async def write(i: int) -> None:
            handle = await store.write(WriteBatch().put(b"k%03d" % i, b"%d" % i))
            await handle.durable()

        await asyncio.gather(*(write(i) for i in range(64)))
        assert await gather(store.scan()) == [(b"k%03d" % i, b"%d" % i) for i in range(64)]

    with_store(medium, scenario)


def test_a_cancelled_wait_can_be_asked_again(medium: Medium) -> None:
    async def scenario(store: KeyValue) -> None:
        handle = await store.write(WriteBatch().put(b"key", b"value"))
        wait = asyncio.ensure_future(handle.durable())
        await asyncio.sleep(0)
        wait.cancel()
        await asyncio.gather(wait, return_exceptions=True)
        await handle.durable()
        assert await store.get(b"key") == b"value"

    with_store(medium, scenario)


def test_a_block_sized_value_comes_back_unchanged(medium: Medium) -> None:
    value = bytes(range(256)) * 1024

    async def scenario(store: KeyValue) -> None:
        await put(store, block=value)
        assert await store.get(b"block") == value
        assert await gather(store.scan()) == [(b"block", value)]

    with_store(medium, scenario)


KEYS = st.binary(min_size=1, max_size=3)
BATCHES = st.lists(st.dictionaries(KEYS, st.none() | st.binary(max_size=4), min_size=1, max_size=8), max_size=6)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=BATCHES, start=st.binary(max_size=2), end=st.none() | st.binary(max_size=2), prefix=st.binary(max_size=2)
)
def test_any_history_reads_like_a_sorted_map(
    medium: Medium, batches: list[dict[bytes, bytes | None]], start: bytes, end: bytes | None, prefix: bytes
) -> None:
    async def scenario(store: KeyValue) -> None:
        model = dict(await gather(store.scan()))
        for operations in batches:
            batch = WriteBatch()
            for key, value in operations.items():
                batch.delete(key) if value is None else batch.put(key, value)
                model.pop(key, None) if value is None else model.update({key: value})
            await store.write(batch)
        expected = sorted((k, v) for k, v in model.items() if start <= k and (end is None or k < end))
        assert await gather(store.scan(start, end)) == expected
        assert await gather(store.scan(start, end, reverse=True)) == expected[::-1]
        below = prefix_end(prefix)
        assert await gather(store.scan_prefix(prefix)) == await gather(store.scan(prefix, below))

    with_store(medium, scenario)


@pytest.mark.integration
@pytest.mark.parametrize("opening", [open_keyvalue, open_follower])
def test_a_bucket_that_does_not_exist_is_named(s3_server: S3Server, opening: Any) -> None:
    with pytest.raises(NotFound, match="s3://no-such-bucket/store"):
        asyncio.run(opening("s3://no-such-bucket", "store", **s3_server.options))


@pytest.mark.integration
def test_a_container_that_does_not_exist_is_named(azure_server: AzureServer) -> None:
    with pytest.raises(NotFound, match="az://no-such-container/store"):
        asyncio.run(open_keyvalue("az://no-such-container", "store", **azure_server.options))


@pytest.mark.integration
@pytest.mark.parametrize("opening", [open_keyvalue, open_follower])
def test_a_wrong_secret_is_a_refusal_and_not_an_outage(s3_server: S3Server, opening: Any) -> None:
    options = {**s3_server.options, "secret_access_key": "wrong"}
    with pytest.raises(PermissionDenied, match="s3://penstock/store"):
        asyncio.run(opening("s3://penstock", "store", **options))


@pytest.mark.slow
def test_a_server_that_is_not_there_is_told_soon_after_opening() -> None:
    options: dict[str, Any] = {
        "endpoint": "http://127.0.0.1:1",
        "access_key_id": "a",
        "secret_access_key": "b",
        "region": "r",
    }
    with pytest.raises(Unavailable, match="s3://penstock/store"):
        asyncio.run(open_keyvalue("s3://penstock", "store", **options))
