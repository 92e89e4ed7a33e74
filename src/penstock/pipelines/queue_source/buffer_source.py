"""`penstock-buffer`: the queue on object storage as a Spark source, streaming and batch.

Offsets are sequences. The driver's side holds the one fenced consumer and plans; executors fetch the
batch objects in parallel and yield Arrow. `commit` acknowledges: Spark calls it for a micro-batch once
the next one is built, so acknowledgements come late and never early, and a replay finds what it names.
A second query on the same queue takes the fence, and the first one fails with `Fenced`.

| option | meaning | default |
| --- | --- | --- |
| `url` | the store, as `penstock.objects.open_store` takes it | required |
| `manifestPath`, `dataPathPrefix` | where the queue lies in the store | as `ConsumerConfig` |
| `maxBatchesPerTrigger` | batch objects in one micro-batch | 1000 |
| `maxBytesPerTrigger` | bytes of batch objects in one micro-batch; one batch always goes | no bound |
| `missing` | batches that the checkpoint names and the queue no longer has: `halt`, or `skip` for readers that know by themselves what they have had | `halt` |
| `deadLetter` | `halt`, or `set-aside`: record an unreadable batch and go on | `halt` |
| `store.NAME` | an option of `open_store` | |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.buffer import (
    ConsumedBatch,
    ConsumerConfig,
    DeadLetterPolicy,
    DeadLetters,
    Descriptor,
    FetchHandle,
    Manifest,
    SyncConsumer,
    key_of,
    queued_now,
)
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import Corrupt, InvalidInput, NotFound, PenstockError, Unsupported
from penstock.objects import ObjectStore, StoreSpec
from penstock.pipelines.queue_source.intake import BatchIntake
from penstock.pipelines.spark.workers import settle_worker

__all__ = ["ARROW_SCHEMA", "BufferDataSource"]

# One row a record, every column nullable because Spark compares that too. `position` is its place inside its batch, so (sequence, position) orders everything.
_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("sequence", pa.int64()),
    pa.field("position", pa.int32()),
    pa.field("record", pa.binary()),
    pa.field("metadata", pa.binary()),
    pa.field("ingestion_time_ms", pa.int64()),
]
ARROW_SCHEMA: Final = pa.schema(_FIELDS)
T = TypeVar("T")
# Keeps one micro-batch of full 64 MiB batches within what a small driver plans and two workers read.
_BATCHES_PER_TRIGGER: Final = 1000
# Rows in one Arrow batch handed to Spark; bounded again by bytes, because records may be large.
_ROWS_MAX: Final = 8192
_BYTES_MAX: Final = 8 * 1024 * 1024
_HEADS_AT_ONCE: Final = 16


@dataclass(frozen=True)
class _Options:
    """The options of one query, checked once on the driver. Pickles with the source."""

    spec: StoreSpec
    config: ConsumerConfig
    batches_max: int
    bytes_max: int | None
    skips_missing: bool = False

    @classmethod
    def of(cls, given: Mapping[str, str]) -> _Options:
        options = {name.lower(): value for name, value in given.items()}
        url = options.pop("url", None) or options.pop("path", None)
        if not url:
            raise InvalidInput("the source penstock-buffer needs a store", "the option url is missing", "give it a URL")
        defaults = ConsumerConfig()
        config = ConsumerConfig(
            manifest_path=options.pop("manifestpath", defaults.manifest_path),
            data_path_prefix=options.pop("datapathprefix", defaults.data_path_prefix),
            dead_letter=_policy(options.pop("deadletter", str(defaults.dead_letter))),
        )
        batches = _positive("maxBatchesPerTrigger", options.pop("maxbatchespertrigger", str(_BATCHES_PER_TRIGGER)))
        limit = options.pop("maxbytespertrigger", None)
        missing = options.pop("missing", "halt")
        if missing not in ("halt", "skip"):
            raise InvalidInput(f"missing = {missing!r}", "it must be halt or skip")
        store = {name.removeprefix("store."): options.pop(name) for name in list(options) if name.startswith("store.")}
        if options:
            raise InvalidInput(
                f"options {sorted(options)} of penstock-buffer cannot be used", "there are no such options"
            )
        bytes_max = None if limit is None else _positive("maxBytesPerTrigger", limit)
        return cls(StoreSpec(url, store), config, batches, bytes_max, missing == "skip")

    def manifest(self) -> Manifest:
        """The queue as it is now, read without taking the fence."""
        return asyncio.run(_with_store(self.spec, lambda store: queued_now(store, self.config.manifest_path)))

    def partitions(self, descriptors: Iterable[Descriptor]) -> list[InputPartition]:
        fetcher = FetchHandle(
            None,
            self.spec,
            decoded_bytes_max=self.config.decoded_bytes_max,
            decoded_records_max=self.config.decoded_records_max,
        )
        return [BatchPartition(descriptor, fetcher, self.spec, self.config) for descriptor in descriptors]


@dataclass
class BatchPartition(InputPartition):
    """One batch object, to be fetched by one task."""

    descriptor: Descriptor
    fetcher: FetchHandle
    spec: StoreSpec
    config: ConsumerConfig


class BufferDataSource(DataSource):
    """Register with `spark.dataSource.register(BufferDataSource)`, then `format("penstock-buffer")`."""

    @classmethod
    def name(cls) -> str:
        return "penstock-buffer"

    def schema(self) -> StructType:
        return from_arrow_schema(ARROW_SCHEMA)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        return BufferStreamReader(_Options.of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BufferReader(_Options.of(self.options))


class BufferStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The driver's side of a stream. Spark keeps it in a process of its own and calls it from one thread."""

    def __init__(self, options: _Options) -> None:
        self._options = options
        self._intake = BatchIntake()
        self._consumer: SyncConsumer | None = None
        # With Trigger.AvailableNow: the end that was there when the query began.
        self._target: int | None = None

    # Offsets ---------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """The first sequence in the queue, whatever was consumed before."""
        self._read_ahead()
        return {"sequence": self._end() if self._intake.first is None else self._intake.first}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxFiles(self._options.batches_max)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        self._read_ahead()
        batches = None if isinstance(limit, ReadAllAvailable) else self._options.batches_max
        bytes_max = None if isinstance(limit, ReadAllAvailable) else self._options.bytes_max
        # Sizes cost a request each, so they are asked for only under a bound on bytes, and never of one that goes anyway.
        waiting = self._intake.after(start["sequence"], batches)
        sizes = {} if bytes_max is None or len(waiting) <= 1 else self._sizes(waiting)
        end = self._intake.end_of(start["sequence"], batches, bytes_max, sizes)
        return {"sequence": end if self._target is None else min(end, max(self._target, start["sequence"]))}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._read_ahead()
        self._target = self._end()

    # Work ------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One task a batch object. After a restart this comes straight from the checkpoint, before `latestOffset`."""
        if start["sequence"] < end["sequence"]:
            self._read_ahead()
        whole = not self._options.skips_missing
        return self._options.partitions(self._intake.between(start["sequence"], end["sequence"], whole=whole))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, BatchPartition)
        return read_partition(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Acknowledge everything before `end`: Spark will never ask for it again."""
        through = end["sequence"] - 1
        self._read_ahead()
        # After a restart Spark may name what an earlier run acknowledged already.
        if self._consumer is not None and self._intake.holds(through):
            self._consumer.ack_through(through)
            self._intake.forget_through(through)

    def stop(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    # The consumer, opened where Spark first asks for something -------------------------------------------

    def _read_ahead(self) -> None:
        """Take in whatever the queue holds by now. Each entry is handed out to this consumer once."""
        if self._consumer is None:
            self._consumer = SyncConsumer(self._options.spec, self._options.config)
        while found := self._consumer.next_descriptors(self._options.batches_max):
            self._intake.add(found)

    def _end(self) -> int:
        """Behind the last batch; an empty queue remembers where it goes on."""
        return self._intake.end if self._intake.end is not None else self._options.manifest().next_sequence

    def _sizes(self, descriptors: Sequence[Descriptor]) -> dict[int, int]:
        sizes = asyncio.run(_with_store(self._options.spec, lambda store: _head_all(store, descriptors)))
        return dict(zip((descriptor.sequence for descriptor in descriptors), sizes, strict=True))


class BufferReader(DataSourceReader):
    """What the queue holds now, as a table. Takes no fence and acknowledges nothing."""

    def __init__(self, options: _Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return self._options.partitions(self._options.manifest())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Of an empty queue, Spark makes up a partition of its own.
        return read_partition(partition) if isinstance(partition, BatchPartition) else iter(())


def read_partition(partition: BatchPartition) -> Iterator[pa.RecordBatch]:
    """Runs on an executor: fetch one batch object and yield its records as Arrow."""
    settle_worker("records")
    batch = asyncio.run(_fetch(partition))
    if batch is not None:
        yield from to_arrow(batch)


def to_arrow(batch: ConsumedBatch) -> Iterator[pa.RecordBatch]:
    """A batch's records in pieces that are bounded in rows and bytes."""
    start, size = 0, 0
    for index, record in enumerate(batch.records):
        if index > start and (index - start >= _ROWS_MAX or size + len(record) > _BYTES_MAX):
            yield _piece(batch, start, index)
            start, size = index, 0
        size += len(record)
    if start < len(batch.records):
        yield _piece(batch, start, len(batch.records))


def _piece(batch: ConsumedBatch, start: int, end: int) -> pa.RecordBatch:
    positions = np.arange(start, end, dtype=np.int32)
    # Ranges are sorted by their start; a record before the first of them has none.
    ranges = np.searchsorted([found.start_index for found in batch.metadata], positions, side="right") - 1
    chosen = pa.array(ranges, pa.int64(), mask=ranges < 0)
    return pa.record_batch(
        [
            pa.array(np.full(end - start, batch.sequence, dtype=np.int64)),
            pa.array(positions),
            pa.array([bytes(record) for record in batch.records[start:end]], pa.binary()),
            pa.array([found.payload for found in batch.metadata], pa.binary()).take(chosen),
            pa.array([found.ingestion_time_ms for found in batch.metadata], pa.int64()).take(chosen),
        ],
        schema=ARROW_SCHEMA,
    )


async def _fetch(partition: BatchPartition) -> ConsumedBatch | None:
    """The batch; None when it is unreadable and was recorded as a dead letter, as the policy asks."""
    try:
        return await partition.fetcher.fetch(partition.descriptor)
    except (NotFound, Corrupt, Unsupported) as error:
        if partition.config.dead_letter is DeadLetterPolicy.HALT:
            raise
        fault = error
    finally:
        await partition.fetcher.close()
    # Recorded before it can be acknowledged; a retried task records the same object again.
    await _with_store(partition.spec, lambda store: _record(store, partition, fault))
    return None


async def _with_store(spec: StoreSpec, work: Callable[[ObjectStore], Coroutine[Any, Any, T]]) -> T:
    store = await spec.open()
    try:
        return await work(store)
    finally:
        await store.close()


async def _record(store: ObjectStore, partition: BatchPartition, error: PenstockError) -> None:
    letters = DeadLetters(store, partition.config.data_path_prefix)
    await letters.record(partition.descriptor, error, SYSTEM_CLOCK.now_ms())


async def _head_all(store: ObjectStore, descriptors: Sequence[Descriptor]) -> list[int]:
    gate = asyncio.Semaphore(_HEADS_AT_ONCE)

    async def size(descriptor: Descriptor) -> int:
        async with gate:
            try:
                return (await store.head(key_of(descriptor.location, store.url))).size
            except (NotFound, Corrupt):
                # Its task will say so, by name.
                return 0

    return await asyncio.gather(*map(size, descriptors))


def _policy(text: str) -> DeadLetterPolicy:
    try:
        return DeadLetterPolicy(text)
    except ValueError:
        raise InvalidInput(f"deadLetter = {text!r}", "it must be halt or set-aside") from None


def _positive(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInput(f"{name} = {text!r}", "it must be a whole number above zero")
    return int(text)
