"""Small objects fetched ahead: whole or not at all, and all others left to a reader that looks first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.documents import UploadNotification
from penstock.documents.sources import BLOCK_BYTES
from penstock.errors import Unavailable
from penstock.objects import ObjectStore, open_store
from penstock.pipelines.fetching import Fetched, fetch, is_small, windows

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


async def filled(keys: list[str]) -> tuple[ObjectStore, dict[str, str]]:
    store = await open_store("memory://")
    return store, {key: (await store.put(key, BODY)).version for key in keys}


def fetched(store: Any, wanted: Mapping[str, UploadNotification]) -> dict[str, Fetched]:
    return asyncio.run(fetch({key: (store, upload) for key, upload in wanted.items()}))


def test_small_objects_come_whole_each_with_one_request_and_all_at_once() -> None:
    keys = [f"{number}.txt" for number in range(20)]

    async def go() -> tuple[dict[str, Fetched], Watched]:
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

    async def go() -> dict[str, Fetched]:
        store, versions = await filled(["note.txt"])
        return await fetch({"note.txt": (store, notified("note.txt", versions["note.txt"], size))})

    assert asyncio.run(go()) == {}


def test_an_object_that_changed_or_is_gone_is_left_to_its_reader_and_the_others_come() -> None:
    async def go() -> dict[str, Fetched]:
        store, versions = await filled(["a", "b"])
        await store.put("a", BODY)
        wanted = {"a": versions["a"], "b": versions["b"], "gone": "a-version"}
        return await fetch({key: (store, notified(key, etag)) for key, etag in wanted.items()})

    assert asyncio.run(go()) == {"b": BODY}


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
