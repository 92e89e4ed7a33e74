"""A SELECT over tables of the catalog on Spark: each table that it names becomes a view of the session."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.errors import DeadlineExceeded, InvalidInput
from penstock.pipelines.catalog_source.catalog_source import CatalogDataSource

__all__ = ["spark_rows"]

_FILES_AS_TABLES: Final = "spark.sql.runSQLOnFiles"
# How often, and how long each time, a query that is out of time is waited for.
_CANCELS_MAX: Final = 50
_CANCEL_SECONDS: Final = 0.2


def spark_rows(
    spark: SparkSession,
    query: str,
    tables: Collection[str],
    options: Mapping[str, str],
    rows_max: int,
    seconds_max: float,
) -> tuple[pa.Table, bool]:
    """The first rows, and whether there are more. `options` are those of the source `penstock-catalog`.

    A query that takes longer than `seconds_max` is cancelled: `DeadlineExceeded`. Give it what `tables_of` let pass.
    """
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(CatalogDataSource)
    found: Future[pa.Table] = Future()

    def work() -> None:
        try:
            found.set_result(_rows(spark, query, tables, options, rows_max))
        except BaseException as error:  # noqa: BLE001  raised where it is waited for
            found.set_exception(error)

    threading.Thread(target=work, name="penstock-spark-sql", daemon=True).start()
    try:
        table = found.result(seconds_max)
    except TimeoutError as error:
        _cancel(spark, found)
        raise DeadlineExceeded(
            "the query was interrupted",
            f"it took longer than {seconds_max:g} s",
            "narrow its time range, or allow more with --seconds",
        ) from error
    return table.slice(0, rows_max), table.num_rows > rows_max


def _cancel(spark: SparkSession, found: Future[pa.Table]) -> None:
    """Until it has ended: a job that begins after the first call is not cancelled by it."""
    for _ in range(_CANCELS_MAX):
        spark.sparkContext.cancelAllJobs()
        with suppress(TimeoutError):
            found.exception(_CANCEL_SECONDS)
            return


def _rows(
    spark: SparkSession, query: str, tables: Collection[str], options: Mapping[str, str], rows_max: int
) -> pa.Table:
    # FROM text.x would read the file x.
    spark.conf.set(_FILES_AS_TABLES, "false")
    try:
        for name in sorted(tables):
            frame = spark.read.format(CatalogDataSource.name()).options(**options, table=name).load()
            if frame.columns:
                frame.createOrReplaceTempView(name)
        return spark.sql(query).limit(rows_max + 1).toArrow()
    except PySparkException as error:
        why = next(iter(str(error).strip().splitlines()), "")
        raise InvalidInput("the query cannot be answered", why, "correct it") from error
    finally:
        spark.conf.unset(_FILES_AS_TABLES)
