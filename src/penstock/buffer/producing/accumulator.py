"""Inputs gather here until they make a batch. Pure: time is handed in, nothing waits, nothing is sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.buffer.config import ProducerConfig
from penstock.buffer.format.batch import RECORDS_MAX, RecordBlock, checked_records
from penstock.buffer.format.manifest import MetadataRange
from penstock.buffer.producing.handle import BatchOutcome
from penstock.errors import InvalidInput
from penstock.objects import Body

__all__ = ["Input", "OpenBatch"]

# What an input costs beside its bytes: a length field for each record, and its range in the manifest.
_LENGTH_BYTES: Final = 4
_RANGE_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Input:
    """One call of `produce`, checked. `size` is what it adds to a batch."""

    records: tuple[bytes, ...]
    metadata: bytes
    size: int

    @classmethod
    def of(cls, records: Iterable[Body], metadata: Body, config: ProducerConfig) -> Input:
        checked = checked_records(records)
        if not isinstance(metadata, bytes | bytearray | memoryview):
            raise InvalidInput(f"metadata is {type(metadata).__name__}", "it must be bytes", "encode it")
        payload = bytes(metadata)
        if len(payload) > config.input_metadata_bytes_max:
            raise InvalidInput(
                f"metadata of {len(payload)} bytes cannot be taken",
                f"the bound is {config.input_metadata_bytes_max}, since the manifest is copied with every write",
                "put it into the records, or raise metadata_bytes_max (and manifest_bytes_max to twice of it)",
            )
        size = sum(map(len, checked)) + _LENGTH_BYTES * len(checked) + len(payload) + _RANGE_BYTES
        accepted = cls(checked, payload, size)
        if accepted.held > config.max_in_flight_bytes:
            raise InvalidInput(
                f"an input of {size} bytes can never be accepted",
                f"max_in_flight_bytes is {config.max_in_flight_bytes}, and closing a batch copies it",
                "split it, or raise the bound",
            )
        return accepted

    @property
    def held(self) -> int:
        """Bytes it takes from the bound until its batch is encoded: itself, and room for that copy."""
        return 2 * self.size


class OpenBatch:
    """The batch that takes inputs now. All records of one input share a batch."""

    def __init__(self, opened_at: float) -> None:
        self.opened_at = opened_at
        self.block = RecordBlock()
        self.metadata: list[MetadataRange] = []
        # What its ranges take in the manifest.
        self.metadata_size = 0
        self.inputs = 0
        self.size = 0
        self.outcome = BatchOutcome()
        # To be closed as soon as the pipeline has room for it, for this reason.
        self.overdue: str | None = None

    def add(self, offered: Input, now_ms: int) -> None:
        start = self.block.count
        self.block.extend(offered.records)
        # Inputs of one millisecond with one payload need one range: every record still finds the same answer.
        last = self.metadata[-1] if self.metadata else None
        if last is None or last.ingestion_time_ms != now_ms or last.payload != offered.metadata:
            self.metadata.append(MetadataRange(start, now_ms, offered.metadata))
            self.metadata_size += _RANGE_BYTES + len(offered.metadata)
        self.inputs += 1
        self.size += offered.size

    def full(self, config: ProducerConfig) -> str | None:
        """The bound that this batch has reached; None while it can take more."""
        if self.size >= config.flush_size_bytes:
            return "size"
        if self.block.count >= RECORDS_MAX:
            return "records"
        if self.metadata_size >= config.entry_metadata_bytes:
            return "metadata"
        return "inputs" if self.inputs >= config.max_buffered_inputs else None
