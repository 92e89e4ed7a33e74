"""What the batcher remembers between calls, and how it is packed.

The state is written after every group of chunks, so it is small: chunks wait in it only while a batch fills or a gap
is open, and document ids are kept as 32 bytes. `pack` and `unpack` are inverse; the first byte is the format's version.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import msgspec

from penstock.documents.contracts import ChunkEnvelope
from penstock.errors import Corrupt, InvalidInput, Unsupported
from penstock.undecodable import UNDECODABLE

__all__ = ["BatcherLimits", "BatcherState", "DocumentState", "PendingChunk", "pack", "unpack"]

_VERSION: Final = b"\x01"


@dataclass(frozen=True, slots=True)
class BatcherLimits:
    """The bounds of one batcher. Those of a model come from its profile."""

    # Maximum tokens of a batch.
    max_tokens_per_batch: int = 32_000
    # Maximum chunks of a batch.
    max_items_per_batch: int = 128
    # Maximum tokens of one chunk. A larger chunk is refused, never cut off.
    max_tokens_per_input: int = 8_192
    # Time after its last chunk at which a batch is sent, in milliseconds.
    flush_after_ms: int = 500
    # Time that the end of a document waits for missing chunks, in milliseconds.
    incomplete_after_ms: int = 600_000
    # Maximum chunks held because earlier ones are missing. 512 are about a megabyte of text.
    gap_chunks_max: int = 512
    # Ended documents whose late duplicates are recognised.
    ended_max: int = 1024
    # Chunk ids remembered for counting duplicates.
    seen_max: int = 1024

    def __post_init__(self) -> None:
        if not 0 < self.max_tokens_per_input <= self.max_tokens_per_batch:
            raise InvalidInput(
                f"max_tokens_per_input={self.max_tokens_per_input} is not possible",
                f"a batch holds {self.max_tokens_per_batch} tokens",
            )
        if min(self.max_items_per_batch, self.flush_after_ms, self.incomplete_after_ms) < 1:
            raise InvalidInput("a batcher's limits must be positive")


class PendingChunk(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A chunk without what the batcher's key already says."""

    doc_id: str
    chunk_id: str
    seq: int
    text: str
    tokens: int

    @classmethod
    def of(cls, chunk: ChunkEnvelope) -> PendingChunk:
        return cls(chunk.doc_id, chunk.chunk_id, chunk.seq, chunk.text, chunk.token_count)


class DocumentState(msgspec.Struct, array_like=True):
    """One open document: everything below `next_seq` has been taken, once."""

    next_seq: int = 0
    gap: dict[int, PendingChunk] = msgspec.field(default_factory=dict)
    seq_max: int | None = None
    ended_ms: int = 0
    chunks: int = 0
    tokens: int = 0
    warnings: list[str] = msgspec.field(default_factory=list)


class BatcherState(msgspec.Struct, array_like=True):
    """All of a batcher. `counter` numbers its batches; `clock_ms` is the latest replayed time it was told."""

    counter: int = 0
    clock_ms: int = 0
    pending: list[PendingChunk] = msgspec.field(default_factory=list)
    pending_tokens: int = 0
    appended_ms: int = 0
    documents: dict[str, DocumentState] = msgspec.field(default_factory=dict)
    # Oldest first, so that the bound forgets the oldest.
    ended: list[str] = msgspec.field(default_factory=list)
    seen: list[str] = msgspec.field(default_factory=list)


class _Packed(msgspec.Struct, array_like=True):
    counter: int
    clock_ms: int
    pending: list[tuple[bytes, str, int, str, int]]
    pending_tokens: int
    appended_ms: int
    documents: dict[bytes, DocumentState]
    ended: list[bytes]
    seen: list[str]


def pack(state: BatcherState) -> bytes:
    packed = _Packed(
        counter=state.counter,
        clock_ms=state.clock_ms,
        pending=[(bytes.fromhex(c.doc_id), c.chunk_id, c.seq, c.text, c.tokens) for c in state.pending],
        pending_tokens=state.pending_tokens,
        appended_ms=state.appended_ms,
        documents={bytes.fromhex(doc_id): document for doc_id, document in state.documents.items()},
        ended=[bytes.fromhex(doc_id) for doc_id in state.ended],
        seen=state.seen,
    )
    return _VERSION + msgspec.msgpack.encode(packed)


def unpack(data: bytes) -> BatcherState:
    if data[:1] != _VERSION:
        raise Unsupported(
            f"a batcher's state of version {data[:1].hex() or 'nothing'}",
            "version 01 is understood",
            "run the version that wrote it, or one newer",
        )
    try:
        packed = msgspec.msgpack.decode(data[1:], type=_Packed)
    except UNDECODABLE as error:
        raise Corrupt("a batcher's state cannot be read", str(error)) from error
    return BatcherState(
        counter=packed.counter,
        clock_ms=packed.clock_ms,
        pending=[PendingChunk(doc.hex(), chunk, seq, text, tokens) for doc, chunk, seq, text, tokens in packed.pending],
        pending_tokens=packed.pending_tokens,
        appended_ms=packed.appended_ms,
        documents={doc_id.hex(): document for doc_id, document in packed.documents.items()},
        ended=[doc_id.hex() for doc_id in packed.ended],
        seen=packed.seen,
    )


class Recent:
    """The last so many names, oldest first."""

    def __init__(self, names: list[str], size: int) -> None:
        self._names = OrderedDict.fromkeys(names)
        self._size = size

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        self._names[name] = None
        self._names.move_to_end(name)
        while len(self._names) > self._size:
            self._names.popitem(last=False)

    def discard(self, name: str) -> None:
        self._names.pop(name, None)

    def names(self) -> list[str]:
        return list(self._names)
