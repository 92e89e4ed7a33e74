"""Reads, parses and chunks documents on executors.

Plain text is read by ranges, conditionally on the version that the notification named, from where the document's
progress stands; every other format is fetched whole and parsed in a process with limits. A task yields chunks and then
one row that tells how it ended: `more`, `end`, `superseded` (the object changed under the reader) or `quarantined`
(it cannot be read or parsed, with the reason). A store that does not answer is no fault of the document: it is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from penstock.documents import (
    BlockSource,
    ByteSource,
    CellChunks,
    Chunker,
    ChunkingConfig,
    MemorySource,
    UploadNotification,
    decode,
)
from penstock.documents.parsers import Format, ParserLimits, Sandbox, sniff
from penstock.errors import AtCapacity, Conflict, Corrupt, InvalidInput, NotFound, PermissionDenied, Unsupported
from penstock.objects import ObjectMeta, ObjectStore, StoreSpec
from penstock.pipelines.embedding import Embedding

__all__ = ["INPUT_SCHEMA", "OUTPUT_COLUMNS", "Outcome", "Reading", "read_documents"]

_INPUT: Final[list[pa.Field[Any]]] = [
    # The place of its share in the round, because one object may be read for several collections.
    pa.field("document", pa.int64()),
    pa.field("upload", pa.binary()),
    pa.field("first_cell", pa.int64()),
    pa.field("cells", pa.int64()),
    pa.field("next_byte_start", pa.int64()),
]
INPUT_SCHEMA: Final = pa.schema(_INPUT)
OUTPUT_COLUMNS: Final = (
    "document long, outcome string, start long, core_start long, end long, tokens long, text string, "
    "next_byte_start long, text_bytes long, detail array<string>"
)
_OUTPUT: Final[list[pa.Field[Any]]] = [
    pa.field("document", pa.int64()),
    pa.field("outcome", pa.string()),
    pa.field("start", pa.int64()),
    pa.field("core_start", pa.int64()),
    pa.field("end", pa.int64()),
    pa.field("tokens", pa.int64()),
    pa.field("text", pa.string()),
    pa.field("next_byte_start", pa.int64()),
    pa.field("text_bytes", pa.int64()),
    pa.field("detail", pa.list_(pa.string())),
]
_OUTPUT_SCHEMA: Final = pa.schema(_OUTPUT)
_SNIFFED_BYTES: Final = 4096
_ARCHIVE: Final = b"PK\x03\x04"
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
# Faults of a document, which no repeat heals.
_FAULTS: Final = (NotFound, InvalidInput, Unsupported, AtCapacity, Corrupt, PermissionDenied)


class Outcome:
    """The values of the column `outcome`."""

    CHUNK: Final = "chunk"
    MORE: Final = "more"
    END: Final = "end"
    SUPERSEDED: Final = "superseded"
    QUARANTINED: Final = "quarantined"


@dataclass(frozen=True)
class Reading:
    """How documents are read. Pickles with the task."""

    chunking: ChunkingConfig = field(default_factory=ChunkingConfig)
    # Knows what the models take.
    embedding: Embedding = field(default_factory=Embedding)
    limits: ParserLimits = field(default_factory=ParserLimits)
    # Where a bucket is, for those that are no URL and not on S3 under their own name.
    buckets: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def spec_of(self, bucket: str) -> StoreSpec:
        url = self.buckets.get(bucket) or (bucket if "://" in bucket else f"s3://{bucket}")
        return StoreSpec(url, {"read_only": True, **(self.options if not url.startswith("file:") else {})})


def read_documents(reading: Reading, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: rows of `INPUT_SCHEMA` in, rows of `OUTPUT_COLUMNS` out."""
    with _Reader(reading) as reader:
        for batch in batches:
            for row in batch.to_pylist():
                yield from reader.read(row)


