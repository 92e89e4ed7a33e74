"""What batches for the stores look like: an envelope, a few words about the target, and Arrow streams as records.

```
01 01 02 00 {"samples":1,"tenant":"default"}                            samples for a time-series store
01 01 01    {"tenant":"acme","index":"docs","model":"m"}                rows to write to a vector store
01 02 01    {"tenant":"acme","index":"docs","model":"m"}                ids to delete from it
```
Every record is one Arrow IPC stream. Format page: docs/format/relay.md.
"""

from __future__ import annotations

from typing import Final, Literal, TypeVar

import msgspec
import pyarrow as pa

from penstock.errors import InvalidInput, Unsupported
from penstock.records import ArrowEnvelope, Signal, VectorEnvelope, VectorOperation
from penstock.undecodable import UNDECODABLE

__all__ = ["SamplesPayload", "VectorPayload", "decode_table", "encode_table", "is_samples"]

T = TypeVar("T")

_LAYOUT: Final = 1
_VECTOR_ENVELOPE_BYTES: Final = 3
# Records come from elsewhere: a stream is read in this thread, and takes no more than its own bytes.
_READING: Final = pa.ipc.IpcReadOptions(use_threads=False)


class SamplesPayload(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of one tenant: `labels`, `timestamp_ms` and `value`, or one row a series with lists of both."""

    tenant: str = "default"
    # The layout of records; marks the batch as samples, too.
    samples: int = _LAYOUT

    def encode(self) -> bytes:
        return ArrowEnvelope(Signal.METRICS).encode() + msgspec.json.encode(self)

    @classmethod
    def decode(cls, payload: bytes) -> SamplesPayload:
        envelope = ArrowEnvelope.decode(payload)
        words = payload[ArrowEnvelope.SIZE :]
        if envelope.signal is not Signal.METRICS or b'"samples"' not in words:
            raise Unsupported("a batch has no samples", "its envelope does not name them", "send it to another queue")
        found = _words(words, cls)
        if found.samples != _LAYOUT:
            raise Unsupported(f"samples in layout {found.samples}", f"this release reads {_LAYOUT}", "upgrade")
        return found


class VectorPayload(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a collection: those to write as `Collection.upsert` takes them, those to delete in a column `id`."""

    tenant: str
    index: str
    model: str
    # Of a collection that does not exist yet.
    metric: str | None = None

    def encode(self, operation: VectorOperation = VectorOperation.UPSERT) -> bytes:
        return VectorEnvelope(operation).encode() + msgspec.json.encode(self)

    @classmethod
    def decode(cls, payload: bytes) -> tuple[VectorOperation, VectorPayload]:
        envelope = VectorEnvelope.decode(payload)
        return envelope.operation, _words(payload[_VECTOR_ENVELOPE_BYTES:], cls)


def is_samples(payload: bytes) -> bool:
    """Whether a batch says that it holds samples, as against telemetry of any kind."""
    return payload.startswith(ArrowEnvelope(Signal.METRICS).encode()) and b'"samples"' in payload


def _words(text: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except UNDECODABLE as error:
        raise InvalidInput("the words behind a batch's envelope cannot be read", str(error)) from error


def encode_table(table: pa.Table, compression: Literal["lz4", "zstd"] | None = "zstd") -> bytes:
    """One record."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False, unify_dictionaries=True)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def decode_table(record: bytes | memoryview) -> pa.Table:
    """The table of a record, as views into it. A stream that is shorter than it declares is rejected."""
    try:
        table = pa.ipc.open_stream(pa.py_buffer(record), options=_READING).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInput("a record is not an Arrow stream", str(error)) from error
    if len(set(table.column_names)) < table.num_columns:
        raise InvalidInput(
            "a record has two columns with the same name", f"it has {', '.join(table.column_names)}"[:400]
        )
    return table
