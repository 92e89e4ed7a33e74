"""The oldest batch object that a queue still needs, followed from one state of its manifest to the next.

A collector looks at the manifest once for each page of its listing, and a queue may hold a hundred thousand entries.
So a manifest that has not changed is not read again, and of one that has, only the entries that are new are parsed.
Entries that have left meanwhile still count: then a little more is kept, until the next collection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from penstock.buffer.format.manifest import Descriptor, Manifest
from penstock.buffer.location import batch_time_ms, bucket_prefix
from penstock.errors import NotFound
from penstock.objects import Object, ObjectStore

__all__ = ["OldestEntry", "oldest_ms_of"]

# Above it, parsing entries takes tens of milliseconds, too long for an event loop.
_LONG_ENTRIES: Final = 4096


class OldestEntry:
    """For one collection. `named_ms` is when the oldest queued object got its name; None while nothing is queued."""

    def __init__(self, store: ObjectStore, manifest_path: str, data_path_prefix: str) -> None:
        self._store = store
        self._path = manifest_path
        # Entries name their objects by keys of the whole bucket.
        self._folder = f"{bucket_prefix(store.url)}{data_path_prefix}"
        self._version: str | None = None
        self._next_sequence = 0
        self.named_ms: int | None = None
        # When the manifest was last written, by the store's clock.
        self.written_ms = 0

    async def look(self) -> bool:
        """See the manifest as it is now; False when there is none."""
        try:
            found = await self._read()
        except NotFound:
            return False
        if found is not None:
            await self._follow(Manifest(found.data))
            self._version, self.written_ms = found.meta.version, found.meta.modified_ms
        return True

    async def _read(self) -> Object | None:
        if self._version is None:
            return await self._store.get(self._path)
        return await self._store.get_if_changed(self._path, version=self._version)

    async def _follow(self, manifest: Manifest) -> None:
        if manifest.next_sequence < self._next_sequence:
            # Another queue in the place of this one: nothing that is known of it holds.
            self._next_sequence, self.named_ms = 0, None
        count = manifest.count_after(self._next_sequence - 1)
        if count > _LONG_ENTRIES:
            oldest = await asyncio.to_thread(self._oldest_new, manifest, count)
        else:
            oldest = self._oldest_new(manifest, count)
        self._next_sequence = manifest.next_sequence
        self.named_ms = min((one for one in (self.named_ms, oldest) if one is not None), default=None)

    def _oldest_new(self, manifest: Manifest, count: int) -> int | None:
        return oldest_ms_of(manifest.after(self._next_sequence - 1, count), self._folder)


def oldest_ms_of(entries: Iterable[Descriptor], folder: str) -> int | None:
    """The least time in the names of these entries; None when there are none.

    One whose name tells no time could be older than anything, so it counts as 0.
    """
    times = (batch_time_ms(entry.location, folder) for entry in entries)
    return min((time if time is not None else 0 for time in times), default=None)
