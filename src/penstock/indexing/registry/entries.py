"""What is known of every document, kept beside its vectors: one row an object in a collection of the same store.

The rows of a collection's documents lie in a second collection, named after the first, so that vectors, progress and
the position in the queue reach the store in one write and can never disagree. A row holds its entry as JSON; a row of
its own holds how far the batcher has counted. Entries are immutable; whoever changes one writes a new one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from penstock.documents import (
    NO_OUTLINE,
    DocumentReport,
    Metadata,
    ObjectState,
    Outline,
    Progress,
    UploadNotification,
    is_sidecar,
)
from penstock.errors import Corrupt, InvalidInput
from penstock.undecodable import UNDECODABLE
from penstock.vector import Collection, CollectionName, CollectionReader, DistanceMetric, attribute

__all__ = [
    "REGISTRY_DIMENSIONS",
    "REGISTRY_METRIC",
    "SOURCE",
    "VECTOR_PATH",
    "BatcherCount",
    "DocumentEntry",
    "Pending",
    "Schedule",
    "Wait",
    "batcher_count",
    "batcher_row",
    "check_names",
    "entries_of",
    "entry_rows",
    "has_sidecars",
    "list_entries",
    "pending_entries",
    "record_rows",
    "records_of",
    "registry_name",
    "subject_of",
]

# Where the vectors of a store lie in it, and the name under which its queue's position is kept there.
VECTOR_PATH: Final = "vectors"
SOURCE: Final = "queue"
# Rows need a vector; that of an entry is made from its id and only spreads the rows over lists.
REGISTRY_DIMENSIONS: Final = 8
REGISTRY_METRIC: Final = DistanceMetric.L2
_SUFFIX: Final = "#documents"
# Of the project's own collections: the settings of all indexes, and records that are no events.
_OWN_TENANT: Final = "penstock"
# No objectKey, which is 64 hexadecimal digits.
_BATCHER: Final = "batcher"
# The attribute of entries that are side-car files.
SIDECAR: Final = "sidecar"


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a document is not worked on for a while: its bucket did not answer, or its model did not."""

    reason: str
    tries: int
    # When it is tried again; zero once that is decided, which is written down like everything that decides on a round.
    until_ms: int = 0
    # Whether its bucket or its model answered for nobody: then all other documents there wait with it.
    whole: bool = False
    # Whether it was the model.
    model: bool = False


class Pending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A version that is being built, hidden, and how far that has come."""

    upload: UploadNotification
    doc_id: str
    version: str
    # Of the chunking that the progress was made with.
    fingerprint: str
    # Its place among all that are pending: the lowest is worked on first.
    turn: int = 0
    # When its event reached the queue.
    queued_ms: int = 0
    progress: Progress = Progress()
    # Of the text, which for a parsed document is not the object's own size; known once a part of it was read.
    text_bytes: int | None = None
    # The object of the store that holds the text of a parsed document, while there is one.
    parsed: str | None = None
    chunks: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    # Chunks whose vectors the collection had already.
    reused: int = 0
    # Chunks that the model refused.
    lost: int = 0
    # Chunks without a vector: those, and others in which the model knows nothing.
    words_only: int = 0
    warnings: tuple[str, ...] = ()
    # Title and headings above the place that was reached.
    outline: Outline = NO_OUTLINE
    # Set when its bucket did not answer, until something of it was read.
    wait: Wait | None = None
    # Set when parsing it took longer than others wait for.
    apart: bool = False

    @property
    def asleep(self) -> bool:
        """Whether it is left alone until its bucket is tried again."""
        return self.wait is not None and self.wait.until_ms > 0

    def anew(self, *, fingerprint: str, turn: int) -> Pending:
        """The same version, of which nothing is read yet."""
        return Pending(
            upload=self.upload,
            doc_id=self.doc_id,
            version=self.version,
            fingerprint=fingerprint,
            turn=turn,
            queued_ms=self.queued_ms,
            apart=self.apart,
        )


class DocumentEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One object: the order of its events, the version that is searchable, the one to come, the last report."""

    object_key: str
    bucket: str
    key: str
    state: ObjectState
    current: str | None = None
    # Of the chunking that made the current version: another one means that it is made again.
    fingerprint: str | None = None
    pending: Pending | None = None
    report: DocumentReport | None = None
    # What was last told of the object and accepted; None once it is gone.
    upload: UploadNotification | None = None
    # What its notification said beside the content of the current version; of a side-car file, what that says.
    metadata: Metadata | None = None
    # The etag that a person took out of the index: whoever tells of it, it does not come back unless asked for.
    forgotten: str | None = None


class Schedule(msgspec.Struct, frozen=True, order=True, array_like=True):
    """The job's last act in any collection, and so the greatest of all: which plan, and how many rounds since.

    `spare` says that rounds beyond those of the micro-batch are worked: one may be under way at any moment.
    """

    position: int = -1
    rounds: int = 0
    spare: bool = False

    def worked(self) -> Schedule:
        return Schedule(self.position, self.rounds + 1, self.spare)


