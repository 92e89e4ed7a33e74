"""Reads, parses and chunks documents on executors.

Plain text is read by ranges, conditionally on the version that the notification named, from where the document's
progress stands; every other format is fetched whole, parsed once in a process with limits, and its text put into the
store when it is too large for one round. A row names some cells of a text, so that several tasks can read one document.
Each yields their chunks and then one row that tells how it ended: `more`, `end`, `superseded` (the object changed under
the reader), `quarantined` (it cannot be read or parsed, with the reason), `restart` (its text is gone, and parsers of
today would make another), `apart` (it needs more time than others wait for) or `away` (its bucket does not answer, with
the reason). A bucket that answers a task for no document is not asked further by it: the others there are told as
`unasked`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec
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
    doc_id_of,
)
from penstock.documents.anchors import cell_count
from penstock.documents.parsers import (
    Format,
    OverBudget,
    ParsedDocument,
    ParserLimits,
    Sandbox,
    is_utf8,
    lasting_sandbox,
    sniff,
)
from penstock.documents.sources import BLOCK_BYTES
from penstock.errors import (
    AtCapacity,
    Conflict,
    Corrupt,
    InvalidInput,
    NotFound,
    PenstockError,
    PermissionDenied,
    Unavailable,
    Unsupported,
)
from penstock.objects import ObjectMeta, ObjectStore, RetryPolicy, StoreSpec
from penstock.objects.port import check_key
from penstock.objects.url import StoreUrl, parse_url
from penstock.pipelines.access import Access
from penstock.pipelines.embedding import Embedding
from penstock.pipelines.fetching import Fetched, Fetcher, Wanted, is_small, windows
from penstock.pipelines.parsed_texts import PARSED_PREFIX, parsed_key
from penstock.pipelines.workers import settle_worker

__all__ = ["INPUT_SCHEMA", "OUTPUT_COLUMNS", "Outcome", "Reading", "read_documents"]

_INPUT: Final[list[pa.Field[Any]]] = [
    # The place of its share in the round, because one object may be read for several collections.
    pa.field("document", pa.int64()),
    pa.field("upload", pa.binary()),
    pa.field("first_cell", pa.int64()),
    pa.field("cells", pa.int64()),
    pa.field("next_byte_start", pa.int64()),
    # As JSON, when the index has one of its own; else that of the reading.
    pa.field("chunking", pa.binary()),
    # Known from a round before: the text is read by ranges, from the object itself or from where it was put.
    pa.field("text_bytes", pa.int64()),
    pa.field("parsed", pa.string()),
    # Whether nobody waits for it: it is parsed with all that a document may take.
    pa.field("apart", pa.bool_()),
]
INPUT_SCHEMA: Final = pa.schema(_INPUT)
OUTPUT_COLUMNS: Final = (
    "document long, outcome string, start long, core_start long, end long, tokens long, text string, "
    "next_byte_start long, text_bytes long, version string, parsed string, parses long, detail array<string>"
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
    # Of the object as it was read: what the notification named, or the one it was found with.
    pa.field("version", pa.string()),
    pa.field("parsed", pa.string()),
    pa.field("parses", pa.int64()),
    pa.field("detail", pa.list_(pa.string())),
]
_OUTPUT_SCHEMA: Final = pa.schema(_OUTPUT)
# What a task hands to Spark at once.
_BATCH_ROWS_MAX: Final = 1024
_BATCH_CHARACTERS_MAX: Final = 4 << 20
# Faults of a document, which no repeat heals.
_FAULTS: Final = (NotFound, InvalidInput, Unsupported, AtCapacity, Corrupt, PermissionDenied)
# What content or a name can bring about in code that did not foresee it. Memory, disks and sockets are not among them:
# those are troubles of the machine, and another try may do.
_UNFORESEEN: Final = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError)

# Everybody's round waits for a bucket that does not answer: a short outage is outlasted, a longer one is the driver's.
_BUCKET_PATIENCE: Final = RetryPolicy(deadline_seconds=10.0)
# Documents of a bucket that may break off while they are read, one after the other, before a task leaves it alone.
_BROKEN_OFF_MAX: Final = 2

_Asked: TypeAlias = tuple[dict[str, Any], UploadNotification]


class Outcome:
    """The values of the column `outcome`."""

    CHUNK: Final = "chunk"
    MORE: Final = "more"
    END: Final = "end"
    SUPERSEDED: Final = "superseded"
    QUARANTINED: Final = "quarantined"
    RESTART: Final = "restart"
    AWAY: Final = "away"
    UNASKED: Final = "unasked"
    APART: Final = "apart"


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
    # URLs of what may be read besides `buckets`: local folders only so, and with `places_only` all other buckets too.
    places: tuple[str, ...] = ()
    places_only: bool = False
    # Where canonical texts wait that are too large for one round; without it they are parsed in every round.
    parsed: StoreSpec | None = None

    @property
    def access(self) -> Access:
        """What may be read, whoever asks."""
        own = self.parsed.url if self.parsed else None
        return Access((*self.places, *self.buckets.values()), only=self.places_only, own=own)

    def url_of(self, bucket: str) -> str:
        """Where a bucket is that an event names."""
        return self.buckets.get(bucket) or (bucket if "://" in bucket else f"s3://{bucket}")

    def spec_of(self, bucket: str) -> StoreSpec:
        """How it is opened. `az://account.container` is a container of that account, whatever else is asked there."""
        url = parse_url(self.url_of(bucket))
        options = dict(self.options) if url.scheme != "file" else {}
        account, dot, container = url.place.partition(".")
        if url.scheme == "az" and dot:
            if options.get("account_name", account) != account:
                # Of another account: neither works here.
                options = {name: value for name, value in options.items() if name not in ("account_key", "sas_token")}
            url, options = StoreUrl("az", container, url.prefix), {**options, "account_name": account}
        return StoreSpec(str(url), {"read_only": True, **options})


def read_documents(reading: Reading, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: rows of `INPUT_SCHEMA` in, rows of `OUTPUT_COLUMNS` out."""
    settle_worker("read")
    with lasting_sandbox(reading.limits) as sandbox, _Reader(reading, sandbox) as reader:
        yield from _packed(row for batch in batches for row in reader.read_all(batch.to_pylist()))


