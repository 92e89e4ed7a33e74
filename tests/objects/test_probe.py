"""The probe refuses stores that do not enforce conditional writes, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.objects.bucket_server import Fate, bucket_server

from penstock.errors import Conflict, OutcomeUnknown, Unavailable, Unsupported
from penstock.objects import MemoryStore, ObjectMeta, ObjectStore, open_store
from penstock.objects.port import Body
from penstock.objects.probe import probe_conditional_writes
from penstock.testing import CarelessStore, Simulation, UnreachableStore, simulate
from penstock.testing.storage.hostile_stores import PassingStore


class CreateOnlyStore(PassingStore):
    """Enforces creates and ignores the version of an update."""

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        return await (self._inner.put_if(key, data, version=None) if version is None else self._inner.put(key, data))


class UpdateOnlyStore(PassingStore):
    """Enforces updates and overwrites on create."""

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        return await (self._inner.put(key, data) if version is None else self._inner.put_if(key, data, version=version))


class StubbornStore(PassingStore):
    """Finds a conflict in every update, as servers do that compare versions with and without quotes."""

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        if version is None:
            return await self._inner.put_if(key, data, version=None)
        raise Conflict("stubborn")


class ForgetfulStore(PassingStore):
    """Acknowledges an update and keeps what it had."""

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        before = None if version is None else await self._inner.get(key)
        meta = await self._inner.put_if(key, data, version=version)
        if before:
            await self._inner.put(key, before.data)
        return meta


class LossyStore(PassingStore):
    """Loses the answers to the first writes."""

    def __init__(self, inner: ObjectStore, losses: int) -> None:
        super().__init__(inner)
        self.losses = losses

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        meta = await self._inner.put_if(key, data, version=version)
        self.losses -= 1
        if self.losses >= 0:
            raise OutcomeUnknown("lost")
        return meta


def probe(store: ObjectStore) -> None:
    async def main(simulation: Simulation) -> None:
        await probe_conditional_writes(store, clock=simulation.clock, entropy=simulation.entropy)

    simulate(main, 1)


def keys(store: ObjectStore) -> list[str]:
    async def listed() -> list[str]:
        return [meta.key async for page in store.list() for meta in page]

    return asyncio.run(listed())


def test_a_store_that_enforces_them_passes_and_is_left_as_it_was() -> None:
    store = MemoryStore()
    probe(store)
    assert keys(store) == []


@pytest.mark.parametrize(
    ("hostile", "why"),
    [
        (CarelessStore, "ignores If-None-Match"),
        (UpdateOnlyStore, "ignores If-None-Match"),
        (CreateOnlyStore, "ignores If-Match"),
        (StubbornStore, "conflict where nobody else"),
        (ForgetfulStore, "does not read back|ignores If-Match|conflict"),
    ],
)
def test_a_store_that_does_not_is_refused_by_name_and_cleaned_up(hostile: Any, why: str) -> None:
    inner = MemoryStore("hostile")
    with pytest.raises(Unsupported, match=rf"memory://hostile cannot be used: .*({why})"):
        probe(hostile(inner))
    assert keys(inner) == []


def test_lost_answers_are_no_verdict() -> None:
    inner = MemoryStore()
    probe(LossyStore(inner, losses=2))
    assert keys(inner) == []
    with pytest.raises(Unavailable, match="could not be probed"):
        probe(LossyStore(inner, losses=1000))
    with pytest.raises(Unavailable, match="check that it is up"):
        probe(UnreachableStore())


def test_a_server_that_ignores_conditions_is_refused_at_open_and_can_still_be_read() -> None:
    """Over HTTP, as rclone, JuiceFS and others do it."""

    async def opening(options: dict[str, Any]) -> None:
        with pytest.raises(Unsupported, match="s3://bucket/prefix cannot be used"):
            await open_store("s3://bucket/prefix", **options)
        reader = await open_store("s3://bucket/prefix", read_only=True, **options)
        assert (await reader.get("object")).data == b"body"

    with bucket_server(is_lenient=True) as server:
        server.objects["prefix/object"] = (b"body", 1)
        asyncio.run(opening(server.s3_options))
        assert list(server.objects) == ["prefix/object"]


def test_a_server_that_loses_an_answer_during_the_probe_is_probed_again() -> None:
    async def opening(options: dict[str, Any]) -> None:
        await open_store("s3://bucket", **options)

    with bucket_server() as server:
        server.fates.extend([Fate.CUT_AFTER])
        asyncio.run(opening(server.s3_options))
        assert server.objects == {}
