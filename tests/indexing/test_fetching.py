"""Small objects fetched ahead: whole or not at all, and all others left to a reader that looks first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.documents import UploadNotification
from penstock.documents.sources import BLOCK_BYTES
from penstock.errors import Unavailable
from penstock.indexing.stages.fetching import Fetched, Fetcher, Wanted, ask, is_small, windows
from penstock.objects import ObjectMeta, ObjectStore, open_store

BODY = b"Rivers and mills."


def notified(key: str, etag: str | None, size: int = len(BODY)) -> UploadNotification:
    return UploadNotification(
        tenant_id="acme",
        index_id="handbook",
        model="a-model",
        bucket="memory://",
        key=key,
        etag=etag,
        size_bytes=size,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


class Watched:
    """A store that counts who asks it at once; None stands for one that does not answer."""

    def __init__(self, store: ObjectStore | None) -> None:
        self._store = store
        self.asked: list[str] = []
        self.now = self.most = 0

    async def get_range(self, key: str, start: int, end: int, *, version: str | None = None) -> bytes:
        self.asked.append(key)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        if self._store is None:
            raise Unavailable(f"{key!r} cannot be read", "the bucket does not answer")
        return await self._store.get_range(key, start, end, version=version)


def opened(store: Any) -> Callable[[], Awaitable[ObjectStore]]:
    async def open_it() -> ObjectStore:
        found: ObjectStore = store
        return found

    return open_it


async def filled(keys: list[str]) -> tuple[ObjectStore, dict[str, str]]:
    store = await open_store("memory://")
    return store, {key: (await store.put(key, BODY)).version for key in keys}


async def fetch(wanted: Mapping[str, tuple[Any, UploadNotification]]) -> dict[str, Fetched | None]:
    found = await asyncio.gather(*(ask(Wanted(opened(store), upload)) for store, upload in wanted.values()))
    return dict(zip(wanted, found, strict=True))


def fetched(store: Any, wanted: Mapping[str, UploadNotification]) -> dict[str, Fetched | None]:
    return asyncio.run(fetch({key: (store, upload) for key, upload in wanted.items()}))


def test_small_objects_come_whole_each_with_one_request_and_all_at_once() -> None:
    keys = [f"{number}.txt" for number in range(20)]

    async def go() -> tuple[dict[str, Fetched | None], Watched]:
        store, versions = await filled(keys)
        watched: Any = Watched(store)
        return await fetch({key: (watched, notified(key, versions[key])) for key in keys}), watched

    found, watched = asyncio.run(go())
    assert found == dict.fromkeys(keys, BODY)
    assert watched.asked == keys
    assert watched.most == len(keys)


@pytest.mark.parametrize("size", [len(BODY) - 1, len(BODY) + 1, 1])
def test_an_object_of_another_size_than_was_notified_is_left_to_its_reader(size: int) -> None:
    """A part of it must never pass for the whole."""

    async def go() -> dict[str, Fetched | None]:
        store, versions = await filled(["note.txt"])
        return await fetch({"note.txt": (store, notified("note.txt", versions["note.txt"], size))})

    assert asyncio.run(go()) == {"note.txt": None}


def test_an_object_that_changed_or_is_gone_is_left_to_its_reader_and_the_others_come() -> None:
    async def go() -> dict[str, Fetched | None]:
        store, versions = await filled(["a", "b"])
        await store.put("a", BODY)
        wanted = {"a": versions["a"], "b": versions["b"], "gone": "a-version"}
        return await fetch({key: (store, notified(key, etag)) for key, etag in wanted.items()})

    assert asyncio.run(go()) == {"a": None, "b": BODY, "gone": None}


def test_a_bucket_that_does_not_answer_is_told_of_each_of_its_objects() -> None:
    found = fetched(Watched(None), {"a": notified("a", "1"), "b": notified("b", "2")})
    assert [type(what) for what in found.values()] == [Unavailable, Unavailable]


@pytest.mark.parametrize(
    ("etag", "size", "small"),
    [("1", 1, True), ("1", BLOCK_BYTES, True), ("1", BLOCK_BYTES + 1, False), ("1", 0, False), (None, 1, False)],
)
def test_only_an_object_of_a_known_version_and_size_is_fetched(etag: str | None, size: int, small: bool) -> None:
    assert is_small(notified("note.txt", etag, size)) is small


def test_no_more_is_fetched_at_once_than_may_be_held() -> None:
    many = [(place, 100) for place in range(100)]
    assert [len(some) for some in windows(many)] == [32, 32, 32, 4]
    large = [(place, 5 << 20) for place in range(3)]
    assert list(windows(large)) == [[0], [1], [2]]
    assert [place for some in windows(many) for place in some] == list(range(100))


class Slow:
    """A store that answers for some keys when it is let, and for all others at once."""

    def __init__(self, slow: set[str]) -> None:
        self._slow = slow
        self.let = asyncio.Event()
        self.asked: list[str] = []

    async def get_range(self, key: str, start: int, end: int, *, version: str | None = None) -> bytes:
        self.asked.append(key)
        if key in self._slow:
            await self.let.wait()
            raise Unavailable(f"{key!r} cannot be read", "no answer")
        return BODY


def test_objects_that_do_not_answer_are_waited_for_together_and_hold_back_nobody() -> None:
    loop = asyncio.new_event_loop()
    store: Any = Slow({f"{number}" for number in range(0, 60, 10)})
    fetcher: Fetcher[str] = Fetcher(loop, grace_seconds=0.001)
    soon: dict[str, Fetched | None] = {}
    for start in range(0, 60, 20):
        window = {f"{number}": Wanted(opened(store), notified(f"{number}", "1")) for number in range(start, start + 20)}
        soon |= fetcher.soon(window)
    assert set(soon.values()) == {BODY}
    assert [place for place in range(60) if fetcher.is_late(str(place))] == [0, 10, 20, 30, 40, 50]
    # Asked again in another window, one that is late is not asked twice.
    assert fetcher.soon({"10": Wanted(opened(store), notified("10", "1"))}) == {}
    store.let.set()
    rest = fetcher.rest()
    assert (len(soon) + len(rest), len(store.asked)) == (60, 60)
    assert {type(what) for what in rest.values()} == {Unavailable}
    assert not fetcher.is_late("10")
    loop.close()


def test_a_large_object_is_looked_at_and_not_fetched() -> None:
    async def go() -> Fetched | None:
        store, versions = await filled(["note.txt"])
        return await ask(Wanted(opened(store), notified("note.txt", versions["note.txt"]), whole=False))

    found = asyncio.run(go())
    assert isinstance(found, ObjectMeta)
    assert found.size == len(BODY)
