"""The messages of the indexing pipeline, with the JSON names other systems already use.

`UploadNotification`, `ChunkEnvelope` and `BatchRequest` are the three contracts of the pipeline; `DeleteNotification`
and `EndDocument` complete them, and `DocumentReport` is what is told of a document at the end. Each is an immutable
struct whose JSON members are the camel-case forms of its fields; members that are absent stay absent. Unknown members
are ignored, so that a producer may be newer than its reader; missing or ill-typed ones are refused with
`InvalidInput`. The JSON Schemas under `docs/schemas/` are made from these structs.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from penstock.documents.sequencers import check_sequencer
from penstock.errors import InvalidInput

__all__ = [
    "BatchInput",
    "BatchRequest",
    "ChunkEnvelope",
    "ChunkMetadata",
    "Chunking",
    "DeleteNotification",
    "DocumentReport",
    "DocumentStatus",
    "EndDocument",
    "Notification",
    "UploadNotification",
    "decode",
    "decode_notification",
    "encode",
]

Name = Annotated[str, msgspec.Meta(min_length=1)]
# Tokens of a chunk: more than any model takes.
TOKENS_MAX: Final = 1 << 20
Tokens = Annotated[int, msgspec.Meta(ge=1, le=TOKENS_MAX)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
# Of an object, in bytes: what a signed 64-bit number holds, because stores and columns hold no more.
Size = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Contract(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Immutable, camel-case in JSON, and without members that carry nothing."""


class Chunking(Contract, frozen=True, kw_only=True):
    """How texts are to be cut, in tokens a chunk."""

    target_tokens: Tokens
    max_tokens: Tokens
    overlap_tokens: Annotated[int, msgspec.Meta(ge=0, le=TOKENS_MAX)]


class UploadNotification(Contract, frozen=True, kw_only=True):
    """An object was created or replaced, and should become searchable."""

    tenant_id: Name
    index_id: Name
    bucket: Name
    key: Name
    version_id: str | None = None
    etag: str | None = None
    size_bytes: Size
    content_type: str | None = None
    model: Name
    # What its sender calls the event.
    source_id: str | None = None
    # The trace that the event is of, as the W3C header `traceparent` says it.
    traceparent: str | None = None
    created_at: Instant
    # The order of the events of one object, as `penstock.documents.sequencers` writes it.
    sequencer: str | None = None
    # Read it also when this very version is searchable already: somebody asked for it.
    reread: bool = False
    # What is said of the document beside its content, by name: see `penstock.documents.metadata`.
    metadata: dict[str, Any] | None = None
    # What its index is made with, if this is the first event of it; else the index remembers its own.
    chunking: Chunking | None = None


class DeleteNotification(Contract, frozen=True, kw_only=True, tag_field="event", tag="delete"):
    """An object was removed. It carries no etag, because it acts on the object and not on one version."""

    tenant_id: Name
    index_id: Name
    bucket: Name
    key: Name
    version_id: str | None = None
    model: Name
    # What its sender calls the event.
    source_id: str | None = None
    # The trace that the event is of, as the W3C header `traceparent` says it.
    traceparent: str | None = None
    created_at: Instant
    sequencer: str | None = None
    # The etag of an object that is still there, when a person took it out of the index: it stays out until it changes.
    forgotten: str | None = None


class ChunkMetadata(Contract, frozen=True, kw_only=True):
    tenant_id: Name
    index_id: Name
    model: Name
    source_id: str | None = None


class ChunkEnvelope(Contract, frozen=True, kw_only=True):
    """One chunk on its way to the batcher. `text` is exactly the document's bytes in `byte_range`."""

    doc_id: Sha256
    chunk_id: Name
    seq: Natural
    text: str
    byte_range: tuple[Natural, Natural]
    token_count: Natural
    metadata: ChunkMetadata


class EndDocument(Contract, frozen=True, kw_only=True):
    """Every chunk of a document was emitted. `seq_max` is the last `seq`, or -1 when there was no text."""

    doc_id: Sha256
    seq_max: Annotated[int, msgspec.Meta(ge=-1)]
    warnings: tuple[str, ...] = ()


