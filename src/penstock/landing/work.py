"""What one task does: fetch batches, decode them, write data files to the store, and hand samples back.

Runs in this process or on an executor. Everything that is written has a name that follows from the place in the queue,
so a task that is repeated writes the same objects again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa

from penstock.buffer import ConsumedBatch, FetchHandle
from penstock.errors import Corrupt, InvalidInput, NotFound, Unsupported
from penstock.landing.config import LandingLimits, TelemetryConfig
from penstock.landing.file_puts import FilePuts
from penstock.landing.fitting import split_unfit
from penstock.landing.port import LandedFile, LandingAnswer, LandingSamples, LandingTask, LostBatch
from penstock.landing.state import FOLDER, plain_name
from penstock.landing.tables import UNFORESEEN, Gathered, Misfit, gather_tables
from penstock.objects import ObjectStore, StoreSpec
from penstock.telemetry import (
    DataFileConfig,
    EncodedFile,
    FilePlace,
    MetricDescription,
    SeriesConfig,
    SeriesSamples,
    coded_maps,
    decode_records,
    descriptions_of,
    encode_arrow,
    encode_files,
    partitioned,
    plain_maps,
    series_of,
)

__all__ = ["LandingSettings", "land_task"]

S = TypeVar("S")
T = TypeVar("T")
_FETCHES_AT_ONCE: Final = 8
_PUTS_AT_ONCE: Final = 16
# Of files that are on their way to the store, beside those of the table that is being written.
_PUT_BYTES_MAX: Final = 64 << 20
_METRICS: Final = "metrics"
# Columns of metrics that say nothing about series: they need not be copied.
_NO_SERIES: Final[tuple[str, ...]] = (
    "exemplars",
    "description",
    "start_time",
    "label_types",
    "resource_types",
    "scope_attributes",
    "scope_attribute_types",
    "int_value",
    "min",
    "max",
)
_NS: Final = 1_000_000
# Of a table's name in that of a quarantined object, which has the whole name in its metadata.
_NAME_CHARACTERS_MAX: Final = 40
# Numbers of files that each piece of a task has for itself, in one partition.
_FILES_PER_PIECE: Final = 1000


@dataclass(frozen=True)
class LandingSettings:
    """What tasks need of a job's configuration. Pickles with the task."""

    spec: StoreSpec
    prefix: str
    limits: LandingLimits
    files: DataFileConfig
    mapping: SeriesConfig
    decoded_bytes_max: int
    decoded_records_max: int

    @classmethod
    def of(cls, config: TelemetryConfig) -> LandingSettings:
        return cls(
            config.spec,
            config.catalog_path,
            config.limits,
            config.files,
            config.mapping,
            config.consumer.decoded_bytes_max,
            config.consumer.decoded_records_max,
        )


async def land_task(settings: LandingSettings, task: LandingTask, store: ObjectStore | None = None) -> LandingAnswer:
    """The work of one task, on its own store unless one is given."""
    opened = store or await settings.spec.open()
    try:
        return await _Task(settings, task, opened).run()
    finally:
        if store is None:
            await opened.close()


