"""A world for the catalog: an auditor beneath all faults that looks at every head and map as it lands.

Every level-0 file stands for one row of its own, and a merged file for the rows of its sources, so the
auditor can tell at each moment which rows are visible, and how often. It lies outside of all processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from penstock.catalog import Catalog, CatalogConfig, CompactionPolicy, DataFile, column_stats
from penstock.catalog.change.selection import EVERYTHING, segments_for, select
from penstock.catalog.format.block import FileBlock
from penstock.catalog.format.head import CatalogHead, HeadState
from penstock.catalog.format.head_json import decode_head
from penstock.catalog.format.segment import decode_segment
from penstock.catalog.format.shard_map import ShardMap, ShardMapFormat
from penstock.errors import NotFound
from penstock.objects import MemoryStore, ObjectMeta
from penstock.testing import FaultPlan, FaultyStore, Latency, Simulation
from penstock.testing.storage.hostile_stores import PassingStore

HOUR = 3_600_000_000_000
DAY = 24 * HOUR
GRACE_SECONDS = 15.0
# Uploads, a commit with its deadline, and the longest that a request may be under way stay below half of it.
FLOOR_SECONDS = 90.0
PLAN = FaultPlan(
    throttled=0.02,
    error_before=0.02,
    request_lost=0.01,
    error_after=0.04,
    reply_lost=0.02,
    zombie=0.02,
    crash_before=0.002,
    crash_after=0.004,
    latency=Latency(0.002, 0.05, slow_chance=0.02, slow_seconds_max=3.0),
    timeout_seconds=1.5,
    zombie_seconds_max=6.0,
)
CONFIG = CatalogConfig(
    inline_files_max=4,
    segment_rows_max=12,
    staleness_seconds=0.5,
    grace_seconds=GRACE_SECONDS,
    age_floor_seconds=FLOOR_SECONDS,
    lease_seconds=6.0,
    commit_deadline_seconds=20.0,
    compaction=CompactionPolicy(hour_files=2, day_files=2, closed_after_seconds=0.0),
)
TENANTS = ("a", "b", "c")


def batch_row(number: int, tenant: str) -> str:
    """A row of a source's batch, named as rows are here: with its hour."""
    return f"data/{tenant}/{7 * number:04}/batch{number}"


