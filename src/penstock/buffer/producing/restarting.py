"""A producer for programs that run for months: one that has halted is replaced with the next input.

A producer halts when it gives up a write of the manifest, since what it enqueued after that could overtake what may
still land. Where the inputs of different calls have no order among each other, there is nothing to protect: the calls
under way get their errors, and later ones go to a new producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType

from penstock.buffer.producing.handle import InputHandle
from penstock.buffer.producing.producer import Producer
from penstock.errors import Closed, PenstockError
from penstock.objects import Body

__all__ = ["RestartingProducer"]


class RestartingProducer:
    """Producers one after the other, each made by `make` and used until it halts. Belongs to one event loop."""

    def __init__(self, make: Callable[[], Producer]) -> None:
        self._make = make
        self._producer = make()
        self._closed = False

    async def start(self) -> None:
        """Refuse a folder that belongs to another queue now, and not with the first batch. May be left out."""
        await self._producer.start()

    async def produce(self, records: Iterable[Body], metadata: Body = b"") -> InputHandle:
        """As `Producer.produce`; a producer that halted, also while this waited for room, is left for a new one."""
        # A second producer must find what the first one has read.
        kept = [*records] if isinstance(records, Iterator) else records
        while True:
            producer = await self._working()
            try:
                return await producer.produce(kept, metadata)
            except Closed:
                if self._closed or not producer.halted:
                    raise

    async def close(self) -> None:
        """As `Producer.close`. Safe to repeat."""
        self._closed = True
        await self._producer.close()

    async def __aenter__(self) -> RestartingProducer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _working(self) -> Producer:
        halted = self._producer
        if halted.halted and not self._closed:
            # Before anything is awaited: of those who find it halted, one replaces it.
            self._producer = self._make()
            # What it failed with was raised by its handles.
            with suppress(PenstockError):
                await halted.close()
        return self._producer
