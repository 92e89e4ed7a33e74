"""Segments: immutable Arrow objects that hold the rows a head no longer carries inline, and their head entries.

A segment is an Arrow IPC file, zstd within, named by the SHA-256 of its bytes. A nonce in its schema makes
every segment's bytes unique, so a key is never written twice and an old orphan is never mistaken for a new
object. The head's entry repeats what planning needs to skip a segment without reading it, and which of its
rows are gone. Archived days and spilled tombstones are segments too. Format page: docs/format/catalog.md.
"""

from __future__ import annotations

import hashlib
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.catalog.format.block import FileBlock, Flag, Mask
from penstock.catalog.format.statistics import ColumnStats
from penstock.errors import Corrupt

__all__ = ["SegmentEntry", "decode_segment", "deleted_mask", "encode_segment", "entry_of", "with_deleted"]

_VERSION: Final = b"1"
# On the caller's own thread: a segment is a few columns of a few megabytes, and waking others takes longer.
_WRITE: Final = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_READ: Final = pa.ipc.IpcReadOptions(use_threads=False)
# Statistics of more columns would make the entry larger than what it saves.
STAT_COLUMNS_MAX: Final = 32
_MASKS_MAX: Final = 4096


class SegmentEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a head says of one segment. `day` is set for an archived day, `deleted` once rows are gone."""

    key: str
    sha256: str
    object_bytes: int
    rows: int
    min_ts: int
    max_ts: int
    min_path: str
    max_path: str
    levels: tuple[int, ...]
    size_bytes: int
    row_count: int
    removed_seq_max: int = 0
    removed_ms_max: int = 0
    day: str = ""
    deleted: str = ""
    deleted_rows: int = 0
    stats: dict[str, ColumnStats] = {}
    # Members that a later release wrote; kept, and never read here.
    extra: dict[str, Any] = {}

    def __hash__(self) -> int:
        return hash((self.key, self.deleted))

    @property
    def live_rows(self) -> int:
        return self.rows - self.deleted_rows

    def may_hold(self, path: str) -> bool:
        return self.min_path <= path <= self.max_path

    def overlaps(self, start: int, end: int) -> bool:
        return self.min_ts < end and self.max_ts >= start


def encode_segment(block: FileBlock, nonce: str) -> bytes:
    """The object's bytes. `nonce` makes them unlike those of every other segment."""
    table = block.table.replace_schema_metadata({b"penstock.catalog.segment": _VERSION, b"nonce": nonce.encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=_WRITE) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def decode_segment(body: bytes, entry: SegmentEntry) -> FileBlock:
    """The rows, once the bytes are known to be those that the head names."""
    found = hashlib.sha256(body).hexdigest()
    if found != entry.sha256:
        raise Corrupt(f"segment {entry.key!r} is damaged", f"its SHA-256 is {found}, and the head names {entry.sha256}")
    try:
        table = pa.ipc.open_file(pa.BufferReader(body), options=_READ).read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise Corrupt(f"segment {entry.key!r} does not decode", str(error)) from error
    if table.num_rows != entry.rows:
        raise Corrupt(f"segment {entry.key!r} is damaged", f"it has {table.num_rows} rows instead of {entry.rows}")
    return FileBlock(table)


def entry_of(block: FileBlock, body: bytes, folder: str, *, day: str = "") -> SegmentEntry:
    """The head's entry of a segment that is about to be written below `folder`."""
    digest = hashlib.sha256(body).hexdigest()
    paths: Any = pc.min_max(block.table["path"]).as_py()
    name = f"archive/{day}-{digest}" if day else f"seg/{digest}"
    return SegmentEntry(
        key=f"{folder}/{name}.arrow",
        sha256=digest,
        object_bytes=len(body),
        rows=len(block),
        min_ts=int(block.min_timestamp[0]),
        max_ts=int(block.latest[-1]),
        min_path=paths["min"],
        max_path=paths["max"],
        levels=tuple(int(level) for level in np.unique(block.level)),
        size_bytes=int(block.size_bytes.sum()),
        row_count=int(block.row_count.sum()),
        removed_seq_max=int(block.removed_seq.max()),
        removed_ms_max=int(block.removed_ms.max()),
        day=day,
        stats=_merged_stats(block),
    )


def with_deleted(entry: SegmentEntry, mask: Mask) -> SegmentEntry:
    """The entry with exactly these rows gone."""
    text = b64encode(zlib.compress(np.packbits(mask).tobytes(), 6)).decode() if mask.any() else ""
    return msgspec.structs.replace(entry, deleted=text, deleted_rows=int(mask.sum()))


def deleted_mask(entry: SegmentEntry) -> Mask | None:
    """True for each row that is gone; None when all are there."""
    return _mask(entry.deleted, entry.rows, entry.key) if entry.deleted else None


@lru_cache(_MASKS_MAX)
def _mask(text: str, rows: int, key: str) -> Mask:
    size = (rows + 7) // 8
    try:
        inflate = zlib.decompressobj()
        packed = inflate.decompress(b64decode(text, validate=True), size)
        if len(packed) != size or not inflate.eof:
            raise ValueError(f"it has not {size} bytes")
    except (ValueError, zlib.error) as error:
        raise Corrupt(f"the deleted rows of segment {key!r} cannot be read", str(error)) from error
    mask: Mask = np.unpackbits(np.frombuffer(packed, np.uint8), count=rows).astype(bool)
    mask.setflags(write=False)
    return mask


def _merged_stats(block: FileBlock) -> dict[str, ColumnStats]:
    """Bounds over all rows, for columns of which every row has statistics of one kind."""
    merged: dict[str, ColumnStats] = {}
    for column, stats in block.stats.items():
        if len(merged) >= STAT_COLUMNS_MAX:
            break
        flags = stats.flags
        if len(stats.bounds) == 1 and bool(np.all(flags & Flag.PRESENT)):
            merged[column] = _merged(stats.bounds, flags)
    return merged


def _merged(bounds: Mapping[str, tuple[Any, Any]], flags: Any) -> ColumnStats:
    [(lows, highs)] = bounds.values()
    every, some = int(np.bitwise_and.reduce(flags)), int(np.bitwise_or.reduce(flags))
    nan_known = bool(every & Flag.NAN_KNOWN)
    return ColumnStats(
        # A row without a bound leaves the whole without it; min_max then answers null.
        min=None if lows.null_count else pc.min(lows).as_py(),
        max=None if highs.null_count else pc.max(highs).as_py(),
        has_nulls=bool(some & Flag.HAS_NULLS),
        has_nan=bool(some & Flag.HAS_NAN) if nan_known else None,
        all_null=bool(every & Flag.ALL_NULL),
        min_cut=bool(some & Flag.MIN_CUT),
        max_cut=bool(some & Flag.MAX_CUT),
        type="timestamp" if every & Flag.TIMESTAMP else "",
    )