class _Task:
    def __init__(self, settings: LandingSettings, task: LandingTask, store: ObjectStore) -> None:
        self._settings, self._task, self._store = settings, task, store
        self._place = FilePlace(task.source, task.first, task.last, task.part)
        self._answer = LandingAnswer(task.part)
        self._put_aside = 0
        # Which of the pieces that fit into memory; nearly always there is one.
        self._piece = 0

    async def run(self) -> LandingAnswer:
        batches = await self._fetched()
        received_ns = _received_ns(batches)
        pieces = self._pieces(batches)
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            await self._land(piece, received_ns)
            self._piece += 1
        return self._answer

    async def _land(self, piece: list[tuple[str, pa.Table]], received_ns: int) -> None:
        gathered = await asyncio.to_thread(self._gathered, piece)
        self._answer.tables |= gathered.known
        self._answer.rows += sum(table.num_rows for table in gathered.tables.values())
        # Side by side: files and series are made from the same rows, outside the interpreter's lock.
        work: list[Awaitable[None]] = []
        if self._task.writes_files:
            work.append(self._write_all(gathered, received_ns))
        if self._task.writes_samples:
            work.append(asyncio.to_thread(self._map_all, gathered))
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def _gathered(self, piece: list[tuple[str, pa.Table]]) -> Gathered:
        gathered = gather_tables(piece, {**self._task.known, **self._answer.tables})
        # It is held by nobody else: what was decoded can go as soon as it is coded.
        piece.clear()
        for key in list(gathered.tables):
            self._code(gathered, key)
        return gathered

    @staticmethod
    def _code(gathered: Gathered, key: tuple[str, str]) -> None:
        """Give maps numbers, and put aside the rows that would spoil their table."""
        tenant, name = key
        try:
            table, unfit = split_unfit(coded_maps(gathered.tables[key]))
        except UNFORESEEN as error:
            reason = f"it cannot be looked through: {error}"[:300]
            table, unfit = gathered.tables[key].slice(0, 0), [(reason, gathered.tables[key])]
        gathered.misfits += [Misfit(name, tenant, reason, plain_maps(rows)) for reason, rows in unfit]
        if table.num_rows:
            gathered.tables[key] = table
        else:
            del gathered.tables[key]

    # In -------------------------------------------------------------------------------------------------------

    async def _fetched(self) -> list[ConsumedBatch]:
        settings = self._settings
        fetcher = FetchHandle(
            self._store,
            settings.spec,
            decoded_bytes_max=settings.decoded_bytes_max,
            decoded_records_max=settings.decoded_records_max,
        )

        async def fetch(descriptor: Any) -> ConsumedBatch | None:
            try:
                return await fetcher.fetch(descriptor)
            except (NotFound, Corrupt, Unsupported) as error:
                self._lose(descriptor.sequence, error)
                return None

        found = await _gathered(_FETCHES_AT_ONCE, fetch, self._task.descriptors)
        return [batch for batch in found if batch is not None]

    def _pieces(self, batches: list[ConsumedBatch]) -> Iterator[list[tuple[str, pa.Table]]]:
        """Decoded batches, as many at a time as fit: what is small in the queue may be large in memory."""
        piece: list[tuple[str, pa.Table]] = []
        size = 0
        for batch in batches:
            found = self._decoded(batch)
            piece += found
            size += sum(table.nbytes for _, table in found)
            if size >= self._settings.limits.unpacked_bytes_per_task:
                yield piece
                piece, size = [], 0
        if piece:
            yield piece

    def _decoded(self, batch: ConsumedBatch) -> list[tuple[str, pa.Table]]:
        try:
            tables = [
                one
                for first, last, payload, time_ns in _ranges(batch)
                for one in decode_records(batch.records[first:last], payload, time_ns, leaves_out_empty=True).items()
            ]
        except (Corrupt, Unsupported, InvalidInput) as error:
            self._lose(batch.sequence, error)
            return []
        return [(name, table) for name, found in tables for table in found if table.num_rows]

    def _lose(self, sequence: int, error: Exception) -> None:
        self._answer.lost.append(LostBatch(sequence, type(error).__name__, str(error)))

    # Out ------------------------------------------------------------------------------------------------------

    async def _write_all(self, gathered: Gathered, received_ns: int) -> None:
        await self._quarantine(gathered.misfits)
        # Hundreds of tenants have a file each: those of one are on their way while the next one's are made.
        async with FilePuts(self._put, _PUTS_AT_ONCE, _PUT_BYTES_MAX) as puts:
            for (_, name), table in sorted(gathered.tables.items()):
                await self._write(name, table, received_ns, puts)

    async def _write(self, name: str, table: pa.Table, received_ns: int, puts: FilePuts) -> None:
        number = self._piece * _FILES_PER_PIECE

        def encoded() -> list[EncodedFile]:
            parts = partitioned(table, name, received_ns, self._settings.limits.partitions_max)
            return [
                file
                for partition, rows in parts
                for file in encode_files(partition, rows, self._place, received_ns, self._settings.files, number)
            ]

        try:
            files = await asyncio.to_thread(encoded)
        except (InvalidInput, *UNFORESEEN) as error:
            # It has been acknowledged: a job that stopped at it would stop there again, with everybody's rows behind.
            await self._quarantine([Misfit(name, "", f"it cannot be written: {error}"[:300], plain_maps(table))])
            return
        for file in files:
            await puts.add(file)
        self._answer.files += [_described(file) for file in files]

    async def _put(self, file: EncodedFile) -> None:
        await self._store.put(self._key(file.path), file.body)

    async def _quarantine(self, misfits: list[Misfit]) -> None:
        for misfit in misfits:
            # Counted over the whole task: tables of two tenants have one name.
            place = f"{self._task.source}-{self._task.first:020}-{self._task.part}-{misfit.name[:_NAME_CHARACTERS_MAX]}-{self._put_aside}"
            self._put_aside += 1
            body = encode_arrow(
                misfit.rows, {b"penstock.reason": misfit.reason.encode(), b"penstock.slot": misfit.name.encode()}
            )
            await self._store.put(f"{FOLDER}/quarantine/{plain_name(place)}.arrow", body)
            counts = self._answer.quarantined
            counts[misfit.reason] = counts.get(misfit.reason, 0) + misfit.rows.num_rows

    def _map_all(self, gathered: Gathered) -> None:
        for (tenant, name), table in sorted(gathered.tables.items()):
            if name == _METRICS:
                self._map(tenant, table)

    def _map(self, tenant: str, table: pa.Table) -> None:
        about = self._descriptions(table)
        unread = [name for name in _NO_SERIES if name in table.schema.names]
        for batch in table.drop_columns(unread).combine_chunks().to_batches():
            for found in self._mapped(batch):
                for reason, count in found.refused.items():
                    self._refuse(reason, count)
                if len(found):
                    samples = LandingSamples(
                        tenant, found.labels, found.series, found.time_ms, found.value, found.is_delta, about
                    )
                    about = {}
                    self._answer.samples.append(samples)

    @staticmethod
    def _descriptions(table: pa.Table) -> dict[str, MetricDescription]:
        try:
            return descriptions_of(table)
        except UNFORESEEN:
            # Of rows that lack a metric's name or type; what else is wrong with them is counted row by row.
            return {}

    def _mapped(self, batch: pa.RecordBatch) -> Iterator[SeriesSamples]:
        """The samples of a batch. Rows that fail whatever is tried are rows of the table and nothing more.

        They have been acknowledged: a job that stopped at them would stop there again, with everybody's rows behind it.
        """
        try:
            yield series_of(batch, self._settings.mapping)
        except UNFORESEEN as error:
            if batch.num_rows == 1:
                self._refuse(f"no series can be made of it: {type(error).__name__}", 1)
                return
            half = batch.num_rows // 2
            yield from self._mapped(batch.slice(0, half))
            yield from self._mapped(batch.slice(half))

    def _refuse(self, reason: str, count: int) -> None:
        self._answer.refused[reason] = self._answer.refused.get(reason, 0) + count

    def _key(self, path: str) -> str:
        prefix = self._settings.prefix.strip("/")
        return f"{prefix}/{path}" if prefix else path


