"""The driver's side of the store: every write of the indexing job, each of them whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from penstock.documents import Notification, object_key
from penstock.pipelines.embedding import Embedding
from penstock.pipelines.planning import Plan
from penstock.pipelines.registry import (
    REGISTRY_DIMENSIONS,
    REGISTRY_METRIC,
    BatcherCount,
    DocumentEntry,
    batcher_count,
    batcher_row,
    entries_of,
    entry_rows,
    registry_name,
)
from penstock.pipelines.rounds import Result
from penstock.pipelines.store_door import StoreDoor
from penstock.vector import Changes, Collection, CollectionName

__all__ = ["REFUSED", "IndexWriter"]

# Records of the queue that are no notifications: nobody's documents.
REFUSED: Final = CollectionName("penstock", "notifications", "refused")


class IndexWriter:
    """Blocking; called by the one thread that runs a micro-batch."""

    def __init__(self, url: str, path: str, options: dict[str, Any], embedding: Embedding) -> None:
        self._door = StoreDoor(url, path, options)
        self._embedding = embedding
        self._counts: dict[CollectionName, BatcherCount] = {}

    def close(self) -> None:
        self._door.close()

    # Reading ---------------------------------------------------------------------------------------------

    def position(self, source: str) -> int:
        """The last sequence of the queue that is in the store, or -1."""
        found = self._door.store.position(source)
        return -1 if found is None else found

    def entries(self, name: CollectionName, events: Iterable[Notification]) -> dict[str, DocumentEntry]:
        keys = dict.fromkeys(map(object_key, events))
        return self._door.run(entries_of(self._registry(name), keys))

    def count(self, name: CollectionName) -> BatcherCount:
        if name not in self._counts:
            self._counts[name] = self._door.run(batcher_count(self._registry(name)))
        return self._counts[name]

    # Writing ---------------------------------------------------------------------------------------------

    def write_refused(self, refused: Sequence[DocumentEntry]) -> None:
        self._write(Changes().upsert(self._registry(REFUSED), entry_rows(refused)))

    def write_plan(self, name: CollectionName, plan: Plan) -> None:
        """Decisions, removals, and room for the versions that begin."""
        if not plan.entries:
            return
        changes = Changes()
        vectors = self._vectors(name)
        for document in plan.removed:
            changes.remove_document(vectors, document)
        for document, version in plan.dropped:
            changes.begin_version(vectors, document, version)
        changes.upsert(self._registry(name), entry_rows(plan.entries.values()))
        self._write(changes)

    def write_round(
        self, results: Sequence[tuple[CollectionName, Result]], counts: Mapping[CollectionName, BatcherCount]
    ) -> None:
        """Vectors, progress, the batcher's count and the versions that became current."""
        changes = Changes()
        for name, result in results:
            self._add(changes, self._vectors(name), result)
        for name, count in counts.items():
            registry = self._registry(name)
            changes.upsert(registry, entry_rows(result.entry for found, result in results if found == name))
            changes.upsert(registry, batcher_row(count))
        self._write(changes, durable=True)
        self._counts.update(counts)

    def write_position(self, source: str, position: int) -> None:
        """Everything up to `position` is done."""
        self._write(Changes(source, position), durable=True)

    @staticmethod
    def _add(changes: Changes, vectors: Collection, result: Result) -> None:
        document, version = result.entry.object_key, result.pending.version
        if result.rows is not None:
            changes.upsert(vectors, result.rows, document=document, version=version)
        if result.flips:
            changes.flip(vectors, document, version)
        if result.drops:
            changes.begin_version(vectors, document, version)

    def _write(self, changes: Changes, *, durable: bool = False) -> None:
        self._door.run(self._door.store.write(changes, durable=durable))

    def _vectors(self, name: CollectionName) -> Collection:
        dimensions = self._embedding.profile_of(name.model).dimensions
        return self._door.run(self._door.store.collection(name.tenant, name.index, name.model, dimensions=dimensions))

    def _registry(self, name: CollectionName) -> Collection:
        found = registry_name(name)
        return self._door.run(
            self._door.store.collection(
                found.tenant, found.index, found.model, dimensions=REGISTRY_DIMENSIONS, metric=REGISTRY_METRIC
            )
        )
