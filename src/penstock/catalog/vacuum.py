"""Vacuum: deletes files whose tombstones are past the grace, and objects that nothing refers to.

Order makes it safe to die anywhere: history is ended first, then data files are deleted, then their
tombstones are forgotten, and metadata objects that were rewritten go last. Unreferenced objects are listed
before the heads are read, so whatever was committed meanwhile is seen, and only those past the age floor go.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from penstock.catalog.catalog import Catalog
from penstock.catalog.change.burial import Condemned, bury, condemn, condemned_of
from penstock.catalog.change.lookup import ShardClosed
from penstock.catalog.change.selection import EVERYTHING, segments_for
from penstock.catalog.format.head import CatalogHead, HeadState
from penstock.catalog.format.segment import SegmentEntry, deleted_mask
from penstock.errors import Corrupt
from penstock.objects import ObjectMeta
from penstock.observability import names

__all__ = ["Vacuum", "Vacuumed"]

# Keys deleted by one call: what S3 takes in one request.
_DELETE_KEYS = 1000


@dataclass(slots=True)
class Vacuumed:
    """What one vacuum deleted, or would delete: keys below the catalog's prefix."""

    files: list[str] = field(default_factory=list)
    segments: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    is_dry_run: bool = False


class Vacuum:
    """The vacuum of one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def run(self, *, dry_run: bool = False, data_prefix: str | None = None) -> Vacuumed:
        """Every shard, also those that were split. With `data_prefix`, files below it that no head knows go too."""
        done = Vacuumed(is_dry_run=dry_run)
        shard_map = await self._catalog.refresh_map()
        for shard in shard_map.root.ids():
            # A split that begins meanwhile: what is left is found in its children.
            with suppress(ShardClosed):
                await self._shard(shard, done)
        await self._orphans(done, data_prefix)
        return done

    async def _shard(self, shard: str, done: Vacuumed) -> None:
        catalog, config = self._catalog, self._catalog.config
        grace_ms = int(config.grace_seconds * 1000)
        now_ms = catalog.clock.now_ms()
        head = await catalog.shard(shard).fresh()
        if head.state is HeadState.CLOSED:
            # A split is under way: what it copies has to stay until it is done.
            return
        found = condemned_of(head, now_ms, grace_ms)
        if not found:
            return
        if not done.is_dry_run and found.seq > head.purged_seq:
            head = await catalog.shard(shard).commit(lambda now, _: condemn(now, now_ms, grace_ms), "vacuum")
            found = condemned_of(head, now_ms, grace_ms)
        paths = [path async for path in self._paths(shard, found)]
        keys = [entry.key for entry in (*found.graves, *(one.entry for one in found.dropped))]
        done.files += paths
        done.segments += keys
        if done.is_dry_run:
            return
        await self._delete(paths, "file")
        gone = {(one.file.path, one.removed_seq) for one in found.tombstones}
        await catalog.shard(shard).commit(lambda now, _: bury(now, gone, set(keys)), "vacuum")
        await self._delete(keys, "segment")

    async def _paths(self, shard: str, found: Condemned) -> AsyncIterator[str]:
        for one in found.tombstones:
            yield one.file.path
        entries = [*found.graves, *(one.entry for one in found.dropped if one.has_files)]
        for entry in entries:
            for path in await self._live_paths(shard, entry):
                yield path

    async def _live_paths(self, shard: str, entry: SegmentEntry) -> list[str]:
        block = (await self._catalog.shard(shard).load([entry]))[entry.key]
        mask = deleted_mask(entry)
        return block.paths(np.arange(len(block)) if mask is None else np.flatnonzero(~mask))

    async def _delete(self, paths: list[str], kind: str) -> None:
        keys = [self._catalog.layout.key(path) for path in paths]
        for start in range(0, len(keys), _DELETE_KEYS):
            await self._catalog.store.delete_many(keys[start : start + _DELETE_KEYS])
        if keys:
            self._catalog.observer.count(names.CATALOG_VACUUMED, len(keys), kind=kind)

    # What nothing refers to ----------------------------------------------------------------------------

    async def _orphans(self, done: Vacuumed, data_prefix: str | None) -> None:
        layout = self._catalog.layout
        old = [meta async for meta in self._old(layout.metadata + "/") if _is_segment(layout.path(meta.key))]
        if data_prefix is not None:
            below = layout.key(data_prefix) if data_prefix else layout.prefix
            # Listed as text, so an empty prefix means everything but the metadata.
            files = [meta async for meta in self._old(below)]
            old += [meta for meta in files if not meta.key.startswith(layout.metadata + "/")]
        if not old:
            return
        known = set(done.files) | set(done.segments)
        for head in await self._heads():
            known |= await self._referenced(head, with_files=data_prefix is not None)
        orphans = [path for meta in old if (path := layout.path(meta.key)) not in known]
        done.orphans += orphans
        if not done.is_dry_run:
            await self._delete(orphans, "orphan")

    async def _old(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        floor_ms = self._catalog.clock.now_ms() - int(self._catalog.config.age_floor_seconds * 1000)
        async for page in self._catalog.store.list(prefix):
            for meta in page:
                if meta.modified_ms < floor_ms:
                    yield meta

    async def _heads(self) -> list[CatalogHead]:
        ids = (await self._catalog.refresh_map()).root.ids()
        return [await self._catalog.shard(shard).fresh() for shard in ids]

    async def _referenced(self, head: CatalogHead, *, with_files: bool) -> set[str]:
        entries = [*head.stored, *head.graves, *(one.entry for one in head.dropped)]
        known = {entry.key for entry in entries}
        if with_files:
            known |= await self._files(head, entries)
        return known

    async def _files(self, head: CatalogHead, entries: Iterable[SegmentEntry]) -> set[str]:
        known = {*head.chunks, *(one.file.path for one in head.tombstones)}
        for entry in entries:
            found, failed = await self._catalog.segments.load([entry])
            if failed and entry.key in {one.key for one in segments_for(head, EVERYTHING)}:
                why = "without it, files that are in use cannot be told from those that are not"
                raise Corrupt(f"segment {entry.key!r} cannot be read, so no data file is vacuumed", why)
            for block in found.values():
                known.update(block.paths(np.arange(len(block))))
        return known


def _is_segment(path: str) -> bool:
    return path.endswith(".arrow") and ("/seg/" in path or "/archive/" in path)