def _ranges(batch: ConsumedBatch) -> Iterator[tuple[int, int, bytes, int]]:
    """Records that share a payload: first, last, the payload, and when they came."""
    ranges = batch.metadata
    if (ranges and ranges[0].start_index > 0) or (not ranges and len(batch.records)):
        raise Corrupt(f"batch {batch.sequence} has records without an envelope")
    for number, one in enumerate(ranges):
        end = ranges[number + 1].start_index if number + 1 < len(ranges) else len(batch.records)
        if end > one.start_index:
            yield one.start_index, end, bytes(one.payload), one.ingestion_time_ms * _NS


def _received_ns(batches: list[ConsumedBatch]) -> int:
    """For rows without a time: when the last of them came. The same each time, whoever asks."""
    return max((one.ingestion_time_ms for batch in batches for one in batch.metadata), default=0) * _NS


def _described(file: EncodedFile) -> LandedFile:
    bounds = {
        name: (one.min, one.max, one.has_nulls, one.has_nan, one.all_null, one.type)
        for name, one in file.bounds.items()
    }
    partition = file.partition
    return LandedFile(
        file.path,
        partition.tenant,
        partition.table,
        file.rows,
        len(file.body),
        file.min_time_ns,
        file.max_time_ns,
        bounds,
    )


async def _gathered(at_once: int, work: Callable[[S], Awaitable[T]], items: Iterable[S]) -> list[T]:
    gate = asyncio.Semaphore(at_once)

    async def one(item: S) -> T:
        async with gate:
            return await work(item)

    return await asyncio.gather(*map(one, items))
