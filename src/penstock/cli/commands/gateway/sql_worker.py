"""A SQL process of the gateway: answers what it reads from its input, within bounds, until that ends.

It reads no configuration and gets no environment: its bounds come with its command, its data through the gateway. It
confines itself first of all, while it has one thread and nothing is loaded.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

__all__ = ["sql_worker"]


@click.command("sql-worker", hidden=True)
@click.option("--store", required=True, help="URL of the store of telemetry, for errors.")
@click.option("--prefix", required=True, help="Prefix of the catalog below the store.")
@click.option("--bounds", required=True, help="Settings of queries and of the catalog, as JSON.")
@click.option("--lent", required=True, help="Descriptors through which the store is read: answers,requests.")
def sql_worker(store: str, prefix: str, bounds: str, lent: str) -> None:
    """Run queries for a gateway."""
    # Whatever else this process prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Read once everything is loaded, when it can no longer be opened.
    sizes = Path("/proc/self/statm").open("rb", buffering=0)  # noqa: SIM115
    from penstock.documents.parsers.isolation import confine_with_threads

    layers = [(layer.name, layer.missing) for layer in confine_with_threads()]
    import asyncio

    from penstock.cli.serving.supervisor import end_with_parent

    # Once more: who changes his privileges loses what was asked for before.
    end_with_parent(os.environ)

    descriptors = tuple(map(int, lent.split(",")))
    asyncio.run(_answer(store, prefix, bounds, descriptors, answers, sizes, layers))


async def _answer(
    url: str,
    prefix: str,
    bounds: str,
    lent: Sequence[int],
    answers: BinaryIO,
    sizes: BinaryIO,
    layers: Sequence[tuple[str, str]],
) -> None:
    from contextlib import AsyncExitStack

    import msgspec

    from penstock.catalog import CatalogConfig
    from penstock.cli.settings.telemetry_place import signal_tables
    from penstock.gateway import OVER_MEMORY, LentCatalog, answer_questions, bound_process
    from penstock.lake import ProcessWatch, SqlConfig, SqlEngine, resident_bytes

    given = msgspec.json.decode(bounds)
    config = msgspec.convert(given["sql"], SqlConfig)
    async with AsyncExitStack() as stack:
        catalog_config = msgspec.convert(given["catalog"], CatalogConfig)
        catalog = await LentCatalog.open(url, prefix, catalog_config, answers=lent[0], requests=lent[1])
        stack.push_async_callback(catalog.close)
        engine = await stack.enter_async_context(SqlEngine(catalog, config, known=signal_tables()))

        bound_process(config, sizes)
        # The gateway looks at the time, and names the bound by this code.
        with ProcessWatch(config, lambda _: os._exit(OVER_MEMORY), resident=lambda: resident_bytes(sizes)):
            await answer_questions(engine, sys.stdin.buffer, answers, layers)
