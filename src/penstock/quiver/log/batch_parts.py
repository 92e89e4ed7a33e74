"""Arrow batches in frames: laid into the log's memory straight from their columns, without a copy in between.

Arrow writes a batch behind its schema only, and a frame has its schemas elsewhere. So each schema is first written into
room ahead of the frames, which never reaches the disk; the batches that follow are what `RecordBatch.serialize` makes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

__all__ = ["BatchPart", "BatchSink"]

# An empty batch and the marks around it, for each column.
_COLUMN_BYTES: Final = 1024


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

    def __init__(self, target: memoryview, parts: Iterable[BatchPart]) -> None:
        self._target = target
        self._sink = pa.FixedSizeBufferWriter(pa.py_buffer(target))
        self._writers: dict[bytes, Any] = {}
        for part in parts:
            if part.schema not in self._writers:
                self._writers[part.schema] = self._begun(part.batch.schema)
        self._at = self._sink.tell()

    @staticmethod
    def room(parts: Iterable[BatchPart]) -> int:
        """How much room ahead of the frames the schemas of these take, at most."""
        schemas = {part.schema: part.batch.num_columns for part in parts}
        return sum([2 * len(schema) + (columns + 1) * _COLUMN_BYTES for schema, columns in schemas.items()])

    def lay(self, part: BatchPart, at: int) -> int:
        """Lay a batch at `at`, which no other is behind, and return where it ends."""
        if at != self._at:
            # What was laid there meanwhile is written over itself: Arrow's sink only goes forward.
            self._sink.write(bytes(self._target[self._at : at]))
        writer = self._writers[part.schema]
        try:
            if writer is None:
                raise pa.ArrowNotImplementedError
            writer.write_batch(part.batch)
        except pa.ArrowException:
            # Another schema of the same bytes (an extension type that only one of two callers knows): by way of a copy.
            self._sink.write(part.batch.serialize())
        self._at = self._sink.tell()
        if self._at != at + part.size:
            raise pa.ArrowInvalid(f"a batch of {part.size} bytes was written as {self._at - at}")
        return self._at

    def _begun(self, schema: pa.Schema) -> Any:
        """A writer that has its schema behind it; None for a type of which Arrow makes no empty column."""
        try:
            # Not a slice of a batch: that may be written with all its rows.
            empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
        except pa.ArrowException:
            return None
        writer = pa.ipc.new_stream(self._sink, schema)
        writer.write_batch(empty)
        return writer
