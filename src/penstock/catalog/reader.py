"""Reading a catalog: the heads that may hold an answer, then the files in them, now or at an earlier position.

Every shard that may hold an answer is asked, with one conditional get once its cached head is older than
`staleness_seconds`. A shard that was split meanwhile is followed to its children, so that one plan sees all
shards under one map.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import index
from typing import Any, Final, SupportsIndex

from penstock.catalog.change.predicate import Predicate
from penstock.catalog.change.selection import EVERYTHING, FileQuery, PlanPiece, check_history, segments_for, select
from penstock.catalog.format.data_file import INT64_MAX, INT64_MIN, DataFile
from penstock.catalog.format.global_index import GlobalIndex
from penstock.catalog.format.head import CatalogHead, HeadState
from penstock.catalog.plan import Plan
from penstock.catalog.shards import Position, Shards
from penstock.errors import InvalidInput, PenstockError, Unavailable
from penstock.observability import names

__all__ = ["CatalogReader", "HeldCatalog", "PastCatalog", "file_query"]

_ROUNDS_MAX: Final = 8


class CatalogReader:
    """Plans over the shards of one catalog."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def plan(
        self,
        query: FileQuery,
        columns: Sequence[str] | None = None,
        *,
        partial: bool = False,
        position: Position | None = None,
    ) -> Plan:
        """The answer as of now, or of an earlier position."""
        clock = self._shards.clock
        began = clock.monotonic()
        asked = query if position is None else replace(query, seq=0)
        heads, passed = await self.heads(asked)
        pieces, failed = await self._pieces(heads, query, position)
        if failed:
            # A head that is a little old may name a segment that was rewritten, or a shard that was split, since.
            heads, passed = await self.fresh_heads(query), {}
            pieces, failed = await self._pieces(heads, query, position)
        if failed and not partial:
            raise next(iter(failed.values()))
        self._shards.observer.observe(names.CATALOG_PLAN_SECONDS, clock.monotonic() - began)
        return Plan(
            pieces,
            position=passed | {name: self.position_of(name, head, position) for name, head in heads.items()},
            total_files=sum(head.live_files for head in heads.values()),
            columns=columns,
            missing=sorted(failed),
        )

    async def hold(self, position: Position | None = None) -> HeldCatalog:
        """The catalog as it is now, or was at `position`, with the heads that say so in hand."""
        heads, _ = await self.heads(None)
        if position is not None:
            check_position(position, heads)
        return HeldCatalog(self, heads, position)

    async def held_plan(
        self, query: FileQuery, heads: dict[str, CatalogHead], position: Position | None, columns: Sequence[str] | None
    ) -> Plan | None:
        """A plan without a look at the heads as they are now; None when a segment that they name is gone."""
        began = self._shards.clock.monotonic()
        pieces, failed = await self._pieces(heads, query, position)
        return None if failed else self._held_plan(pieces, heads, position, columns, began)

    def known_plan(
        self, query: FileQuery, heads: dict[str, CatalogHead], position: Position | None, columns: Sequence[str] | None
    ) -> Plan | None:
        """A plan of what is in memory, from any thread; None when a segment would have to be fetched."""
        began = self._shards.clock.monotonic()
        blocks, pieces = self._shards.segments.blocks, list[PlanPiece]()
        for name, head in heads.items():
            mine = query if position is None else replace(query, seq=self.past_seq(position, name, head))
            # One by one: another thread may forget a segment meanwhile.
            found = {entry.key: blocks.get(entry.key) for entry in segments_for(head, mine)}
            here = {key: block for key, block in found.items() if block is not None}
            if len(here) < len(found):
                return None
            pieces += select(head, mine, here)
        return self._held_plan(pieces, heads, position, columns, began)

    def _held_plan(
        self,
        pieces: list[PlanPiece],
        heads: dict[str, CatalogHead],
        position: Position | None,
        columns: Sequence[str] | None,
        began: float,
    ) -> Plan:
        self._shards.observer.observe(names.CATALOG_PLAN_SECONDS, self._shards.clock.monotonic() - began)
        return Plan(
            pieces,
            position={name: self.position_of(name, head, position) for name, head in heads.items()},
            total_files=sum(head.live_files for head in heads.values()),
            columns=columns,
        )

    async def _pieces(
        self, heads: dict[str, CatalogHead], query: FileQuery, position: Position | None
    ) -> tuple[list[PlanPiece], dict[str, PenstockError]]:
        pieces: list[PlanPiece] = []
        missing: dict[str, PenstockError] = {}
        for name, head in heads.items():
            mine = query if position is None else replace(query, seq=self.past_seq(position, name, head))
            found, failed = await self._shards.segments.load(segments_for(head, mine))
            pieces += select(head, mine, found, missing=failed)
            missing |= failed
        return pieces, missing

    async def readable(self, shard: str | None) -> list[str]:
        """The shards that hold files, or just one of them."""
        await self.heads(None)
        found = self._shards.map.shards()
        if shard is None:
            return found
        if shard not in found:
            self._shards.map.find(shard)
        return [shard]

    async def heads(self, query: FileQuery | None) -> tuple[dict[str, CatalogHead], dict[str, int]]:
        """The heads that may hold an answer, under one map: a shard that has moved on is followed to its children.

        With them come the sequences of shards that a young index has let this query pass over.
        """
        for _ in range(_ROUNDS_MAX):
            passed = await self._passed_over(query)
            wanted = [name for name in self._listed(query) if name not in passed]
            found = await asyncio.gather(*(self._shards.shard(name).head() for name in wanted))
            heads = dict(zip(wanted, found, strict=True))
            if await self._is_settled(heads):
                return heads, passed
        raise _keeps_moving()

    async def fresh_heads(self, query: FileQuery | None = None) -> dict[str, CatalogHead]:
        """The heads as they are now, under one map."""
        for _ in range(_ROUNDS_MAX):
            await self._shards.refresh_map()
            wanted = self._listed(query)
            found = await asyncio.gather(*(self._shards.shard(name).fresh() for name in wanted))
            heads = dict(zip(wanted, found, strict=True))
            if await self._is_settled(heads):
                return heads
        raise _keeps_moving()

    async def _is_settled(self, heads: dict[str, CatalogHead]) -> bool:
        """Whether these heads still hold every file. While a split goes on, that is the closed parent."""
        for name, head in heads.items():
            self._shards.check_head(name, head)
        if all(head.state is HeadState.OPEN for head in heads.values()):
            return True
        generation = self._shards.map.generation
        await self._shards.refresh_map()
        is_same = self._shards.map.generation == generation
        return is_same and all(head.state is not HeadState.MOVED for head in heads.values())

    def past_seq(self, position: Position, shard: str, head: CatalogHead) -> int:
        """A shard's sequence in a position; `NotFound` once vacuum has passed it."""
        seq = self._shards.seq_at(position, shard)
        check_history(head, seq)
        return seq

    async def all_pieces(self, name: str, head: CatalogHead) -> list[PlanPiece]:
        """Every visible row of one shard."""
        return select(head, EVERYTHING, await self._shards.shard(name).load(segments_for(head, EVERYTHING)))

    def position_of(self, shard: str, head: CatalogHead, position: Position | None) -> int:
        return head.seq if position is None else self._shards.seq_at(position, shard)

    def _listed(self, query: FileQuery | None) -> list[str]:
        """The shards that hold files, or the one that a query names."""
        found = self._shards.map.shards()
        return [query.shard] if query is not None and query.shard in found else found

    async def _passed_over(self, query: FileQuery | None) -> dict[str, int]:
        """Shards that surely hold nothing for a query, with the sequence at which that was so."""
        listed = self._listed(query)
        if query is None or query.seq is not None or len(listed) == 1:
            return {}
        young = await self._young_index()
        if young is None:
            return {}
        needed = set(young.needed(listed, query.start, query.end)) | self._shards.written
        return {name: young.shards[name].seq for name in listed if name not in needed}

    async def _young_index(self) -> GlobalIndex | None:
        """The global index, if it is as young as a plan has to be and of this map."""
        allowed_ms = self._shards.config.staleness_seconds * 1000
        if allowed_ms == 0:
            return None
        now_ms = self._shards.clock.now_ms()
        try:
            found = GlobalIndex.decode((await self._shards.store.get(self._shards.layout.global_index)).data)
        except PenstockError:
            # Whatever ails the index, the shards themselves answer.
            return None
        if found is None or found.generation != self._shards.map.generation:
            return None
        return found if 0 <= now_ms - found.made_ms <= allowed_ms else None


