"""A SQL process of the gateway: answers what it reads from its input, within bounds, until that ends."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from penstock.cli.settings.options import settings_option

if TYPE_CHECKING:
    from typing import BinaryIO

    from penstock.cli.settings.configuration import Settings
    from penstock.lake import SqlEngine

__all__ = ["sql_worker"]


@click.command("sql-worker", hidden=True)
@click.option("--store", required=True, help="URL of the store of telemetry.")
@click.option("--prefix", required=True, help="Prefix of the catalog below the store.")
@settings_option
def sql_worker(store: str, prefix: str, settings: Settings) -> None:
    """Answer the questions of a gateway."""
    import asyncio

    # Whatever else this process prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asyncio.run(_answer(store, prefix, settings, answers))


async def _answer(url: str, prefix: str, settings: Settings, answers: BinaryIO) -> None:
    from contextlib import AsyncExitStack

    from penstock.catalog import Catalog, CatalogConfig
    from penstock.cli.settings.store_access import store_options
    from penstock.cli.settings.telemetry_place import signal_tables
    from penstock.gateway import answer_questions, bound_process
    from penstock.lake import SqlConfig, SqlEngine
    from penstock.objects import open_store

    config = settings.of(SqlConfig)
    async with AsyncExitStack() as stack:
        store = await open_store(url, **store_options(settings, url))
        stack.push_async_callback(store.close)
        engines: list[SqlEngine] = []

        async def engine() -> SqlEngine:
            if not engines:
                catalog = await Catalog.open(store, prefix, settings.of(CatalogConfig))
                stack.push_async_callback(catalog.close)
                engines.append(await stack.enter_async_context(SqlEngine(catalog, config, known=signal_tables())))
            return engines[0]

        bound_process(config)
        await answer_questions(engine, sys.stdin.buffer, answers)
