"""A segment on its way to one subscriber."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.quiver.scan import gather
from penstock.quiver.segment.format import SegmentMeta
from penstock.quiver.setting_values import positive

__all__ = ["Delivery", "DeliveryDesk"]


class DeliveryDesk(Protocol):
    """Where a delivery reports back."""

    async def read(self, meta: SegmentMeta) -> dict[str, list[pa.Table]]: ...

    async def ack(self, delivery: Delivery) -> None: ...

    async def nack(self, delivery: Delivery, reason: str, *, permanent: bool) -> None: ...

    async def defer(self, delivery: Delivery, delay: float) -> None: ...


class Delivery:
    """One segment for one subscriber, until it says `ack`, `nack` or `defer`; the first of them counts.

    As an asynchronous context it acknowledges at the end of the block, and refuses when the block raises.
    """

    def __init__(self, desk: DeliveryDesk, subscriber: str, meta: SegmentMeta, attempt: int) -> None:
        self.subscriber = subscriber
        self.meta = meta
        # The first delivery is attempt 1.
        self.attempt = attempt
        self._desk = desk
        self._is_open = True

    @property
    def segment_seq(self) -> int:
        return self.meta.segment_seq

    async def read(self) -> dict[str, list[pa.Table]]:
        """Tables by slot, one for each schema the slot has, as maps of the files.

        `Corrupt` when the files are not what was written: the segment is then set aside, and lost to everybody.
        """
        return await self._desk.read(self.meta)

    async def table(self, slot: str | None = None) -> pa.Table:
        """The rows of one slot, of all its schemas; the slot may be left out where there is one."""
        slots = await self.read()
        if slot is None and len(slots) == 1:
            (slot,) = slots
        if slot not in slots:
            raise InvalidInput(f"segment {self.segment_seq} has no slot {slot!r}", f"it has {', '.join(slots)}")
        return gather(slots[slot], None)

    async def ack(self) -> None:
        """Processed. Once this returns the segment is never delivered to this subscriber again."""
        if self._close():
            await self._desk.ack(self)

    async def nack(self, reason: str = "", *, permanent: bool = False) -> None:
        """Refused: delivered again after a pause that grows; or, if permanent, set aside as a dead letter."""
        if not isinstance(reason, str):
            raise InvalidInput(f"the reason {reason!r} cannot be kept", "it must be text")
        # A file's name in an error may hold what UTF-8 does not: it must not fail whoever shares the write.
        said = reason.encode(errors="replace").decode()
        if self._close():
            await self._desk.nack(self, said, permanent=permanent)

    async def defer(self, delay: float) -> None:
        """Not now: delivered again in so many seconds. Not counted as a refusal, and not written down."""
        # Before it counts as answered: else nobody would get the segment again.
        positive("the delay", delay, least=0)
        if self._close():
            await self._desk.defer(self, delay)

    def _close(self) -> bool:
        was_open, self._is_open = self._is_open, False
        return was_open

    async def __aenter__(self) -> Delivery:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.ack()
        elif issubclass(kind, Exception):
            await self.nack(f"{kind.__name__}: {error}")

    def __repr__(self) -> str:
        return f"<Delivery of segment {self.segment_seq} to {self.subscriber}, attempt {self.attempt}>"
