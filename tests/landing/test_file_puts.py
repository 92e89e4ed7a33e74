"""Data files on their way to the store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.errors import Unavailable
from penstock.landing.file_puts import FilePuts
from penstock.telemetry import EncodedFile
from penstock.telemetry.data_files import Partition


class SlowStore:
    """Takes files only when it is told to, and notes how many were under way at once."""

    def __init__(self) -> None:
        self.under_way: list[str] = []
        self.peak = 0
        self.taken: list[str] = []
        self.opened = asyncio.Event()
        self.fails_at = ""

    async def put(self, file: EncodedFile) -> None:
        self.under_way.append(file.path)
        self.peak = max(self.peak, len(self.under_way))
        try:
            await self.opened.wait()
            await asyncio.sleep(0)
            if file.path == self.fails_at:
                raise Unavailable("the store is away")
            self.taken.append(file.path)
        finally:
            self.under_way.remove(file.path)


def file_of(name: int, size: int = 10) -> EncodedFile:
    return EncodedFile(f"f{name}", Partition("acme", "metrics", 0), b"x" * size, 1, 0, 0)


def run(work: Any) -> Any:
    return asyncio.run(work)


def test_files_of_many_tenants_are_on_their_way_together_within_the_bound() -> None:
    async def check() -> None:
        store = SlowStore()

        async def all_files() -> None:
            async with FilePuts(store.put, 4, 1000) as puts:
                for name in range(10):
                    await puts.add(file_of(name))

        work = asyncio.ensure_future(all_files())
        for _ in range(1000):
            await asyncio.sleep(0)
        assert store.peak == 4, "as many as are allowed have begun"
        assert not work.done()
        store.opened.set()
        await work
        assert store.peak == 4
        assert sorted(store.taken) == [f"f{name}" for name in range(10)]

    run(check())


def test_bytes_on_their_way_are_bounded_and_a_file_above_the_bound_goes_alone() -> None:
    async def check() -> None:
        store = SlowStore()
        store.opened.set()
        async with FilePuts(store.put, 16, 25) as puts:
            for name, size in enumerate((10, 10, 10, 100, 10)):
                await puts.add(file_of(name, size))
        assert store.peak == 2
        assert sorted(store.taken) == ["f0", "f1", "f2", "f3", "f4"]

    run(check())


def test_a_put_that_fails_is_raised_and_leaves_nothing_under_way() -> None:
    async def check() -> None:
        store = SlowStore()
        store.fails_at = "f1"
        store.opened.set()
        with pytest.raises(Unavailable):
            async with FilePuts(store.put, 2, 1000) as puts:
                for name in range(6):
                    await puts.add(file_of(name))
        assert not store.under_way

    run(check())


def test_what_is_under_way_is_given_up_when_the_next_file_cannot_be_made() -> None:
    async def check() -> None:
        store = SlowStore()
        with pytest.raises(ZeroDivisionError):
            async with FilePuts(store.put, 2, 1000) as puts:
                await puts.add(file_of(0))
                raise ZeroDivisionError
        assert not store.under_way
        assert not store.taken

    run(check())
