"""The shards of one catalog: the map that lists them, their heads, and the segments that all of them share.

What reads, writes and keeps a catalog small stands on this: it knows which shards there are and what they are
made with, and decides nothing about files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from penstock.catalog.config import CatalogConfig
from penstock.catalog.format.head import CatalogHead, HeadState
from penstock.catalog.format.layout import CatalogLayout
from penstock.catalog.format.shard_map import ROOT, ShardMap, ShardMapFormat, ShardState
from penstock.catalog.segments import SegmentCache
from penstock.catalog.shard import Shard
from penstock.clock import Clock, Deadline
from penstock.errors import Closed, Corrupt, InvalidInput
from penstock.ids import Entropy
from penstock.loops import Home
from penstock.objects import ObjectStore, Register, RegisterPolicy
from penstock.observability import Observer

__all__ = ["Position", "Shards"]

# A sequence of each shard; a plain number will do while there is one shard.
Position: TypeAlias = Mapping[str, int] | int
# A split takes seconds; writers look again this often.
_SPLIT_PAUSE_SECONDS: Final = 0.25


class Shards:
    """The shards as the map lists them. `written` names those that this process has changed."""

    def __init__(
        self,
        store: ObjectStore,
        layout: CatalogLayout,
        config: CatalogConfig,
        *,
        clock: Clock,
        entropy: Entropy,
        observer: Observer,
    ) -> None:
        self.store = store
        self.layout = layout
        self.config = config
        self.clock = clock
        self.entropy = entropy
        self.observer = observer
        self.segments = SegmentCache(
            store,
            layout,
            bytes_max=config.cache_bytes,
            concurrency=config.fetch_concurrency,
            clock=clock,
            entropy=entropy,
        )
        deadline = config.commit_deadline_seconds
        self.register = Register(
            store,
            layout.shard_map,
            ShardMapFormat(),
            name="catalog.shards",
            policy=RegisterPolicy(deadline_seconds=deadline, attempt_seconds=min(10.0, deadline / 2)),
            clock=clock,
            entropy=entropy,
            observer=observer,
        )
        self.map = ShardMap()
        # An index made before these were changed may not pass them over.
        self.written: set[str] = set()
        self._shards: dict[str, Shard] = {}
        self._closed = False
        # A fork has the names of this process's writers, and would take its proofs for its own.
        self._home = Home()

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(self.register.close(), *(shard.close() for shard in self._shards.values()))

    def shard(self, name: str) -> Shard:
        self._home.check("the catalog", "open a catalog in this process")
        if self._closed:
            raise Closed("the catalog is closed", "close() was called")
        found = self._shards.get(name)
        if found is None:
            found = self._shards[name] = Shard(
                name,
                self.store,
                self.layout,
                self.config,
                self.segments,
                clock=self.clock,
                entropy=self.entropy,
                observer=self.observer,
            )
        return found

    async def refresh_map(self) -> ShardMap:
        self._home.check("the catalog", "open a catalog in this process")
        found = await self.register.read()
        if found.generation >= self.map.generation:
            self.map = found
        return self.map

    def seq_at(self, position: Position, shard: str) -> int:
        """A shard's sequence in a position, which may have been taken before the shard was split from another."""
        found: Any
        if isinstance(position, Mapping):
            found = next((position[name] for name in self.map.lineage(shard) if name in position), None)
            if found is None:
                raise InvalidInput(f"the position has no sequence of shard {shard!r}", f"it has {sorted(position)}")
        else:
            found = position
        if not isinstance(found, int) or isinstance(found, bool):
            raise InvalidInput(
                f"position {position!r:.80}", "it must be a sequence, or one sequence per shard", "see Plan.position"
            )
        return int(found)

    def check_head(self, shard: str, head: CatalogHead) -> None:
        """Only the root may be without a head: every other shard has one before the map lists it."""
        if head.is_absent and shard != ROOT:
            why = f"{self.store.url} has no object {self.layout.head(shard)!r}, and the map lists the shard"
            raise Corrupt(f"the head of shard {shard!r} is missing", why, "restore it; nothing was changed")

    def deadline(self) -> Deadline:
        """Of one change, however many shards and splits it meets."""
        return Deadline(self.clock, self.config.commit_deadline_seconds)

    async def after_split(self, shard: str, deadline: Deadline) -> None:
        """Wait until a shard that takes no changes has children to go to."""
        while True:
            if (await self.refresh_map()).find(shard).state is ShardState.SPLIT:
                return
            if (await self.shard(shard).fresh()).state is HeadState.OPEN:
                return
            deadline.check(
                f"shard {shard or 'root'!r} takes no changes",
                "it is being split, and the split is not finished",
                "finish it with penstock catalog split, then try again",
            )
            await self.clock.sleep(_SPLIT_PAUSE_SECONDS)