class _Reader:
    """One task's loop, stores, parser and chunker."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._loop = asyncio.new_event_loop()
        self._stores: dict[str, ObjectStore] = {}
        self._sandbox = Sandbox(reading.limits)
        self._chunkers: dict[str, Chunker] = {}

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._sandbox.close()
        for store in self._stores.values():
            self._loop.run_until_complete(store.close())
        self._loop.close()

    def read(self, row: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        document = row["document"]
        try:
            upload = decode(row["upload"], UploadNotification)
            source, warnings = self._source(upload)
            yield from self._chunks(row, self._chunker(upload.model), source, warnings)
        except Conflict as error:
            yield _ending(document, Outcome.SUPERSEDED, [str(error)])
        except _FAULTS as error:
            yield _ending(document, Outcome.QUARANTINED, [str(error)])

    def _chunks(
        self, row: dict[str, Any], chunker: Chunker, source: ByteSource, warnings: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """The chunks of the cells that are asked for, and how far they reach."""
        count, blocks = chunker.cell_count(source.size), BlockSource(source)
        last = min(row["first_cell"] + row["cells"], count)
        reached = row["next_byte_start"]
        for number in range(row["first_cell"], last):
            cell = chunker.cell(blocks, number)
            reached = cell.end
            if cell.replaced_bytes:
                warnings.append(f"{cell.replaced_bytes} bytes of [{cell.start}, {cell.end}) are not UTF-8")
            yield _chunk_rows(row["document"], cell, row["next_byte_start"])
        outcome = Outcome.END if last == count else Outcome.MORE
        yield _ending(row["document"], outcome, warnings, reached, source.size)

    def _source(self, upload: UploadNotification) -> tuple[ByteSource, list[str]]:
        store = self._store(upload.bucket)
        meta = self._loop.run_until_complete(store.head(upload.key))
        if upload.etag and _bare(upload.etag) != _bare(meta.version):
            raise Conflict(f"{upload.key!r} is no longer what was notified", "its version has changed")
        source = _StoreSource(self._loop, store, meta)
        head = source.read(0, min(meta.size, _SNIFFED_BYTES))
        if not head.startswith((_ARCHIVE, *_UTF16)):
            found = sniff(head, name=upload.key, content_type=upload.content_type)
            if found is Format.TEXT:
                return source, []
        if meta.size > self._reading.limits.document_bytes:
            raise AtCapacity(
                f"{upload.key!r} has {meta.size} bytes", f"{self._reading.limits.document_bytes} can be parsed"
            )
        parsed = self._sandbox.parse(source.read(0, meta.size), name=upload.key, content_type=upload.content_type)
        return MemorySource(parsed.text), list(parsed.warnings)

    def _chunker(self, model: str) -> Chunker:
        if model not in self._chunkers:
            self._chunkers[model] = Chunker(self._reading.embedding.chunking_of(model, self._reading.chunking))
        return self._chunkers[model]

    def _store(self, bucket: str) -> ObjectStore:
        if bucket not in self._stores:
            self._stores[bucket] = self._loop.run_until_complete(self._reading.spec_of(bucket).open())
        return self._stores[bucket]


class _StoreSource:
    """One version of one object, by conditional range reads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: ObjectStore, meta: ObjectMeta) -> None:
        self._loop, self._store, self._meta = loop, store, meta

    @property
    def size(self) -> int:
        return self._meta.size

    def read(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        reading = self._store.get_range(self._meta.key, start, end, version=self._meta.version)
        return self._loop.run_until_complete(reading)


def _bare(etag: str) -> str:
    """Some notifications quote an etag, some do not."""
    return etag.strip('"')


def _chunk_rows(document: int, cell: CellChunks, resumed_at: int) -> pa.RecordBatch:
    chunks = [chunk for chunk in cell.chunks if chunk.core_start >= resumed_at]
    count = len(chunks)
    return pa.record_batch(
        [
            pa.array([document] * count, pa.int64()),
            pa.array([Outcome.CHUNK] * count, pa.string()),
            pa.array([chunk.start for chunk in chunks], pa.int64()),
            pa.array([chunk.core_start for chunk in chunks], pa.int64()),
            pa.array([chunk.end for chunk in chunks], pa.int64()),
            pa.array([chunk.tokens for chunk in chunks], pa.int64()),
            pa.array([chunk.text for chunk in chunks], pa.string()),
            pa.nulls(count, pa.int64()),
            pa.nulls(count, pa.int64()),
            pa.nulls(count, pa.list_(pa.string())),
        ],
        schema=_OUTPUT_SCHEMA,
    )


def _ending(
    document: int, outcome: str, detail: list[str], reached: int | None = None, text_bytes: int | None = None
) -> pa.RecordBatch:
    row = {
        "document": document,
        "outcome": outcome,
        "next_byte_start": reached,
        "text_bytes": text_bytes,
        "detail": detail,
    }
    return pa.RecordBatch.from_pylist([row], schema=_OUTPUT_SCHEMA)
