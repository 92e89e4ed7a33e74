"""Changing a catalog: which shards a change concerns, one commit in each, and what happens when one is split.

A shard that is being split takes no change. Whoever meets one waits until its children are there, and goes on
with them; a commit that landed in another shard before is not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from penstock.catalog.change.compaction import Lease
from penstock.catalog.change.lookup import Blocks, ShardClosed
from penstock.catalog.format.data_file import DataFile
from penstock.catalog.format.head import CatalogHead
from penstock.catalog.format.shard_map import ROOT
from penstock.catalog.shards import Shards
from penstock.catalog.upkeep import Upkeep
from penstock.errors import InvalidInput

__all__ = ["CatalogWriter", "Change", "owned"]

Change: TypeAlias = Callable[[CatalogHead, Blocks], CatalogHead]


class CatalogWriter:
    """Commits to the shards of one catalog."""

    def __init__(self, shards: Shards, upkeep: Upkeep) -> None:
        self._shards = shards
        self._upkeep = upkeep

    async def commit(self, shard: str, change: Change, kind: str) -> CatalogHead:
        """One conditional write of one shard, then the upkeep that is due."""

        def checked(head: CatalogHead, blocks: Blocks) -> CatalogHead:
            self._shards.check_head(shard, head)
            return change(head, blocks)

        head = await self._shards.shard(shard).commit(checked, kind)
        self._shards.written.add(shard)
        await self._upkeep.after_commit(shard, head)
        return head

    async def in_owning_shards(
        self,
        files: Sequence[DataFile],
        change: Callable[[list[DataFile]], Change],
        kind: str,
        *,
        everywhere: bool = False,
        one_shard: bool = False,
    ) -> dict[str, int]:
        """One commit in each shard that owns some of the files, in the order of ids; `everywhere` in the others too."""
        left, position, deadline = list(files), dict[str, int](), self._shards.deadline()
        while groups := self._groups(left, position, everywhere=everywhere):
            if one_shard and len(groups) + len(position) > 1:
                raise InvalidInput("expected_seq was given with files of several shards", "each has its own sequence")
            for shard in sorted(groups):
                try:
                    head = await self.commit(shard, change(owned(groups[shard], shard)), kind)
                except ShardClosed:
                    await self._shards.after_split(shard, deadline)
                    break
                position[shard] = head.seq
                done = {file.path for file in groups[shard]}
                left = [file for file in left if file.path not in done]
        return position

    def _groups(
        self, files: Sequence[DataFile], done: dict[str, int], *, everywhere: bool
    ) -> dict[str, list[DataFile]]:
        shard_map = self._shards.map
        groups: dict[str, list[DataFile]] = {}
        if everywhere:
            groups = {name: [] for name in shard_map.shards() if not done.keys() & set(shard_map.lineage(name))}
        for file in files:
            groups.setdefault(shard_map.shard_of(file.tenant, file.table), []).append(file)
        return groups

    async def in_every_shard(self, change: Change, kind: str) -> dict[str, int]:
        """One commit in each shard. Changes of this kind pass over what a shard does not list."""
        deadline = self._shards.deadline()
        position: dict[str, int] = {}
        while left := [name for name in self._shards.map.shards() if name not in position]:
            try:
                position[left[0]] = (await self.commit(left[0], change, kind)).seq
            except ShardClosed:
                await self._shards.after_split(left[0], deadline)
        return position

    async def where_leased(
        self, lease: Lease, targets: Sequence[DataFile], change: Change, kind: str
    ) -> tuple[str, CatalogHead]:
        """Commit in the shard of a lease, or in the one that its files went to when that was split."""
        shard, deadline = lease.shard, self._shards.deadline()
        while True:
            self._check_targets(shard, targets)
            try:
                head = await self.commit(shard, change, kind)
            except ShardClosed:
                await self._shards.after_split(shard, deadline)
                shard = await self._heir(shard, lease.id, targets)
            else:
                return shard, head

    def _check_targets(self, shard: str, targets: Sequence[DataFile]) -> None:
        if shard not in self._shards.map.shards():
            # It was split since; which child the lease went to is found out by the commit.
            return
        for target in targets:
            if self._shards.map.shard_of(target.tenant, target.table) != shard:
                raise InvalidInput(f"target {target.path!r} belongs to another shard", "compaction stays in a shard")

    async def _heir(self, shard: str, lease_id: str, targets: Sequence[DataFile]) -> str:
        """The shard that carries a lease on after a split; if none does, where the targets belong, which will say so."""
        heirs = list(self._shards.map.find(shard).readable())
        for name in heirs:
            if lease_id in (await self._shards.shard(name).fresh()).leases:
                return name
        return self._shards.map.shard_of(targets[0].tenant, targets[0].table) if targets else heirs[0]


def owned(files: Sequence[DataFile], shard: str) -> list[DataFile]:
    """The files as their shard lists them: with its id, unless the catalog was never split."""
    if shard == ROOT:
        return list(files)
    for file in files:
        if file.shard_id not in (None, shard):
            raise InvalidInput(
                f"file {file.path!r} says shard {file.shard_id!r}",
                f"its table belongs to {shard!r}",
                "leave shard_id out",
            )
    return [msgspec.structs.replace(file, shard_id=shard) for file in files]
