"""Looking at a catalog without changing it: figures for an operator, and a check of everything that can be checked."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.catalog.catalog import Catalog
from penstock.catalog.format.head import CatalogHead, HeadState
from penstock.catalog.format.head_json import stored_time_index
from penstock.catalog.format.legacy import inconsistencies
from penstock.catalog.format.segment import SegmentEntry, deleted_mask
from penstock.catalog.format.shard_map import ROOT
from penstock.errors import NotFound, PenstockError

__all__ = ["CatalogStats", "ShardStats", "VerifyFinding", "catalog_stats", "verify_catalog"]


@dataclass(frozen=True, kw_only=True)
class ShardStats:
    """Figures of one shard. `advice` says what to do about its growth, if anything."""

    shard: str
    version: int
    seq: int
    state: str
    files: int
    inline_files: int
    segments: int
    archived_days: int
    rows: int
    size_bytes: int
    tombstones: int
    leases: int
    pins: int
    # How far each source of files is registered in this shard.
    sources: dict[str, int]
    head_bytes: int
    conflict_rate: float
    advice: list[str]


@dataclass(frozen=True, kw_only=True)
class CatalogStats:
    generation: int
    shards: list[ShardStats]

    @property
    def files(self) -> int:
        return sum(one.files for one in self.shards)


@dataclass(frozen=True, slots=True)
class VerifyFinding:
    """One thing that does not hold: where, and what."""

    place: str
    fault: str


async def catalog_stats(catalog: Catalog) -> CatalogStats:
    shard_map = await catalog.refresh_map()
    return CatalogStats(
        generation=shard_map.generation,
        shards=[await _shard_stats(catalog, name) for name in shard_map.shards()],
    )


async def _shard_stats(catalog: Catalog, name: str) -> ShardStats:
    shard = catalog.shard(name)
    head = await shard.fresh()
    inline = head.chunks.values()
    return ShardStats(
        shard=name,
        version=head.version,
        seq=head.seq,
        state=head.state,
        files=head.live_files,
        inline_files=len(head.chunks),
        segments=len(head.segments),
        archived_days=len({entry.day for entry in head.archive}),
        # Of segments with removed rows this is an upper bound: the rows that are gone are not read for it.
        rows=sum(one.file.row_count for one in inline) + sum(entry.row_count for entry in head.stored),
        size_bytes=sum(one.file.size_bytes for one in inline) + sum(entry.size_bytes for entry in head.stored),
        tombstones=len(head.tombstones) + sum(entry.live_rows for entry in head.graves),
        leases=len(head.leases),
        pins=len(head.pins),
        sources=dict(head.sources),
        head_bytes=shard.head_bytes,
        conflict_rate=shard.conflict_rate,
        advice=shard.advice(head),
    )


async def require_catalog(catalog: Catalog) -> None:
    """Raise `NotFound` unless there is a catalog, or the pair of one: a name that was mistyped is no empty catalog."""
    for name in (await catalog.refresh_map()).shards():
        head = await catalog.shard(name).fresh()
        if not head.is_absent or head.live_files:
            return
    key = catalog.layout.head(ROOT)
    raise NotFound("there is no catalog", f"{key!r} does not exist, nor does any shard or legacy pair")


async def verify_catalog(catalog: Catalog, *, data: bool = False) -> list[VerifyFinding]:
    """Everything that does not hold. With `data`, also that every data file is there with its size."""
    check = _Verification(catalog)
    try:
        shard_map = await catalog.refresh_map()
    except PenstockError as error:
        return [VerifyFinding(catalog.layout.shard_map, str(error))]
    for name in shard_map.shards():
        await check.shard(name)
    if data:
        await check.data()
    return check.findings


@dataclass(slots=True)
class _Verification:
    """One run: what was found, and every path that was seen with the size it should have."""

    catalog: Catalog
    findings: list[VerifyFinding] = field(default_factory=list)
    _sizes: dict[str, int] = field(default_factory=dict)

    async def shard(self, name: str) -> None:
        key = self.catalog.layout.head(name)
        try:
            head = await self.catalog.shard(name).fresh()
            if head.is_absent and name == ROOT:
                return
            body = (await self.catalog.store.get(key)).data
            index = stored_time_index(body)
        except (PenstockError, ValueError) as error:
            self._tell(key, str(error))
            return
        if head.state is HeadState.CLOSED:
            self._tell(key, "the shard is closed: a split of it was begun and not finished")
        self._compare_index(key, head, index)
        for path, inline in head.chunks.items():
            self._file(key, name, path, inline.file.size_bytes, inline.file.tenant, inline.file.table)
        for entry in head.stored:
            await self._segment(name, entry)

    def _compare_index(self, key: str, head: CatalogHead, index: dict[int, list[str]]) -> None:
        told = inconsistencies(head.chunks, index)
        for path in told.missing_from_index:
            self._tell(key, f"file {path!r} is missing from the time index")
        for path in told.missing_from_metadata:
            self._tell(key, f"file {path!r} is in the time index and has no metadata")
        for path in told.misplaced:
            self._tell(key, f"file {path!r} is in the time index under an hour it does not touch, or twice")

    async def _segment(self, name: str, entry: SegmentEntry) -> None:
        found, failed = await self.catalog.segments.load([entry])
        for error in failed.values():
            self._tell(entry.key, str(error))
        for block in found.values():
            mask = deleted_mask(entry)
            if int(block.min_timestamp.min()) != entry.min_ts or int(block.latest[-1]) != entry.max_ts:
                self._tell(entry.key, "its times are not those that the head gives")
            if np.any(np.diff(block.min_timestamp) < 0):
                self._tell(entry.key, "its rows are not sorted by time")
            rows = np.arange(len(block)) if mask is None else np.flatnonzero(~mask)
            for file in block.files(rows, []):
                self._file(entry.key, name, file.path, file.size_bytes, file.tenant, file.table)

    def _file(self, place: str, shard: str, path: str, size_bytes: int, tenant: str, table: str) -> None:
        if path in self._sizes:
            self._tell(place, f"file {path!r} is listed twice")
        self._sizes[path] = size_bytes
        owner = self.catalog.map.shard_of(tenant, table)
        if owner != shard:
            self._tell(place, f"file {path!r} belongs to shard {owner!r}")

    async def data(self) -> None:
        for path, size in self._sizes.items():
            try:
                meta = await self.catalog.store.head(self.catalog.layout.key(path))
            except NotFound:
                self._tell(path, "the data file is not there")
            else:
                if meta.size != size:
                    self._tell(path, f"the data file has {meta.size} bytes, and the catalog says {size}")

    def _tell(self, place: str, fault: str) -> None:
        self.findings.append(VerifyFinding(place, fault))
