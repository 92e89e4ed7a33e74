"""Counts the rows of a catalog table with Spark. The catalog plans which files are read.

spark-submit --master 'local[2]' read_catalog.py file:///srv/penstock-data/telemetry metrics
"""

from __future__ import annotations

import argparse

from penstock.pipelines import CatalogDataSource, open_session


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the rows of a table of the catalog.")
    parser.add_argument("store", help="URL of the store that holds the catalog")
    parser.add_argument("table", help="table, such as metrics")
    parser.add_argument("--prefix", default="lake", help="where the catalog is in the store")
    given = parser.parse_args()
    spark = open_session(None, name="penstock-read-catalog")
    spark.dataSource.register(CatalogDataSource)
    rows = (
        spark.read.format("penstock-catalog")
        .option("url", given.store)
        .option("prefix", given.prefix)
        .option("table", given.table)
        .load()
    )
    print(f"{given.table} has {rows.count()} rows")


if __name__ == "__main__":
    main()
