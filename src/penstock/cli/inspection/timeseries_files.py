"""The work of `penstock timeseries` with files: samples in, samples out, as OpenMetrics text, Parquet or Arrow."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, TextIO

import pyarrow as pa

from penstock.cli.inspection.timeseries_reading import matchers, with_reader, with_series
from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.store_access import writer_options
from penstock.cli.settings.wiring import Wiring
from penstock.cli.terminal.instants import instant_ms
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import InvalidInput
from penstock.indexing import url_of
from penstock.observability import Observer
from penstock.telemetry import read_exposition
from penstock.timeseries import (
    MergedReads,
    MetricMetadata,
    SampleBatch,
    SeriesColumns,
    SeriesReads,
    SeriesRepair,
    TimeSeriesConfig,
    TimeSeriesReader,
    TimeSeriesStore,
    check_limits,
    described_table,
    open_metrics_batch,
    write_open_metrics,
)

__all__ = ["ImportedFile", "compact_series", "export_samples", "import_samples", "repair_records"]

_ENDINGS: Final = {
    ".om": "openmetrics",
    ".prom": "openmetrics",
    ".txt": "openmetrics",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
}
_ROWS: Final = 65_536
_TAIL_BYTES: Final = 64
# A text of an older format has no end of its own.
_END: Final = b"# EOF"


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """What a file brought, durable by now, and what the store has no place for."""

    file: str
    samples: int
    exemplars: int


def import_samples(
    settings: Settings,
    observer: Observer,
    place: tuple[str, str, str],
    files: tuple[str, ...],
    kind: str | None,
    at: str,
) -> list[ImportedFile]:
    """Store the samples of files. Each is read to its end first: if one of them is wrong, nothing is written."""
    default_ms = instant_ms(at, SYSTEM_CLOCK.now_ms())
    stdin = sys.stdin.buffer.read() if "-" in files else b""
    inputs = [_Input(file, _kind(file, kind), default_ms, stdin) for file in files]
    config = settings.of(TimeSeriesConfig)
    for one in inputs:
        for batch, _ in one.batches():
            check_limits(batch.table, config)
    store, path, tenant = place

    async def work() -> list[ImportedFile]:
        counts = []
        async with await Wiring(settings, observer).series_writer(url_of(store), path) as opened:
            for one in inputs:
                samples = exemplars = 0
                for batch, passed_over in one.batches():
                    await opened.write(batch, tenant=tenant)
                    samples, exemplars = samples + len(batch), exemplars + passed_over
                await opened.flush()
                counts.append(ImportedFile(one.file, samples, exemplars))
        return counts

    return asyncio.run(work())


def export_samples(
    settings: Settings,
    place: tuple[str, str, str],
    file: str,
    kind: str | None,
    selector: str | None,
    start: str,
    end: str,
    observer: Observer,
) -> tuple[int, int]:
    """How many series and samples were written."""
    own = _kind(file, kind)
    store, path, tenant = place
    now_ms = SYSTEM_CLOCK.now_ms()
    times = instant_ms(start, now_ms), instant_ms(end, now_ms)

    async def work(reader: SeriesReads | MergedReads) -> tuple[SeriesColumns, dict[str, MetricMetadata]]:
        columns = await reader.select_columns(matchers(selector), *times, tenant=tenant)
        return columns, await reader.metadata(tenant=tenant)

    columns, about = with_series(settings, store, path, tenant, work, observer)
    if own == "openmetrics":
        with _text_output(file) as out:
            out.writelines(f"{line}\n" for line in write_open_metrics(columns, about))
    else:
        _write_table(described_table(columns, about), file, own)
    return len(columns.labels), columns.sample_count


def compact_series(settings: Settings, observer: Observer, store: str, path: str) -> list[str]:
    """The tenants whose hours were folded. A store that is not there is not made."""
    if not with_reader(settings, store, path, TimeSeriesReader.tenants):
        return []

    async def work() -> list[str]:
        async with await Wiring(settings, observer).series_writer(url_of(store), path) as opened:
            await opened.compact()
            return await opened.tenants()

    return asyncio.run(work())


def repair_records(
    settings: Settings, observer: Observer, store: str, path: str, positions: Mapping[str, int | None]
) -> list[SeriesRepair]:
    """What was damaged. A store that is not there is not made."""
    if not with_reader(settings, store, path, TimeSeriesReader.tenants) and not positions:
        return []
    url = url_of(store)
    options = writer_options(settings, url)
    return asyncio.run(TimeSeriesStore.repair(url, path, positions=positions, observer=observer, **options))


def _kind(file: str, given: str | None) -> str:
    found = given or ("openmetrics" if file == "-" else _ENDINGS.get(Path(file).suffix.lower()))
    if found is None:
        raise InvalidInput(f"the format of {file} is unknown", "its name does not show it", "give --format")
    if file == "-" and found != "openmetrics":
        raise InvalidInput(f"{found} on standard input or output", "only text is supported there", "name a file")
    return found


@dataclass(frozen=True, slots=True)
class _Input:
    """A file that can be read more than once; standard input is kept."""

    file: str
    kind: str
    default_ms: int
    stdin: bytes

    def batches(self) -> Iterator[tuple[SampleBatch, int]]:
        """Batches of samples, each with how many exemplars stood beside them. What is wrong is told with the file."""
        try:
            yield from self._batches()
        except InvalidInput as error:
            if self.file in error.what:
                raise
            raise InvalidInput(f"{self.file}: {error.what}", error.why, error.remedy) from error

    def _batches(self) -> Iterator[tuple[SampleBatch, int]]:
        if self.kind == "openmetrics":
            with _text_input(self.file, self.stdin) as (lines, seconds):
                for batch in read_exposition(lines, seconds=seconds):
                    yield open_metrics_batch(batch, default_ms=self.default_ms), len(batch.exemplars)
            return
        try:
            for table in _tables(self.file, self.kind):
                yield SampleBatch.from_table(table), 0
        except (pa.ArrowException, OSError) as error:
            raise InvalidInput(
                f"{self.file} cannot be read", str(error), f"is it {self.kind}? If not, give --format"
            ) from None


def _tables(file: str, kind: str) -> Iterator[pa.Table]:
    if kind == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(_ROWS):
                yield pa.Table.from_batches([batch])
        return
    with pa.memory_map(file) as mapped:
        is_file = mapped.read(6) == b"ARROW1"
        mapped.seek(0)
        if is_file:
            reader = pa.ipc.open_file(mapped)
            yield from (pa.Table.from_batches([reader.get_batch(n)]) for n in range(reader.num_record_batches))
        else:
            yield from (pa.Table.from_batches([batch]) for batch in pa.ipc.open_stream(mapped))


def _write_table(table: pa.Table, file: str, kind: str) -> None:
    if kind == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, file, compression="zstd")
        return
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)


@contextmanager
def _text_input(file: str, stdin: bytes) -> Iterator[tuple[TextIO | list[str], bool]]:
    """Lines, and whether their times are seconds: those of OpenMetrics are, which says where it ends."""
    if file == "-":
        try:
            lines = stdin.decode().split("\n")
        except UnicodeDecodeError as error:
            raise InvalidInput("standard input cannot be read", str(error), "OpenMetrics text is UTF-8") from None
        yield lines, stdin.rstrip().endswith(_END)
        return
    with Path(file).open("rb") as raw:
        raw.seek(max(0, os.fstat(raw.fileno()).st_size - _TAIL_BYTES))
        seconds = raw.read().rstrip().endswith(_END)
    # Lines end with a line feed alone: labels may hold everything else that Python takes for the end of one.
    with Path(file).open(encoding="utf-8", newline="\n") as text:
        try:
            yield text, seconds
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{file} cannot be read", str(error), "OpenMetrics text is UTF-8") from None


@contextmanager
def _text_output(file: str) -> Iterator[IO[str]]:
    if file == "-":
        yield sys.stdout
        return
    with Path(file).open("w", encoding="utf-8") as out:
        yield out