class BatchInput(Contract, frozen=True, kw_only=True):
    doc_id: Sha256
    chunk_id: Name
    seq: Natural
    text: str
    # As the chunker counted it, and so the one count that limits are compared with; None when nobody has.
    token_count: Natural | None = None


class BatchRequest(Contract, frozen=True, kw_only=True):
    """One request to an embedding model. `created_at` is the time inside `batch_id`, never a second reading."""

    batch_id: Name
    tenant_id: Name
    index_id: Name
    model: Name
    inputs: tuple[BatchInput, ...]
    tokens_total: Natural
    created_at: Instant
    # The traces of the events that its documents came with.
    traceparents: tuple[str, ...] = ()


class DocumentStatus(StrEnum):
    """The status of a version of a document."""

    INDEXED = "indexed"
    EMPTY = "empty"  # parsed, and there was no text in it
    INCOMPLETE = "incomplete"  # the end came, some chunks did not
    QUARANTINED = "quarantined"  # cannot be read or parsed; `reason` says why
    SUPERSEDED = "superseded"  # a newer version arrived while this one was read
    DELETED = "deleted"
    METADATA = "metadata"  # a side-car file: what it says is on the chunks of its document


class DocumentReport(Contract, frozen=True, kw_only=True):
    """The outcome of one version of one object."""

    doc_id: Sha256
    status: DocumentStatus
    reason: str | None = None
    chunks: Natural = 0
    tokens: Natural = 0
    cost_usd: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    # Of the chunks, those whose text had a vector already: they cost nothing.
    reused: Natural = 0
    # Of the chunks, those without a vector: only their words find them.
    words_only: Natural = 0
    warnings: tuple[str, ...] = ()
    missing_seqs: tuple[Natural, ...] = ()


Notification: TypeAlias = UploadNotification | DeleteNotification
_C = TypeVar("_C", bound=Contract)

_ENCODER: Final = msgspec.json.Encoder()
# What bytes can bring about: a wrong shape, text that is not UTF-8, and nesting beyond the interpreter's stack.
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
# Of the reason in a refusal: a decoder may quote a member whole.
_REASON_CHARACTERS_MAX: Final = 300


class _Discriminator(msgspec.Struct):
    event: Literal["upload", "delete"] = "upload"


def encode(message: Contract) -> bytes:
    """The message as JSON; equal messages give equal bytes."""
    return _ENCODER.encode(message)


# Described to msgspec here and not at first use, which crashes when two threads are the first at the same time.
for _kind in (UploadNotification, DeleteNotification, ChunkEnvelope, EndDocument, BatchRequest, DocumentReport):
    msgspec.json.Decoder(_kind)


def decode(data: bytes | str, kind: type[_C]) -> _C:
    """The message in `data`, or `InvalidInput` naming the member that is wrong."""
    try:
        return msgspec.json.decode(data, type=kind)
    except _UNREADABLE as error:
        raise _refusal(kind, data, error) from error


def decode_notification(data: bytes | str) -> Notification:
    """An upload or a delete: a delete says `"event": "delete"`, an upload needs no such member."""
    kind: Any = DeleteNotification if _event_of(data) == "delete" else UploadNotification
    notification: Notification = decode(data, kind)
    if notification.sequencer is not None:
        check_sequencer(notification.sequencer)
    return notification


def _event_of(data: bytes | str) -> str:
    try:
        return msgspec.json.decode(data, type=_Discriminator).event
    except _UNREADABLE as error:
        raise _refusal(UploadNotification, data, error) from error


def _refusal(kind: type[Contract], data: bytes | str, error: Exception) -> InvalidInput:
    return InvalidInput(
        f"not a {kind.__name__}: {data[:80]!r}",
        str(error)[:_REASON_CHARACTERS_MAX],
        f"compare it with docs/schemas/{schema_name(kind)}",
    )


def schema_name(kind: type[Contract]) -> str:
    """`UploadNotification` is published as `upload-notification.json`."""
    words = "".join(f"-{c.lower()}" if c.isupper() else c for c in kind.__name__)
    return f"{words.removeprefix('-')}.json"
