"""`penstock sql --engine spark`: the tables that a SELECT names as views of a Spark session."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from penstock.catalog import Catalog, CatalogConfig
from penstock.cli.running.spark_session import opened_session
from penstock.cli.running.stop import Stop
from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.store_access import service_options, store_options
from penstock.cli.settings.telemetry_place import catalog_place
from penstock.clock import SYSTEM_CLOCK
from penstock.lake import SqlAnswer, SqlConfig, scans_tables_once, tables_of
from penstock.objects import open_store

__all__ = ["answer_on_spark"]


def answer_on_spark(
    query: str,
    store: str,
    prefix: str | None,
    tenant: str | None,
    position: Any,
    config: SqlConfig,
    master: str,
    settings: Settings,
) -> SqlAnswer:
    """One position for all tables, as on DuckDB; rows beyond `rows_max` are not fetched."""
    began = SYSTEM_CLOCK.monotonic()
    tables = tables_of(query)
    url, place = catalog_place(store, prefix)
    found = asyncio.run(_position(url, place, position, settings))
    # Every query loads its tables anew. Where each is scanned once, the query's own conditions choose files.
    pushed = str(scans_tables_once(query)).lower()
    options = {"url": url, "prefix": place, "asOf": json.dumps(found), "pushFilters": pushed}
    options |= {f"store.{name}": str(value) for name, value in service_options(settings, url).items()}
    if tenant is not None:
        options["tenant"] = tenant
    with Stop() as stop, opened_session(master, url, stop) as spark:
        stop.calls(spark.session.sparkContext.cancelAllJobs)
        from penstock.pipelines import spark_rows

        table, is_cut = spark_rows(spark.session, query, tables, options, config.rows_max, config.seconds_max)
    return SqlAnswer(
        table=table,
        is_cut=is_cut,
        position=found,
        files=0,
        plan_seconds=0.0,
        seconds=SYSTEM_CLOCK.monotonic() - began,
    )


async def _position(url: str, prefix: str, asked: Any, settings: Settings) -> dict[str, int]:
    store = await open_store(url, read_only=True, **store_options(settings, url))
    try:
        async with await Catalog.open(store, prefix, settings.of(CatalogConfig)) as catalog:
            source: Any = catalog if asked is None else await catalog.as_of(asked)
            position: dict[str, int] = (await source.plan(0, 0)).position
            return position
    finally:
        await store.close()
