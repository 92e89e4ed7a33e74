"""The catalog: which data files are visible. Every change is one conditional write of one shard's head.

A table (a tenant and a table name) belongs to one shard, and all changes to its files happen there; a call
that touches several shards is one commit in each, in the order of their ids. This is the door: `writer` finds
the shards of a change, `reader` those of a plan, `leasing` hands out compactions, `upkeep` keeps heads small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.catalog.change import files, leases, sources
from penstock.catalog.change.compaction import CompactionTask, Lease
from penstock.catalog.change.lookup import Blocks, check_label
from penstock.catalog.change.predicate import Predicate
from penstock.catalog.change.selection import EVERYTHING
from penstock.catalog.change.sources import Registered, SourceProgress
from penstock.catalog.config import CatalogConfig
from penstock.catalog.format.data_file import DataFile
from penstock.catalog.format.global_index import GlobalIndex
from penstock.catalog.format.head import CatalogHead
from penstock.catalog.format.layout import CatalogLayout
from penstock.catalog.format.shard_map import ROOT, ShardMap
from penstock.catalog.leasing import Leasing
from penstock.catalog.plan import Plan
from penstock.catalog.reader import CatalogReader, HeldCatalog, PastCatalog, file_query
from penstock.catalog.scan.scan import Scan, ScanQuery
from penstock.catalog.shard import Shard
from penstock.catalog.shards import Position, Shards
from penstock.catalog.upkeep import Upkeep
from penstock.catalog.writer import CatalogWriter, Change, owned
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import InvalidInput
from penstock.ids import SYSTEM_ENTROPY, Entropy, ulid
from penstock.objects import ObjectStore
from penstock.observability import SILENT, Observer

__all__ = ["Catalog", "Pinned"]

_DEFAULT: Final = CatalogConfig()


class Catalog:
    """One catalog below one prefix of a store. Belongs to one event loop; any number of its tasks may share it."""

    def __init__(
        self,
        store: ObjectStore,
        prefix: str = "",
        config: CatalogConfig = _DEFAULT,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        self.config = config
        self.layout = CatalogLayout(prefix)
        self.store = store
        self.clock = clock
        self.entropy = entropy
        self.observer = observer
        self._shards = Shards(store, self.layout, config, clock=clock, entropy=entropy, observer=observer)
        self.segments = self._shards.segments
        self.shard_map = self._shards.register
        self._upkeep = Upkeep(self._shards)
        self._reader = CatalogReader(self._shards)
        self._writer = CatalogWriter(self._shards, self._upkeep)
        self._leasing = Leasing(self._shards, self._reader, self._writer)

    @classmethod
    async def open(
        cls,
        store: ObjectStore,
        prefix: str = "",
        config: CatalogConfig = _DEFAULT,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> Catalog:
        """Read the list of shards. A catalog that is not there yet is made by its first change."""
        catalog = cls(store, prefix, config, clock=clock, entropy=entropy, observer=observer)
        await catalog.refresh_map()
        return catalog

    async def close(self) -> None:
        """Stop. Idempotent; the store stays open, it is the caller's."""
        await self._shards.close()

    async def __aenter__(self) -> Catalog:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Changes -------------------------------------------------------------------------------------------

    async def register(
        self,
        new: Sequence[DataFile],
        *,
        expected_seq: int | None = None,
        source: str | None = None,
        position: int | None = None,
        since: int | None = None,
    ) -> Registered:
        """Make files visible; the sequence of each shard that lists them.

        A file that is listed already changes nothing, and other content under its path is a `Conflict`. With
        `expected_seq` the files must belong to one shard, and it must not have changed since that sequence.

        With a `source` and its `position`, each shard takes the position in the same write as the files, also
        when it gets none of them. A shard that has the position already takes nothing, and is named in `repeated`.
        `since` is the position after which the batch begins, -1 for the first: any other shard is a `Conflict`.
        """
        if isinstance(new, DataFile):
            raise InvalidInput("one file was given", "register takes a list", "put it into a list")
        move = sources.source_move(source, position, since)

        def change(mine: list[DataFile]) -> Change:
            def registered(head: CatalogHead, blocks: Blocks) -> CatalogHead:
                def add() -> CatalogHead:
                    return _checked(head, expected_seq, lambda: files.register_files(head, mine, blocks))

                return add() if move is None else move.applied(head, add)

            return registered

        position_after = await self._writer.in_owning_shards(
            new, change, "register", everywhere=move is not None, one_shard=expected_seq is not None
        )
        return Registered(position_after, repeated=move.repeated if move else ())

    async def source_progress(self, source: str) -> SourceProgress:
        """How far a source is registered in all shards at one moment of this call: where to go on after a start."""
        check_label("source", source)
        deadline, before = self._shards.deadline(), None
        while True:
            heads = await self._reader.fresh_heads()
            found = {name: head.sources.get(source) for name, head in heads.items()}
            # Shards are read one after the other. Positions only grow: those that were read twice stood together.
            if len(found) == 1 or found == before:
                return sources.progress(heads.values(), source)
            before = found
            deadline.check(f"the progress of source {source!r} is not known", "it grows faster than it is read")

    async def forget_source(self, source: str) -> dict[str, int]:
        """Forget a source's position in every shard; its files stay."""
        return await self._writer.in_every_shard(lambda head, _: sources.forget_source(head, source), "register")

    async def delete(self, paths: Sequence[str], *, expected_seq: int | None = None) -> dict[str, int]:
        """Make files invisible, in whichever shard lists them. They stay readable for the grace."""
        if isinstance(paths, str):
            raise InvalidInput(f"paths {paths[:80]!r} cannot be deleted", "one path was given", "put it into a list")
        now_ms = self.clock.now_ms()
        return await self._writer.in_every_shard(
            lambda head, blocks: _checked(head, expected_seq, lambda: files.delete_files(head, paths, blocks, now_ms)),
            "delete",
        )

    async def complete_compaction(
        self,
        sources: Sequence[DataFile | str],
        target: DataFile | Sequence[DataFile],
        lease: Lease,
        *,
        expected_seq: int | None = None,
    ) -> dict[str, int]:
        """Replace sources by targets, all at once. `Conflict` when the lease or a source is gone: nothing changed."""
        targets = [target] if isinstance(target, DataFile) else list(target)
        paths = [source if isinstance(source, str) else source.path for source in sources]
        now_ms = self.clock.now_ms()

        def change(head: CatalogHead, blocks: Blocks) -> CatalogHead:
            mine = owned(targets, head.shard)
            return _checked(
                head,
                expected_seq,
                lambda: files.complete_compaction(head, paths, mine, lease.id, blocks, now_ms),
            )

        shard, head = await self._writer.where_leased(lease, targets, change, "compaction")
        return {shard: head.seq}

    async def expire(self, cutoff_ns: int) -> dict[str, int]:
        """Retention: remove every file whose last row is before the cutoff. Archived days go whole and unread."""
        now_ms = self.clock.now_ms()
        return await self._writer.in_every_shard(
            lambda head, blocks: files.expire_files(head, cutoff_ns, blocks, now_ms), "expire"
        )

    # Compaction ----------------------------------------------------------------------------------------

    async def compaction_tasks(
        self, owner: str, *, limit: int = 16, shard: str | None = None, lease_seconds: float | None = None
    ) -> list[CompactionTask]:
        """Merges that are due, each with a lease: no other planner is given the same files while it lasts."""
        return await self._leasing.tasks(owner, limit=limit, shard=shard, seconds=lease_seconds)

    async def lease(
        self, paths: Sequence[str], owner: str, *, shard: str = ROOT, seconds: float | None = None
    ) -> Lease:
        """The right to replace these files. `Conflict` when one is leased to another or not listed."""
        return await self._leasing.grant(paths, owner, shard=shard, seconds=seconds)

    async def renew(self, lease: Lease, *, seconds: float | None = None) -> Lease:
        """The lease with a later end. `Conflict` once it was taken over."""
        return await self._leasing.renew(lease, seconds)

    async def release(self, lease: Lease) -> None:
        """Give the files back unchanged."""
        await self._leasing.release(lease)

    # Reading -------------------------------------------------------------------------------------------

    async def plan(
        self,
        start: int | None = None,
        end: int | None = None,
        predicates: Sequence[Predicate] = (),
        shard: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        tenant: str | None = None,
        table: str | None = None,
        partial: bool = False,
    ) -> Plan:
        """The files that may hold a row with a time in `[start, end)` for which all predicates hold.

        `shard` keeps files of that shard, by their `shard_id`. `columns` limits the statistics that come with
        the files. With `partial`, segments that cannot be read are named in the plan instead of failing it.
        """
        query = file_query(start, end, predicates, shard, tenant, table)
        return await self._reader.plan(query, columns, partial=partial)

    async def files(self, **query: Any) -> list[DataFile]:
        """The files of a plan, as objects; takes what `plan` takes."""
        return (await self.plan(**query)).files

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        predicates: Sequence[Predicate] = (),
        shard: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        tenant: str | None = None,
        table: str | None = None,
        as_of: Position | None = None,
        **options: Any,
    ) -> Scan:
        """The rows of a plan, in batches: `async with catalog.scan(table="cpu") as scan: async for batch in scan`.

        Takes what `plan` takes and gives matching rows only, with `columns` or all of them. `options` are those of
        `Scan`: `time_column`, `schema`, `batch_rows` and `pin`.
        """
        query = ScanQuery(
            start=start, end=end, predicates=tuple(predicates), shard=shard, tenant=tenant, table=table, as_of=as_of
        )
        return Scan(self, query, columns=columns, **options)

    async def files_for_shard(self, shard: str) -> list[DataFile]:
        """Every file whose `shard_id` is this one."""
        return (await self.plan(shard=shard)).files

    async def level_candidates(self, level: int, *, shard: str | None = None) -> list[DataFile]:
        """Every file of a level that no compaction works on."""
        plan = await self._reader.plan(replace(EVERYTHING, level=level, shard=shard), None)
        taken: set[str] = set()
        for name in plan.position:
            taken |= leases.leased_paths(await self.shard(name).head(), self.clock.now_ms())
        return [file for file in plan.files if file.path not in taken]

    async def as_of(self, position: Position) -> PastCatalog:
        """The catalog as it was; `NotFound` once vacuum has passed it."""
        past = PastCatalog(self._reader, position)
        await past.check()
        return past

    async def hold(self, position: Position | None = None) -> HeldCatalog:
        """The catalog as it is now, or was at `position`: several plans of one state, without asking for it again.

        Nothing is kept from vacuum: that is what `pin` does.
        """
        return await self._reader.hold(position)

    async def pin(self, position: Position, *, seconds: float, name: str | None = None) -> Pinned:
        """Keep every file visible at `position` from vacuum for so long; the same name again renews it."""
        pin_id = ulid(self.clock.now_ms(), self.entropy) if name is None else check_label("pin", name)
        now_ms, expires_ms = self.clock.now_ms(), self._leasing.expiry_ms(seconds)

        def pinned(head: CatalogHead, _: Blocks) -> CatalogHead:
            seq = self.seq_at(position, head.shard)
            return leases.pin_seq(head, pin_id, seq, now_ms=now_ms, expires_ms=expires_ms)

        await self._reader.readable(None)
        await self._writer.in_every_shard(pinned, "pin")
        return Pinned(self, pin_id)

    async def unpin(self, name: str) -> None:
        await self._writer.in_every_shard(lambda head, _: leases.unpin(head, name), "pin")

    # Shards --------------------------------------------------------------------------------------------

    def shard_of(self, tenant: str, table: str) -> str:
        """The shard that owns a table, by the map as it was last read; changes follow the map when it moves on."""
        return self.map.shard_of(tenant, table)

    @property
    def map(self) -> ShardMap:
        """The tree of shards as it was last read."""
        return self._shards.map

    @property
    def shards(self) -> list[str]:
        """The shards that hold files, by the map as it was last read."""
        return self.map.shards()

    def shard(self, name: str) -> Shard:
        return self._shards.shard(name)

    async def refresh_map(self) -> ShardMap:
        return await self._shards.refresh_map()

    def seq_at(self, position: Position, shard: str) -> int:
        """A shard's sequence in a position, which may have been taken before the shard was split from another."""
        return self._shards.seq_at(position, shard)

    # Upkeep --------------------------------------------------------------------------------------------

    async def spill(self, shard: str = ROOT) -> bool:
        """Move a shard's inline files into a segment; False when there was nothing to move."""
        return await self._upkeep.spill(shard)

    async def archive(self, *, before_ns: int | None = None) -> int:
        """Archive the closed days of every shard, and make the global index anew; how many shards had any."""
        done = [await self._upkeep.archive(shard, before_ns) for shard in await self._reader.readable(None)]
        if any(done):
            await self.write_index()
        return sum(done)

    async def write_index(self) -> GlobalIndex:
        """Make `global-index.json` from the heads as they are."""
        return await self._upkeep.write_index()


class Pinned:
    """A pin, as a context: vacuum leaves what it holds alone until it is left or expires."""

    def __init__(self, catalog: Catalog, name: str) -> None:
        self._catalog = catalog
        self.name = name

    async def __aenter__(self) -> Pinned:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._catalog.unpin(self.name)


def _checked(head: CatalogHead, expected_seq: int | None, change: Callable[[], CatalogHead]) -> CatalogHead:
    files.check_seq(head, expected_seq)
    return change()
