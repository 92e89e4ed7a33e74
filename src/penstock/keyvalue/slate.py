"""The key-value port over SlateDB: an LSM tree whose files are objects in a bucket or a directory.

Every verb raises `penstock.errors` only. Durable means that SlateDB's log object was acknowledged by
the store and, on a directory, that the file system was synced afterwards; concurrent waiters share
that sync. Opening takes the fence, so a writer that was replaced can no longer acknowledge anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from slatedb import uniffi

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Closed, Corrupt, Fenced, OutcomeUnknown
from penstock.keyvalue.damage import naming
from penstock.keyvalue.durable_directory import DurableDirectory
from penstock.keyvalue.faults import translating
from penstock.keyvalue.log_record import LogKeeper
from penstock.keyvalue.port import BLOCK_BYTES, Entry, WriteBatch, check_scan, checked, prefix_end
from penstock.keyvalue.sync import SyncGroup
from penstock.loops import Home
from penstock.native_threads import rest_native_threads_at_exit
from penstock.observability import SILENT, Observer, names

__all__ = ["SlateFollower", "SlateKeyValue", "SlateSnapshot", "SlateWriteHandle", "check_home"]

# Point reads of one `get_many` under way at once: enough to hide the latency of a bucket.
_READS_AT_ONCE: Final = 32
# Rows asked of a scan in one call: few at first, because nothing is known of their size.
_ROWS_FIRST: Final = 4
# And never more, so that a run of tiny rows followed by blocks of 256 KB stays under 64 MB.
_ROWS_MAX: Final = 256
# What a scan fetches ahead of its reader, per task, and with how many tasks.
_READ_AHEAD_BYTES: Final = 1 << 20
_FETCH_TASKS: Final = 4
# The binding takes 4 ms for so many bytes: a batch that is larger would keep the event loop from others.
_LOWER_BYTES_MAX: Final = 1 << 20
# The log makes writes durable. A sorted file per close would fill the first level of the tree, and a
# program that opens and closes often would wait for compaction.
_CLOSE: Final = uniffi.CloseOptions(flush_type=uniffi.FlushType.WAL)


def check_home() -> None:
    """Raise `Unsupported` behind a fork: SlateDB's threads do not come along, and every call would wait for ever."""
    _home().check("SlateDB", "start processes with spawn, or before its first use")


@cache
def _home() -> Home:
    """Where SlateDB was first used: it starts its threads once, for all stores of a process."""
    rest_native_threads_at_exit()
    return Home()


class _SlateReader:
    """The reads that a database, a snapshot and a follower of SlateDB have in common."""

    def __init__(self, raw: Any, place: str, folder: Path | None = None) -> None:
        self._raw = raw
        self.place = place
        # Its directory, if it has one: where to look for what is damaged.
        self.folder = folder

    def check_open(self) -> None:
        """Raise `Closed` once this reader, or what it reads from, was closed; `Unsupported` behind a fork."""
        raise NotImplementedError

    async def get(self, key: bytes) -> bytes | None:
        checked([key])
        self.check_open()
        try:
            with translating(self.place):
                value: bytes | None = await self._raw.get(key)
                return value
        except Corrupt as error:
            raise await self._named(error, f"the value of {key!r:.80}") from error

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        listed = checked(keys)
        self.check_open()
        values: list[bytes | None] = []
        for first in range(0, len(listed), _READS_AT_ONCE):
            some = listed[first : first + _READS_AT_ONCE]
            try:
                with translating(self.place):
                    values += await asyncio.gather(*map(self._raw.get, some))
            except Corrupt as error:
                raise await self._named(error, f"one of {len(some)} values from {some[0]!r:.80} on") from error
        return values

    @asynccontextmanager
    async def _scanning(self, start: bytes) -> AsyncIterator[None]:
        try:
            with translating(self.place):
                yield
        except Corrupt as error:
            raise await self._named(error, f"what a scan from {start!r:.80} on comes to") from error

    async def _named(self, error: Corrupt, what: str) -> Corrupt:
        return await naming(error, f"{what} in {self.place} cannot be read", self.folder)

    async def scan(
        self, start: bytes = b"", end: bytes | None = None, *, reverse: bool = False, block_bytes: int = BLOCK_BYTES
    ) -> AsyncIterator[list[Entry]]:
        check_scan(start, end, block_bytes)
        self.check_open()
        if end is not None and start >= end:
            return
        async with self._scanning(start):
            rows = await self._raw.scan_with_options(_key_range(start, end), _scan_options(reverse))
        block: list[Entry] = []
        size, asked = 0, _ROWS_FIRST
        while True:
            self.check_open()
            async with self._scanning(start):
                fetched = await rows.next_batch(asked)
            for row in fetched:
                block.append((row.key, row.value))
                size += len(row.key) + len(row.value)
                if size >= block_bytes:
                    yield block
                    block, size = [], 0
            if len(fetched) < asked:
                break
            asked = _rows_to_ask(fetched, block_bytes - size)
        if block:
            yield block

    def scan_prefix(
        self, prefix: bytes, *, reverse: bool = False, block_bytes: int = BLOCK_BYTES
    ) -> AsyncIterator[list[Entry]]:
        return self.scan(prefix, prefix_end(prefix), reverse=reverse, block_bytes=block_bytes)


