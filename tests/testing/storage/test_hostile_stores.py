from __future__ import annotations

import asyncio

import pytest

from penstock.errors import Conflict, Unavailable
from penstock.objects import MemoryStore, ObjectStore
from penstock.testing import CarelessStore, StutteringStore, UnreachableStore, WitnessStore


def test_the_careless_store_overwrites_what_it_was_told_to_spare() -> None:
    async def main() -> bytes:
        store = CarelessStore(MemoryStore())
        await store.put("a", b"first")
        await store.put_if("a", b"second", version=None)
        return (await store.get("a")).data

    assert asyncio.run(main()) == b"second"


def test_the_stuttering_store_reports_a_conflict_for_a_write_that_landed() -> None:
    async def main() -> bytes:
        store = StutteringStore(MemoryStore())
        with pytest.raises(Conflict):
            await store.put_if("a", b"landed", version=None)
        return (await store.get("a")).data

    assert asyncio.run(main()) == b"landed"


def test_the_unreachable_store_answers_no_verb() -> None:
    async def main(verb: str) -> None:
        store: ObjectStore = UnreachableStore()
        if verb == "list":
            async for _ in store.list():
                pass
        else:
            await getattr(store, verb)("a")

    for verb in ("get", "get_range", "get_ranges", "head", "put", "put_if", "list", "delete", "delete_many"):
        with pytest.raises(Unavailable):
            asyncio.run(main(verb))


def test_the_witness_remembers_every_body_in_order_and_nothing_that_was_refused() -> None:
    async def main() -> tuple[bytes | None, ...]:
        store = WitnessStore(MemoryStore())
        meta = await store.put("a", b"1")
        await store.put_if("a", b"2", version=meta.version)
        with pytest.raises(Conflict):
            await store.put_if("a", b"lost", version=meta.version)
        await store.delete("a")
        await store.delete("a")
        await store.put_if("a", b"3", version=None)
        await store.put("b", b"elsewhere")
        return tuple(store.history("a"))

    assert asyncio.run(main()) == (b"1", b"2", None, b"3")


def test_what_passes_through_is_the_inner_stores_own_answer() -> None:
    async def main() -> tuple[object, ...]:
        store = WitnessStore(MemoryStore())
        await store.put("a", b"body")
        pages = [[meta.key for meta in page] async for page in store.list("a")]
        return (
            (await store.get("a")).data,
            (await store.head("a")).size,
            await store.get_range("a", 1, 3),
            await store.get_ranges("a", [(0, 1)]),
            pages,
        )

    assert asyncio.run(main()) == (b"body", 4, b"od", [b"b"], [["a"]])
