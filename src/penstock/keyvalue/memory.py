"""The key-value store in memory: the port's contract without a disk, repeatable to the last step.

A `MemoryVolume` stands for the disk or bucket, and outlives the writers opened on it. Writes become
durable on the event loop's own timer, so a simulated loop decides when; a test may hold durability
back, make it fail (before or after the write landed), or crash a writer, which loses what was not
durable. There are no threads and no I/O.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Closed, Fenced, OutcomeUnknown, PenstockError
from penstock.keyvalue.port import BLOCK_BYTES, Entry, WriteBatch, check_scan, checked, prefix_end
from penstock.keyvalue.table import Operation, Table, blocks

__all__ = ["MemoryFollower", "MemoryKeyValue", "MemorySnapshot", "MemoryVolume", "MemoryWriteHandle"]


class MemoryVolume:
    """What outlives a writer: durable tables by path, and the knobs that make the medium misbehave."""

    def __init__(self) -> None:
        self.held = False
        self.failure: PenstockError | None = None
        self.failure_lands = False
        self._tables: dict[str, Table] = {}
        self._writers: dict[str, MemoryKeyValue] = {}

    def hold(self) -> None:
        """Let nothing become durable until `release`."""
        self.held = True

    def release(self) -> None:
        """Let held writes through: they are durable when this returns, unless the volume is failing."""
        self.held = False
        for writer in self._writers.values():
            writer.persist()

    def fail(self, error: PenstockError, *, landed: bool = False) -> None:
        """Answer every attempt to persist with `error` until `heal`.

        With `landed` the writes are durable all the same: the reply was lost, not the data.
        """
        self.failure, self.failure_lands = error, landed

    def heal(self) -> None:
        """Persist again. Writes that failed are still pending, and become durable when next asked for."""
        self.failure = None

    def newest_writer(self, path: str) -> MemoryKeyValue | None:
        """The writer that holds the fence of `path`."""
        return self._writers.get(path)

    def take_fence(self, path: str, writer: MemoryKeyValue) -> None:
        """Make `writer` the only one whose writes to `path` can still become durable."""
        self._writers[path] = writer

    def table(self, path: str) -> Table:
        """What is durable under `path` at this moment."""
        return self._tables.setdefault(path, Table()).share()

    def land(self, path: str, operations: Sequence[Operation]) -> None:
        """Make one batch durable."""
        self._tables[path] = self._tables.setdefault(path, Table()).changed(operations)


class _TableReader:
    """Reads over whatever table `_view` shows."""

    def _view(self) -> Table:
        raise NotImplementedError

    async def get(self, key: bytes) -> bytes | None:
        checked([key])
        return self._view().get(key)

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        listed = checked(keys)
        view = self._view()
        return [view.get(key) for key in listed]

    async def scan(
        self, start: bytes = b"", end: bytes | None = None, *, reverse: bool = False, block_bytes: int = BLOCK_BYTES
    ) -> AsyncIterator[list[Entry]]:
        check_scan(start, end, block_bytes)
        entries = self._view().share().entries(start, end, reverse=reverse)
        for block in blocks(entries, block_bytes):
            self._view()  # A reader that was closed or fenced between two blocks says so.
            yield block

    def scan_prefix(
        self, prefix: bytes, *, reverse: bool = False, block_bytes: int = BLOCK_BYTES
    ) -> AsyncIterator[list[Entry]]:
        return self.scan(prefix, prefix_end(prefix), reverse=reverse, block_bytes=block_bytes)


class MemoryKeyValue(_TableReader):
    """The writer of one path of a volume. Opening a second one on the same path fences this one."""

    def __init__(
        self, volume: MemoryVolume | None = None, path: str = "keyvalue", *, flush_interval_ms: float = 0
    ) -> None:
        self.volume = volume or MemoryVolume()
        self.path = path
        self._interval_seconds = flush_interval_ms / 1000
        self._table = self.volume.table(path)
        self._log = _Log()
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        self._ended: PenstockError | None = None
        self.volume.take_fence(path, self)

    async def write(self, batch: WriteBatch) -> MemoryWriteHandle:
        self.check_open()
        if not len(batch):
            return MemoryWriteHandle(self, 0)
        operations = tuple(batch.operations())
        self._table = self._table.changed(operations)
        self._schedule()
        return MemoryWriteHandle(self, self._log.append(operations))

    async def snapshot(self) -> MemorySnapshot:
        return MemorySnapshot(self, self._view().share())

    async def flush(self) -> None:
        self.check_open()
        await self.wait_durable(self._log.last)

    async def close(self) -> None:
        if self._ended is not None:
            return
        try:
            await self.wait_durable(self._log.last)
        finally:
            # A close that fails or is cancelled still closes: its error says that writes were lost.
            if self._ended is None:
                self._end(Closed(f"the key-value store {self.path!r} is closed", "close() was called"))

    def crash(self) -> None:
        """Stop as a killed process does: what was not durable is gone."""
        self._end(OutcomeUnknown(f"the writer of {self.path!r} crashed", "what was not durable is lost"))

    def persist(self) -> None:
        """Make what is pending durable now, unless the volume is held or failing, or a newer writer exists."""
        self._timer = None
        if self._ended is not None or self.volume.held:
            return
        if self.volume.newest_writer(self.path) is not self:
            self._end(Fenced(f"the writer of {self.path!r} was fenced", "a newer writer opened the store"))
            return
        failure = self.volume.failure
        if failure is not None:
            self._log.answer(failure)
        if failure is None or self.volume.failure_lands:
            for operations in self._log.land():
                self.volume.land(self.path, operations)

    async def wait_durable(self, sequence: int) -> None:
        """Return once the write numbered `sequence` is durable."""
        if sequence <= self._log.durable:
            return
        self.check_open()
        self._schedule()
        await self._log.waiter(sequence)

    def check_open(self) -> None:
        if self._ended is not None:
            raise _fresh(self._ended)

    def _view(self) -> Table:
        self.check_open()
        return self._table

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        # A timer of an earlier loop never fires: a test that calls asyncio.run twice gets a new one.
        if self._timer is None or self._timer[0] is not loop:
            self._timer = (loop, loop.call_later(self._interval_seconds, self.persist))

    def _end(self, reason: PenstockError) -> None:
        self._ended = reason
        self._log.answer(reason)


class MemoryWriteHandle:
    """A write of a `MemoryKeyValue`, known by its place in the log."""

    def __init__(self, writer: MemoryKeyValue, sequence: int) -> None:
        self._writer = writer
        self._sequence = sequence

    async def durable(self) -> None:
        await self._writer.wait_durable(self._sequence)


class MemorySnapshot(_TableReader):
    """One moment of a `MemoryKeyValue`; it ends with its writer, as a real snapshot does."""

    def __init__(self, writer: MemoryKeyValue, table: Table) -> None:
        self._writer = writer
        self._table: Table | None = table

    async def close(self) -> None:
        self._table = None

    def _view(self) -> Table:
        self._writer.check_open()
        if self._table is None:
            raise Closed(f"a snapshot of {self._writer.path!r} is closed", "close() was called")
        return self._table


class MemoryFollower(_TableReader):
    """Reads durable data under a path, and refreshes its view after `poll_interval_ms`."""

    def __init__(
        self, volume: MemoryVolume, path: str = "keyvalue", *, poll_interval_ms: float = 0, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.path = path
        self._volume = volume
        self._interval_seconds = poll_interval_ms / 1000
        self._clock = clock
        self._closed = False
        self._poll()

    async def close(self) -> None:
        self._closed = True

    def _view(self) -> Table:
        if self._closed:
            raise Closed(f"the follower of {self.path!r} is closed", "close() was called")
        if self._clock.monotonic() - self._polled_at >= self._interval_seconds:
            self._poll()
        return self._table

    def _poll(self) -> None:
        self._table = self._volume.table(self.path)
        self._polled_at = self._clock.monotonic()


class _Log:
    """Batches on their way to being durable, numbered from 1, and those who wait for them."""

    def __init__(self) -> None:
        self.last = 0
        self.durable = 0
        self._pending: list[tuple[Operation, ...]] = []
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def append(self, operations: tuple[Operation, ...]) -> int:
        self._pending.append(operations)
        self.last += 1
        return self.last

    def waiter(self, sequence: int) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((sequence, future))
        return future

    def land(self) -> list[tuple[Operation, ...]]:
        """Hand over everything pending and release those who waited for it."""
        landed, self._pending = self._pending, []
        self.durable = self.last
        waiters, self._waiters = self._waiters, []
        for _, future in waiters:
            if not future.done():
                future.set_result(None)
        return landed

    def answer(self, error: PenstockError) -> None:
        """Give `error` to everyone who waits."""
        waiters, self._waiters = self._waiters, []
        for _, future in waiters:
            if not future.done():
                future.set_exception(_fresh(error))


def _fresh(error: PenstockError) -> PenstockError:
    """A new error of the same text: one instance raised many times would gather tracebacks."""
    return type(error)(*error.args)