class SlateKeyValue(_SlateReader):
    """The writer of a store. `open_keyvalue` makes it."""

    def __init__(
        self,
        raw: uniffi.Db,
        place: str,
        *,
        directory: DurableDirectory | None = None,
        kept: LogKeeper | None = None,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        super().__init__(raw, place, directory.folder if directory else None)
        self._directory = directory
        self._syncs = SyncGroup(self._sync) if directory else None
        self._kept = kept
        self._clock = clock
        self._observer = observer
        self._closing: asyncio.Task[None] | None = None
        self._fenced = False
        self._last_sequence = 0

    async def write(self, batch: WriteBatch) -> SlateWriteHandle:
        self.check_open()
        if not len(batch):
            return SlateWriteHandle(self, None, 0.0)
        began = self._clock.monotonic()
        with self._writing():
            handle = await self._raw.write(await _lowered(batch))
        self._last_sequence = max(self._last_sequence, handle.seqnum())
        self._observer.count(names.KEYVALUE_WRITE_BYTES, batch.size_bytes)
        return SlateWriteHandle(self, handle, began)

    async def snapshot(self) -> SlateSnapshot:
        self.check_open()
        with translating(self.place):
            return SlateSnapshot(self, await self._raw.snapshot())

    async def flush(self) -> None:
        self.check_open()
        with self._writing():
            await self._raw.flush()
        await self._persist()

    async def close(self) -> None:
        check_home()
        if self._closing is None:
            self._closing = asyncio.create_task(self._shut_down())
        # Half a shutdown would leave the log's last writes behind: it ends even if its caller gives up.
        await asyncio.shield(self._closing)

    async def wait_durable(self, handle: uniffi.DurabilityHandle, began: float) -> None:
        """Return once a write is in the store's log, and the log on the disk."""
        with self._writing():
            await handle.await_durable()
        await self._persist()
        self._observer.observe(names.KEYVALUE_DURABLE_SECONDS, self._clock.monotonic() - began)

    def check_open(self) -> None:
        check_home()
        if self._closing is not None:
            raise Closed(f"the key-value store {self.place} is closed", "close() was called")

    async def _shut_down(self) -> None:
        try:
            # Flushed by itself first: a shutdown that is fenced halfway may call itself clean.
            if not self._fenced and self._raw.status().durable_seq < self._last_sequence:
                with self._writing():
                    await self._raw.flush()
        finally:
            # No write hangs on this any more, and to be fenced is no news to one who stops.
            with suppress(Fenced, Closed), translating(self.place):
                await self._raw.shutdown_with_options(_CLOSE)
        await self._persist()
        if self._kept is not None and not self._fenced:
            await asyncio.to_thread(self._kept.write)

    async def _persist(self) -> None:
        if self._syncs is None:
            return
        try:
            await self._syncs.wait()
        except OSError as error:
            raise OutcomeUnknown(
                f"a write to {self.place} may or may not have been stored",
                f"the directory could not be synced: {error.strerror}",
                "check the disk, open the store again and read",
            ) from error

    async def _sync(self) -> None:
        assert self._directory is not None
        began = self._clock.monotonic()
        sequence = self._raw.status().durable_seq
        await asyncio.to_thread(self._directory.sync)
        self._observer.observe(names.KEYVALUE_SYNC_SECONDS, self._clock.monotonic() - began)
        if self._kept is not None and self._kept.synced(sequence):
            await asyncio.to_thread(self._kept.write)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with translating(self.place, writing=True):
                yield
        except Fenced:
            if not self._fenced:
                self._fenced = True
                self._observer.event(names.KEYVALUE_FENCED, store=self.place)
            raise


class SlateWriteHandle:
    """A write of a `SlateKeyValue`."""

    def __init__(self, store: SlateKeyValue, raw: uniffi.DurabilityHandle | None, began: float) -> None:
        self._store = store
        self._raw = raw
        self._began = began

    async def durable(self) -> None:
        # Nothing is left to wait for when the batch was empty, or was durable when last asked.
        if self._raw is not None:
            await self._store.wait_durable(self._raw, self._began)
            self._raw = None


class SlateSnapshot(_SlateReader):
    """One moment of a `SlateKeyValue`."""

    def __init__(self, store: SlateKeyValue, raw: uniffi.DbSnapshot) -> None:
        super().__init__(raw, store.place, store.folder)
        self._store = store

    async def close(self) -> None:
        # The binding releases a snapshot when its last reference goes.
        self._raw = None

    def check_open(self) -> None:
        self._store.check_open()
        if self._raw is None:
            raise Closed(f"a snapshot of {self.place} is closed", "close() was called")


class SlateFollower(_SlateReader):
    """A reader in any process: sees what is durable, as of its last look at the store."""

    def __init__(self, raw: uniffi.DbReader, place: str, folder: Path | None = None) -> None:
        super().__init__(raw, place, folder)
        self._closed = False

    async def close(self) -> None:
        check_home()
        if not self._closed:
            self._closed = True
            with translating(self.place):
                await self._raw.shutdown()

    def check_open(self) -> None:
        check_home()
        if self._closed:
            raise Closed(f"the follower of {self.place} is closed", "close() was called")


async def _lowered(batch: WriteBatch) -> uniffi.WriteBatch:
    """The batch inside the binding; a large one is moved there in a thread, which holds no lock while it copies."""
    return _raw_batch(batch) if batch.size_bytes < _LOWER_BYTES_MAX else await asyncio.to_thread(_raw_batch, batch)


def _raw_batch(batch: WriteBatch) -> uniffi.WriteBatch:
    raw = uniffi.WriteBatch()
    for key, value in batch.operations():
        if value is None:
            raw.delete(key)
        else:
            raw.put(key, value)
    return raw


def _key_range(start: bytes, end: bytes | None) -> uniffi.KeyRange:
    return uniffi.KeyRange(start=start or None, start_inclusive=True, end=end, end_inclusive=False)


def _scan_options(reverse: bool) -> uniffi.ScanOptions:
    return uniffi.ScanOptions(
        durability_filter=uniffi.DurabilityLevel.MEMORY,
        dirty=False,
        read_ahead_bytes=_READ_AHEAD_BYTES,
        # A scan reads each block once: keeping them would push out what point reads come back to.
        cache_blocks=False,
        max_fetch_tasks=_FETCH_TASKS,
        order=uniffi.IterationOrder.DESCENDING if reverse else uniffi.IterationOrder.ASCENDING,
    )


def _rows_to_ask(fetched: Sequence[uniffi.KeyValue], wanted_bytes: int) -> int:
    """How many more rows of the size just seen make up `wanted_bytes`; at most twice as many as before."""
    mean = max(1, sum(len(row.key) + len(row.value) for row in fetched) // len(fetched))
    return max(1, min(wanted_bytes // mean, 2 * len(fetched), _ROWS_MAX))
