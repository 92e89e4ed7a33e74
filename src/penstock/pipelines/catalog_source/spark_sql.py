"""A SELECT over tables of the catalog on Spark: each table that it names becomes a view of the session."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.errors import InvalidInput
from penstock.pipelines.catalog_source.catalog_source import CatalogDataSource

__all__ = ["spark_rows"]


def spark_rows(
    spark: SparkSession, query: str, tables: Collection[str], options: Mapping[str, str], rows_max: int
) -> tuple[pa.Table, bool]:
    """The first rows, and whether there are more. `options` are those of the source `penstock-catalog`."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(CatalogDataSource)
    try:
        for name in sorted(tables):
            frame = spark.read.format(CatalogDataSource.name()).options(**options, table=name).load()
            if frame.columns:
                frame.createOrReplaceTempView(name)
        table = spark.sql(query).limit(rows_max + 1).toArrow()
    except PySparkException as error:
        why = next(iter(str(error).strip().splitlines()), "")
        raise InvalidInput("the query cannot be answered", why, "correct it") from error
    return table.slice(0, rows_max), table.num_rows > rows_max
