"""Reads, parses and chunks documents: what one task of the reading stage does, in whatever process it runs.

Plain text is read by ranges, conditionally on the version that the notification named, from where the document's
progress stands; every other format is fetched whole, parsed once in a process with limits, and its text put into the
store when it is too large for one round. What is wrong with a document or its bucket becomes its ending
(`readings.ReadOutcome`), and the others go on. A bucket that answers a task for no document is not asked further by it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents import (
    BLOCK_BYTES,
    SIDECAR_BYTES_MAX,
    BlockSource,
    ByteSource,
    BytesSource,
    Chunk,
    Chunker,
    ChunkingConfig,
    UploadNotification,
    cell_count,
    doc_id_of,
    is_sidecar,
    parse_sidecar,
    vo_key,
)
from penstock.documents.parsers import (
    TEXTUAL,
    Format,
    OverBudget,
    ParsedDocument,
    ParserLimits,
    ParserOptions,
    Sandbox,
    is_utf8,
    lasting_sandbox,
)
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
from penstock.indexing.stages.access import Access, bucket_url
from penstock.indexing.stages.embedding import Embedding
from penstock.indexing.stages.fetching import Fetched, Fetcher, FetchLimits, Wanted, is_small, windows
from penstock.indexing.stages.parsed_texts import parsed_key
from penstock.indexing.stages.readings import Ending, Piece, ReadOutcome, ReadRequest
from penstock.objects import Object, ObjectMeta, ObjectStore, RetryPolicy, StoreSpec, StoreUrl, check_key, parse_url
from penstock.observability import SILENT, Observer, names

__all__ = ["Reading", "read_documents"]

# Faults of a document, which no repeat heals.
_FAULTS: Final = (NotFound, InvalidInput, Unsupported, AtCapacity, Corrupt, PermissionDenied)
# What content or a name can bring about in code that did not foresee it. Memory, disks and sockets are not among them:
# those are troubles of the machine, and another try may do.
_UNFORESEEN: Final = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError)

# Everybody's round waits for a bucket that does not answer: a short outage is outlasted, a longer one is the driver's.
_BUCKET_PATIENCE: Final = RetryPolicy(deadline_seconds=10.0)
# Documents of a bucket that may break off while they are read, one after the other, before a task leaves it alone.
_BROKEN_OFF_MAX: Final = 2
_Asked: TypeAlias = tuple[int, ReadRequest]


@dataclass(frozen=True)
class Reading:
    """How documents are read. Pickles with the task."""

    chunking: ChunkingConfig = field(default_factory=ChunkingConfig)
    # Knows what the models take.
    embedding: Embedding = field(default_factory=Embedding)
    limits: ParserLimits = field(default_factory=ParserLimits)
    parsing: ParserOptions = field(default_factory=ParserOptions)
    # Where a bucket is, for those that are no URL and not on S3 under their own name.
    buckets: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    # The same by the scheme of a bucket's URL, for those that are read beside each other.
    services: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    fetching: FetchLimits = field(default_factory=FetchLimits)
    # URLs of what may be read besides `buckets`: local folders only so, and with `places_only` all other buckets too.
    places: tuple[str, ...] = ()
    places_only: bool = False
    # Where canonical texts wait that are too large for one round; without it they are parsed in every round.
    parsed: StoreSpec | None = None

    @property
    def access(self) -> Access:
        """What may be read, whoever asks."""
        return Access((*self.places, *self.buckets.values()), only=self.places_only, own=self.parsed)

    def url_of(self, bucket: str) -> str:
        """Where a bucket is that an event names."""
        return self.buckets.get(bucket) or bucket_url(bucket)

    def spec_of(self, bucket: str) -> StoreSpec:
        """How it is opened. `az://account.container` is a container of that account, whatever else is asked there."""
        url = parse_url(self.url_of(bucket))
        options = {**self.services.get(url.scheme, {}), **self.options} if url.scheme != "file" else {}
        account, dot, container = url.place.partition(".")
        if url.scheme == "az" and dot:
            if options.get("account_name", account) != account:
                # Of another account: neither works here.
                options = {name: value for name, value in options.items() if name not in ("account_key", "sas_token")}
            url, options = StoreUrl("az", container, url.prefix), {**options, "account_name": account}
        return StoreSpec(str(url), {"read_only": True, **options})


def read_documents(
    reading: Reading, asked: Sequence[tuple[int, ReadRequest]], *, observer: Observer = SILENT
) -> Iterator[Piece]:
    """What is read of each request, told apart by their places: its chunks, and then how it ended."""
    with lasting_sandbox(reading.limits, reading.parsing) as sandbox, _Reader(reading, sandbox, observer) as reader:
        yield from reader.read_all(asked)


class _Reader:
    """One task's loop, stores, parser and chunker."""

    def __init__(self, reading: Reading, sandbox: Sandbox, observer: Observer = SILENT) -> None:
        self._reading, self._observer = reading, observer
        self._access = reading.access
        self._loop = asyncio.new_event_loop()
        # By the names that events give buckets, and None for the one of parsed texts: no event can name it. One that
        # could not be opened is not tried again by this task.
        self._stores: dict[str | None, asyncio.Task[ObjectStore]] = {}
        self._sandbox = sandbox
        self._fetcher: Fetcher[int] = Fetcher(self._loop, observer=observer)
        # What was asked for ahead, by the document it is of.
        self._fetched: dict[int, Fetched | None] = {}
        self._chunkers: dict[ChunkingConfig, Chunker] = {}
        # Buckets that answered this task, those that did not, and how often one broke off while it was read.
        self._answered: set[str] = set()
        self._away: set[str] = set()
        self._broken_off: Counter[str] = Counter()

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._fetcher.close()
        self._loop.run_until_complete(self._close_stores())
        self._loop.close()

    async def _close_stores(self) -> None:
        for opening in self._stores.values():
            opening.cancel()
        for store in await asyncio.gather(*self._stores.values(), return_exceptions=True):
            if not isinstance(store, BaseException):
                await store.close()

    def read_all(self, asked: Sequence[_Asked]) -> Iterator[Piece]:
        """What is read of all of them; those whose objects do not answer soon come last."""
        late: list[_Asked] = []
        sized = ((one, _fetched_bytes(one[1].upload)) for one in asked)
        for some in windows(sized, self._reading.fetching):
            self._ask_ahead(some)
            for place, request in some:
                if self._fetcher.is_late(place):
                    late.append((place, request))
                else:
                    yield from self.read(place, request)
        if late:
            self._fetched = self._fetcher.rest()
            self._judge(late)
            for place, request in late:
                yield from self.read(place, request)

    def _ask_ahead(self, asked: Sequence[_Asked]) -> None:
        """All objects of a window at once."""
        self._fetched = {}
        wanted: dict[int, Wanted] = {}
        for place, request in asked:
            upload = request.upload
            if upload.bucket in self._away:
                continue
            try:
                opened = partial(self._opened, upload.bucket, self._spec(upload))
                wanted[place] = Wanted(opened, upload, request.parsed is None, self._reading.fetching.object_metadata)
            except (PenstockError, *_UNFORESEEN):
                # Whoever reads from it finds out, and tells it of its document.
                continue
        self._fetched |= self._fetcher.soon(wanted)
        self._judge(asked)

    def _judge(self, asked: Sequence[_Asked]) -> None:
        """A bucket that answered for anybody is there; one that gave no answer to anybody is away."""
        known = [(place, request.upload.bucket) for place, request in asked if place in self._fetched]
        told = [(bucket, self._fetched[place]) for place, bucket in known]
        self._answered |= {bucket for bucket, what in told if not isinstance(what, Unavailable)}
        self._away |= {bucket for bucket, what in told if isinstance(what, Unavailable)} - self._answered

    def read(self, place: int, request: ReadRequest) -> Iterator[Piece]:
        bucket, fetched = request.upload.bucket, self._fetched.get(place)
        if bucket in self._away and not isinstance(fetched, bytes | Object | Unavailable):
            yield place, Ending(outcome=ReadOutcome.UNASKED)
            return
        try:
            for piece in _traced(request, self._read(request, fetched), self._observer):
                yield place, piece
        except Unavailable as error:
            self._broken_off[bucket] += not isinstance(fetched, Unavailable)
            if bucket not in self._answered or self._broken_off[bucket] >= _BROKEN_OFF_MAX:
                self._away.add(bucket)
            yield place, Ending(outcome=ReadOutcome.AWAY, detail=(str(error),))

    def _read(self, request: ReadRequest, fetched: Fetched | None) -> Iterator[Chunk | Ending]:
        try:
            if is_sidecar(request.upload.key):
                yield self._sidecar(request, fetched)
                return
            text = self._text(request, fetched)
            if text is None:
                yield Ending(outcome=ReadOutcome.RESTART)
            else:
                yield from self._chunks(request, text)
        except OverBudget as error:
            yield Ending(outcome=ReadOutcome.APART, detail=(str(error),))
        except Conflict as error:
            yield Ending(outcome=ReadOutcome.SUPERSEDED, detail=(str(error),))
        except _FAULTS as error:
            yield Ending(outcome=ReadOutcome.QUARANTINED, detail=(str(error),))
        except PenstockError:
            raise
        except _UNFORESEEN as error:
            told = f"it cannot be read: {type(error).__name__}: {error}"
            yield Ending(outcome=ReadOutcome.QUARANTINED, detail=(told,))

    def _sidecar(self, request: ReadRequest, fetched: Fetched | None) -> Ending:
        """What a side-car file says of its document; it has no text of its own."""
        source = self._object(request.upload, fetched)
        # One byte too many is enough to refuse it by its size.
        metadata, warnings = parse_sidecar(source.read(0, min(source.size, SIDECAR_BYTES_MAX + 1)))
        told = msgspec.json.encode(metadata).decode()
        return Ending(outcome=ReadOutcome.END, detail=warnings, version=source.version, metadata=told)

    def _chunks(self, request: ReadRequest, text: _Text) -> Iterator[Chunk | Ending]:
        """The chunks of the cells that are asked for, and how far they reach."""
        chunker = self._chunker(request)
        count = chunker.cell_count(text.source.size)
        last = min(request.first_cell + request.cells, count)
        reached = request.progress.next_byte_start
        for number in range(request.first_cell, last):
            cell = chunker.cell(text.source, number)
            reached = cell.end
            if cell.replaced_bytes:
                text.warnings.append(f"{cell.replaced_bytes} bytes of [{cell.start}, {cell.end}) are not UTF-8")
            new = [chunk for chunk in cell.chunks if chunk.core_start >= request.progress.next_byte_start]
            self._observer.count(names.INDEXING_DUPLICATES, len(cell.chunks) - len(new), what="chunk")
            yield from new
        yield Ending(
            outcome=ReadOutcome.END if last == count else ReadOutcome.MORE,
            detail=tuple(text.warnings),
            next_byte_start=reached,
            text_bytes=text.text_bytes,
            version=text.version,
            parsed=text.parsed,
            parses=text.parses,
            title=text.title,
            said=text.said,
        )

    def _text(self, request: ReadRequest, fetched: Fetched | None) -> _Text | None:
        """The text of a document, by ranges or parsed; None when the one it was begun with cannot be had again."""
        upload = request.upload
        source = self._object(upload, fetched)
        if request.parsed:
            kept = self._kept(request.parsed)
            if kept is not None:
                return _Text(kept, kept.size, source.version, request.parsed, said=source.said)
        elif request.text_bytes is not None or self._is_plain(source, upload):
            return _Text(source, source.size, source.version, said=source.said)
        parsed = self._parse(source, upload, None if request.apart else self._reading.limits.round_cpu_seconds)
        key = parsed_key(doc_id_of(upload), self._reading.parsing)
        if request.parsed and request.parsed != key:
            return None
        text = self._kept_for_later(parsed, source.version, key, request)
        text.said = source.said
        return text

    def _object(self, upload: UploadNotification, fetched: Fetched | None) -> _Object:
        if isinstance(fetched, Unavailable):
            raise fetched
        if isinstance(fetched, bytes | Object):
            assert upload.etag is not None
            if isinstance(fetched, bytes):
                return _Object(BytesSource(fetched), upload.etag)
            return _Object(BytesSource(fetched.data), upload.etag, self._said(fetched.meta))
        store = self._bucket(upload)
        meta = fetched or self._loop.run_until_complete(store.head(upload.key))
        if upload.etag and _bare(upload.etag) != _bare(meta.version):
            raise Conflict(f"{upload.key!r} changed since its notification", "its version has changed")
        return _Object(_StoreSource(self._loop, store, meta, self._observer), meta.version, self._said(meta))

    def _said(self, meta: ObjectMeta) -> str | None:
        """What the writer of an object said of it, as JSON, where that is wanted."""
        return msgspec.json.encode(dict(meta.said)).decode() if self._reading.fetching.object_metadata else None

    def _is_plain(self, source: _Object, upload: UploadNotification) -> bool:
        """Whether it can be read by ranges: a text in UTF-8, or one of another encoding that is too large to parse."""
        head = source.read(0, min(source.size, BLOCK_BYTES))
        found = self._sandbox.format_of(head, name=upload.key, content_type=upload.content_type)
        if source.size > self._reading.limits.document_bytes:
            return found in TEXTUAL
        # The first block tells for all: whoever chunks the text reads it anyway.
        return found is Format.TEXT and is_utf8(head, cut=source.size > len(head))

    def _parse(self, source: _Object, upload: UploadNotification, budget: int | None) -> ParsedDocument:
        limit = self._reading.limits.document_bytes
        if source.size > limit:
            raise AtCapacity(f"{upload.key!r} has {source.size} bytes", f"{limit} can be parsed")
        data = source.whole()
        return self._sandbox.parse(
            data, tenant=upload.tenant_id, name=upload.key, content_type=upload.content_type, budget=budget
        )

    def _kept_for_later(self, parsed: ParsedDocument, version: str, key: str, request: ReadRequest) -> _Text:
        """The text, put where later rounds find it when this one does not read all of it."""
        warnings = [] if request.parsed else list(parsed.warnings)
        cells = cell_count(len(parsed.text), self._reading.chunking.cell_bytes)
        spec = self._reading.parsed
        if spec is None or cells <= request.first_cell + request.cells:
            return _Text(BytesSource(parsed.text), None, version, None, 1, warnings, parsed.title)
        self._loop.run_until_complete(self._store(None, spec).put(key, parsed.text))
        return _Text(BytesSource(parsed.text), len(parsed.text), version, key, 1, warnings, parsed.title)

    def _kept(self, key: str) -> _Object | None:
        spec = self._reading.parsed
        if spec is None:
            return None
        store = self._store(None, spec)
        try:
            meta = self._loop.run_until_complete(store.head(key))
            return _Object(_StoreSource(self._loop, store, meta), meta.version)
        except NotFound:
            return None

    def _chunker(self, request: ReadRequest) -> Chunker:
        """Made smaller where the model takes less: no text is cut off by it."""
        upload = request.upload
        index = (upload.tenant_id, upload.index_id)
        chunking = self._reading.embedding.chunking_of(upload.model, request.chunking, index)
        if chunking not in self._chunkers:
            self._chunkers[chunking] = Chunker(chunking)
        return self._chunkers[chunking]

    def _bucket(self, upload: UploadNotification) -> ObjectStore:
        return self._store(upload.bucket, self._spec(upload))

    def _spec(self, upload: UploadNotification) -> StoreSpec:
        """Where an object is read from, if that may be."""
        spec = self._reading.spec_of(upload.bucket)
        self._access.check(self._reading.url_of(upload.bucket), check_key(upload.key))
        # What is got whole was notified as small; all else is read by ranges.
        return StoreSpec(spec.url, {"retry": _BUCKET_PATIENCE, "get_bytes_max": BLOCK_BYTES, **spec.options})

    def _store(self, name: str | None, spec: StoreSpec) -> ObjectStore:
        return self._loop.run_until_complete(self._opened(name, spec))

    async def _opened(self, name: str | None, spec: StoreSpec) -> ObjectStore:
        """A store, opened once for all who ask for it at the same time or later."""
        if name not in self._stores:
            self._stores[name] = self._loop.create_task(spec.open(observer=self._observer))
        # Whoever is no longer waited for must not end it for the others.
        return await asyncio.shield(self._stores[name])


