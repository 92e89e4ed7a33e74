"""The driver's side of the store: every write of the indexing job, each of them whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from penstock.documents import (
    Metadata,
    Notification,
    is_sidecar,
    object_key,
    object_key_of,
    sidecar_key,
    sidecar_subject,
)
from penstock.errors import NotFound
from penstock.indexing.job.parsed_texts import ParsedTexts
from penstock.indexing.job.store_door import StoreDoor
from penstock.indexing.planning.plan import EventPlan
from penstock.indexing.registry.entries import (
    REGISTRY_DIMENSIONS,
    REGISTRY_METRIC,
    SOURCE,
    BatcherCount,
    DocumentEntry,
    Schedule,
    batcher_count,
    batcher_row,
    entries_of,
    entry_rows,
    has_sidecars,
    list_entries,
    pending_entries,
    registry_name,
    subject_of,
)
from penstock.indexing.registry.settings import SETTINGS, IndexSettings, list_settings, settings_rows
from penstock.indexing.rounds.own_metadata import MetadataUpdate
from penstock.indexing.rounds.reuse import known_vectors
from penstock.indexing.rounds.rounds import Result, by_collection
from penstock.indexing.stages.access import remembered_places
from penstock.indexing.stages.embedding import Embedding, Endpoint, OwnModel
from penstock.keyvalue import KeyValueConfig
from penstock.objects import StoreSpec
from penstock.observability import SILENT, Observer
from penstock.vector import AttributeType, Changes, Collection, CollectionName, TextAnalysis, VectorConfig, VectorStore

__all__ = ["REFUSED", "IndexWriter"]

# Records of the queue that are no notifications: nobody's documents.
REFUSED: Final = CollectionName("penstock", "notifications", "refused")
# Documents in one write: a removal of many holds up the store's memory for a moment only.
_REMOVED_AT_ONCE: Final = 1000
# Registries that a start looks at together: a bucket answers them in the time of one, and their pages fit in memory.
_LOOKED_AT_ONCE: Final = 32
# Vectors in one write: a quarter of what the store holds of all writes, and so many chunks of the largest models fit.
WRITE_BYTES_MAX: Final = 32 << 20
_NO_UPDATES: Final[Mapping[CollectionName, Sequence[MetadataUpdate]]] = {}


class IndexWriter:
    """Every write of the indexing job. Blocking; called by one thread at a time."""

    def __init__(
        self,
        url: str,
        path: str,
        options: dict[str, Any],
        embedding: Embedding,
        *,
        vector: VectorConfig | None = None,
        keyvalue: KeyValueConfig | None = None,
        observer: Observer = SILENT,
    ) -> None:
        access = {**options, **(keyvalue or KeyValueConfig()).writing}
        self._door = StoreDoor(url, path, access, vector, observer=observer)
        self._counts: dict[CollectionName, BatcherCount] = {}
        # Indexes that are made and not written down yet.
        self._made: list[IndexSettings] = []
        # Collections of which it is known that they have side-car files.
        self._with_sidecars: set[CollectionName] = set()
        self._spec = StoreSpec(url, options)
        self.texts = ParsedTexts(self._door, self._spec)
        try:
            self.settings = self._door.run(list_settings(self._collection(SETTINGS)))
        except BaseException:
            self._door.close()
            raise
        self.embedding = embedding.knowing(
            {
                (settings.tenant, settings.index, build.model): OwnModel(
                    Endpoint(build.endpoint) if build.endpoint else None, build.profile
                )
                for settings in self.settings.values()
                for build in settings.builds
            }
        )

    def remembered_places(self, named: Iterable[str]) -> tuple[str, ...]:
        """The local places that jobs on this store were given, with those of this one, which are remembered."""
        return self._door.run(remembered_places(self._spec, named))

    def close(self) -> None:
        try:
            self.texts.close()
        finally:
            self._door.close()

    # Reading ---------------------------------------------------------------------------------------------

    def position(self) -> int:
        """The last sequence of the queue whose events are decided on, or -1."""
        found = self._door.store.position(SOURCE)
        return -1 if found is None else found

    def pending(self) -> dict[CollectionName, list[DocumentEntry]]:
        """What an earlier run began and did not finish. Looks at all registries, some of them at a time."""
        found: dict[CollectionName, list[DocumentEntry]] = {}
        names = self._subjects()
        for start in range(0, len(names), _LOOKED_AT_ONCE):
            part = names[start : start + _LOOKED_AT_ONCE]
            for name, (entries, count) in zip(part, self._door.run(self._looked_at(part)), strict=True):
                self._counts.setdefault(name, count)
                if entries:
                    found[name] = entries
        return found

    def schedule(self) -> Schedule:
        """The last act of this job or of one before it."""
        return max((self.count(name).schedule for name in self._subjects()), default=Schedule())

    def entries(self, name: CollectionName, events: Sequence[Notification]) -> dict[str, DocumentEntry]:
        """What is known of the objects that events name, and of the documents whose side-cars these may be."""
        keys = dict.fromkeys(map(object_key, events))
        keys |= dict.fromkeys(
            object_key_of(event.tenant_id, event.bucket, sidecar_subject(event.key))
            for event in events
            if is_sidecar(event.key)
        )
        return self.entries_by_key(name, keys)

    def entries_by_key(self, name: CollectionName, object_keys: Iterable[str]) -> dict[str, DocumentEntry]:
        """The entries of some objects; those never heard of are left out."""
        return self._door.run(entries_of(self._registry(name), object_keys))

    def sidecars(self, name: CollectionName, documents: Iterable[tuple[str, str]]) -> dict[str, Metadata]:
        """What the side-cars of documents, by bucket and key, say: by the side-cars' objectKeys."""
        registry = self._registry(name)
        if name not in self._with_sidecars:
            if not self._door.run(has_sidecars(registry)):
                return {}
            self._with_sidecars.add(name)
        keys = [object_key_of(name.tenant, bucket, sidecar_key(key)) for bucket, key in documents]
        found = self.entries_by_key(name, keys)
        return {key: entry.metadata for key, entry in found.items() if entry.metadata}

    def attribute_types(self, name: CollectionName) -> dict[str, AttributeType]:
        """The attributes that the rows of a collection have so far."""
        return self._door.run(self._vectors(name).attributes())

    def all_entries(self, name: CollectionName) -> dict[str, DocumentEntry]:
        """All that is known of a collection's documents, by objectKey."""
        return {entry.object_key: entry for entry in self._door.run(list_entries(self._registry(name)))}

    def count(self, name: CollectionName) -> BatcherCount:
        if name not in self._counts:
            self._counts[name] = self._door.run(batcher_count(self._registry(name)))
        return self._counts[name]

    def known_vectors(self, name: CollectionName, texts: Iterable[str]) -> pa.Table:
        """`text` and `vector` of what a collection has already of some texts."""
        return self._door.run(known_vectors(self._vectors(name), texts))

    def check(self, name: CollectionName) -> None:
        """`InvalidInput` when the vectors of a collection's model cannot lie under its name."""
        self._vectors(name)

    # Writing ---------------------------------------------------------------------------------------------

    def write_settings(self, settings: IndexSettings) -> IndexSettings:
        """What an index is made with, from now on."""
        self._write(Changes().upsert(self._collection(SETTINGS), settings_rows(settings)))
        self.settings[settings.tenant, settings.index] = settings
        return settings

    def make_index(self, settings: IndexSettings) -> IndexSettings:
        """What a new index is made with. It is written with the plan of the event that makes it."""
        self.settings[settings.tenant, settings.index] = settings
        self._made.append(settings)
        return settings

    def write_plans(
        self,
        plans: Mapping[CollectionName, EventPlan],
        refused: Sequence[DocumentEntry] = (),
        *,
        schedule: Schedule,
        position: int | None = None,
        now_ms: int = 0,
        updates: Mapping[CollectionName, Sequence[MetadataUpdate]] = _NO_UPDATES,
    ) -> None:
        """Decisions, removals, room for the versions that begin, the time of their batches and the queue's position.

        And the settings of indexes that events of these plans have made: many new ones are one write.
        """
        changes = Changes() if position is None else Changes(SOURCE, position)
        counts: dict[CollectionName, BatcherCount] = {}
        for name, plan in plans.items():
            self._add_plan(changes, name, plan)
            self._add_updates(changes, name, updates.get(name, ()))
            counts[name] = self.count(name).at(now_ms).scheduled(schedule)
            changes.upsert(self._registry(name), batcher_row(counts[name]))
        if refused:
            changes.upsert(self._registry(REFUSED), entry_rows(refused))
        if self._made:
            changes.upsert(self._collection(SETTINGS), settings_rows(*self._made))
        self._write(changes)
        self._made.clear()
        self._counts.update(counts)

    def write_entries(self, entries: Sequence[tuple[CollectionName, DocumentEntry]]) -> None:
        """What is known of documents, and nothing else."""
        changes = Changes()
        for name, named in by_collection(entries).items():
            changes.upsert(self._registry(name), entry_rows(named))
        self._write(changes)

    def write_schedule(self, name: CollectionName, schedule: Schedule) -> None:
        """What is about to be done, as a row of one collection."""
        count = self.count(name).scheduled(schedule)
        self._write(Changes().upsert(self._registry(name), batcher_row(count)))
        self._counts[name] = count

    def write_counts(self, counts: Mapping[CollectionName, BatcherCount]) -> None:
        """How far batches are numbered, before some are sent that no repeated round would make."""
        changes = Changes()
        for name, count in counts.items():
            changes.upsert(self._registry(name), batcher_row(count))
        self._write(changes)
        self._counts.update(counts)

    def write_round(
        self,
        results: Sequence[tuple[CollectionName, Result]],
        rows: Mapping[CollectionName, pa.Table],
        counts: Mapping[CollectionName, BatcherCount],
        updates: Mapping[CollectionName, Sequence[MetadataUpdate]] = _NO_UPDATES,
    ) -> None:
        """Vectors, progress, the batcher's count and the versions that became current.

        The rows of a collection lie in the order of its results. Those that are too much for one write go before it:
        hidden, and written again as they are by a repeated round, they count from the moment that the last write says
        how far their documents have come.
        """
        vectors = {name: self._vectors(name) for name in counts}
        results_by = by_collection(results)
        changes = self._write_vectors(vectors, results_by, rows)
        for name, result in results:
            self._end(changes, vectors[name], result)
        for name, changed in updates.items():
            self._add_updates(changes, name, changed)
        for name, count in counts.items():
            registry = self._registry(name)
            if name in results_by:
                changes.upsert(registry, entry_rows(result.entry for result in results_by[name]))
            changes.upsert(registry, batcher_row(count))
        self._write(changes)
        self._counts.update(counts)

    def _write_vectors(
        self,
        vectors: Mapping[CollectionName, Collection],
        results: Mapping[CollectionName, Sequence[Result]],
        rows: Mapping[CollectionName, pa.Table],
    ) -> Changes:
        """The last vectors of a round, gathered for its last write; those before them are written."""
        changes, held = Changes(), 0
        for name, table in rows.items():
            owners = [result for result in results.get(name, ()) for _ in result.chunks]
            for start, part in _parts(table):
                if held and held + part.nbytes > WRITE_BYTES_MAX:
                    self._door.run(self._door.store.write(changes))
                    changes, held = Changes(), 0
                changes.upsert_versions(vectors[name], part, _versions(owners[start : start + part.num_rows]))
                held += part.nbytes
        return changes

    def remove_collection(self, name: CollectionName) -> None:
        """Drop a collection that no longer answers, and forget its documents, in steps that can be repeated.

        Its registry stays, empty: the count that makes batch ids unique must not begin again.
        """
        if name not in self._subjects():
            return
        self._door.run(self._door.store.drop(name))
        registry = self._registry(name)
        keys = list(self.all_entries(name))
        for start in range(0, len(keys), _REMOVED_AT_ONCE):
            self._write(Changes().delete(registry, keys[start : start + _REMOVED_AT_ONCE]))
        self._door.run(self._door.store.compact(registry.name))

    def _add_plan(self, changes: Changes, name: CollectionName, plan: EventPlan) -> None:
        if not plan.entries:
            return
        vectors = self._vectors(name)
        for document in plan.removed:
            changes.remove_document(vectors, document)
        for document, version in plan.dropped:
            changes.begin_version(vectors, document, version)
        changes.upsert(self._registry(name), entry_rows(plan.entries.values()))

    def _add_updates(self, changes: Changes, name: CollectionName, updates: Sequence[MetadataUpdate]) -> None:
        for update in updates:
            changes.update_document(self._vectors(name), update.document, update.values, version=update.version)

    @staticmethod
    def _end(changes: Changes, vectors: Collection, result: Result) -> None:
        document, version = result.entry.object_key, result.pending.version
        if result.flips:
            changes.flip(vectors, document, version)
        if result.drops:
            changes.begin_version(vectors, document, version)

    def _subjects(self) -> list[CollectionName]:
        """The collections that have a registry."""
        listed = self._door.run(self._door.store.collections())
        return [name for name in map(subject_of, listed) if name is not None and name != REFUSED]

    def _write(self, changes: Changes) -> None:
        """Durable when it returns, and so visible to whatever is read next."""
        self._door.run(self._door.store.write(changes, durable=True))

    def _vectors(self, name: CollectionName) -> Collection:
        dimensions = self.embedding.profile_of(name.model, (name.tenant, name.index)).dimensions
        return self._door.run(_opened(self._door.store, name, dimensions))

    async def _looked_at(self, names: Sequence[CollectionName]) -> list[tuple[list[DocumentEntry], BatcherCount]]:
        return await asyncio.gather(*map(self._look, names))

    async def _look(self, name: CollectionName) -> tuple[list[DocumentEntry], BatcherCount]:
        registry = await self._records(registry_name(name))
        return await pending_entries(registry), await batcher_count(registry)

    def _registry(self, name: CollectionName) -> Collection:
        return self._collection(registry_name(name))

    def _collection(self, name: CollectionName) -> Collection:
        return self._door.run(self._records(name))

    async def _records(self, name: CollectionName) -> Collection:
        """A collection that holds records and no vectors."""
        made = name.tenant, name.index, name.model
        return await self._door.store.collection(*made, dimensions=REGISTRY_DIMENSIONS, metric=REGISTRY_METRIC)


async def _opened(store: VectorStore, name: CollectionName, dimensions: int) -> Collection:
    """A collection of passages. One that was made before leads counted apart keeps its words as they are indexed."""
    made = name.tenant, name.index, name.model
    try:
        await store.collection(*made)
    except NotFound:
        return await store.collection(*made, dimensions=dimensions, analysis=TextAnalysis.LEADS)
    return await store.collection(*made, dimensions=dimensions)


def _parts(rows: pa.Table, start: int = 0) -> Iterator[tuple[int, pa.Table]]:
    """Rows in tables that one write can take, and where each begins; a round in small chunks may have more than fits."""
    if rows.num_rows <= 1 or rows.nbytes <= WRITE_BYTES_MAX:
        if rows.num_rows:
            yield start, rows
        return
    half = rows.num_rows // 2
    yield from _parts(rows.slice(0, half), start)
    yield from _parts(rows.slice(half), start + half)


def _versions(owners: Sequence[Result]) -> list[tuple[str, str, int]]:
    """The versions that rows are of, and how many each has; the rows of one lie together."""
    named = [(owner.entry.object_key, owner.pending.version) for owner in owners]
    return [(document, version, len(list(rows))) for (document, version), rows in groupby(named)]
