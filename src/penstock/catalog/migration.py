"""From the legacy pair to one catalog and back: migrate, split-catalog, downgrade, rebuild-index.

Nothing is written before the pair was read whole, and nothing is deleted before the new object was read back.
The catalog remembers the checksums of the pair it was made from, so a later run can tell that an old writer
still runs: its writes went to the pair, and are not in the catalog.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.catalog.catalog import Catalog
from penstock.catalog.change.lookup import Blocks, SegmentsNeeded, check_open
from penstock.catalog.change.relocation import day_name
from penstock.catalog.format.block import row_json
from penstock.catalog.format.head import CatalogHead, Dropped, InlineFile, inline_file, time_index_of, tombstone
from penstock.catalog.format.head_json import HeadFormat, encode_head
from penstock.catalog.format.legacy import Inconsistencies, decode_pair, encode_pair
from penstock.catalog.format.segment import deleted_mask
from penstock.catalog.format.shard_map import ROOT, ShardState
from penstock.errors import Conflict, InvalidInput, NotFound
from penstock.objects import Object, Register

__all__ = ["MigrationReport", "downgrade", "migrate", "rebuild_index", "split_catalog"]


@dataclass(frozen=True, kw_only=True)
class MigrationReport:
    """What a migration found and did. Checksums are SHA-256; None for an object that was not there."""

    files: int
    missing_from_index: tuple[str, ...] = ()
    missing_from_metadata: tuple[str, ...] = ()
    misplaced: tuple[str, ...] = ()
    read: dict[str, str | None]
    written: dict[str, str]
    backups: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    is_dry_run: bool = False
    was_migrated: bool = False
    # The pair was written after the migration: a writer of the old release is still running.
    pair_changed_since: bool = False

    @property
    def is_consistent(self) -> bool:
        return not self.missing_from_index and not self.missing_from_metadata


@dataclass(frozen=True, slots=True)
class _Pair:
    """The two legacy objects as they were read."""

    chunks: Object | None
    index: Object | None
    keys: tuple[str, str]

    @property
    def is_absent(self) -> bool:
        return self.chunks is None and self.index is None

    @property
    def checksums(self) -> dict[str, str | None]:
        return {key: _sha256(found.data) if found else None for key, found in zip(self.keys, self._both, strict=True)}

    @property
    def versions(self) -> list[str | None]:
        return [found.meta.version if found else None for found in self._both]

    @property
    def bodies(self) -> dict[str, bytes]:
        return {key: found.data for key, found in zip(self.keys, self._both, strict=True) if found}

    @property
    def _both(self) -> tuple[Object | None, Object | None]:
        return self.chunks, self.index


async def migrate(
    catalog: Catalog,
    *,
    dry_run: bool = False,
    repair: bool = False,
    delete_legacy: bool = False,
    backup: bool = False,
) -> MigrationReport:
    """Make catalog.json from the pair. An inconsistent pair is refused without `repair`, which makes the index anew.

    Run again, it writes nothing, and tells whether the pair has changed since.
    """
    pair = await _read_pair(catalog)
    head = await catalog.shard(ROOT).fresh()
    found, faults = _decoded(pair, catalog.config.format)
    if not head.is_absent:
        return await _migrated_before(catalog, head, pair, faults, dry_run=dry_run, delete_legacy=delete_legacy)
    if pair.is_absent:
        raise NotFound("there is nothing to migrate", f"neither {pair.keys[0]!r} nor {pair.keys[1]!r} exists")
    if faults and not repair and not dry_run:
        raise InvalidInput(
            "the legacy pair is inconsistent, and nothing was written",
            f"{len(faults.missing_from_index)} files are missing from the time index "
            f"({_some(faults.missing_from_index)}), {len(faults.missing_from_metadata)} have no metadata "
            f"({_some(faults.missing_from_metadata)})",
            "look at them with --dry-run, then run with --repair",
        )
    report = _report(found, faults, pair, dry_run=dry_run)
    if dry_run:
        return report
    backups = await _backed_up(catalog, pair) if backup else ()
    marked = replace(found, migrated={"at_ms": catalog.clock.now_ms(), "sha256": pair.checksums})
    written = await catalog.shard(ROOT).commit(lambda now, _: _created(now, marked), "migrate")
    digest = await _read_back(catalog, written)
    again = await _read_pair(catalog)
    changed = again.versions != pair.versions
    deleted = await _deleted(catalog, pair) if delete_legacy and not changed else ()
    return replace(report, written=digest, backups=backups, deleted=deleted, pair_changed_since=changed)


async def split_catalog(catalog: Catalog) -> MigrationReport:
    """Write the legacy pair back from the catalog, for a rollback. The catalog itself stays as it is."""
    layout = catalog.layout
    read = await _digests(catalog, [layout.head(shard) for shard in (await catalog.refresh_map()).shards()])
    files = await _all_files(catalog)
    chunks, index = encode_pair(files)
    await catalog.store.put(layout.legacy_chunks, chunks)
    await catalog.store.put(layout.legacy_index, index)
    written = {layout.legacy_chunks: _sha256(chunks), layout.legacy_index: _sha256(index)}
    return MigrationReport(files=len(files), read=read, written=written)


async def downgrade(catalog: Catalog, *, to: int = 2) -> MigrationReport:
    """Write the head as version 2, everything inline. Segments stay until vacuum takes them."""
    if to != 2:
        raise InvalidInput(f"downgrade to {to}", "version 2 is the only target", "for version 1 use split-catalog")
    if (await catalog.refresh_map()).root.state is not ShardState.ACTIVE:
        raise InvalidInput("the catalog is split into shards", "version 2 is one object", "read it with format 3")
    key = catalog.layout.head(ROOT)
    read = await _digests(catalog, [key])
    register = Register(
        catalog.store,
        key,
        HeadFormat(3, bytes_max=catalog.config.head_bytes_max),
        name="catalog",
        clock=catalog.clock,
        entropy=catalog.entropy,
    )
    try:
        head = await register.read()
        if head.is_absent:
            raise NotFound("there is no catalog to downgrade", f"{key!r} is not there")
        seq, blocks = head.seq, await _blocks(catalog, head)
        now_ms = catalog.clock.now_ms()

        def change(now: CatalogHead) -> CatalogHead:
            if now.version == 2:
                return now
            if now.seq != seq:
                raise Conflict(
                    "the catalog changed while it was being downgraded", "a writer is running", "stop writers first"
                )
            return _inlined(now, blocks, now_ms)

        after = await register.update(change)
    finally:
        await register.close()
    return MigrationReport(files=len(after.chunks), read=read, written={key: _sha256(encode_head(after))})


async def rebuild_index(catalog: Catalog) -> MigrationReport:
    """Rewrite every head with a time index rebuilt from its files, then the global index."""
    shards = (await catalog.refresh_map()).shards()
    read = await _digests(catalog, [catalog.layout.head(shard) for shard in shards])
    files, written = 0, dict[str, str]()
    for shard in shards:
        head = await catalog.shard(shard).commit(_touched, "rebuild-index")
        files += head.live_files
        written |= await _read_back(catalog, head)
    await catalog.write_index()
    return MigrationReport(files=files, read=read, written=written)


def _touched(head: CatalogHead, _: Blocks) -> CatalogHead:
    """Equal, and another object: it is written, with the time index that its files give."""
    check_open(head)
    return replace(head, time_index=time_index_of(head.chunks), is_draft=True)


def _created(now: CatalogHead, made: CatalogHead) -> CatalogHead:
    if now.is_absent:
        return made
    if now.migrated.get("sha256") == made.migrated["sha256"]:
        # Another migration of the same pair was first.
        return now
    raise Conflict("a catalog was created meanwhile", "another process wrote it", "run migrate again to compare")


async def _migrated_before(
    catalog: Catalog, head: CatalogHead, pair: _Pair, faults: Inconsistencies, *, dry_run: bool, delete_legacy: bool
) -> MigrationReport:
    then: Any = head.migrated.get("sha256", {})
    changed = bool(then) and not pair.is_absent and dict(then) != pair.checksums
    report = _report(head, faults, pair, dry_run=dry_run)
    deleted: tuple[str, ...] = ()
    if delete_legacy and not dry_run and not pair.is_absent:
        if changed or not then:
            why = "it was written after the migration" if changed else "the catalog was not made from it by migrate"
            raise Conflict("the legacy pair was not deleted", why, "stop the old writers, and compare the two first")
        deleted = await _deleted(catalog, pair)
    return replace(report, was_migrated=True, pair_changed_since=changed, deleted=deleted)


def _report(found: CatalogHead, faults: Inconsistencies, pair: _Pair, *, dry_run: bool) -> MigrationReport:
    return MigrationReport(
        files=found.live_files,
        missing_from_index=faults.missing_from_index,
        missing_from_metadata=faults.missing_from_metadata,
        misplaced=faults.misplaced,
        read=pair.checksums,
        written={},
        is_dry_run=dry_run,
    )


def _decoded(pair: _Pair, version: int) -> tuple[CatalogHead, Inconsistencies]:
    bodies = [found.data if found else None for found in (pair.chunks, pair.index)]
    return decode_pair(bodies[0], bodies[1], version)


async def _read_pair(catalog: Catalog) -> _Pair:
    keys = (catalog.layout.legacy_chunks, catalog.layout.legacy_index)
    chunks, index = [await _maybe(catalog, key) for key in keys]
    return _Pair(chunks, index, keys)


async def _maybe(catalog: Catalog, key: str) -> Object | None:
    try:
        return await catalog.store.get(key)
    except NotFound:
        return None


async def _digests(catalog: Catalog, keys: Sequence[str]) -> dict[str, str | None]:
    found = {key: await _maybe(catalog, key) for key in keys}
    return {key: _sha256(one.data) if one else None for key, one in found.items()}


async def _backed_up(catalog: Catalog, pair: _Pair) -> tuple[str, ...]:
    now_ms = catalog.clock.now_ms()
    folder = catalog.layout.key(f"metadata/backup/{day_name(now_ms * 1_000_000)}-{now_ms}")
    keys = []
    for key, body in pair.bodies.items():
        keys.append(f"{folder}/{key.rsplit('/', 1)[1]}")
        await catalog.store.put(keys[-1], body)
    return tuple(keys)


async def _deleted(catalog: Catalog, pair: _Pair) -> tuple[str, ...]:
    keys = tuple(pair.bodies)
    await catalog.store.delete_many(keys)
    return keys


async def _read_back(catalog: Catalog, expected: CatalogHead) -> dict[str, str]:
    """The checksum of what was written, once it was read again and holds the same files."""
    key = catalog.layout.head(expected.shard)
    body = (await catalog.store.get(key)).data
    found = HeadFormat(3, bytes_max=catalog.config.head_bytes_max).decode(body)
    if found.seq == expected.seq and found.chunks.keys() != expected.chunks.keys():
        raise Conflict(f"{key!r} differs from what was written", "its files differ", "check the store")
    return {key: _sha256(body)}


async def _all_files(catalog: Catalog) -> dict[str, InlineFile]:
    files: dict[str, InlineFile] = {}
    for shard in (await catalog.refresh_map()).shards():
        head = await catalog.shard(shard).fresh()
        files |= _inlined(head, await _blocks(catalog, head), 0).chunks
    return files


async def _blocks(catalog: Catalog, head: CatalogHead) -> Blocks:
    blocks: Blocks = {}
    while True:
        try:
            _inlined(head, blocks, 0)
        except SegmentsNeeded as needed:
            blocks = {**blocks, **await catalog.shard(ROOT).load(needed.entries)}
        else:
            return blocks


def _inlined(head: CatalogHead, blocks: Blocks, now_ms: int) -> CatalogHead:
    """The head as version 2: every live row inline, every removed one a tombstone."""
    needed = [*head.stored, *head.graves, *(one.entry for one in head.dropped if one.has_files)]
    unread = [entry for entry in needed if entry.key not in blocks]
    if unread:
        raise SegmentsNeeded(unread)
    chunks, stones = dict(head.chunks), list(head.tombstones)
    for entry in needed:
        mask, block = deleted_mask(entry), blocks[entry.key]
        removal = next((one for one in head.dropped if one.entry is entry), None)
        for listed in block.rows(np.arange(len(block)) if mask is None else np.flatnonzero(~mask)):
            row = listed
            if removal is not None:
                row = listed._replace(removed_seq=removal.removed_seq, removed_ms=removal.at_ms)
            if row.removed_seq:
                stones.append(tombstone(row.file, row.added_seq, row.removed_seq, row.removed_ms, row_json(row)))
            else:
                chunks[row.file.path] = inline_file(row.file, row.added_seq, row_json(row))
    gone = tuple(
        Dropped(entry=entry, removed_seq=head.next_seq, at_ms=now_ms, has_files=False)
        for entry in (*needed, *(one.entry for one in head.dropped if not one.has_files))
    )
    return replace(
        head,
        version=2,
        chunks=chunks,
        time_index=time_index_of(chunks),
        segments=(),
        archive=(),
        graves=(),
        tombstones=tuple(stones),
        dropped=gone,
        is_draft=True,
    )


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _some(paths: tuple[str, ...]) -> str:
    return ", ".join(paths[:3]) + (" ..." if len(paths) > 3 else "") if paths else "none"
