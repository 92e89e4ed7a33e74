"""The write-ahead log: gives each bundle its number, and answers when it is durable.

```
loop      callers of a        callers of b             a is answered           b is answered
threads                       b encoded, checksums     c encoded, checksums
log       [=== a written ===][====== b written ======][====== c written ======]
```
A group is laid out as bytes while the one before it is written, and written as soon as that is durable. A group whose
write or sync fails is written once more, into a new file; when that fails too, every caller of the group is told that
its outcome is unknown. The group behind it was laid out for the old file, and is laid out again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

from penstock.disk import explain, is_full
from penstock.errors import OutcomeUnknown, PenstockError
from penstock.observability import names
from penstock.quiver.bundles.bundle import Ack, Bundle
from penstock.quiver.config import Durability
from penstock.quiver.doors import Doors, InTurn
from penstock.quiver.log.frame_log import FrameLog, UnsureWrite
from penstock.quiver.log.frames import FrameKind
from penstock.quiver.log.group_commit import GroupCommit
from penstock.quiver.log.group_layout import LaidGroup, Record
from penstock.quiver.wal.calls import CallFrame, GroupCalls, WalCall

__all__ = ["Wal"]

# What is taken in without a look at each call where no file bounds it.
_FREE_BYTES: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class _Written:
    """A group that is durable; or that no log has to hold."""

    group: GroupCalls
    started: float


class Wal:
    """`accept` is called on the loop with the frames that one write made durable, and the number of the first bundle.

    Callers hear of it afterwards.
    """

    def __init__(
        self,
        log: FrameLog | None,
        doors: Doors,
        *,
        durability: Durability,
        interval: float = 0.0,
        persists: bool = True,
        next_record: int,
        durable_before: int,
        accept: Callable[[Sequence[CallFrame], int], None],
    ) -> None:
        self._log = log
        self._persists = persists and log is not None
        self._doors = doors
        self._accept = accept
        self._next_record = next_record
        # What a start found in the log a killed process may have written and not synced: until it is in a segment,
        # no frame vouches for it, or its loss with the power would be reported as one of durable records.
        self._durable_before, self._replayed_before = durable_before, next_record
        self._released_through = 0
        # Everything that changes the log's files goes through here.
        self._lane = doors.log_lane or InTurn(doors.offload)
        # Groups are laid out one behind the other, so that they come to the log in their order.
        self._laying = InTurn(doors.offload)
        # The number behind all groups that are under way, if all of them become durable.
        self._expected_record = next_record
        self._group: GroupCommit[WalCall, list[Ack]] = GroupCommit(
            self._commit,
            conclude=self._conclude,
            clock=doors.clock,
            interval=interval,
            one_by_one=durability is Durability.SYNC,
            overlap=2 if self._persists else 1,
        )

    @property
    def bytes(self) -> int:
        return self._log.bytes if self._log else 0

    @property
    def next_record(self) -> int:
        """The number of the next bundle, if all that are under way fail."""
        return self._next_record

    @property
    def is_durable(self) -> bool:
        """Whether what was acknowledged is in the log."""
        return self._persists

    @property
    def waiting_bytes(self) -> int:
        return self._group.waiting_bytes

    @property
    def free_bytes(self) -> int:
        """What the file that is written takes, besides what waits. Records are a little larger than their bundles."""
        if self._log is None or not self._persists:
            return _FREE_BYTES
        file = self._log.active
        return 0 if file is None else (file.size - file.end) // 2 - self.waiting_bytes

    @property
    def files(self) -> int:
        return 0 if self._log is None else len(self._log.retired) + (self._log.active is not None)

    def growth(self, size: int) -> int:
        """How much more room the disk gives when so many bytes come."""
        log = self._log
        if log is None or not self._persists:
            return 0
        file = log.active
        if file is not None and file.end + self.waiting_bytes + size <= file.size:
            return 0
        return log.growth(size)

    async def append(self, bundles: Sequence[Bundle], size: int) -> list[Ack]:
        return await self._group.add(WalCall(bundles, size, self._doors.clock.now_ms()), size)

    async def release(self, through: int) -> None:
        """Give back the files whose records are all in segments."""
        if self._log is not None:
            self._released_through = through
            await self._lane(self._log.release, through)
            await self._prepare_next(self._log)
        if through >= self._replayed_before - 1:
            self._durable_before = self._replayed_before

    async def reuse(self) -> None:
        """Give back the active file as well, if all its records are in segments: for a store that has no room left."""
        if self._log is not None:
            await self._lane(self._log.release, self._released_through, True)

    async def drain(self) -> None:
        await self._group.drain()

    async def close(self) -> None:
        await self._group.close()
        if self._log is not None:
            await self._lane(self._log.close)

    async def _prepare_next(self, log: FrameLog) -> None:
        """What was released is the next file: it is begun while groups are written into the one before."""
        if await self._lane(log.claim_next):
            try:
                await self._doors.offload(log.make_next)
            finally:
                await self._lane(log.settle_next)

    def _commit(self, calls: Sequence[WalCall], before: asyncio.Future[Any] | None) -> Awaitable[_Written]:
        group, started = GroupCalls(calls), self._doors.clock.monotonic()
        if not self._persists:
            group.in_memory()
            return _done(_Written(group, started))
        first = self._next_record if before is None else self._expected_record
        self._expected_record = first + sum([len(call.bundles) for call in calls])
        if before is None:
            return self._lane(self._write, group, started)
        return self._write_behind(group, started, first, before)

    def _conclude(self, written: _Written) -> list[list[Ack] | Exception]:
        """Durable: into the open segment, and its callers get their answers."""
        observer, instance, group = self._doors.observer, self._doors.instance, written.group
        if self._persists:
            observer.observe(names.QUIVER_WAL_SYNC_SECONDS, self._doors.clock.monotonic() - written.started)
        first = self._next_record
        answers, end = self._answers(group, first)
        # Only now: a group that failed leaves its numbers to the next one.
        self._next_record = end
        self._accept(group.frames, first)
        stored = sum([call.size for frame in group.frames for call in frame.calls])
        observer.count(names.QUIVER_INGESTED_BUNDLES, end - first, instance=instance)
        observer.count(names.QUIVER_INGESTED_BYTES, stored, instance=instance)
        return answers

    def _answers(self, group: GroupCalls, sequence: int) -> tuple[list[list[Ack] | Exception], int]:
        """One for each call, and the number behind the last bundle."""
        stored: list[list[Ack] | Exception] = []
        is_durable = repeat(self._persists)
        for frame in group.frames:
            for call in frame.calls:
                end = sequence + len(call.bundles)
                stored.append(list(map(Ack, range(sequence, end), repeat(frame.ingestion_ms), is_durable)))
                sequence = end
        if not group.refused:
            return stored, sequence
        rest = iter(stored)
        return [group.refused.get(number) or next(rest) for number in range(len(group.calls))], sequence

    async def _write_behind(
        self, group: GroupCalls, started: float, first: int, before: asyncio.Future[Any]
    ) -> _Written:
        """Written as soon as `before` is durable; where that failed, as if nothing had been before it."""
        failure: OSError | None = None
        is_durable = False
        try:
            is_durable = await self._write_ahead(group, first)
        except OSError as error:
            failure = error
        await asyncio.wait([before])
        if is_durable:
            return _Written(group, started)
        return await self._lane(self._write, group, started, failure)

    async def _write_ahead(self, group: GroupCalls, first: int) -> bool:
        """False, and nothing was written, where the group before it failed."""
        assert self._log is not None
        laid = await self._laying(self._lay, group, first)
        return laid is None or await self._lane(self._log.put, laid)

    def _write(self, group: GroupCalls, started: float, failure: OSError | None = None) -> _Written:
        """All before it is decided. `failure` is what a first try met; a second one has a file of its own.

        What of the group cannot be encoded is refused, and not in the log.
        """
        is_unsure = isinstance(failure, UnsureWrite)
        for _ in range(1 if failure else 2):
            try:
                self._write_once(group)
                return _Written(group, started)
            except OSError as error:
                failure, is_unsure = error, is_unsure or isinstance(error, UnsureWrite)
                if is_full(error) and not is_unsure:
                    # Room is set aside before anything is written: nothing was.
                    raise explain("the bundle could not be stored", error) from error
                self._doors.observer.event(names.QUIVER_WAL_FAILED, instance=self._doors.instance, error=str(error))
        assert failure is not None
        raise _explained(failure) from failure

    def _write_once(self, group: GroupCalls) -> None:
        assert self._log is not None
        if records := self._records(group, self._next_record):
            self._log.write(records)
            group.forget_parts()

    def _lay(self, group: GroupCalls, first: int) -> LaidGroup | None:
        """The group as bytes, if anything of it can be stored. Changes nothing in the log."""
        assert self._log is not None
        records = self._records(group, first)
        return self._log.lay(records) if records else None

    def _records(self, group: GroupCalls, first: int) -> list[Record]:
        group.encode()
        durable_before = first if self._durable_before == self._replayed_before else self._durable_before
        records = []
        for frame in group.frames:
            count = len(frame.bundles)
            records.append(Record(FrameKind.BUNDLES, frame.parts, first, count, durable_before))
            first += count
        return records


def _done(written: _Written) -> asyncio.Future[_Written]:
    done: asyncio.Future[_Written] = asyncio.get_running_loop().create_future()
    done.set_result(written)
    return done


def _explained(error: OSError) -> PenstockError:
    meaning = explain("the bundle could not be stored for sure", error)
    why = "no room is left" if is_full(error) else meaning.why
    return OutcomeUnknown(meaning.what, why, "repair the disk; then send it again if it is not there")
