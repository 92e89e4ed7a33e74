"""The settings of relays: one class for what all have in common, with a table in it for each kind of outlet."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any, Final

from penstock.errors import InvalidInput

__all__ = [
    "OtlpOutletConfig",
    "ParquetOutletConfig",
    "QueueOutletConfig",
    "RelayConfig",
    "RowCompression",
    "UnprovedPolicy",
]

_MIB: Final = 1 << 20
# The length field of a record has 32 bits, and a reader takes no batch above a GiB.
_PART_BYTES_MAX: Final = 512 * _MIB


class RowCompression(StrEnum):
    """How columns are compressed."""

    ZSTD = "zstd"
    NONE = "none"


class UnprovedPolicy(StrEnum):
    """What to do with a segment if it is unknown after a crash whether it was sent and consumed."""

    RESEND = "resend"  # under the same stamp, by which consumers know repeats
    SET_ASIDE = "set_aside"  # a dead letter, until a person replays it


@dataclass(frozen=True, slots=True)
class QueueOutletConfig:
    """How segments enter the queue."""

    # Maximum size of one batch object, in bytes of rows in memory. Larger segments are split, and one part is in
    # memory at a time.
    part_bytes: int = 16 * _MIB
    # Compression of the columns inside a batch: `zstd` or `none`.
    compression: RowCompression = RowCompression.ZSTD
    # Whether this relay is the queue's only producer. The queue itself then proves after a crash what was sent,
    # without the consumer's help.
    alone: bool = False
    # What to do with a segment if it is unknown after a crash whether it was consumed: `resend` it under the same
    # stamp, by which consumers recognise duplicates, or `set_aside` as a dead letter.
    unproved: UnprovedPolicy = UnprovedPolicy.RESEND

    def __post_init__(self) -> None:
        _check_whole(self, "part_bytes", _PART_BYTES_MAX)
        _check_choice(self, "compression", RowCompression)
        _check_choice(self, "unproved", UnprovedPolicy)


@dataclass(frozen=True, slots=True)
class ParquetOutletConfig:
    """How segments become Parquet files."""

    # Maximum size of one file, in bytes of rows in memory. Larger tables are split, and one file is in memory at
    # a time.
    file_bytes: int = 64 * _MIB
    # Rows of one row group.
    row_group_rows: int = 128 * 1024
    # Compression of the columns: `zstd` or `none`.
    compression: RowCompression = RowCompression.ZSTD
    # First part of every file's name, which distinguishes stores that write into one folder.
    name: str = "quiver"

    def __post_init__(self) -> None:
        _check_whole(self, "file_bytes", _PART_BYTES_MAX)
        _check_whole(self, "row_group_rows")
        _check_choice(self, "compression", RowCompression)
        if not self.name.replace("_", "").isalnum() or not self.name.isascii():
            raise InvalidInput(f"name = {self.name!r}", "file names begin with it", "use letters, digits and _")


@dataclass(frozen=True, slots=True)
class OtlpOutletConfig:
    """How requests are sent to a collector."""

    # Time limit of one request, in seconds, from the connection to the end of the answer.
    timeout_seconds: float = 10.0
    # Whether to compress requests.
    gzip: bool = True
    # Requests in progress at once.
    concurrency: int = 4
    # Maximum size of a request, in bytes. A segment with a larger one becomes a dead letter.
    request_bytes_max: int = 16 * _MIB
    # Longest `Retry-After` of a collector that is obeyed, in seconds.
    retry_after_seconds_max: float = 300.0
    # Whether to skip slots without OTLP requests, instead of refusing their segments.
    skip_other_slots: bool = False

    def __post_init__(self) -> None:
        _check_seconds(self, "timeout_seconds")
        _check_seconds(self, "retry_after_seconds_max")
        _check_whole(self, "concurrency")
        _check_whole(self, "request_bytes_max")


@dataclass(frozen=True, slots=True)
class RelayConfig:
    """How relays retry a target that fails."""

    # Pause after a failure, in seconds. It doubles with each failure in a row, minus up to half of it as jitter.
    retry_seconds_first: float = 0.5
    # Longest pause, in seconds.
    retry_seconds_max: float = 60.0
    # Maximum bytes that a consumer has fetched from its queue and not yet stored.
    consumer_bytes_max: int = 64 * _MIB
    # Table: how segments enter the queue.
    queue: QueueOutletConfig = field(default_factory=QueueOutletConfig)
    # Table: how segments become Parquet files.
    parquet: ParquetOutletConfig = field(default_factory=ParquetOutletConfig)
    # Table: how requests are sent to a collector.
    otlp: OtlpOutletConfig = field(default_factory=OtlpOutletConfig)

    def __post_init__(self) -> None:
        _check_seconds(self, "retry_seconds_first")
        _check_seconds(self, "retry_seconds_max")
        _check_whole(self, "consumer_bytes_max")
        if self.retry_seconds_max < self.retry_seconds_first:
            raise InvalidInput(
                "retry_seconds_max is below retry_seconds_first", "pauses grow from the first to the second"
            )


def _check_whole(config: Any, name: str, most: float = inf) -> None:
    value = getattr(config, name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
        limit = "" if most == inf else f", {most:.0f} at most"
        raise InvalidInput(f"{name} = {value!r}", f"it must be a whole number above zero{limit}")


def _check_seconds(config: Any, name: str) -> None:
    value = getattr(config, name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < inf:
        raise InvalidInput(f"{name} = {value!r}", "it must be a finite number above zero")


def _check_choice(config: Any, name: str, kind: type[StrEnum]) -> None:
    value = getattr(config, name)
    try:
        object.__setattr__(config, name, kind(value))
    except ValueError as error:
        raise InvalidInput(f"{name} = {value!r}", "there is no such choice", f"use {' or '.join(kind)}") from error