class PastCatalog:
    """The catalog at one position: what `as_of` gives."""

    def __init__(self, reader: CatalogReader, position: Position) -> None:
        self._reader = reader
        self.position = position

    async def check(self) -> None:
        heads, _ = await self._reader.heads(None)
        check_position(self.position, heads)
        for name, head in heads.items():
            self._reader.past_seq(self.position, name, head)

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
        """As `Catalog.plan`."""
        query = file_query(start, end, predicates, shard, tenant, table)
        return await self._reader.plan(query, columns, partial=partial, position=self.position)

    async def files(self, **query: Any) -> list[DataFile]:
        return (await self.plan(**query)).files


class HeldCatalog:
    """One state of the catalog for all plans of a query: none of them asks the store where the catalog stands."""

    def __init__(self, reader: CatalogReader, heads: dict[str, CatalogHead], past: Position | None) -> None:
        self._reader, self._heads, self._past = reader, heads, past
        if past is not None:
            for name, head in heads.items():
                reader.past_seq(past, name, head)
        self.position = {name: reader.position_of(name, head, past) for name, head in heads.items()}

    async def plan(
        self,
        start: int | None = None,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        tenant: str | None = None,
        table: str | None = None,
    ) -> Plan:
        """As `Catalog.plan`."""
        query = file_query(start, end, (), None, tenant, table)
        found = await self._reader.held_plan(query, self._heads, self._past, columns)
        # Segments are rewritten, and shards split, behind a head that is held: the newest ones know this state too.
        return found if found is not None else await self._reader.plan(query, columns, position=self.position)

    def known_plan(
        self,
        start: int | None = None,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        tenant: str | None = None,
        table: str | None = None,
    ) -> Plan | None:
        """The same from any thread, where all that it needs is in memory; None otherwise: ask `plan`."""
        query = file_query(start, end, (), None, tenant, table)
        return self._reader.known_plan(query, self._heads, self._past, columns)

    async def tables(self, *, tenant: str | None = None) -> list[str]:
        """Names of the tables that have files."""
        found = (await self.plan(tenant=tenant)).table["table"].unique().to_pylist()
        return [name for name in found if name]


def check_position(position: Position, heads: Mapping[str, CatalogHead]) -> None:
    if isinstance(position, int) and len(heads) > 1:
        raise InvalidInput("one sequence was given for several shards", "each shard has its own", "pass a position")


def file_query(
    start: int | None,
    end: int | None,
    predicates: Sequence[Predicate],
    shard: str | None,
    tenant: str | None,
    table: str | None,
) -> FileQuery:
    return FileQuery(
        start=INT64_MIN if start is None else _nanoseconds(start),
        end=INT64_MAX + 1 if end is None else _nanoseconds(end),
        predicates=tuple(predicates),
        tenant=tenant,
        table=table,
        shard=shard,
    )


def _nanoseconds(time: SupportsIndex) -> int:
    try:
        # A time beyond 64 bits is beyond every file, and means the same as the nearest that is.
        return min(max(index(time), INT64_MIN), INT64_MAX + 1)
    except TypeError:
        why = "times of a plan are whole nanoseconds since the Unix epoch"
        raise InvalidInput(f"time {time!r:.60}", why, "convert it first") from None


def _keeps_moving() -> Unavailable:
    return Unavailable("the catalog's shards keep moving", f"{_ROUNDS_MAX} reads met a split", "try again")
