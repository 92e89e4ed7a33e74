"""Segments into a local folder of Parquet files, one or more each.

A file has its name only when all its bytes are on the disk: it is written under another one, synced, renamed, and the
folder synced. Names and bytes follow from the segment alone, so a segment that comes again after a crash replaces its
files by the same ones. Names sort by time:
`quiver-<ingestion, ms>-<instance>-<segment_seq>-<stream>-<part>-<slot>.parquet`.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.disk import Disk, RealDisk, explain
from penstock.errors import InvalidInput
from penstock.loops import Offload, Threads
from penstock.quiver import Delivery, SegmentMeta
from penstock.relay.config import ParquetOutletConfig
from penstock.relay.outlets.outlet import Delivered, SendAnswer, Undeliverable
from penstock.relay.outlets.parts import split_table

__all__ = ["ParquetOutlet"]

_TEMPORARY: Final = ".tmp"
# A name has 255 bytes at most; what is before the slot and behind it takes less than 120.
_SLOT_CHARACTERS_MAX: Final = 120


# The key under which Parquet files keep their Arrow schema: a caller's own entry of that name makes them unreadable.
_ARROW_SCHEMA: Final = b"ARROW:schema"


class _NoParquet(Exception):
    """Rows that Parquet cannot hold, or that nobody could read from it."""


class ParquetOutlet:
    def __init__(
        self,
        folder: str,
        config: ParquetOutletConfig | None = None,
        *,
        instance: int = 0,
        disk: Disk | None = None,
        offload: Offload | None = None,
    ) -> None:
        if not folder or "\0" in folder:
            raise InvalidInput(f"{folder!r} is no folder for files", "its path must be text without zeros", "name one")
        # The port follows no links: one that stands for the folder is followed here, once.
        self._folder = os.path.realpath(folder)
        self._config = config or ParquetOutletConfig()
        self._instance = instance
        self._disk = disk or RealDisk()
        self._threads = None if offload else Threads(1, "penstock-relay", "the relay")
        self._offload: Offload = offload or self._threads  # type: ignore[assignment]
        self._is_open = False

    async def send(self, delivery: Delivery) -> SendAnswer:
        slots = await delivery.read()
        try:
            await self._offload(self._prepare)
            stream = 0
            for slot, tables in slots.items():
                for table in tables:
                    await self._write_table(delivery.meta, slot, stream, table)
                    stream += 1
            await self._offload(self._sync_folder)
        except _NoParquet as error:
            return Undeliverable(f"segment {delivery.segment_seq} cannot be a Parquet file: {error}")
        except OSError as error:
            # Somebody may have removed the folder: the next try makes it again.
            self._is_open = False
            raise explain(f"segment {delivery.segment_seq} was not written into {self._folder}", error) from error
        return Delivered()

    async def settled(self, delivery: Delivery) -> None:
        """Nothing is remembered of a segment."""

    async def close(self) -> None:
        if self._threads is not None:
            self._threads.close()

    async def _write_table(self, meta: SegmentMeta, slot: str, stream: int, table: pa.Table) -> None:
        """One file in memory at a time."""
        for part, rows in enumerate(split_table(table, self._config.file_bytes)):
            name = file_name(self._config.name, self._instance, meta, slot, stream, part)
            await self._offload(self._write_file, name, rows)

    def _write_file(self, name: str, rows: pa.Table) -> None:
        body = encode_file(rows, self._config)
        temporary = f"{self._folder}/{name}{_TEMPORARY}"
        # A new file each time: after a failed sync the old one's pages cannot be trusted.
        _unlink(self._disk, temporary)
        try:
            self._disk.create(temporary, memoryview(body))
            self._disk.sync_file(temporary)
        except OSError:
            # On a full disk its beginning would take the room that others wait for, the quiver among them.
            with contextlib.suppress(OSError):
                _unlink(self._disk, temporary)
            raise
        with self._disk.watching(self._folder):
            self._disk.rename(temporary, f"{self._folder}/{name}")
            self._disk.sync_directory(self._folder)

    def _sync_folder(self) -> None:
        self._disk.sync_directory(self._folder)

    def _prepare(self) -> None:
        """Make the folder, and remove what a crash left half written under this relay's name."""
        if self._is_open:
            return
        with contextlib.suppress(FileExistsError):
            self._disk.make_directory(self._folder)
        self._disk.sync_directory(self._folder.rpartition("/")[0] or "/")
        own = f"{self._config.name}-"
        for name, is_folder in self._disk.scan(self._folder):
            if not is_folder and name.startswith(own) and name.endswith(f".parquet{_TEMPORARY}"):
                _unlink(self._disk, f"{self._folder}/{name}")
        self._is_open = True


def file_name(prefix: str, instance: int, meta: SegmentMeta, slot: str, stream: int, part: int) -> str:
    """The time of the first bundle keeps a quiver that was begun anew from overwriting the files of the old one."""
    place = f"{meta.ingestion_ms[0]:013d}-{instance:03d}-{meta.segment_seq:020d}-{stream:03d}-{part:05d}"
    return f"{prefix}-{place}-{quote(slot, safe='')[:_SLOT_CHARACTERS_MAX]}.parquet"


def encode_file(rows: pa.Table, config: ParquetOutletConfig) -> pa.Buffer:
    """The bytes of one file; the same rows give the same bytes."""
    for column in rows.schema:
        _check_type(column.name, column.type)
    metadata = dict(rows.schema.metadata or {})
    if metadata.pop(_ARROW_SCHEMA, None) is not None:
        rows = rows.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(rows, sink, row_group_size=config.row_group_rows, compression=config.compression.value)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        # Arrow tells of some types with an OSError, which must not be taken for one of the disk.
        raise _NoParquet(str(error)) from error
    return sink.getvalue()


def _check_type(column: str, kind: pa.DataType) -> None:
    """Lists of no elements are written without an error, and cannot be read."""
    if pa.types.is_fixed_size_list(kind) and kind.list_size == 0:
        raise _NoParquet(f"column {column!r} has lists of the fixed size 0")
    for number in range(kind.num_fields):
        _check_type(column, kind.field(number).type)


def _unlink(disk: Disk, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(path)
