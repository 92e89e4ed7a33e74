"""Files and catalogs that the tests of this room share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.catalog import Catalog, CatalogConfig, DataFile, column_stats
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.objects import MemoryStore, Object, ObjectMeta
from penstock.testing.storage.hostile_stores import PassingStore

T = TypeVar("T")
HOUR = 3_600_000_000_000
DAY = 24 * HOUR


def data_file(number: int = 0, **members: Any) -> DataFile:
    """One of a row of files, a minute long, 60 in an hour."""
    start = members.pop("start", number * HOUR // 60)
    day, hour = start // DAY, start % DAY // HOUR
    defaults: dict[str, Any] = {
        "path": f"acme/cpu/{day:05}/{hour:02}/{number:07}.parquet",
        "min_timestamp": start,
        "max_timestamp": start + HOUR // 60 - 1,
        "row_count": 1000,
        "size_bytes": 1_000_000,
        "tenant": "acme",
        "table": "cpu",
        "column_stats": {"host": column_stats(f"h{number:07}", f"h{number + 1:07}", has_nulls=False)},
    }
    return DataFile(**{**defaults, **members})


class CountingStore(PassingStore):
    """Counts what is asked of the store, by verb and key."""

    def __init__(self, inner: Any = None) -> None:
        super().__init__(inner or MemoryStore())
        self.calls: Counter[tuple[str, str]] = Counter()

    def taken(self) -> Counter[str]:
        """Calls by verb since the last time."""
        found: Counter[str] = Counter()
        for (verb, _), count in self.calls.items():
            found[verb] += count
        self.calls.clear()
        return found

    async def get(self, key: str) -> Object:
        self.calls["get", key] += 1
        return await self._inner.get(key)

    async def get_durable(self, key: str) -> Object:
        self.calls["get", key] += 1
        return await self._inner.get_durable(key)

    async def get_if_changed(self, key: str, *, version: str) -> Object | None:
        self.calls["get_if_changed", key] += 1
        return await self._inner.get_if_changed(key, version=version)

    async def head(self, key: str) -> ObjectMeta:
        self.calls["head", key] += 1
        return await self._inner.head(key)

    async def put(self, key: str, data: Any) -> ObjectMeta:
        self.calls["put", key] += 1
        return await self._inner.put(key, data)

    async def put_if(self, key: str, data: Any, *, version: str | None) -> ObjectMeta:
        self.calls["put_if", key] += 1
        return await self._inner.put_if(key, data, version=version)


def run(session: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(session)


async def small_catalog(store: Any, clock: Clock | None = None, **settings: Any) -> Catalog:
    """A catalog whose bounds are met by a handful of files."""
    config = CatalogConfig(**{"inline_files_max": 10, "segment_rows_max": 50, **settings})
    return await Catalog.open(store, "lake", config, clock=clock or SYSTEM_CLOCK)
