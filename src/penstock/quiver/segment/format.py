"""The files of a segment as bytes: Arrow files, one a stream, and the metadata that makes them a segment. Pure.

The format is docs/format/segment.md. The metadata is checked whenever a store is opened; the Arrow files, which may be
large, when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import google_crc32c
import msgspec
import numpy as np
import pyarrow as pa

from penstock.errors import Corrupt
from penstock.quiver.log.frames import checksum
from penstock.quiver.segment.open_segment import OpenSegment
from penstock.undecodable import UNDECODABLE

__all__ = [
    "CheckedSink",
    "SegmentMeta",
    "SegmentStream",
    "StreamTooLong",
    "decode_meta",
    "encode_meta",
    "encode_stream",
    "encoded_bytes_max",
    "file_tables",
    "meta_name",
    "read_back",
    "read_stream",
    "segment_meta",
    "segment_number",
    "stream_name",
    "write_stream",
]

FORMAT_VERSION: Final = 1
_META: Final = ".meta"
_ARROW: Final = ".arrow"
# Batches below this many rows are put together: readers pay for each batch.
_BATCH_ROWS_MIN: Final = 512
_BATCH_ROWS_MAX: Final = 65536
_PIECE_BYTES: Final = 1 << 20
_SLACK_BYTES: Final = 64 << 10
_KEYS: Final = (b"penstock.segment_seq", b"penstock.slot")


class StreamTooLong(Exception):
    """An Arrow file does not fit the memory it was to be laid out in."""


class SegmentStream(msgspec.Struct, frozen=True):
    """One Arrow file."""

    file: str
    slot: str
    fingerprint: str
    rows: int
    bytes: int
    crc32c: int


class SegmentMeta(msgspec.Struct, frozen=True):
    """The metadata of a segment."""

    segment_seq: int
    first_bundle: int
    last_bundle: int
    bundles: int
    rows: int
    bytes: int
    ingestion_ms: tuple[int, int]
    event_time_ns: tuple[int, int] | None
    signals: list[str]
    streams: list[SegmentStream]
    version: int = FORMAT_VERSION


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(SegmentMeta)


def meta_name(segment_seq: int) -> str:
    return f"{segment_seq:020d}{_META}"


def stream_name(segment_seq: int, number: int) -> str:
    return f"{segment_seq:020d}-{number}{_ARROW}"


def segment_number(name: str) -> int | None:
    """The segment that a file belongs to; None for a name that is none of ours."""
    if not name.endswith((_META, _ARROW)):
        return None
    digits = name[:20]
    return int(digits) if len(digits) == 20 and digits.isdecimal() else None


def is_meta(name: str) -> bool:
    return name.endswith(_META)


def segment_meta(segment: OpenSegment, segment_seq: int, streams: list[SegmentStream]) -> SegmentMeta:
    assert segment.ingestion_ms is not None
    return SegmentMeta(
        segment_seq,
        segment.first_bundle,
        segment.last_bundle,
        segment.bundles,
        segment.rows,
        sum(stream.bytes for stream in streams),
        segment.ingestion_ms,
        segment.event_time_ns,
        sorted(segment.signals),
        streams,
    )


def file_tables(table: pa.Table) -> list[pa.Table]:
    """What of a stream goes into one Arrow file each, with large enough batches.

    A file holds one dictionary for each column. Where the dictionaries of all batches do not fit together, because their
    indices are too narrow or Arrow cannot unify their values, the batches are halved until they do.
    """
    try:
        return [_gathered(table.unify_dictionaries())]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        batches = table.to_batches()
        if len(batches) < 2:
            return [table]
    middle = len(batches) // 2
    halves = [pa.Table.from_batches(half, table.schema) for half in (batches[:middle], batches[middle:])]
    return [each for half in halves for each in file_tables(half)]


def write_stream(table: pa.Table, sink: CheckedSink, *, segment_seq: int, slot: str) -> None:
    """Write one Arrow file."""
    table = _labelled(table, segment_seq, slot)
    # Arrow asks for write, flush, tell and close, whatever its stub says.
    with pa.PythonFile(cast("Any", sink), mode="w") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=_BATCH_ROWS_MAX)


def encode_stream(table: pa.Table, buffer: memoryview, *, segment_seq: int, slot: str) -> Iterator[tuple[int, int]]:
    """Lay one Arrow file into memory, piece by piece; yields how far it is, and its checksum so far.

    `StreamTooLong` where the memory does not hold it. Much faster than `write_stream`, whose sink Arrow calls for every buffer of every column.
    """
    table = _labelled(table, segment_seq, slot)
    file = pa.FixedSizeBufferWriter(pa.py_buffer(buffer))
    done = crc32c = 0

    def piece() -> tuple[int, int]:
        nonlocal done, crc32c
        end = file.tell()
        crc32c = google_crc32c.extend(crc32c, np.frombuffer(buffer[done:end], np.uint8))
        done = end
        return done, crc32c

    try:
        with pa.ipc.new_file(file, table.schema) as writer:
            for batch in table.to_batches(max_chunksize=_BATCH_ROWS_MAX):
                writer.write_batch(batch)
                # While the processor's cache still has it.
                if file.tell() - done >= _PIECE_BYTES:
                    yield piece()
    except (pa.ArrowException, OSError) as error:
        # Arrow says so with an OSError, which must not be taken for one of the disk.
        raise StreamTooLong from error
    yield piece()


def read_back(table: pa.Table) -> pa.Table:
    """The table as a reader of its file gets it: the same batches, and the same number of bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=_BATCH_ROWS_MAX)
    return pa.ipc.open_file(sink.getvalue()).read_all()


