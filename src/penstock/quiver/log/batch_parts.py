"""Arrow batches in frames: laid into the log's memory straight from their columns, without a copy in between.

Arrow writes a batch behind its schema only, and a frame has its schemas elsewhere. So each schema is first written into
room ahead of the frames, which never reaches the disk; the batches that follow are what `RecordBatch.serialize` makes.
Where a schema has few bytes in a group, that costs more than the copy, and they are copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

__all__ = ["WRITER_BYTES_MIN", "BatchPart", "BatchSink", "lay_copy"]

# An empty batch and the marks around it, for each column.
_COLUMN_BYTES: Final = 1024
# Of one schema in a group: a writer for fewer costs more than a copy of them.
WRITER_BYTES_MIN: Final = 128 << 10


class BatchPart:
    """A batch without dictionaries as a part of a frame; `schema` is its schema as bytes."""

    __slots__ = ("batch", "schema", "size")

    def __init__(self, batch: pa.RecordBatch, schema: bytes) -> None:
        """Raises Arrow's own error for a batch that cannot be written."""
        self.batch = batch
        self.schema = schema
        self.size = pa.ipc.get_record_batch_size(batch)

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return self.batch.serialize().to_pybytes()


class BatchSink:
    """Lays batches into `target`, each behind the one before."""

    def __init__(self, target: memoryview, schemas: Iterable[bytes]) -> None:
        """`schemas` are those of `wide_schemas`."""
        self._target = target
        self._sink = pa.FixedSizeBufferWriter(pa.py_buffer(target))
        self._writers = {body: self._begun(body) for body in schemas}
        self._at = self._sink.tell()

    @staticmethod
    def wide_schemas(parts: Iterable[BatchPart]) -> dict[bytes, int]:
        """The schemas that so many bytes have that a writer is worth it, and how many columns each has."""
        sizes: dict[bytes, int] = {}
        found: dict[bytes, int] = {}
        for part in parts:
            size = sizes[part.schema] = sizes.get(part.schema, 0) + part.size
            if size >= WRITER_BYTES_MIN and part.schema not in found:
                found[part.schema] = part.batch.num_columns
        return found

    @staticmethod
    def room(schemas: Mapping[bytes, int]) -> int:
        """How much room ahead of the frames these take, at most."""
        return sum([2 * len(body) + (columns + 1) * _COLUMN_BYTES for body, columns in schemas.items()])

    def lay(self, part: BatchPart, at: int) -> int:
        """Lay a batch at `at`, which no other is behind, and return where it ends."""
        writer = self._writers.get(part.schema)
        if writer is None:
            return lay_copy(self._target, part, at)
        if at != self._at:
            # What was laid there meanwhile is written over itself: Arrow's sink only goes forward.
            self._sink.write(bytes(self._target[self._at : at]))
        try:
            writer.write_batch(part.batch)
        except pa.ArrowException:
            # Another schema of the same bytes (an extension type that only one of two callers knows): by way of a copy.
            self._sink.write(part.batch.serialize())
        self._at = self._sink.tell()
        if self._at != at + part.size:
            raise pa.ArrowInvalid(f"a batch of {part.size} bytes was written as {self._at - at}")
        return self._at

    def _begun(self, body: bytes) -> Any:
        """A writer that has its schema behind it; None for a type of which Arrow makes no empty column."""
        try:
            empty = _empty_batch(body)
        except pa.ArrowException:
            return None
        writer = pa.ipc.new_stream(self._sink, empty.schema)
        writer.write_batch(empty)
        return writer


def lay_copy(target: memoryview, part: BatchPart, at: int) -> int:
    """Lay a small batch at `at`, and return where it ends."""
    end = at + part.size
    target[at:end] = memoryview(part.batch.serialize()).cast("B")
    return end


@lru_cache(maxsize=256)
def _empty_batch(body: bytes) -> pa.RecordBatch:
    """Not a slice of a batch: that may be written with all its rows."""
    schema = pa.ipc.read_schema(pa.py_buffer(body))
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
