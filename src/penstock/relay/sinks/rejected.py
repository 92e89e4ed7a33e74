"""Records that a store cannot take, kept beside the queue for a person to look at.

Each has a folder of its own, `{prefix}-rejected/{consumer}/{sequence}/{record}`: `.json` says why, `.record` holds its
bytes. Names come from the place in the queue, so that setting a record aside twice writes the same objects. They are
durable before the position of the store moves on.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.buffer import ConsumedBatch
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import PenstockError
from penstock.objects import ObjectStore
from penstock.observability import SILENT, Observer, names

__all__ = ["RejectedRecord", "RejectedRecords"]

# Enough digits for any u64, so that names sort like sequences.
_DIGITS: Final = 20


class RejectedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a rejected record in the queue, and the reason."""

    sequence: int
    record: int
    kind: str
    error: str
    rejected_ms: int
    metadata: bytes


class RejectedRecords:
    """Of one consumer of one queue."""

    def __init__(
        self,
        store: ObjectStore,
        data_path_prefix: str,
        consumer: str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        self.folder = f"{data_path_prefix}-rejected/{consumer}"
        self.count = 0
        self._store = store
        self._consumer = consumer
        self._clock = clock
        self._observer = observer

    async def set_aside(self, batch: ConsumedBatch, record: int, error: PenstockError) -> None:
        """Durable when this returns."""
        metadata = batch.metadata_of(record)
        rejected = RejectedRecord(
            sequence=batch.sequence,
            record=record,
            kind=type(error).__name__,
            error=str(error),
            rejected_ms=self._clock.now_ms(),
            metadata=b"" if metadata is None else metadata.payload,
        )
        key = f"{self.folder}/{batch.sequence:0{_DIGITS}d}/{record}"
        await self._store.put(f"{key}.record", bytes(batch.records[record]))
        await self._store.put(f"{key}.json", msgspec.json.encode(rejected))
        self.count += 1
        self._observer.count(names.RELAY_CONSUMED_RECORDS, consumer=self._consumer, outcome="rejected")
        self._observer.event(
            names.RELAY_RECORD_REJECTED, consumer=self._consumer, sequence=batch.sequence, record=record, why=str(error)
        )
