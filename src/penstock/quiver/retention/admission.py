"""Room for what comes: in memory, and under the cap that all instances share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sized
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from penstock.clock import Deadline
from penstock.errors import AtCapacity, DeadlineExceeded, InvalidInput, StorageFull
from penstock.observability import names
from penstock.quiver.config import Durability, QuiverConfig, SizeCapPolicy
from penstock.quiver.doors import Doors, WakeUp
from penstock.quiver.retention.budget import SharedUsage, UsageFigure, missing_elsewhere, room_left
from penstock.quiver.segment.finaliser import Finaliser
from penstock.quiver.setting_values import patience
from penstock.quiver.wal.wal import Wal

__all__ = ["Admission"]

# Other instances free room without telling: look again so often while waiting.
_LOOK_SECONDS: Final = 0.05
# What a call takes in the log besides its bundles, at most, if it has a block of its own.
_CALL_BYTES: Final = 4096


class Admission:
    """`stored` is what the instance has on its disk; `sweep` removes what may go."""

    def __init__(
        self,
        config: QuiverConfig,
        wal: Wal,
        finaliser: Finaliser,
        usage: SharedUsage | None,
        doors: Doors,
        changed: WakeUp,
        *,
        stored: Callable[[], int],
        segments: Sized,
        sweep: Callable[[], Awaitable[Any]],
    ) -> None:
        self._config = config
        self._wal = wal
        self._finaliser = finaliser
        self._usage = usage
        self._doors = doors
        self._changed = changed
        self._stored = stored
        self._segments = segments
        self._sweep = sweep
        self._others: list[UsageFigure] = []
        # What the caller that waits brings.
        self._wanted = 0
        self._is_making_room = False
        # Whether a caller waits because of the number of segments.
        self._is_counted_out = False
        # Bytes that are known to fit, whatever comes of those that came before them.
        self._credit = 0

    async def admit(self, size: int, rejected: Any, *, wait: bool, timeout: float | None = None) -> None:
        """Return once there is room. `AtCapacity` where waiting is not wanted, or was in vain."""
        charge = size + _CALL_BYTES
        if charge <= self._credit:
            self._credit -= charge
            return
        if self._fits(size):
            self._credit = self._sure_bytes() - charge
            return
        self._check_size(size)
        patience("timeout", timeout)
        started = self._doors.clock.monotonic()
        deadline = None if timeout is None else Deadline(self._doors.clock, timeout)
        self._doors.observer.count(names.QUIVER_THROTTLED, instance=self._doors.instance)
        try:
            while not await self._made_room(size):
                self._check_full()
                if not wait:
                    raise self._refusal(rejected)
                if deadline is not None and deadline.passed:
                    raise DeadlineExceeded("the bundle was not stored in time", self._reason())
                await self._changed.wait(_LOOK_SECONDS if deadline is None else min(_LOOK_SECONDS, deadline.remaining))
        finally:
            self._wanted, self._is_counted_out = 0, False
            waited = self._doors.clock.monotonic() - started
            self._doors.observer.count(names.QUIVER_BACKPRESSURE_SECONDS, waited, instance=self._doors.instance)

    def bytes_over(self) -> int:
        """By how much the cap is passed, with what the waiting caller brings; and what others are short of, once."""
        config, others = self._config, self._others
        elsewhere = missing_elsewhere(
            own=self._own(),
            others=others,
            cap=config.retention.size_cap,
            instances=config.instances,
            policy=config.retention.size_cap_policy,
        )
        # What goes now shows in the figures that are read next: until then it is not freed again.
        self._others = [replace(other, missing=0) for other in others]
        return max(0, self._wanted - self._room()) + elsewhere

    def segments_over(self) -> int:
        """How many segments must go besides those above the cap, for the one that a waiting caller begins."""
        return int(self._is_counted_out)

    async def publish(self) -> None:
        """Tell the other instances what this one takes, and hear from them. A figure that fails is not worth a fuss."""
        if self._usage is not None:
            with suppress(OSError):
                missing = max(0, self._wanted - self._room()) if self._wanted else 0
                figure = UsageFigure(self._own(), missing)
                self._others = await self._doors.offload(self._usage.exchange, figure)
                self.changed()

    def changed(self) -> None:
        """Segments, files of the log or the other instances are not what they were: room is reckoned anew."""
        self._credit = 0

    def _sure_bytes(self) -> int:
        """What fits without a look at each: into the log's file, the open segment, and a part of the room."""
        if self._config.retention.segment_count_cap is not None:
            return 0
        target = self._config.segment.target_size
        in_segment = target - self._finaliser.open.bytes - self._wal.waiting_bytes
        return max(0, min(self._wal.free_bytes, in_segment, self._room() // 4))

    def _is_crowded(self) -> bool:
        """Whether memory has all it may have until a segment is written."""
        return self._finaliser.is_behind or (
            self._finaliser.sealed is not None and self._wal.waiting_bytes >= self._config.segment.target_size
        )

    def _fits(self, size: int) -> bool:
        growth = self._wal.growth(size)
        # A log that nothing is waiting in begins a new file whatever the bound is: else it would stand still.
        is_long = bool(growth) and self._finaliser.bytes > 0 and self._wal.bytes + growth > self._config.wal.max_size
        return not self._is_crowded() and not is_long and not self._has_too_many() and self._room() >= size + growth

    def _has_too_many(self) -> bool:
        """Whether the segment that is open now has no place under the cap of their number."""
        retention = self._config.retention
        if retention.segment_count_cap is None or retention.size_cap_policy is SizeCapPolicy.DROP_OLDEST:
            return False
        return len(self._segments) + (self._finaliser.sealed is not None) >= retention.segment_count_cap

    async def _made_room(self, size: int) -> bool:
        """One caller at a time makes room for all; where only the disk has to catch up there is none to make."""
        if not self._is_crowded() and not self._is_making_room:
            self._is_making_room = True
            try:
                await self._make_room(size)
            finally:
                self._is_making_room = False
        return self._fits(size)

    async def _make_room(self, size: int) -> None:
        await self.publish()
        self._is_counted_out = self._has_too_many()
        if self._room() < self._need(size) or self._is_counted_out:
            self._wanted = self._need(size)
            await self._sweep()
            if self._room() >= self._need(size):
                self._wanted = 0
            # Else the others hear of it, and free what they can.
            await self.publish()
        # Callers that came meanwhile may have filled memory: that passes with the segment on its way, by itself.
        if not self._is_crowded() and not self._fits(size):
            # What is in memory can be processed, and cleaned, once it is a file; then its place in the log is free.
            self._finaliser.seal("pressure")
            with suppress(OSError):
                await self._wal.reuse()

    def _need(self, size: int) -> int:
        return size + self._wal.growth(size)

    def _own(self) -> int:
        """On disk, and what the disk will take for what is in memory."""
        return self._stored() + self._finaliser.bytes + self._wal.waiting_bytes

    def _room(self) -> int:
        return room_left(
            own=self._own(),
            others=[other.taken for other in self._others],
            cap=self._config.retention.size_cap,
            instances=self._config.instances,
            # What one that was idle needs to begin: a file of the log, and the segment that comes of it.
            reserved_bytes=self._config.segment.target_size + self._config.wal.rotation_size,
        )

    def _check_size(self, size: int) -> None:
        """What would not fit into an empty store would wait for ever."""
        cap = self._config.retention.size_cap
        if 2 * size + self._config.ack_log_file_size > cap and self._config.durability is not Durability.OFF:
            raise InvalidInput(
                f"{size} bytes can never be stored at once",
                f"with their log records they exceed retention.size_cap of {cap} bytes",
                "split them, or raise the cap",
            )

    def _check_full(self) -> None:
        """A disk that has no room for the segment in memory takes nothing more, and says so at once."""
        if self._finaliser.is_behind and isinstance(self._finaliser.failure, StorageFull):
            raise self._finaliser.failure

    def _reason(self) -> str:
        retention = self._config.retention
        if self._has_too_many():
            return f"the store has reached its cap of {retention.segment_count_cap} segments"
        return f"the store has reached its cap of {retention.size_cap} bytes, or waits for its disk"

    def _refusal(self, rejected: Any) -> AtCapacity:
        return AtCapacity(
            "the bundle was not stored",
            self._reason(),
            "let subscribers catch up, or raise the cap",
            rejected,
        )
