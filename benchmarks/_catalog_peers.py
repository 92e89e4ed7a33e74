"""The table formats that the catalog benchmark runs beside ours. One that is not installed is left out, by name.

All of them append a Parquet file of 100 rows in each commit, as ours does, and none of them syncs it to the disk.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

HOUR = 3_600_000_000_000
ROWS = 100


def batch(number: int) -> pa.Table:
    """The rows of one commit: a minute, 60 commits an hour."""
    start = number * HOUR // 60
    return pa.table(
        {
            "ts": pa.array(range(start, start + ROWS), pa.int64()),
            "host": pa.array([f"h{number:07}"] * ROWS),
            "value": pa.array([0.5] * ROWS),
        }
    )


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class Delta:
    """deltalake: one JSON object a commit, checkpoints every hundred."""

    name = "deltalake"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "delta"

    def create(self) -> None:
        from deltalake import write_deltalake

        shutil.rmtree(self._folder, ignore_errors=True)
        write_deltalake(str(self._folder), batch(0))

    def commit(self, number: int) -> None:
        from deltalake import write_deltalake

        write_deltalake(str(self._folder), batch(number), mode="append")

    def metadata_bytes(self) -> int:
        return folder_bytes(self._folder / "_delta_log")

    def fill(self, files: int) -> None:
        """Files of a minute each, by their entries alone."""
        from deltalake import DeltaTable
        from deltalake.transaction import AddAction

        self.create()
        table = DeltaTable(str(self._folder))
        actions = [
            AddAction(
                path=f"part-{number}.parquet",
                size=1_000_000,
                partition_values={},
                modification_time=0,
                data_change=True,
                stats=json.dumps(
                    {
                        "numRecords": ROWS,
                        "minValues": {"ts": number * HOUR // 60},
                        "maxValues": {"ts": (number + 1) * HOUR // 60 - 1},
                        "nullCount": {"ts": 0},
                    }
                ),
            )
            for number in range(files)
        ]
        table.create_write_transaction(actions, mode="append", schema=table.schema(), partition_by=[])

    def planner(self, hour: int) -> tuple[Callable[[], int], Callable[[], int]]:
        """Planning one hour, cold and warm: the table opened anew, and not."""
        import pyarrow.compute as pc
        from deltalake import DeltaTable

        def plan(table: Any) -> int:
            actions = pa.table(table.get_add_actions(flatten=True))
            start, end = hour * HOUR, (hour + 1) * HOUR
            mask = pc.and_(pc.less(actions["min.ts"], end), pc.greater_equal(actions["max.ts"], start))  # type: ignore[call-overload]
            return len(actions.filter(mask)["path"])  # type: ignore[arg-type]

        opened = DeltaTable(str(self._folder))
        return lambda: plan(DeltaTable(str(self._folder))), lambda: plan(opened)


class Iceberg:
    """pyiceberg with its SQLite catalog."""

    name = "pyiceberg"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "iceberg"

    def _catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog("bench", uri=f"sqlite:///{self._folder}/catalog.db", warehouse=f"file://{self._folder}")

    def create(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        catalog = self._catalog()
        catalog.create_namespace("bench")
        self._table = catalog.create_table("bench.t", batch(0).schema)

    def commit(self, number: int) -> None:
        if not hasattr(self, "_table"):
            self._table = self._catalog().load_table("bench.t")
        try:
            self._table.append(batch(number))
        except Exception:
            self._table = self._catalog().load_table("bench.t")
            raise

    def metadata_bytes(self) -> int:
        return sum(folder_bytes(found) for found in self._folder.rglob("metadata"))

    def fill(self, files: int) -> None:
        self.create()
        for number in range(files):
            self.commit(number)

    def planner(self, hour: int) -> tuple[Callable[[], int], Callable[[], int]]:
        from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan

        inside = And(GreaterThanOrEqual("ts", hour * HOUR), LessThan("ts", (hour + 1) * HOUR))

        def plan(table: Any) -> int:
            return len(list(table.scan(row_filter=inside).plan_files()))

        opened = self._catalog().load_table("bench.t")
        return lambda: plan(self._catalog().load_table("bench.t")), lambda: plan(opened)


class DuckLake:
    """DuckLake with its catalog in a DuckDB file, which one process writes."""

    name = "ducklake"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "ducklake"
        self._connection: Any = None

    def create(self) -> None:
        if self._connection is not None:
            # One process attaches the file once.
            self._connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._connection = self._opened()
        self._connection.execute("CREATE TABLE lake.t(ts BIGINT, host VARCHAR, value DOUBLE)")

    def _opened(self) -> Any:
        import duckdb
        import duckdb_extension_ducklake

        [extension] = Path(duckdb_extension_ducklake.__file__).parent.glob("extensions/*/*.duckdb_extension")
        connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        connection.execute(f"LOAD '{extension}'")
        # Rows go to Parquet, as everybody else's do.
        connection.execute(
            f"ATTACH 'ducklake:{self._folder}/meta.ducklake' AS lake "
            f"(DATA_PATH '{self._folder}/data/', DATA_INLINING_ROW_LIMIT 0)"
        )
        return connection

    def commit(self, number: int) -> None:
        rows = batch(number)  # noqa: F841  read by its name in the statement
        self._connection.execute("INSERT INTO lake.t SELECT * FROM rows")

    def metadata_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._folder.glob("meta.*") if path.is_file())

    def fill(self, files: int) -> None:
        self.create()
        for number in range(files):
            self.commit(number)

    def planner(self, hour: int) -> tuple[Callable[[], int], Callable[[], int]]:
        # What a scan of one hour reads: the planner prunes by the statistics in its tables.
        query = f"EXPLAIN SELECT * FROM lake.t WHERE ts >= {hour * HOUR} AND ts < {(hour + 1) * HOUR}"

        def plan(connection: Any) -> int:
            return len(connection.execute(query).fetchall())

        opened = self._connection
        return lambda: plan(opened.cursor()), lambda: plan(opened)


def installed(folder: Path) -> Iterator[Any]:
    """The peers that work here, or those of them that `--peer=NAME` names. The extension of DuckLake fits one release of DuckDB, which may not be this one."""
    named = {argument.removeprefix("--peer=") for argument in sys.argv if argument.startswith("--peer=")}
    for kind in (Delta, Iceberg, DuckLake):
        if named and kind.name not in named:
            continue
        peer = kind(folder)
        try:
            peer.create()
        except Exception as error:
            print(f"  {kind.name} is left out: {error}".splitlines()[0])
        else:
            yield peer


def _writer(peer: Any, first: int, seconds: float, found: Any) -> None:
    landed = failed = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            peer.commit(first + landed + failed)
            landed += 1
        except Exception:
            failed += 1
    found.put((landed, failed))


def race(peer: Any, writers: int, seconds: float) -> tuple[int, int]:
    """Commits that landed and that failed, of so many processes at once."""
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    for name in ("_table", "_connection"):
        with suppress(AttributeError):
            delattr(peer, name)
    processes = [
        context.Process(target=_writer, args=(peer, 10_000 * (number + 1), seconds, found)) for number in range(writers)
    ]
    for process in processes:
        process.start()
    answers = [found.get(timeout=20 * seconds + 60) for _ in processes]
    for process in processes:
        process.join()
    return sum(landed for landed, _ in answers), sum(failed for _, failed in answers)
