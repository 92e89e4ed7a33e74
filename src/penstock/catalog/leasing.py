"""Leases of compactions: tasks that are due, granted in one write a shard, so that no two planners share a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import msgspec

from penstock.catalog.change import leases
from penstock.catalog.change.compaction import CompactionTask, Lease, due_tasks
from penstock.catalog.change.lookup import ShardClosed, check_label
from penstock.catalog.format.head import CatalogHead
from penstock.catalog.reader import CatalogReader
from penstock.catalog.shards import Shards
from penstock.catalog.writer import CatalogWriter
from penstock.errors import Conflict, InvalidInput
from penstock.ids import ulid

__all__ = ["Leasing"]


class Leasing:
    """Grants, renews and gives back the leases of one catalog."""

    def __init__(self, shards: Shards, reader: CatalogReader, writer: CatalogWriter) -> None:
        self._shards = shards
        self._reader = reader
        self._writer = writer

    async def tasks(self, owner: str, *, limit: int, shard: str | None, seconds: float | None) -> list[CompactionTask]:
        granted: list[CompactionTask] = []
        for name in await self._reader.readable(shard):
            if len(granted) < limit:
                granted += await self._tasks_of(name, owner, limit - len(granted), seconds)
        return granted

    async def grant(self, paths: Sequence[str], owner: str, *, shard: str, seconds: float | None) -> Lease:
        lease_id = self._new_id()
        try:
            head = await self._grant(shard, {lease_id: list(paths)}, owner, seconds)
        except ShardClosed as error:
            raise Conflict("the files were not leased", "their shard is being split", "plan again") from error
        held = head.leases.get(lease_id)
        if held is None:
            raise Conflict("the files were not leased", "one of them is leased to another, or not listed", "plan again")
        return Lease(id=lease_id, shard=shard, owner=owner, paths=held.paths, expires_ms=held.expires_ms)

    async def renew(self, lease: Lease, seconds: float | None) -> Lease:
        expires_ms = self.expiry_ms(seconds)
        _, head = await self._writer.where_leased(
            lease, [], lambda head, _: leases.renew_lease(head, lease.id, expires_ms), "lease"
        )
        held = head.leases.get(lease.id)
        if held is None:
            # Renewed and ended by one write: the head has the changes of everybody who shared it.
            raise Conflict(f"lease {lease.id} ended while it was renewed", "it was completed or released", "plan again")
        return msgspec.structs.replace(lease, expires_ms=held.expires_ms)

    async def release(self, lease: Lease) -> None:
        await self._writer.where_leased(lease, [], lambda head, _: leases.release_lease(head, lease.id), "lease")

    def expiry_ms(self, seconds: float | None) -> int:
        """When something that begins now ends; without a duration, that of a lease."""
        seconds = self._shards.config.lease_seconds if seconds is None else seconds
        if not 0 <= seconds < inf:
            raise InvalidInput(f"seconds = {seconds!r}", "it must be a finite number of seconds, not below zero")
        return self._shards.clock.now_ms() + int(1000 * seconds)

    async def _tasks_of(self, shard: str, owner: str, limit: int, seconds: float | None) -> list[CompactionTask]:
        head = await self._shards.shard(shard).head()
        now_ms = self._shards.clock.now_ms()
        due = due_tasks(
            await self._reader.all_pieces(shard, head),
            self._shards.config.compaction,
            shard=shard,
            now_ns=now_ms * 1_000_000,
            taken=leases.leased_paths(head, now_ms),
        )
        asked = {self._new_id(): task for task in due[:limit]}
        if not asked:
            return []
        try:
            held = (await self._grant(shard, {name: task.paths for name, task in asked.items()}, owner, seconds)).leases
        except ShardClosed:
            return []
        return [_with_lease(task, name, owner, held[name].expires_ms) for name, task in asked.items() if name in held]

    async def _grant(
        self, shard: str, asked: Mapping[str, Sequence[str]], owner: str, seconds: float | None
    ) -> CatalogHead:
        check_label("owner", owner)
        now_ms, expires_ms = self._shards.clock.now_ms(), self.expiry_ms(seconds)
        return await self._writer.commit(
            shard,
            lambda head, blocks: leases.grant_leases(head, asked, owner, blocks, now_ms=now_ms, expires_ms=expires_ms),
            "lease",
        )

    def _new_id(self) -> str:
        return ulid(self._shards.clock.now_ms(), self._shards.entropy)


def _with_lease(task: CompactionTask, lease_id: str, owner: str, expires_ms: int) -> CompactionTask:
    lease = Lease(id=lease_id, shard=task.shard, owner=owner, paths=task.paths, expires_ms=expires_ms)
    return msgspec.structs.replace(task, lease=lease)
