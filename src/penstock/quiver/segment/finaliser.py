"""The open segment's life: filled, sealed, delivered from memory or written, published. One is filled meanwhile.

A segment whose write fails stays in memory and is tried again, under the same number, with files made anew; the log
keeps its records until its files are durable.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from penstock.disk import explain
from penstock.errors import PenstockError, Unsupported
from penstock.observability import names
from penstock.quiver.bundles.bundle import Bundle
from penstock.quiver.bundles.shared import SharedBatches
from penstock.quiver.config import SegmentConfig
from penstock.quiver.doors import Doors, WakeUp
from penstock.quiver.segment.format import SegmentMeta
from penstock.quiver.segment.open_segment import OpenSegment

__all__ = ["Finaliser", "SegmentWriter"]

_RETRY_SECONDS_FIRST: Final = 0.1
# Of the next segment, when it is this full the sealed one is written: the rest is filled meanwhile.
_PRESSING_PART: Final = 0.75
_RETRY_SECONDS_MAX: Final = 5.0
_MOMENT_SECONDS: Final = 1e-3


class SegmentWriter(Protocol):
    """Makes a segment durable. Blocking."""

    def write(self, segment: OpenSegment, segment_seq: int) -> SegmentMeta: ...


class Finaliser:
    """`number` gives the next segment its number; `publish` is awaited with what is durable, and when its
    last bundle came.

    `hand_over` delivers a sealed segment from memory, and answers whether all are done with it: it needs no files then.
    `begun` is called when a segment gets its first bundle, and its time begins to run.
    """

    def __init__(
        self,
        writer: SegmentWriter,
        config: SegmentConfig,
        doors: Doors,
        changed: WakeUp,
        *,
        number: Callable[[], int],
        publish: Callable[[SegmentMeta, float], Awaitable[None]],
        hand_over: Callable[[OpenSegment, int], Awaitable[bool]],
        begun: Callable[[], None],
    ) -> None:
        self._writer = writer
        self._config = config
        self._doors = doors
        self._changed = changed
        self._number = number
        self._publish = publish
        self._hand_over = hand_over
        # How many wait for what is sealed to be written, and whether there is no room for it elsewhere.
        self._hurrying = 0
        self._is_short_of_room = False
        # When the sealed segment was sealed, and how long it takes to write one; 0 until one was written.
        self._sealed_at = 0.0
        self._write_seconds = 0.0
        self._begun = begun
        self._task: asyncio.Task[None] | None = None
        self._retries = True
        self.open = self._new()
        self.sealed: OpenSegment | None = None
        # Why the sealed segment is still in memory.
        self.failure: PenstockError | None = None

    @property
    def bytes(self) -> int:
        """What is in memory."""
        return self.open.bytes + (self.sealed.bytes if self.sealed else 0)

    @property
    def is_behind(self) -> bool:
        """Whether both are full: whoever comes now has to wait."""
        return self.sealed is not None and self.open.bytes >= self._config.target_size

    def memory_seconds_left(self) -> float:
        """How long what is sealed may still be delivered from memory; 0 or less: it has to be written now.

        Once the next segment is filling up, callers may soon wait for this one. Yet a subscriber that is about to
        settle it spares the disk its file: it gets as much time as the writing would take, and no more.
        """
        if self._hurrying or self._is_short_of_room:
            return 0.0
        if not self._is_filling_up:
            return math.inf
        left = self._sealed_at + self._write_seconds - self._doors.clock.monotonic()
        # So short a wait may round to none at all, and would be waited for again and again.
        return left if left > _MOMENT_SECONDS else 0.0

    @property
    def _is_filling_up(self) -> bool:
        return self.open.bytes >= _PRESSING_PART * self._config.target_size

    def add(
        self, bundles: Sequence[Bundle], bundle_seq: int, ingestion_ms: int, shared: SharedBatches | None = None
    ) -> None:
        was_filling_up = self._is_filling_up
        self.collect(bundles, bundle_seq, ingestion_ms, shared)
        if self.open.bytes >= self._config.target_size:
            self.seal("size")
        if self.sealed is not None and self._is_filling_up and not was_filling_up:
            self._changed.notify()

    def collect(
        self, bundles: Sequence[Bundle], bundle_seq: int, ingestion_ms: int, shared: SharedBatches | None = None
    ) -> None:
        """Take bundles into the open segment, however large it is by then."""
        self.open.added_at = self._doors.clock.monotonic()
        if not self.open.bundles:
            self.open.opened_at = self.open.added_at
            self._begun()
        self.open.add(bundles, bundle_seq, ingestion_ms, shared)

    def seal(self, reason: str, segment_seq: int | None = None) -> None:
        """Let go of what is open, unless another is on its way. `segment_seq`: it had this number in an earlier life."""
        if reason == "pressure" and self.bytes:
            self._is_short_of_room = True
            self._changed.notify()
        if self.sealed is None and self.open.bundles:
            self.sealed, self.open = self.open, self._new()
            self._sealed_at = self._doors.clock.monotonic()
            self._doors.observer.count(names.QUIVER_SEGMENTS_FINALISED, reason=reason)
            self._task = asyncio.create_task(self._finalise(segment_seq))

    def buffers(self, finalised_through: int) -> list[OpenSegment]:
        """What is in memory and in no segment yet, oldest first."""
        held = [self.sealed, self.open]
        return [one for one in held if one is not None and one.bundles and one.last_bundle > finalised_through]

    def open_seconds_left(self, longest: float) -> float:
        """How long the open segment may stay open, `longest` where there is none."""
        if not self.open.bundles or self.sealed is not None:
            return longest
        return max(0.001, self.open.opened_at + self._config.max_open_duration - self._doors.clock.monotonic())

    def seal_if_old(self) -> None:
        if self.open.bundles and self._doors.clock.monotonic() >= self.open.opened_at + self._config.max_open_duration:
            self.seal("time")

    async def flush(self, reason: str) -> None:
        """Return once all that is in memory now is in files, or settled; raise why it is not."""
        self._hurrying += 1
        self._changed.notify()
        try:
            for _ in range(2):
                self.seal(reason)
                while self._task is not None:
                    await self._changed.wait()
                    if self.failure is not None:
                        raise self.failure
        finally:
            self._hurrying -= 1

    async def stop(self) -> None:
        """Write what is left, once; the log has it if that fails."""
        self._retries = False
        self._hurrying += 1
        self._changed.notify()
        for _ in range(2):
            if self._task is None:
                self.seal("shutdown")
            if self._task is not None:
                await asyncio.wait([self._task])
        if self.failure is not None:
            raise self.failure

    def _new(self) -> OpenSegment:
        return OpenSegment(self._doors.clock.monotonic(), event_time_column=self._config.event_time_column)

    async def _finalise(self, segment_seq: int | None) -> None:
        """Give the sealed segment its number, and let it leave memory."""
        assert self.sealed is not None
        if segment_seq is None:
            segment_seq = self._number()
            if self.memory_seconds_left() <= 0 or not await self._hand_over(self.sealed, segment_seq):
                await self._write_out(self.sealed, segment_seq)
        else:
            await self._write_out(self.sealed, segment_seq)
        self._task, self._is_short_of_room = None, False
        if self.failure is None:
            self.sealed = None
        self._changed.notify()
        if self.open.bytes >= self._config.target_size:
            self.seal("size")

    async def _write_out(self, sealed: OpenSegment, number: int) -> None:
        pause = _RETRY_SECONDS_FIRST
        while True:
            started = self._doors.clock.monotonic()
            try:
                meta = await self._doors.offload(self._writer.write, sealed, number)
                break
            except Exception as error:  # noqa: BLE001  whatever it is, the log has the records: nobody may wait for ever
                self.failure = _explained(number, error)
                self._doors.observer.event(names.QUIVER_SEGMENT_FAILED, instance=self._doors.instance, error=str(error))
            self._changed.notify()
            if not self._retries:
                return
            await self._changed.wait(pause)
            pause = min(2 * pause, _RETRY_SECONDS_MAX)
        self.failure = None
        seconds = self._doors.clock.monotonic() - started
        # Together with those before it: a single slow one says little.
        self._write_seconds = (self._write_seconds + seconds) / 2 if self._write_seconds else seconds
        await self._publish(meta, sealed.added_at)


def _explained(number: int, error: Exception) -> PenstockError:
    what = f"segment {number} could not be written"
    if isinstance(error, OSError):
        return explain(what, error)
    return Unsupported(what, f"{type(error).__name__}: {error}", "the log keeps its bundles: report this problem")