@dataclass(slots=True)
class _Text:
    """What is chunked. `text_bytes` is None where a later round must parse again, because the text is kept nowhere."""

    source: ByteSource
    text_bytes: int | None
    version: str
    parsed: str | None = None
    parses: int = 0
    warnings: list[str] = field(default_factory=list)
    title: str | None = None
    # Of the object it was made of.
    said: str | None = None


class _Object(BlockSource):
    """One version of one object. Whoever sniffs at it and whoever reads it share the blocks: a small one is one read."""

    def __init__(self, ranges: ByteSource, version: str, said: str | None = None) -> None:
        self._ranges = ranges
        self.version, self.said = version, said
        super().__init__(ranges)

    def whole(self) -> bytes:
        return self.read(0, self.size) if self.size <= BLOCK_BYTES else self._ranges.read(0, self.size)


class _StoreSource:
    """By conditional range reads."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: ObjectStore,
        meta: ObjectMeta,
        observer: Observer = SILENT,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._loop, self._store, self._meta = loop, store, meta
        self._observer, self._clock = observer, clock

    @property
    def size(self) -> int:
        return self._meta.size

    def read(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        began = self._clock.monotonic()
        reading = self._store.get_range(self._meta.key, start, end, version=self._meta.version)
        data = self._loop.run_until_complete(reading)
        self._observer.observe(names.INDEXING_READ_SECONDS, self._clock.monotonic() - began)
        self._observer.count(names.INDEXING_READ_BYTES, len(data))
        return data


def _traced(
    request: ReadRequest, parts: Iterator[Chunk | Ending], observer: Observer, *, clock: Clock = SYSTEM_CLOCK
) -> Iterator[Chunk | Ending]:
    """The parts of one document, and when they are all there, a span in the trace of its event."""
    if observer is SILENT:
        yield from parts
        return
    began_ms, began, chunks = clock.now_ms(), clock.monotonic(), 0
    outcome: ReadOutcome | None = None
    for part in parts:
        chunks += isinstance(part, Chunk)
        outcome = part.outcome if isinstance(part, Ending) else None
        yield part
    upload = request.upload
    observer.past_span(
        names.INDEXING_READ,
        began_ms,
        began_ms + (clock.monotonic() - began) * 1000,
        parent=upload.traceparent,
        docId=doc_id_of(upload),
        key=vo_key(upload.tenant_id, upload.index_id, upload.model),
        seq=request.progress.next_seq,
        chunks=chunks,
        outcome=outcome and outcome.value,
    )


def _bare(etag: str) -> str:
    """Some notifications quote an etag, some do not."""
    return etag.strip('"')


def _fetched_bytes(upload: UploadNotification) -> int:
    """What asking ahead for an object brings."""
    return upload.size_bytes if is_small(upload) else 0
