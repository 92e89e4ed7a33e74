"""A lake of small files for tests: where it is, what is in it, and the multiset of its rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.catalog.parquet_files import HOUR, add, rows

from penstock.catalog import Catalog, CatalogConfig, CompactionPolicy
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.lake import MergePlace
from penstock.objects import StoreSpec, open_store

# Two files of an hour are merged at once.
EAGER = CompactionPolicy(hour_files=2, day_files=2, closed_after_seconds=0.0)


class Lake:
    """A catalog in a directory."""

    def __init__(self, folder: Path, clock: Clock = SYSTEM_CLOCK, **config: Any) -> None:
        self.url = folder.absolute().as_uri()
        self.prefix = "lake"
        self.place = MergePlace(StoreSpec(self.url), self.prefix)
        self.config = CatalogConfig(**{"staleness_seconds": 0.0, "compaction": EAGER, **config})
        self.written = 0
        self._clock = clock

    async def __aenter__(self) -> Lake:
        self.store = await open_store(self.url)
        self.catalog = await Catalog.open(self.store, self.prefix, self.config, clock=self._clock)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.catalog.close()
        await self.store.close()

    async def write(self, files: int, count: int = 100, *, hour: int = 0, **columns: Any) -> None:
        """Each with numbers of its own, so that every row is told from every other."""
        for _ in range(files):
            numbers = pa.array(range(self.written, self.written + count))
            table = rows(count, start=hour * HOUR + self.written % 1000 * 1000, n=numbers, **columns)
            await add(self.catalog, f"acme/cpu/{hour:02}/{self.written:08}.parquet", table)
            self.written += count

    async def numbers(self, **query: Any) -> Counter[int]:
        async with self.catalog.scan(columns=["n"], pin=False, **query) as scan:
            return Counter((await scan.to_table())["n"].to_pylist())

    async def until_files(self, count: int) -> None:
        """Wait until so many files are listed; the caller's test has a bound of its own."""
        while len(await self.catalog.plan()) > count:
            await self.catalog.clock.sleep(0.01)

    @property
    def all(self) -> Counter[int]:
        return Counter(range(self.written))
