"""`penstock-catalog`: a table of the catalog as a Spark source, for DataFrames and Spark SQL.

The driver plans: the options, and with `pushFilters` also Spark's filters, prune files by time, shard, partition and
statistics. Executors read the files from the object store and yield Arrow. The planned position is pinned, so that
vacuum leaves its files alone while Spark reads.

| option | meaning | default |
| --- | --- | --- |
| `url` | the store, as `penstock.objects.open_store` takes it | required |
| `prefix` | of the catalog in the store | none |
| `table`, `tenant`, `shard` | table, tenant and shard of the files | all |
| `start`, `end` | times, in nanoseconds or ISO 8601 | open |
| `columns` | names, separated by commas; Spark does not prune columns of Python sources by itself | all |
| `asOf` | a sequence, or a position as JSON | now |
| `timeColumn` | the column of times | `time` |
| `pushFilters` | `true`: Spark's filters prune files too. Only for a DataFrame that is scanned once: Spark reuses the files of the first scan for every later one of the same DataFrame or view | `false` |
| `pinSeconds` | time for which vacuum keeps the files, in seconds; 0 turns it off | 3600 |
| `store.NAME` | an option of `open_store` | |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.catalog import (
    Catalog,
    CatalogConfig,
    CatalogLayout,
    DataFile,
    LoopDoor,
    ObjectFiles,
    Plan,
    Predicate,
    ScanQuery,
    TailCache,
    conjunction,
    file_dataset,
    row_filter,
    scanner_of,
    time_filter,
    union_schema,
)
from penstock.errors import InvalidInput
from penstock.loops import LoopThread
from penstock.objects import ObjectStore, StoreSpec
from penstock.pipelines.catalog_source.filters import predicates_of
from penstock.pipelines.catalog_source.spark_types import spark_schema
from penstock.pipelines.spark.times import time_option
from penstock.pipelines.spark.workers import settle_worker
from penstock.undecodable import UNDECODABLE

__all__ = ["CatalogDataSource"]

T = TypeVar("T")
_TAILS_BYTES: Final = 16 * 1024 * 1024
# Small files share a task; a task is tried again as a whole.
_TASK_BYTES: Final = 64 * 1024 * 1024
_TASK_FILES: Final = 64
_BATCH_ROWS: Final = 16_384
# In nanoseconds.
_SECOND: Final = 1_000_000_000


@dataclass(frozen=True)
class _Options:
    """The options of one read, checked once on the driver. Pickles with the source."""

    spec: StoreSpec
    prefix: str
    query: ScanQuery
    columns: tuple[str, ...] | None
    time_column: str
    pin_seconds: float
    pushes_filters: bool

    @classmethod
    def of(cls, given: Mapping[str, str]) -> _Options:
        options = {name.lower(): value for name, value in given.items()}
        url = options.pop("url", None) or options.pop("path", None)
        if not url:
            raise InvalidInput(
                "the source penstock-catalog needs a store", "the option url is missing", "give it a URL"
            )
        store = {name.removeprefix("store."): options.pop(name) for name in list(options) if name.startswith("store.")}
        columns = options.pop("columns", None)
        made = cls(
            spec=StoreSpec(url, store),
            prefix=options.pop("prefix", ""),
            query=ScanQuery(
                start=time_option("start", options.pop("start", None), "nanoseconds", _SECOND),
                end=time_option("end", options.pop("end", None), "nanoseconds", _SECOND),
                shard=options.pop("shard", None),
                tenant=options.pop("tenant", None),
                table=options.pop("table", None),
                as_of=_position(options.pop("asof", None)),
            ),
            columns=None if columns is None else tuple(name.strip() for name in columns.split(",") if name.strip()),
            time_column=options.pop("timecolumn", "time"),
            pin_seconds=_seconds(options.pop("pinseconds", "3600")),
            pushes_filters=options.pop("pushfilters", "false").lower() == "true",
        )
        if options:
            raise InvalidInput(
                f"options {sorted(options)} of penstock-catalog cannot be used", "there are no such options"
            )
        return made

    def on_catalog(self, work: Callable[[Catalog], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            store = await self.spec.open()
            try:
                async with await Catalog.open(store, self.prefix, CatalogConfig()) as catalog:
                    return await work(catalog)
            finally:
                await store.close()

        return asyncio.run(run())

    def schema(self) -> pa.Schema:
        """The columns of the planned files, as they are in them."""
        return self.on_catalog(self._schema)

    async def _schema(self, catalog: Catalog) -> pa.Schema:
        planned = (await self.query.plan(catalog)).files
        files = ObjectFiles(catalog.store, catalog.layout, LoopDoor.here(), TailCache(_TAILS_BYTES))
        files.add(planned)
        found = await union_schema(files, planned)
        if self.columns is None:
            return found
        for name in self.columns:
            if name not in found.names:
                raise InvalidInput(f"there is no column {name!r}", f"the table has {', '.join(found.names[:20])}")
        return pa.schema([found.field(name) for name in self.columns])


@dataclass
class FilesPartition(InputPartition):
    """Files to be read by one task."""

    files: tuple[DataFile, ...]


class CatalogDataSource(DataSource):
    """Register with `spark.dataSource.register(CatalogDataSource)`, then `format("penstock-catalog")`."""

    @classmethod
    def name(cls) -> str:
        return "penstock-catalog"

    def schema(self) -> StructType:
        return from_arrow_schema(spark_schema(_Options.of(self.options).schema()))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = _Options.of(self.options)
        # Looked up here: Spark sends the reader to executors before it asks it for partitions.
        kind = CatalogTableReader if options.pushes_filters else WholeTableReader
        return kind(options, schema.fieldNames(), replace(options, columns=None).schema())


@dataclass
class WholeTableReader(DataSourceReader):
    """One read. The driver asks for its partitions, executors read them.

    Right for any number of scans: Spark keeps the partitions of the first one for all of a DataFrame or view.
    """

    options: _Options
    names: Sequence[str]
    # Of the files, with all their columns.
    file_schema: pa.Schema
    predicates: tuple[Predicate, ...] = ()

    def partitions(self) -> Sequence[InputPartition]:
        plan = self.options.on_catalog(self._pinned)
        return [FilesPartition(tuple(group)) for group in _groups(plan.files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, FilesPartition):
            # Where nothing is planned, Spark makes up a partition of its own.
            return
        settle_worker("rows")
        door = LoopThread("penstock-catalog")
        store = door.run(self.options.spec.open())
        try:
            yield from self._rows(partition.files, door, store)
        finally:
            door.run(store.close())
            door.close()

    def _rows(self, planned: Sequence[DataFile], door: LoopThread, store: ObjectStore) -> Iterator[pa.RecordBatch]:
        query, schema = self.options.query, self.file_schema
        files = ObjectFiles(store, CatalogLayout(self.options.prefix), door, TailCache(_TAILS_BYTES))
        dataset = file_dataset(files, planned, schema, time_column=self.options.time_column)
        wanted = conjunction(
            [
                time_filter(schema, self.options.time_column, query.start, query.end),
                row_filter(schema, self.predicates),
            ]
        )
        answer = spark_schema(pa.schema([schema.field(name) for name in self.names]))
        try:
            for batch in scanner_of(dataset, self.names, wanted, _BATCH_ROWS).to_batches():
                if batch.num_rows:
                    yield from pa.Table.from_batches([batch]).cast(answer, safe=False).to_batches()
        except (pa.ArrowException, OSError) as error:
            raise files.failure or error from None

    async def _pinned(self, catalog: Catalog) -> Plan:
        query = replace(self.options.query, predicates=self.predicates)
        plan = await query.plan(catalog)
        if self.options.pin_seconds and len(plan):
            await catalog.pin(plan.position, seconds=self.options.pin_seconds)
        return plan


@dataclass
class CatalogTableReader(WholeTableReader):
    """A read whose filters choose files and rows: for one scan, see the option `pushFilters`."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """All of them are given back: what they prune here is proved, and Spark decides about the rows."""
        self.predicates = tuple(predicates_of(filters, self.file_schema))
        yield from filters


def _groups(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    group: list[DataFile] = []
    size = 0
    for file in files:
        if group and (size + file.size_bytes > _TASK_BYTES or len(group) >= _TASK_FILES):
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size_bytes
    if group:
        yield group


def _position(text: str | None) -> Any:
    if text is None:
        return None
    try:
        # As the command line reads it: `true` is no sequence, and numbers have an end.
        return msgspec.json.decode(text, type=int | dict[str, int])
    except UNDECODABLE as error:
        raise InvalidInput(f"asOf = {text!r}", "it is neither a sequence nor a position as JSON") from error


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError as error:
        raise InvalidInput(f"pinSeconds = {text!r}", "it is not a number") from error
    if not 0 <= found < 10**9:
        raise InvalidInput(f"pinSeconds = {text!r}", "it must be a number of seconds, not below zero")
    return found
