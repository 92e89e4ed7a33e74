"""What keeps heads small: spilling inline files and tombstones into segments, and archiving closed days.

A relocation is drawn up, its segments are uploaded, and one conditional write puts them in place; if another
process was first, the objects stay behind for vacuum. None of it changes which files are visible, so a
failure is told and tried again after a later commit, and never fails the commit that came before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.catalog.change.lookup import Blocks, SegmentsNeeded, ShardClosed
from penstock.catalog.change.relocation import (
    Relocation,
    RelocationVoid,
    apply_burial,
    apply_relocation,
    draw_archive,
    draw_burial,
    draw_spill,
)
from penstock.catalog.format.global_index import GlobalIndex, times_of
from penstock.catalog.format.head import CatalogHead
from penstock.catalog.shards import Shards
from penstock.errors import PenstockError, Unsupported
from penstock.ids import ulid
from penstock.observability import names

__all__ = ["Upkeep"]

# Many processes see the same head grow: each begins at a bound of its own, so that mostly one of them spills.
_JITTER: Final = 0.25
_TRIES: Final = 3


class Upkeep:
    """The upkeep of one catalog's shards, one at a time in this process."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._jitter = 1 + shards.entropy.uniform(0.0, _JITTER)
        self._busy: set[str] = set()

    async def after_commit(self, shard: str, head: CatalogHead) -> None:
        """Spill what has grown beyond its bound. Whatever fails is left to a later commit."""
        bound = self._shards.config.inline_files_max * self._jitter
        if head.version < 3 or shard in self._busy or max(len(head.chunks), len(head.tombstones)) <= bound:
            return
        self._busy.add(shard)
        try:
            if len(head.chunks) > bound:
                await self.spill(shard)
            if len(head.tombstones) > bound:
                await self._relocate(shard, self._draw_burial, lambda now, one, _: apply_burial(now, one))
        except PenstockError as error:
            self._shards.observer.event(names.CATALOG_UPKEEP_FAILED, shard=shard, error=str(error))
        finally:
            self._busy.discard(shard)

    async def spill(self, shard: str) -> bool:
        rows_max = self._shards.config.segment_rows_max
        return await self._relocate(
            shard,
            lambda head, blocks, folder, nonce: draw_spill(head, blocks, folder, nonce, rows_max),
            apply_relocation,
            kind="spill",
        )

    async def archive(self, shard: str, before_ns: int | None) -> bool:
        config = self._shards.config
        if before_ns is None:
            before_ns = self._shards.clock.now_ms() * 1_000_000 - int(config.archive_after_seconds * 1e9)
        limit = before_ns
        return await self._relocate(
            shard,
            lambda head, blocks, folder, nonce: draw_archive(
                head, blocks, folder, nonce, before_ns=limit, rows_max=config.segment_rows_max
            ),
            apply_relocation,
            kind="archive",
        )

    async def write_index(self) -> GlobalIndex:
        """Make `global-index.json` from the heads as they are."""
        shards = self._shards
        made_ms = shards.clock.now_ms()
        shard_map = await shards.refresh_map()
        heads = {name: await shards.shard(name).fresh() for name in shard_map.shards()}
        index = GlobalIndex(
            generation=shard_map.generation,
            made_ms=made_ms,
            shards={name: times_of(head) for name, head in heads.items()},
        )
        await shards.store.put(shards.layout.global_index, index.encode())
        return index

    @staticmethod
    def _draw_burial(head: CatalogHead, _: Blocks, folder: str, nonce: str) -> Relocation | None:
        return draw_burial(head, folder, nonce)

    async def _relocate(
        self,
        shard: str,
        draw: Callable[[CatalogHead, Blocks, str, str], Relocation | None],
        apply: Callable[[CatalogHead, Relocation, int], CatalogHead],
        kind: str = "spill",
    ) -> bool:
        """Draw up, upload, commit; drawn up anew when another relocation was first."""
        shards = self._shards
        if shards.config.format < 3:
            why = "format 2 keeps every file inline"
            raise Unsupported("the catalog has no segments", why, "set format = 3 where no other program reads it")
        for _ in range(_TRIES):
            drawn = await self._drawn(shard, draw)
            if drawn is None:
                return False
            began, now_ms = shards.clock.monotonic(), shards.clock.now_ms()
            for made in drawn.made:
                await shards.segments.upload(made.entry, made.body, made.block)
            try:
                await shards.shard(shard).commit(
                    lambda head, _, one=drawn: self._applied(head, one, apply, began, now_ms),  # type: ignore[misc]  # noqa: B023
                    kind,
                )
            except RelocationVoid:
                continue
            except ShardClosed:
                # Being split: the children do their own upkeep.
                return False
            return True
        return False

    def _applied(
        self,
        head: CatalogHead,
        drawn: Relocation,
        apply: Callable[[CatalogHead, Relocation, int], CatalogHead],
        began: float,
        now_ms: int,
    ) -> CatalogHead:
        # Asked again before each attempt: an object that has grown old may be gone before it is named.
        if self._shards.clock.monotonic() - began > self._shards.config.age_floor_seconds / 2:
            raise RelocationVoid("its segments are too old to be referenced")
        return apply(head, drawn, now_ms)

    async def _drawn(
        self, shard: str, draw: Callable[[CatalogHead, Blocks, str, str], Relocation | None]
    ) -> Relocation | None:
        shards = self._shards
        head = await shards.shard(shard).head()
        folder = shards.layout.folder(shard)
        blocks: Blocks = {}
        nonce = ulid(shards.clock.now_ms(), shards.entropy)
        while True:
            try:
                return draw(head, blocks, folder, nonce)
            except SegmentsNeeded as needed:
                blocks = {**blocks, **await shards.shard(shard).load(needed.entries)}