class BatcherCount(msgspec.Struct, frozen=True, omit_defaults=True):
    """What makes batch ids unique and repeatable; everything else of a batcher follows from the entries."""

    counter: int = 0
    clock_ms: int = 0
    schedule: Schedule = Schedule()

    def at(self, now_ms: int) -> BatcherCount:
        """The count once it is that late; its time never goes back."""
        return msgspec.structs.replace(self, clock_ms=max(self.clock_ms, now_ms))

    def scheduled(self, schedule: Schedule) -> BatcherCount:
        return msgspec.structs.replace(self, schedule=schedule)


_R = TypeVar("_R", DocumentEntry, BatcherCount)

# Described to msgspec here and not at first use, which crashes when two threads are the first at the same time.
for _kind in (DocumentEntry, BatcherCount):
    msgspec.json.Decoder(_kind)


def registry_name(name: CollectionName) -> CollectionName:
    """Where the entries of a collection's documents lie."""
    return CollectionName(name.tenant, name.index, name.model + _SUFFIX)


def subject_of(name: CollectionName) -> CollectionName | None:
    """The collection whose documents are listed in `name`; None if it is not a registry."""
    if not name.model.endswith(_SUFFIX):
        return None
    return CollectionName(name.tenant, name.index, name.model.removesuffix(_SUFFIX))


def check_names(name: CollectionName) -> None:
    """Refuse names that cannot be an index's: its collections would be too long to name, or those of another's."""
    registry_name(name)
    if subject_of(name) is not None:
        raise InvalidInput(
            f"model {name.model!r} cannot be used", "its name ends like the name of a registry", "choose another name"
        )
    if name.tenant == _OWN_TENANT:
        raise InvalidInput(
            f"tenant {name.tenant!r} cannot be used", "the store's own records are kept under it", "choose another name"
        )


def entry_rows(entries: Iterable[DocumentEntry]) -> pa.Table:
    """Rows to upsert, one an entry."""
    listed = list(entries)
    keys, records = [entry.object_key for entry in listed], [msgspec.json.encode(entry) for entry in listed]
    sidecars = [is_sidecar(entry.key) or None for entry in listed]
    return record_rows(keys, records, [entry.pending is not None for entry in listed], sidecars)


def batcher_row(count: BatcherCount) -> pa.Table:
    return record_rows([_BATCHER], [msgspec.json.encode(count)])


async def entries_of(registry: CollectionReader, object_keys: Iterable[str]) -> dict[str, DocumentEntry]:
    """The entries of some objects; those never heard of are left out."""
    found = await registry.get(object_keys, ["attributes"])
    entries = [_decode(row, DocumentEntry) for row in records_of(found)]
    return {entry.object_key: entry for entry in entries}


async def has_sidecars(registry: CollectionReader) -> bool:
    """Whether some object was ever a side-car file."""
    return SIDECAR in await registry.attributes()


async def batcher_count(registry: Collection) -> BatcherCount:
    records = records_of(await registry.get([_BATCHER], ["attributes"]))
    return _decode(records[0], BatcherCount) if records else BatcherCount()


async def pending_entries(registry: CollectionReader) -> list[DocumentEntry]:
    """The entries of documents that are begun and not done."""
    try:
        pages = [page async for page in registry.scan(attribute("pending") == True, ["attributes"])]  # noqa: E712
    except InvalidInput:
        # A registry that has never said what is pending: then the queue still holds it.
        return []
    return [_decode(record, DocumentEntry) for page in pages for record in records_of(page)]


async def list_entries(registry: CollectionReader) -> list[DocumentEntry]:
    """The entries of all objects, by bucket and key, as they were at one moment."""
    pages = [page async for page in registry.scan(columns=["id", "attributes"])]
    named = [pair for page in pages for pair in zip(page["id"].to_pylist(), records_of(page), strict=True)]
    entries = [_decode(record, DocumentEntry) for row, record in named if row != _BATCHER]
    return sorted(entries, key=lambda entry: (entry.bucket, entry.key))


def record_rows(
    ids: list[str],
    records: list[bytes],
    pending: list[bool] | None = None,
    sidecars: Sequence[bool | None] = (),
) -> pa.Table:
    """Rows that hold records as JSON; their vectors say nothing."""
    places = [np.frombuffer(hashlib.sha256(row.encode()).digest()[:REGISTRY_DIMENSIONS], np.uint8) for row in ids]
    vectors = np.array(places, np.float32).reshape(-1)
    attributes: list[pa.Array[Any]] = [
        pa.array([record.decode() for record in records], pa.string()),
        pa.array(pending or [False] * len(ids), pa.bool_()),
        # Only where there are some: a registry without the attribute has none to look for.
        pa.array(sidecars or [None] * len(ids), pa.bool_()),
    ]
    return pa.table(
        {
            "id": pa.array(ids, pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors), REGISTRY_DIMENSIONS),
            "attributes": pa.StructArray.from_arrays(attributes, names=["record", "pending", SIDECAR]),
        }
    )


def records_of(found: pa.Table) -> list[str]:
    """The records of such rows."""
    return [row["attributes"]["record"] for row in found.select(["attributes"]).to_pylist()]


def _decode(record: str, kind: type[_R]) -> _R:
    try:
        return msgspec.json.decode(record, type=kind)
    except UNDECODABLE as error:
        raise Corrupt(f"a {kind.__name__} of the registry cannot be read", str(error)) from error
