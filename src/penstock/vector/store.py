"""The vector store's single writer: collections of vectors, texts and attributes in one key-value store.

`VectorStore.open` fences whoever wrote before. Writes are accepted in order, flushed together and vouched for when
durable; reads answer from the newest published snapshot. `VectorStore.open_reader` makes a follower instead.
The pages docs/rooms/vector.md and docs/format/vector.md tell what is promised and how it lies in the store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, Self, TypeVar

from penstock.blocks import ChangeReceipt, StoreWriter, first_moment
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.coordinator import Mark, WriteHandle
from penstock.errors import Corrupt, InvalidInput, NotFound
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.keyvalue import KeyValue, open_follower, open_keyvalue
from penstock.observability import SILENT, Observer, names
from penstock.vector.attributes import AttributeType
from penstock.vector.bounds import whole_number
from penstock.vector.collection import Changes, Collection, Moment, Work
from penstock.vector.config import VectorConfig
from penstock.vector.flush import VectorFlushPlanner
from penstock.vector.follower import VectorReader
from penstock.vector.format.analysis import TextAnalysis
from penstock.vector.format.keys import CollectionName, Family
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.format.state import UNNUMBERED, CollectionRecord, CollectionState, StoreRecord
from penstock.vector.format.store_format import FORMAT
from penstock.vector.operations import Change, CollectionSpec, DropCollection, VectorDelta
from penstock.vector.read.reading import read_state
from penstock.vector.read.records import STORE_RECORDS, VectorSnapshot, list_collections
from penstock.vector.read.stats import CollectionStats, unreadable_stats
from penstock.vector.search.search import Searcher
from penstock.vector.upkeep.compaction import compact_collection
from penstock.vector.upkeep.keeper import CollectionUpkeep
from penstock.vector.upkeep.repair import RepairReport, Statements, repair_keyvalue, repairs
from penstock.vector.upkeep.verify import RECORDS, VerifyReport, unreadable
from penstock.vector.write.pieces import pieces_of
from penstock.vector.write.refusals import Refusals
from penstock.vector.write.schema import Schema, Schemas

__all__ = ["DIMENSIONS_MAX", "VectorStore"]

T = TypeVar("T")

# Several times the widest embedding in use: a row must stay well below a block's size.
DIMENSIONS_MAX: Final = 16_384


class VectorStore(StoreWriter[VectorDelta, StoreRecord, CollectionName, CollectionState, Change]):
    """Made by `open`. Leaving `async with` flushes and closes it."""

    def __init__(
        self,
        keyvalue: KeyValue,
        snapshot: VectorSnapshot,
        refusals: Refusals,
        config: VectorConfig,
        *,
        clock: Clock,
        entropy: Entropy,
        observer: Observer,
    ) -> None:
        self._planner = VectorFlushPlanner(config, refusals, clock=clock, observer=observer)
        super().__init__(
            keyvalue,
            FORMAT,
            snapshot,
            self._planner,
            CollectionUpkeep(config),
            refusals,
            config,
            states_max=config.collections_open,
            clock=clock,
            entropy=entropy,
            observer=observer,
        )
        self.searcher = Searcher(config, clock=clock, observer=observer)
        self._schemas = Schemas()

    @classmethod
    async def open(
        cls,
        url: str,
        path: str,
        config: VectorConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
        **access: Any,
    ) -> Self:
        """Open the store at `path` as its writer, creating it if need be."""
        keyvalue = await open_keyvalue(url, path, clock=clock, observer=observer, **access)
        try:
            return await cls.over(keyvalue, config, clock=clock, entropy=entropy, observer=observer)
        except BaseException:
            await keyvalue.close()
            raise

    @classmethod
    async def over(
        cls,
        keyvalue: KeyValue,
        config: VectorConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> Self:
        """The writer over a key-value store, which it then owns."""
        config = config or VectorConfig()
        damaged = names.VECTOR_RECORD_CORRUPT
        snapshot, unknown = await first_moment(
            keyvalue, STORE_RECORDS, read_state, config.cache_bytes, damaged, observer
        )
        return cls(keyvalue, snapshot, Refusals(unknown), config, clock=clock, entropy=entropy, observer=observer)

    @staticmethod
    async def open_reader(
        url: str,
        path: str,
        config: VectorConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
        **access: Any,
    ) -> VectorReader:
        """Open the store at `path` for reading alone, beside its writer."""
        return await VectorReader.open(url, path, config, clock=clock, observer=observer, **access)

    @staticmethod
    async def repair(
        url: str,
        path: str,
        *,
        dry_run: bool = False,
        positions: Mapping[str, int | None] | None = None,
        metric: DistanceMetric | str | None = None,
        keep_doubtful: bool = False,
        reindex_words: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
        **access: Any,
    ) -> list[RepairReport]:
        """Make a damaged store whole as far as it can be, as its writer; with `dry_run`, only say how, beside one.

        `positions` states those of sources whose own cannot be read, `metric` that of a collection without a record,
        and `keep_doubtful` keeps rows of which nobody can tell any more whether they were deleted. `reindex_words`
        indexes the words of collections that were made by an older rule by the present one, damaged or not.
        """
        known = None if metric is None else _metric(metric)
        statements = Statements(positions or {}, known, keep_doubtful, reindex_words)
        if dry_run:
            follower = await open_follower(url, path, clock=clock, observer=observer, **access)
            try:
                return [report async for report, _ in repairs(follower, VectorConfig(), statements, clock)]
            finally:
                await follower.close()
        keyvalue = await open_keyvalue(url, path, clock=clock, observer=observer, **access)
        try:
            return await repair_keyvalue(keyvalue, statements, clock)
        finally:
            await keyvalue.close()

    # collections ----------------------------------------------------------------------------------

    async def collection(
        self,
        tenant: str,
        index: str,
        model: str,
        *,
        dimensions: int | None = None,
        metric: DistanceMetric | str | None = None,
        analysis: TextAnalysis | str | None = None,
    ) -> Collection:
        """A collection; with `dimensions` it is made by its first write if there is none (cosine, stems by default)."""
        name = CollectionName(tenant, index, model)
        wanted = None if metric is None else _metric(metric)
        how = None if analysis is None else _analysis(analysis)
        if self._schemas.get(name) is None:
            await self._schemas.drop_flushed(name)
            # Somebody else may have asked meanwhile, and written already: what is known by then stays.
            self._schemas.announce(await self._found(name, dimensions, wanted, how))
        known = self._schemas.get(name)
        assert known is not None
        spec = known.spec
        for what, asked, found in (
            ("dimensions", dimensions, spec.dimensions),
            ("metric", wanted, spec.metric),
            ("analysis", how, spec.analysis),
        ):
            if asked is not None and asked != found:
                raise InvalidInput(f"{name} with {what} {asked}", f"it has {what} {found}", "use another model name")
        return Collection(self, self, spec)

    async def collections(self) -> list[CollectionName]:
        """All collections that have been flushed, by name."""
        with self._snapshot().held() as snapshot:
            return await list_collections(snapshot.reader)

    async def _found(
        self, name: CollectionName, dimensions: int | None, metric: DistanceMetric | None, analysis: TextAnalysis | None
    ) -> Schema:
        with self._snapshot().held() as snapshot:
            state = await snapshot.state(name)
        if state is not None:
            if state.lost and not state.mendable:
                self._planner.set_aside(name, state.damage(tuple(Family)))
            # An earlier writer may have stopped before its upkeep was done.
            self._keeper.notice(state)
            return Schema(CollectionSpec(name, state.dimensions, state.metric, state.analysis), state.types)
        if dimensions is None:
            raise NotFound(f"there is no collection {name}", "", "pass dimensions to create it")
        whole = whole_number("dimensions", dimensions, 1, DIMENSIONS_MAX, f"a vector has 1 to {DIMENSIONS_MAX}")
        return Schema(CollectionSpec(name, whole, metric or DistanceMetric.COSINE, analysis or TextAnalysis.STEMS), {})

    def known_attributes(self, spec: CollectionSpec) -> Mapping[str, AttributeType]:
        return self._schemas.of(spec).types

    async def drop(self, name: CollectionName, *, durable: bool = True) -> bool:
        """Remove a collection and everything that belongs to it, in one write; whether there was one.

        Writes that are accepted later make it anew, with other dimensions if need be.
        """
        known = self._schemas.get(_checked(name))
        if known is None and name not in await self.collections():
            return False
        spec = CollectionSpec(name, 1, DistanceMetric.COSINE) if known is None else known.spec
        handle = await self._coordinator.write(VectorDelta([Change(((spec, DropCollection()),))]))
        self._schemas.drop(name, handle)
        await self._coordinator.flush(handle.epoch, until=Mark.DURABLE if durable else Mark.FLUSHED)
        return True

    # writing --------------------------------------------------------------------------------------

    def changes(self, source: str | None = None, position: int | None = None) -> Changes:
        """Gather operations that belong together; `write` takes them."""
        return Changes(source, position)

    async def write(
        self, changes: Changes | Change, *, timeout: float | None = None, durable: bool = False
    ) -> WriteHandle:
        """Accept changes, waiting for room if need be; with `durable`, return when they are.

        Rows of one upsert that are more than the buffer holds are taken in pieces: see `pieces`. After an error in
        between, writing the same rows again is safe. `Corrupt` names a damaged collection among them, or a source that
        has to go on elsewhere: nothing was taken. If the damage is found only when they are flushed, the handle says
        so, or else the next `flush` or `close`.
        """
        self._check_open()
        # A receipt of its own for each time that a change is written.
        change = replace(changes.change() if isinstance(changes, Changes) else changes, receipt=ChangeReceipt())
        self._check_accepted(change)
        with self._schemas.claimed(change):
            pieces = self._pieces(change, pieces_of)
            accepted = await self._accept(pieces, VectorDelta, timeout, lambda place: VectorDelta([*pieces[place:]]))
        return await self._handle(accepted.epoch, change.receipt, durable=durable)

    # upkeep ---------------------------------------------------------------------------------------

    async def compact(self, name: CollectionName | None = None) -> None:
        """Drop dead rows, reshape lists and merge small blocks, in steps, of one collection or of all.

        An error, such as `Corrupt` for a damaged block, says what kept a collection from it; the others are compacted
        all the same.
        """
        failures: list[Exception] = []
        for found in [_checked(name)] if name is not None else await self.collections():
            try:
                collection = await self.collection(found.tenant, found.index, found.model)
                failure = await compact_collection(
                    self._coordinator, collection.spec, self.read, self._planner.upkeep_errors
                )
            except Corrupt as error:
                failure = error
            if failure is not None:
                failures.append(failure)
        await self._coordinator.flush()
        if failures:
            raise failures[0]

    async def tend(self) -> None:
        """Do the upkeep that is due in the collections in use now, instead of in the next pauses between writes."""
        self._check_open()
        await self._keeper.tend()

    async def verify(self) -> list[VerifyReport]:
        """Check every collection, and the records of the store if one of them is damaged."""
        reports = []
        for name in await self.collections():
            try:
                reports.append(await (await self.collection(name.tenant, name.index, name.model)).verify())
            except Corrupt as error:
                reports.append(unreadable(name, error))
        with self._snapshot().held() as snapshot:
            if problems := await STORE_RECORDS.problems(snapshot.reader):
                reports.append(VerifyReport(RECORDS, problems=problems))
        return reports

    async def stats(self) -> list[CollectionStats]:
        """Figures of every collection; those of one that cannot be read say why."""
        found = []
        for name in await self.collections():
            try:
                found.append(await (await self.collection(name.tenant, name.index, name.model)).stats())
            except Corrupt as error:
                found.append(unreadable_stats(name, error))
        return found

    # reading --------------------------------------------------------------------------------------

    async def read(self, spec: CollectionSpec, work: Work[T]) -> T:
        """Do `work` on the newest published moment of a collection."""
        with self._snapshot().held() as snapshot:
            return await work(snapshot.blocks, await self._state(snapshot, spec))

    @asynccontextmanager
    async def held(self, spec: CollectionSpec) -> AsyncIterator[Moment]:
        """The newest published moment of a collection, kept open."""
        with self._snapshot().held() as snapshot:
            yield snapshot.blocks, await self._state(snapshot, spec)

    async def _state(self, snapshot: VectorSnapshot, spec: CollectionSpec) -> CollectionState:
        """A collection in a snapshot; one that nobody has written to yet is empty."""
        state = await snapshot.state(spec.name)
        if state is not None:
            spec.check(state.dimensions, state.metric)
            return state
        return CollectionState.new(spec.name, CollectionRecord(UNNUMBERED, spec.dimensions, spec.metric, 0))


def _metric(metric: DistanceMetric | str) -> DistanceMetric:
    try:
        return DistanceMetric(metric)
    except ValueError as error:
        raise InvalidInput(f"metric = {metric!r}", f"the metrics are {', '.join(DistanceMetric)}") from error


def _analysis(analysis: TextAnalysis | str) -> TextAnalysis:
    try:
        return TextAnalysis(analysis)
    except ValueError as error:
        raise InvalidInput(f"analysis = {analysis!r}", f"texts are indexed by {', '.join(TextAnalysis)}") from error


def _checked(name: object) -> CollectionName:
    """A text is no collection's name, and would pass for that of one that is not there."""
    if not isinstance(name, CollectionName):
        why = "a collection has a tenant, an index and a model"
        raise InvalidInput(f"collection {name!r:.60}", why, "give a CollectionName")
    return name