class CatalogAuditor(PassingStore):
    """Writes violations down instead of raising: an error here would reach whoever sent the request, or nobody."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.violations: list[str] = []
        self.map = ShardMap()
        self.heads: dict[str, CatalogHead] = {}
        # The rows that each data file holds; what was removed on purpose; what was ever visible.
        self.content: dict[str, frozenset[str]] = {}
        self.unwanted: set[str] = set()
        self.cutoff = 0
        self.ever: set[str] = set()
        self.visible: frozenset[str] = frozenset()
        self.gone: set[str] = set()
        self.added: dict[str, int] = {}
        # Paths that readers hold by a pin, until when.
        self.pinned: dict[str, tuple[float, frozenset[str]]] = {}
        self.clock_ms = 0.0
        self._blocks: dict[str, FileBlock] = {}

    async def put_if(self, key: str, data: Any, *, version: str | None) -> ObjectMeta:
        meta = await super().put_if(key, data, version=version)
        body = bytes(data)
        if key.endswith("shards.json"):
            self.map = ShardMapFormat().decode(body)
        elif key.endswith("catalog.json"):
            head = decode_head(body)
            self.heads[head.shard] = head
        await self._look()
        return meta

    async def delete_many(self, keys: Iterable[str]) -> None:
        doomed = list(keys)
        wrong = self.visible.intersection(doomed)
        self.demand(not wrong, f"deleted although visible: {wrong}")
        for until_ms, paths in self.pinned.values():
            held = paths.intersection(doomed)
            self.demand(not held or self._now_ms() >= until_ms, f"deleted although pinned: {held}")
        named = {entry.key for head in self.heads.values() for entry in (*head.stored, *head.graves)}
        self.demand(not named.intersection(doomed), f"segments deleted although named: {named.intersection(doomed)}")
        await super().delete_many(doomed)

    async def _look(self) -> None:
        paths: list[str] = []
        for shard in self.map.shards():
            head = self.heads.get(shard)
            if head is not None:
                paths += await self._paths(head)
        rows = Counter(row for path in paths for row in self.content[path])
        twice = [row for row, count in rows.items() if count > 1]
        self.demand(not twice, f"visible twice: {twice}")
        lost = {row for row in self.ever - rows.keys() if not self.is_unwanted(row)}
        self.demand(not lost, f"no longer visible: {lost}")
        self.ever |= rows.keys()
        visible = frozenset(paths)
        self.demand(not self.gone & visible, f"came back: {self.gone & visible}")
        self.gone |= self.visible - visible
        self.visible = visible

    async def _paths(self, head: CatalogHead) -> list[str]:
        self.demand(head.state is not HeadState.MOVED, f"shard {head.shard!r} is moved and still read")
        for entry in segments_for(head, EVERYTHING):
            if entry.key not in self._blocks:
                try:
                    body = (await self._inner.get(entry.key)).data
                except NotFound:
                    self.demand(False, f"named and not there: {entry.key}")
                    return []
                self._blocks[entry.key] = decode_segment(body, entry)
        paths = []
        for piece in select(head, EVERYTHING, self._blocks):
            for path, seq in zip(
                piece.block.paths(piece.rows), piece.block.added_seq[piece.rows].tolist(), strict=True
            ):
                self.demand(
                    self.added.setdefault(path, seq) == seq, f"{path} was added at {self.added[path]} and {seq}"
                )
                paths.append(path)
        return paths

    def demand_batches(self, count: int) -> None:
        """Every row of every batch was visible once; the rows of the catalog are counted at each write."""
        wanted = {batch_row(number, tenant) for number in range(count) for tenant in TENANTS}
        self.demand(wanted <= self.ever, f"rows of a source were never visible: {sorted(wanted - self.ever)}")

    def is_unwanted(self, row: str) -> bool:
        """Deleted on purpose, or before a cutoff of retention: a row is named by its first file, with its hour."""
        return row in self.unwanted or int(row.split("/")[2]) * HOUR < self.cutoff

    def demand(self, holds: bool, fault: str) -> None:
        if not holds:
            self.violations.append(fault)

    def _now_ms(self) -> float:
        return self.clock.now_ms()  # type: ignore[attr-defined]


class CatalogWorld:
    """The store, its faults and what the processes were told."""

    def __init__(self, simulation: Simulation, plan: FaultPlan = PLAN, config: CatalogConfig = CONFIG) -> None:
        self.simulation = simulation
        self.clock = simulation.clock
        self.entropy = simulation.entropy
        self.config = config
        self.auditor = self.audited(MemoryStore(clock=simulation.clock))
        self.auditor.clock = simulation.clock  # type: ignore[attr-defined]
        self.faulty = FaultyStore(self.auditor, plan, entropy=self.entropy.fork("faults"), clock=self.clock)
        self.files = 0
        self.acked: dict[str, float] = {}
        self.events: Counter[str] = Counter()

    def audited(self, store: MemoryStore) -> CatalogAuditor:
        return CatalogAuditor(store)

    def catalog(self, name: str) -> Catalog:
        return Catalog(self.faulty, "", self.config, clock=self.clock, entropy=self.entropy.fork(name))

    def new_file(self, entropy: Any) -> DataFile:
        """A file of one row, somewhere in three days."""
        self.files += 1
        tenant = entropy.choice(TENANTS)
        start = entropy.below(3 * 24) * HOUR + entropy.below(3) * HOUR // 4
        path = f"data/{tenant}/{start // HOUR:04}/{self.files:05}.parquet"
        self.auditor.content[path] = frozenset({path})
        return DataFile(
            path=path,
            min_timestamp=start,
            max_timestamp=start + entropy.below(3) * HOUR // 2,
            row_count=1,
            size_bytes=1000,
            tenant=tenant,
            table="t",
            column_stats={"n": column_stats(self.files, self.files)},
        )

    def batch(self, number: int) -> list[DataFile]:
        """One attempt at a batch of a source: a row of every tenant, in files that no other attempt names."""
        self.files += 1
        found = []
        for tenant in TENANTS:
            row = batch_row(number, tenant)
            path = f"{row}-{self.files:05}.parquet"
            self.auditor.content[path] = frozenset({row})
            start = int(row.split("/")[2]) * HOUR
            found.append(
                DataFile(
                    path=path,
                    min_timestamp=start,
                    max_timestamp=start,
                    row_count=1,
                    size_bytes=1000,
                    tenant=tenant,
                    table="t",
                )
            )
        return found

    def merged_file(self, sources: Iterable[DataFile], level: int) -> DataFile:
        found = list(sources)
        self.files += 1
        first = found[0]
        path = f"data/{first.tenant}/merged/{self.files:05}.parquet"
        self.auditor.content[path] = frozenset().union(*(self.auditor.content[file.path] for file in found))
        return DataFile(
            path=path,
            min_timestamp=min(file.min_timestamp for file in found),
            max_timestamp=max(file.max_timestamp for file in found),
            row_count=sum(file.row_count for file in found),
            size_bytes=sum(file.size_bytes for file in found),
            level=level,
            tenant=first.tenant,
            table=first.table,
        )
