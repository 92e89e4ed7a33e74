"""The rows that go to tasks of a stage and come back from them: Arrow between processes, structs within one.

Each schema is written once, here; an engine that needs another description of it makes it from this one. The columns of
the reading stage are those of a chunk and of an ending: a row is the one or the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa

from penstock.documents import Chunk
from penstock.indexing.stages.readings import Ending, Piece, ReadOutcome

__all__ = [
    "ANSWER_SCHEMA",
    "PIECE_SCHEMA",
    "REQUEST_SCHEMA",
    "decode_requests",
    "encode_requests",
    "pack_pieces",
    "pieces_of",
]

_T = TypeVar("_T")

_REQUEST_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("place", pa.int64()),
    pa.field("request", pa.binary()),
]
# To both stages: a request as JSON, and its place among those that were asked together.
REQUEST_SCHEMA: Final = pa.schema(_REQUEST_FIELDS)

_CHUNK_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("start", pa.int64()),
    pa.field("core_start", pa.int64()),
    pa.field("end", pa.int64()),
    pa.field("tokens", pa.int64()),
    pa.field("text", pa.string()),
]
_ENDING_FIELDS: Final[list[pa.Field[Any]]] = [
    # Null in the row of a chunk.
    pa.field("outcome", pa.string()),
    pa.field("detail", pa.list_(pa.string())),
    pa.field("next_byte_start", pa.int64()),
    pa.field("text_bytes", pa.int64()),
    pa.field("version", pa.string()),
    pa.field("parsed", pa.string()),
    pa.field("parses", pa.int64()),
    pa.field("title", pa.string()),
    pa.field("metadata", pa.string()),
    pa.field("said", pa.string()),
]
PIECE_SCHEMA: Final = pa.schema([_REQUEST_FIELDS[0], *_CHUNK_FIELDS, *_ENDING_FIELDS])

_ANSWER_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("request", pa.int64()),
    pa.field("chunk_id", pa.string()),
    pa.field("vector", pa.list_(pa.float32())),
    pa.field("cost_usd", pa.float64()),
    pa.field("reason", pa.string()),
    # Of rows without a chunk: how a request went, and with a reason, that it must be sent again.
    pa.field("retries", pa.int64()),
    pa.field("after_seconds", pa.float64()),
]
ANSWER_SCHEMA: Final = pa.schema(_ANSWER_FIELDS)

# What a task hands over at once.
_BATCH_ROWS_MAX: Final = 1024
_BATCH_CHARACTERS_MAX: Final = 4 << 20


def encode_requests(requests: Sequence[tuple[int, msgspec.Struct]]) -> pa.RecordBatch:
    """Requests of a stage, each with its place, as the rows that go to a task."""
    places = pa.array([place for place, _ in requests], pa.int64())
    encoded = pa.array([msgspec.json.encode(request) for _, request in requests], pa.binary())
    return pa.record_batch([places, encoded], schema=REQUEST_SCHEMA)


def decode_requests(batch: pa.RecordBatch, kind: type[_T]) -> list[tuple[int, _T]]:
    """The requests in the rows that came to a task."""
    decoder = msgspec.json.Decoder(kind)
    rows: Iterable[tuple[Any, Any]] = zip(batch["place"].to_pylist(), batch["request"].to_pylist(), strict=True)
    return [(place, decoder.decode(request)) for place, request in rows]


def pack_pieces(pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
    """The rows that reading answers with. Many pieces in a batch: an engine pays for each batch, and most documents have but a few chunks."""
    held: list[Piece] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece[1].text) if isinstance(piece[1], Chunk) else 0
        if len(held) >= _BATCH_ROWS_MAX or size >= _BATCH_CHARACTERS_MAX:
            yield _batch(held)
            held, size = [], 0
    if held:
        yield _batch(held)


def _batch(pieces: Sequence[Piece]) -> pa.RecordBatch:
    chunks = [piece if isinstance(piece, Chunk) else None for _, piece in pieces]
    endings = [piece if isinstance(piece, Ending) else None for _, piece in pieces]
    columns: list[pa.Array[Any]] = [pa.array([place for place, _ in pieces], pa.int64())]
    columns += [_column(field, chunks) for field in _CHUNK_FIELDS]
    columns += [_column(field, endings) for field in _ENDING_FIELDS]
    return pa.record_batch(columns, schema=PIECE_SCHEMA)


def _column(field: pa.Field[Any], side: Sequence[Chunk | None] | Sequence[Ending | None]) -> pa.Array[Any]:
    found: pa.Array[Any] = pa.array([None if one is None else getattr(one, field.name) for one in side], field.type)
    return found


def pieces_of(table: pa.Table) -> Iterator[Piece]:
    """What `pack_pieces` packed. Chunks are numbered by whoever gathers them."""
    for batch in table.to_batches():
        columns: dict[str, list[Any]] = {name: batch[name].to_pylist() for name in batch.schema.names}
        chunks = zip(*(columns[field.name] for field in _CHUNK_FIELDS), strict=True)
        endings = zip(*(columns[field.name] for field in _ENDING_FIELDS), strict=True)
        for place, chunk, ending in zip(columns["place"], chunks, endings, strict=True):
            yield place, Chunk(0, *chunk) if ending[0] is None else _ending(*ending)


def _ending(outcome: str, detail: Sequence[str], *rest: Any) -> Ending:
    names = [field.name for field in _ENDING_FIELDS[2:]]
    return Ending(outcome=ReadOutcome(outcome), detail=tuple(detail), **dict(zip(names, rest, strict=True)))
