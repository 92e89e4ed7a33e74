"""What the sinks of both stores do: a batch's records and its sequence enter the store in one write, so each counts once.

Batches are written in their order and vouched for together. A record that the store cannot take is set aside by name,
and the others of its batch are stored; damage in the store itself ends the run, with everything behind it unread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Generic, TypeVar

from penstock.buffer import ConsumedBatch, MetadataRange
from penstock.coordinator import WriteHandle
from penstock.errors import AtCapacity, InvalidInput, PenstockError, Unsupported
from penstock.observability import SILENT, Observer, names
from penstock.relay.sinks.rejected import RejectedRecords

__all__ = ["StoreSink"]

C = TypeVar("C")

# What is wrong with a record, and with nothing else.
_BAD_RECORD: Final = (InvalidInput, Unsupported)
# A store's answer to a change that holds too much: which record it is shows when each is written by itself.
_BAD_CHANGE: Final = (InvalidInput, AtCapacity)


class StoreSink(ABC, Generic[C]):
    """What both sinks do: decode, gather, write, set aside. The store is the caller's to open and close."""

    def __init__(self, source: str, rejected: RejectedRecords, *, consumer: str, observer: Observer = SILENT) -> None:
        self.rejected = rejected
        self._source = source
        self._consumer = consumer
        self._observer = observer

    @abstractmethod
    async def position(self) -> int | None:
        """The last sequence of the queue that is in the store."""

    @abstractmethod
    def _begin(self, source: str | None, position: int | None) -> C: ...

    @abstractmethod
    async def _add(self, changes: C, metadata: MetadataRange, record: bytes) -> None:
        """Decode a record into changes; `InvalidInput` or `Unsupported` if it cannot be stored."""

    @abstractmethod
    async def _write(self, changes: C) -> WriteHandle: ...

    async def store(self, batches: Sequence[ConsumedBatch]) -> None:
        """Return when all of them are durable, or set aside."""
        await self._store_batches(batches, {})

    async def _store_batches(self, batches: Sequence[ConsumedBatch], bad: dict[int, set[int]]) -> None:
        """`bad` are the records of each sequence that are set aside: each is told once, however often it is met."""
        stored = await self.position()
        waiting = [batch for batch in batches if stored is None or batch.sequence > stored]
        handles = [await self._write_batch(batch, bad.setdefault(batch.sequence, set())) for batch in waiting]
        for place, handle in enumerate(handles):
            batch = waiting[place]
            try:
                await handle.durable()
            except _BAD_CHANGE:
                # The source stays at this batch, so those behind it were refused with it.
                for later in handles[place + 1 :]:
                    with suppress(PenstockError):
                        await later.durable()
                await (await self._write_records(batch, bad[batch.sequence])).durable()
                self._count(batch)
                await self._store_batches(waiting[place + 1 :], bad)
                return
            self._count(batch)

    async def _write_batch(self, batch: ConsumedBatch, bad: set[int]) -> WriteHandle:
        changes = self._begin(self._source, batch.sequence)
        for record in range(len(batch.records)):
            try:
                await self._decode(changes, batch, record)
            except _BAD_RECORD as error:
                await self._set_aside(batch, record, error, bad)
        try:
            return await self._write(changes)
        except _BAD_CHANGE:
            return await self._write_records(batch, bad)

    async def _write_records(self, batch: ConsumedBatch, bad: set[int]) -> WriteHandle:
        """Every record as a change of its own, and the sequence behind them.

        After a crash in between they are written again: the same rows in the same order, which changes nothing.
        """
        for record in range(len(batch.records)):
            if record in bad:
                continue
            changes = self._begin(None, None)
            try:
                await self._decode(changes, batch, record)
                await (await self._write(changes)).durable()
            except (*_BAD_RECORD, AtCapacity) as error:
                await self._set_aside(batch, record, error, bad)
        return await self._write(self._begin(self._source, batch.sequence))

    async def _set_aside(self, batch: ConsumedBatch, record: int, error: PenstockError, bad: set[int]) -> None:
        if record not in bad:
            await self.rejected.set_aside(batch, record, error)
            bad.add(record)

    async def _decode(self, changes: C, batch: ConsumedBatch, record: int) -> None:
        metadata = batch.metadata_of(record)
        if metadata is None:
            raise InvalidInput("a record has no metadata", "its envelope is missing", "produce it with one")
        await self._add(changes, metadata, bytes(batch.records[record]))

    def _count(self, batch: ConsumedBatch) -> None:
        self._observer.count(names.RELAY_CONSUMED_BATCHES, consumer=self._consumer)
        records = len(batch.records)
        self._observer.count(names.RELAY_CONSUMED_RECORDS, records, consumer=self._consumer, outcome="taken")
