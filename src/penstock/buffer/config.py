"""The knobs of the queue, with the defaults of the format page. Values that could lose data are refused here.

A producer's `collector_grace_seconds` must be the grace of every collector on the same queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from math import inf
from typing import Any, Final

from penstock.buffer.format.batch import DECODED_BYTES_MAX, DECODED_RECORDS_MAX, Compression
from penstock.buffer.location import batch_time_ms, owner_location
from penstock.errors import InvalidInput
from penstock.objects import check_key

__all__ = ["CollectorConfig", "ConsumerConfig", "DeadLetterPolicy", "ProducerConfig", "RunnerConfig"]

MIB: Final = 1024 * 1024
DATA_PATH_PREFIX: Final = "ingest"
MANIFEST_PATH: Final = "ingest/manifest"
GRACE_SECONDS: Final = 600.0


class DeadLetterPolicy(StrEnum):
    """What to do with a queued object that is missing or cannot be read."""

    HALT = "halt"  # raise, again and again, until somebody repairs it
    SET_ASIDE = "set-aside"  # record it, then go on with the next one


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """How a producer batches, uploads and enqueues records."""

    # Folder of the batch objects in the store.
    data_path_prefix: str = DATA_PATH_PREFIX
    # Key of the queue manifest in the store.
    manifest_path: str = MANIFEST_PATH
    # Maximum time an input waits for others to share its batch, in seconds.
    flush_interval_seconds: float = 0.1
    # Size at which a batch is closed, in bytes: records, length fields and metadata.
    flush_size_bytes: int = 64 * MIB
    # Maximum calls of `produce` that share one batch.
    max_buffered_inputs: int = 1000
    # Compression of batch objects: `none` or `zstd`.
    compression: Compression = Compression.NONE
    # Maximum batches accepted and not yet durable.
    max_in_flight_batches: int = 64
    # Maximum bytes accepted and not yet durable. Above it `produce` waits and `try_produce` refuses.
    max_in_flight_bytes: int = 256 * MIB
    # Maximum bytes of callers that wait for room; above it `produce` refuses. None is the same as
    # `max_in_flight_bytes`.
    max_waiting_bytes: int | None = None
    # Maximum metadata of one input, in bytes. The manifest holds it and is copied with every write.
    metadata_bytes_max: int = MIB
    # Batch objects uploaded at once.
    upload_concurrency: int = 8
    # Batches encoded at once. Only compression takes time, so more than a few cores gain nothing.
    encode_concurrency: int = 2
    # Maximum batches enqueued by one write of the manifest.
    manifest_append_batches: int = 64
    # Attempts to upload a batch before it is given up.
    upload_attempts: int = 6
    # First pause between upload attempts, in seconds, with jitter.
    backoff_seconds_min: float = 0.1
    # Longest pause between upload attempts, in seconds.
    backoff_seconds_max: float = 10.0
    # Time limit for a write of the manifest, in seconds. Missing it halts the producer.
    manifest_deadline_seconds: float = 30.0
    # Maximum size of the manifest, in bytes. It is copied with every write; 64 MiB hold some 500,000 waiting
    # batches.
    manifest_bytes_max: int = 64 * MIB
    # Grace period of every collector on this queue, in seconds. A batch older than half of it is uploaded again.
    collector_grace_seconds: float = GRACE_SECONDS

    def __post_init__(self) -> None:
        _check_paths(self.data_path_prefix, self.manifest_path)
        _check_choice(self, "compression", Compression)
        _check_positive(
            self,
            "flush_size_bytes",
            "max_buffered_inputs",
            "max_in_flight_batches",
            "max_in_flight_bytes",
            "metadata_bytes_max",
            "upload_concurrency",
            "encode_concurrency",
            "manifest_append_batches",
            "upload_attempts",
            "backoff_seconds_min",
            "backoff_seconds_max",
            "manifest_deadline_seconds",
            "manifest_bytes_max",
            "collector_grace_seconds",
        )
        if self.flush_interval_seconds != 0:
            _check_positive(self, "flush_interval_seconds")
        if self.max_waiting_bytes is not None:
            _check_positive(self, "max_waiting_bytes")
        # A batch enters the manifest younger than half the grace; this keeps the last, late attempt inside the rest.
        if self.manifest_deadline_seconds > self.collector_grace_seconds / 4:
            raise InvalidInput(
                f"manifest_deadline_seconds = {self.manifest_deadline_seconds:g} is too long",
                f"over a quarter of the collector's grace of {self.collector_grace_seconds:g} s, "
                "a batch could be collected while it is being enqueued",
                "shorten the deadline, or lengthen the grace of the collectors and say so here",
            )

    @property
    def waiting_bytes_max(self) -> int:
        return self.max_in_flight_bytes if self.max_waiting_bytes is None else self.max_waiting_bytes

    @property
    def entry_metadata_bytes(self) -> int:
        """A batch closes at this much metadata. With one input more it still fits a manifest that has room for it."""
        return self.manifest_bytes_max // 4

    @property
    def input_metadata_bytes_max(self) -> int:
        """What one input may bring, so that an empty queue can always take its batch."""
        return min(self.metadata_bytes_max, self.manifest_bytes_max // 2)

    @property
    def append_bytes(self) -> int:
        """Entries that share one write of the manifest, beyond the first of them."""
        return self.manifest_bytes_max // 2

    @property
    def enqueue_age_seconds_max(self) -> float:
        """A batch object older than this is uploaded anew instead of being enqueued."""
        return self.collector_grace_seconds / 2


@dataclass(frozen=True, kw_only=True)
class CollectorConfig:
    """When unreferenced batch objects are deleted."""

    # Folder of the batch objects in the store.
    data_path_prefix: str = DATA_PATH_PREFIX
    # Key of the queue manifest in the store.
    manifest_path: str = MANIFEST_PATH
    # Time between two collections, in seconds.
    interval_seconds: float = 300.0
    # Minimum age of a deleted object, in seconds, relative to the last write of the manifest.
    grace_seconds: float = GRACE_SECONDS
    # Keys deleted by one call. S3 accepts up to 1,000 per request.
    delete_batch_keys: int = 1000

    def __post_init__(self) -> None:
        _check_paths(self.data_path_prefix, self.manifest_path)
        _check_positive(self, "interval_seconds", "grace_seconds", "delete_batch_keys")


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """How a consumer reads, acknowledges and cleans up."""

    # Folder of the batch objects in the store.
    data_path_prefix: str = DATA_PATH_PREFIX
    # Key of the queue manifest in the store.
    manifest_path: str = MANIFEST_PATH
    # Minimum calls of `ack` that share one write of the manifest.
    dequeue_every_acks: int = 100
    # Minimum part of the manifest that one write removes, in percent of its bytes. The rest is copied, so a
    # higher value writes less on a long queue.
    dequeue_percent: int = 10
    # Maximum time that acknowledged batches stay in the manifest while the consumer is in use, in seconds.
    dequeue_every_seconds: float = 5.0
    # Time between two checks of an empty queue, in seconds, for `async for`, runners and the indexing job without
    # Spark.
    poll_seconds: float = 0.5
    # What to do with an unreadable batch: `halt`, or `set-aside` as a dead letter.
    dead_letter: DeadLetterPolicy = DeadLetterPolicy.HALT
    # Maximum size of an unpacked batch, in bytes. A larger one raises `AtCapacity`.
    decoded_bytes_max: int = DECODED_BYTES_MAX
    # Maximum records of one batch. Decoding 4 million takes some seconds of one core.
    decoded_records_max: int = DECODED_RECORDS_MAX
    # Time limit for a write of the manifest, in seconds. Missing it raises an error and changes nothing, so
    # calling again is safe.
    manifest_deadline_seconds: float = 30.0
    # Whether to delete unreferenced batch objects in the background.
    collect: bool = True
    # Time between two collections, in seconds.
    collect_interval_seconds: float = 300.0
    # Minimum age of a deleted object, in seconds.
    collector_grace_seconds: float = GRACE_SECONDS

    def __post_init__(self) -> None:
        _check_paths(self.data_path_prefix, self.manifest_path)
        _check_choice(self, "dead_letter", DeadLetterPolicy)
        _check_positive(
            self,
            "dequeue_every_acks",
            "dequeue_percent",
            "dequeue_every_seconds",
            "poll_seconds",
            "decoded_bytes_max",
            "decoded_records_max",
            "manifest_deadline_seconds",
            "collect_interval_seconds",
            "collector_grace_seconds",
        )
        if self.dequeue_percent > 100:
            raise InvalidInput(f"dequeue_percent = {self.dequeue_percent}", "a percentage is at most 100")

    @property
    def collector(self) -> CollectorConfig:
        """The collector this consumer runs beside itself."""
        return CollectorConfig(
            data_path_prefix=self.data_path_prefix,
            manifest_path=self.manifest_path,
            interval_seconds=self.collect_interval_seconds,
            grace_seconds=self.collector_grace_seconds,
        )


@dataclass(frozen=True, kw_only=True)
class RunnerConfig:
    """How a runner prefetches batches."""

    # Batches fetched at once: enough to hide the latency of an object store.
    fetch_concurrency: int = 8
    # Maximum bytes of records fetched and not yet stored by the sink.
    in_flight_bytes_max: int = 256 * MIB
    # Manifest entries read ahead at a time.
    read_ahead_batches: int = 64

    def __post_init__(self) -> None:
        _check_positive(self, "fetch_concurrency", "in_flight_bytes_max", "read_ahead_batches")


def _check_paths(data_path_prefix: str, manifest_path: str) -> None:
    check_key(data_path_prefix)
    check_key(manifest_path)
    if batch_time_ms(manifest_path, data_path_prefix) is not None:
        why = "it is named like a batch object, and a collector would delete it"
        raise InvalidInput(f"manifest_path = {manifest_path!r}", why, f"use {data_path_prefix}/manifest")
    if manifest_path == owner_location(data_path_prefix):
        why = "the marker of the folder has that name"
        raise InvalidInput(f"manifest_path = {manifest_path!r}", why, f"use {data_path_prefix}/manifest")


def _check_positive(config: Any, *names: str) -> None:
    """Durations may have fractions, and end; what is counted is whole."""
    for name in names:
        value = getattr(config, name)
        is_number = isinstance(value, int if "_seconds" not in name else int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < inf:
            kind = "finite number" if "_seconds" in name else "whole number"
            raise InvalidInput(f"{name} = {value!r}", f"it must be a {kind} above zero", "omit it to use the default")


def _check_choice(config: Any, name: str, kind: type[Enum]) -> None:
    """A member, or what stands for one, which becomes it: code asks which member it is, and never what it equals."""
    value = getattr(config, name)
    try:
        object.__setattr__(config, name, kind(value))
    except ValueError as error:
        known = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
        raise InvalidInput(f"{name} = {value!r}", "there is no such choice", f"use one of {known}") from error