def _packed(rows: Iterator[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Many rows in a batch: Spark pays for each batch, and most documents have but a few chunks."""
    held: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row.get("text", ""))
        if len(held) >= _BATCH_ROWS_MAX or size >= _BATCH_CHARACTERS_MAX:
            yield pa.RecordBatch.from_pylist(held, _OUTPUT_SCHEMA)
            held, size = [], 0
    if held:
        yield pa.RecordBatch.from_pylist(held, _OUTPUT_SCHEMA)


class _Reader:
    """One task's loop, stores, parser and chunker."""

    def __init__(self, reading: Reading, sandbox: Sandbox) -> None:
        self._reading = reading
        self._access = reading.access
        self._loop = asyncio.new_event_loop()
        self._stores: dict[str, ObjectStore] = {}
        self._sandbox = sandbox
        self._fetcher: Fetcher[int] = Fetcher(self._loop)
        # What was asked for ahead, by the document it is of.
        self._fetched: dict[int, Fetched | None] = {}
        self._chunkers: dict[str | bytes, Chunker] = {}
        # Buckets that answered this task, those that did not, and how often one broke off while it was read.
        self._answered: set[str] = set()
        self._away: set[str] = set()
        self._broken_off: Counter[str] = Counter()

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._fetcher.close()
        for store in self._stores.values():
            self._loop.run_until_complete(store.close())
        self._loop.close()

    def read_all(self, rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """What is read of all of them; those whose objects do not answer soon come last."""
        late: list[_Asked] = []
        asked = [(row, decode(row["upload"], UploadNotification)) for row in rows]
        for some in windows((one, one[1].size_bytes if is_small(one[1]) else 0) for one in asked):
            self._ask_ahead(some)
            for row, upload in some:
                if self._fetcher.is_late(row["document"]):
                    late.append((row, upload))
                else:
                    yield from self.read(row, upload)
        if late:
            self._fetched = self._fetcher.rest()
            self._judge(late)
            for row, upload in late:
                yield from self.read(row, upload)

    def _ask_ahead(self, asked: Sequence[_Asked]) -> None:
        """All objects of a window at once."""
        self._fetched = {}
        wanted: dict[int, Wanted] = {}
        for row, upload in asked:
            if upload.bucket in self._away:
                continue
            try:
                wanted[row["document"]] = Wanted(self._bucket(upload), upload, whole=row["parsed"] is None)
            except Unavailable as error:
                self._fetched[row["document"]] = error
            except (PenstockError, *_UNFORESEEN):
                # Whoever reads from it finds out, and tells it of its document.
                continue
        self._fetched |= self._fetcher.soon(wanted)
        self._judge(asked)

    def _judge(self, asked: Sequence[_Asked]) -> None:
        """A bucket that answered for anybody is there; one that gave no answer to anybody is away."""
        known = [(row["document"], upload.bucket) for row, upload in asked if row["document"] in self._fetched]
        told = [(bucket, self._fetched[document]) for document, bucket in known]
        self._answered |= {bucket for bucket, what in told if not isinstance(what, Unavailable)}
        self._away |= {bucket for bucket, what in told if isinstance(what, Unavailable)} - self._answered

    def read(self, row: dict[str, Any], upload: UploadNotification) -> Iterator[dict[str, Any]]:
        if upload.bucket in self._away and row["document"] not in self._fetched:
            yield _ending(row["document"], Outcome.UNASKED, [])
            return
        try:
            yield from self._read(row, upload)
        except Unavailable as error:
            self._broken_off[upload.bucket] += row["document"] not in self._fetched
            if upload.bucket not in self._answered or self._broken_off[upload.bucket] >= _BROKEN_OFF_MAX:
                self._away.add(upload.bucket)
            yield _ending(row["document"], Outcome.AWAY, [str(error)])

    def _read(self, row: dict[str, Any], upload: UploadNotification) -> Iterator[dict[str, Any]]:
        document = row["document"]
        try:
            text = self._text(upload, row)
            if text is None:
                yield _ending(document, Outcome.RESTART, [])
            else:
                yield from self._chunks(row, self._chunker(upload.model, row["chunking"]), text)
        except OverBudget as error:
            yield _ending(document, Outcome.APART, [str(error)])
        except Conflict as error:
            yield _ending(document, Outcome.SUPERSEDED, [str(error)])
        except _FAULTS as error:
            yield _ending(document, Outcome.QUARANTINED, [str(error)])
        except PenstockError:
            raise
        except _UNFORESEEN as error:
            yield _ending(document, Outcome.QUARANTINED, [f"it cannot be read: {type(error).__name__}: {error}"])

    def _chunks(self, row: dict[str, Any], chunker: Chunker, text: _Text) -> Iterator[dict[str, Any]]:
        """The chunks of the cells that are asked for, and how far they reach."""
        count = chunker.cell_count(text.source.size)
        last = min(row["first_cell"] + row["cells"], count)
        reached = row["next_byte_start"]
        for number in range(row["first_cell"], last):
            cell = chunker.cell(text.source, number)
            reached = cell.end
            if cell.replaced_bytes:
                text.warnings.append(f"{cell.replaced_bytes} bytes of [{cell.start}, {cell.end}) are not UTF-8")
            yield from _chunk_rows(row["document"], cell, row["next_byte_start"])
        outcome = Outcome.END if last == count else Outcome.MORE
        yield _ending(row["document"], outcome, text.warnings, reached, text)

    def _text(self, upload: UploadNotification, row: dict[str, Any]) -> _Text | None:
        """The text of a document, by ranges or parsed; None when the one it was begun with cannot be had again."""
        source = self._object(upload, self._fetched.get(row["document"]))
        if row["parsed"]:
            kept = self._kept(row["parsed"])
            if kept is not None:
                return _Text(kept, kept.size, source.version, row["parsed"])
        elif row["text_bytes"] is not None or self._is_plain(source, upload):
            return _Text(source, source.size, source.version)
        parsed = self._parse(source, upload, None if row["apart"] else self._reading.limits.round_cpu_seconds)
        key = parsed_key(doc_id_of(upload))
        if row["parsed"] and row["parsed"] != key:
            return None
        return self._kept_for_later(parsed, source.version, key, row)

    def _object(self, upload: UploadNotification, fetched: Fetched | None) -> _Object:
        if isinstance(fetched, Unavailable):
            raise fetched
        if isinstance(fetched, bytes):
            assert upload.etag is not None
            return _Object(MemorySource(fetched), upload.etag)
        store = self._bucket(upload)
        meta = fetched or self._loop.run_until_complete(store.head(upload.key))
        if upload.etag and _bare(upload.etag) != _bare(meta.version):
            raise Conflict(f"{upload.key!r} is no longer what was notified", "its version has changed")
        return _Object(_StoreSource(self._loop, store, meta), meta.version)

    def _is_plain(self, source: _Object, upload: UploadNotification) -> bool:
        """Whether it can be read by ranges: a text in UTF-8, or one of another encoding that is too large to parse."""
        head = source.read(0, min(source.size, BLOCK_BYTES))
        if sniff(head, name=upload.key, content_type=upload.content_type) is not Format.TEXT:
            return False
        # The first block tells for all: whoever chunks the text reads it anyway.
        too_large = source.size > self._reading.limits.document_bytes
        return too_large or is_utf8(head, cut=source.size > len(head))

    def _parse(self, source: _Object, upload: UploadNotification, budget: int | None) -> ParsedDocument:
        limit = self._reading.limits.document_bytes
        if source.size > limit:
            raise AtCapacity(f"{upload.key!r} has {source.size} bytes", f"{limit} can be parsed")
        data = source.whole()
        return self._sandbox.parse(
            data, tenant=upload.tenant_id, name=upload.key, content_type=upload.content_type, budget=budget
        )

    def _kept_for_later(self, parsed: ParsedDocument, version: str, key: str, row: dict[str, Any]) -> _Text:
        """The text, put where later rounds find it when this one does not read all of it."""
        warnings = [] if row["parsed"] else list(parsed.warnings)
        cells = cell_count(len(parsed.text), self._reading.chunking.cell_bytes)
        spec = self._reading.parsed
        if spec is None or cells <= row["first_cell"] + row["cells"]:
            return _Text(MemorySource(parsed.text), None, version, None, 1, warnings)
        self._loop.run_until_complete(self._store(PARSED_PREFIX, spec).put(key, parsed.text))
        return _Text(MemorySource(parsed.text), len(parsed.text), version, key, 1, warnings)

    def _kept(self, key: str) -> _Object | None:
        spec = self._reading.parsed
        if spec is None:
            return None
        store = self._store(PARSED_PREFIX, spec)
        try:
            meta = self._loop.run_until_complete(store.head(key))
            return _Object(_StoreSource(self._loop, store, meta), meta.version)
        except NotFound:
            return None

    def _chunker(self, model: str, own: bytes | None) -> Chunker:
        known = own or model
        if known not in self._chunkers:
            reading = self._reading
            chunking = msgspec.json.decode(own, type=ChunkingConfig) if own else reading.chunking
            self._chunkers[known] = Chunker(reading.embedding.chunking_of(model, chunking))
        return self._chunkers[known]

    def _bucket(self, upload: UploadNotification) -> ObjectStore:
        """Where an object is read from, if that may be."""
        spec = self._reading.spec_of(upload.bucket)
        self._access.check(self._reading.url_of(upload.bucket), check_key(upload.key))
        return self._store(upload.bucket, StoreSpec(spec.url, {"retry": _BUCKET_PATIENCE, **spec.options}))

    def _store(self, name: str, spec: StoreSpec) -> ObjectStore:
        if name not in self._stores:
            self._stores[name] = self._loop.run_until_complete(spec.open())
        return self._stores[name]


@dataclass(slots=True)
class _Text:
    """What is chunked. `text_bytes` is None where a later round must parse again, because the text is kept nowhere."""

    source: ByteSource
    text_bytes: int | None
    version: str
    parsed: str | None = None
    parses: int = 0
    warnings: list[str] = field(default_factory=list)


class _Object(BlockSource):
    """One version of one object. Whoever sniffs at it and whoever reads it share the blocks: a small one is one read."""

    def __init__(self, ranges: ByteSource, version: str) -> None:
        self._ranges = ranges
        self.version = version
        super().__init__(ranges)

    def whole(self) -> bytes:
        return self.read(0, self.size) if self.size <= BLOCK_BYTES else self._ranges.read(0, self.size)


class _StoreSource:
    """By conditional range reads."""

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


def _chunk_rows(document: int, cell: CellChunks, resumed_at: int) -> Iterator[dict[str, Any]]:
    for chunk in cell.chunks:
        if chunk.core_start >= resumed_at:
            yield {
                "document": document,
                "outcome": Outcome.CHUNK,
                "start": chunk.start,
                "core_start": chunk.core_start,
                "end": chunk.end,
                "tokens": chunk.tokens,
                "text": chunk.text,
            }


def _ending(
    document: int, outcome: str, detail: list[str], reached: int | None = None, text: _Text | None = None
) -> dict[str, Any]:
    row = {"document": document, "outcome": outcome, "next_byte_start": reached, "detail": detail}
    if text is not None:
        row |= {"text_bytes": text.text_bytes, "version": text.version, "parsed": text.parsed, "parses": text.parses}
    return row