def encoded_bytes_max(table: pa.Table) -> int:
    """What `encode_stream` needs, in nearly all cases."""
    batches = table.column(0).num_chunks + table.num_rows // _BATCH_ROWS_MAX + 2 if table.num_columns else 2
    schema = table.schema.serialize().size
    # Each batch has a message, and each buffer is filled up to a multiple of 64; Arrow's footer repeats the schema.
    buffers = 4 * (schema // 64 + table.num_columns)
    return int(table.nbytes) + 4 * schema + batches * (1024 + 128 * buffers) + _SLACK_BYTES


def _labelled(table: pa.Table, segment_seq: int, slot: str) -> pa.Table:
    own = {_KEYS[0]: str(segment_seq).encode(), _KEYS[1]: slot.encode()}
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **own})


class CheckedSink:
    """Gathers what Arrow writes in `buffer`, passes on full ones and the rest, and keeps the length and the checksum."""

    def __init__(self, buffer: memoryview, write: Callable[[int, memoryview], None]) -> None:
        """`write` is called with an offset and the bytes that belong there."""
        self.bytes = 0
        self.crc32c = 0
        self.closed = False
        self._buffer = buffer
        self._write = write
        self._filled = 0

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        while rest:
            taken = min(len(rest), len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + taken] = rest[:taken]
            self._filled += taken
            rest = rest[taken:]
            if self._filled == len(self._buffer):
                self._pass_on()
        return size

    def flush(self) -> None:
        """Arrow calls this; what is gathered is passed on with the end."""

    def tell(self) -> int:
        return self.bytes + self._filled

    def close(self) -> None:
        if not self.closed and self._filled:
            self._pass_on()
        self.closed = True

    def _pass_on(self) -> None:
        piece = self._buffer[: self._filled]
        self.crc32c = google_crc32c.extend(self.crc32c, np.frombuffer(piece, np.uint8))
        self._write(self.bytes, piece)
        self.bytes += self._filled
        self._filled = 0


def encode_meta(meta: SegmentMeta) -> bytes:
    """One line of JSON, and one with its checksum."""
    line = _ENCODER.encode(meta)
    return line + b"\n%08x\n" % checksum(line)


def decode_meta(data: bytes, name: str) -> SegmentMeta:
    line, _, rest = data.partition(b"\n")
    if not line or rest != b"%08x\n" % checksum(line):
        raise Corrupt(
            f"the metadata {name} cannot be read", "its checksum does not match", "see `penstock quiver repair`"
        )
    try:
        meta = _DECODER.decode(line)
    except UNDECODABLE as error:
        raise Corrupt(f"the metadata {name} cannot be read", str(error), "use the release that wrote it") from error
    if meta.version > FORMAT_VERSION or name != meta_name(meta.segment_seq):
        raise Corrupt(
            f"the metadata {name} cannot be read",
            f"it declares version {meta.version} of segment {meta.segment_seq}",
            "use the release that wrote it",
        )
    return meta


def read_stream(data: memoryview, stream: SegmentStream, *, check: bool = True) -> pa.Table:
    """The rows of one Arrow file, as views into `data`. `Corrupt` unless its length and checksum hold."""
    if len(data) != stream.bytes or (check and checksum(data) != stream.crc32c):
        raise Corrupt(
            f"the segment file {stream.file} cannot be read",
            "its length or checksum is not that of its metadata",
            "see `penstock quiver verify`",
        )
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
    except (pa.ArrowException, OSError) as error:
        raise Corrupt(f"the segment file {stream.file} cannot be read", str(error)) from error
    return table.replace_schema_metadata(
        {key: value for key, value in (table.schema.metadata or {}).items() if key not in _KEYS} or None
    )


def _gathered(table: pa.Table) -> pa.Table:
    chunks = table.column(0).num_chunks if table.num_columns else 1
    return table.combine_chunks() if chunks > 1 and table.num_rows < chunks * _BATCH_ROWS_MIN else table
