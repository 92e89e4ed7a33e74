"""`ack.log`: makes the records of the acknowledgement state durable, then applies them.

Each file begins with a checkpoint of the whole state; the file before it is kept, in case the checkpoint is damaged.
A spare file is always there, so that acknowledging works on a full disk.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.clock import Clock
from penstock.disk import explain
from penstock.errors import OutcomeUnknown, PenstockError
from penstock.loops import Offload
from penstock.quiver.acks.ack_records import AckRecord, apply, encode_record
from penstock.quiver.acks.ack_state import AckState, OutcomeRecord
from penstock.quiver.log.frame_log import FrameLog
from penstock.quiver.log.group_commit import GroupCommit
from penstock.quiver.log.group_layout import Record

__all__ = ["AckLog"]


class AckLog:
    """Records go in through `append`, and are in `state` when it returns. Without a log they are in memory only."""

    def __init__(
        self,
        state: AckState,
        log: FrameLog | None,
        *,
        offload: Offload,
        clock: Clock,
        checkpoint_records: int,
        next_record: int = 1,
        records: int = 0,
    ) -> None:
        self.state = state
        # Records since the last checkpoint.
        self.depth = records
        self._log = log
        self._offload = offload
        self._checkpoint_records = checkpoint_records
        self._next_record = next_record
        self._group: GroupCommit[AckRecord, None] = GroupCommit(self._commit, clock=clock)

    @property
    def bytes(self) -> int:
        return self._log.bytes if self._log else 0

    async def append(self, record: AckRecord) -> None:
        """Return once the record is durable and applied. `OutcomeUnknown`: a start may find it, or not."""
        await self._group.add(record, 0)

    async def settle(self, records: Sequence[OutcomeRecord]) -> None:
        if records:
            await self.append(list(records))

    async def checkpoint(self) -> None:
        """Begin a new file with the whole state in it."""
        await self._group.drain()
        try:
            await self._rotate()
        except OSError:
            # Once more, in a file of its own: the first one is given up.
            await self._rotate()

    async def close(self) -> None:
        await self._group.close()
        if self._log is not None:
            await self._offload(self._log.close)

    async def _commit(self, group: Sequence[AckRecord], _before: object) -> list[None]:
        if self._log is not None:
            await self._write(group)
        for record in group:
            apply(self.state, record)
        return [None] * len(group)

    async def _write(self, group: Sequence[AckRecord]) -> None:
        """Once more in a new file, if the old one fails: it begins with a checkpoint, and lacks nothing."""
        assert self._log is not None
        try:
            await self._write_once(group)
        except OSError:
            try:
                await self._rotate()
                await self._write_once(group)
            except OSError as error:
                raise _explained(error) from error
        self._next_record += len(group)
        self.depth += len(group)

    async def _write_once(self, group: Sequence[AckRecord]) -> None:
        assert self._log is not None
        records = self._frames(group)
        if self.depth >= self._checkpoint_records or not self._log.has_room(records):
            await self._rotate()
        await self._offload(self._log.write, records)

    async def _rotate(self) -> None:
        if self._log is None:
            return
        # Taken on the loop, where the state is changed; only the writing is elsewhere.
        whole = [encode_record(self.state.checkpoint()), *map(encode_record, self.state.seals.values())]
        first = [Record(kind, [body], self._next_record, 0, self._next_record) for kind, body in whole]
        await self._offload(self._rotate_to, first)
        self.depth = 0

    def _rotate_to(self, first: Sequence[Record]) -> None:
        assert self._log is not None
        if self._log.active is not None:
            # The active one has all that older ones have: on a full disk one of them makes room for the next.
            self._log.forget_all_but(0)
        # As much room again as the checkpoint takes, however large it is: else each record would need a new file.
        self._log.rotate(first[0].bytes, first)
        self._log.forget_all_but(1)

    def _frames(self, group: Sequence[AckRecord]) -> list[Record]:
        frames = []
        for at, record in enumerate(group):
            kind, body = encode_record(record)
            frames.append(Record(kind, [body], self._next_record + at, 1, self._next_record))
        return frames


def _explained(error: OSError) -> PenstockError:
    meaning = explain("an acknowledgement could not be written", error)
    return OutcomeUnknown(meaning.what, meaning.why, "repair the disk; the segment may be delivered again")
