"""`penstock doctor`: what this machine gives Penstock to stand on, and what is missing.

What confines parsers and SQL is asked of a real process of each. A layer that the kernel does not offer is told as absent and is
no failure: documents are still parsed and queries answered, with the layers that there are.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import click

from penstock.cli.settings.options import settings_option
from penstock.cli.terminal.extras import install_line
from penstock.cli.terminal.tables import table_lines
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.settings.configuration import Settings

__all__ = ["doctor"]

_PACKAGES: Final = ("obstore", "pyarrow")
# What stands for each extra that a machine may do without.
_OPTIONAL: Final = {"slatedb": "keyvalue", "faiss-cpu": "vector", "duckdb": "sql", "starlette": "gateway"}
_MISSING: Final = "missing"
_NOT_INSTALLED: Final = "not installed"


@click.command()
@click.option("--store", default=None, metavar="PATH_OR_URL", help="Store to open, with a probe of conditional writes.")
@settings_option
def doctor(store: str | None, settings: Settings) -> None:
    """Check Python, Java, libraries, the sandboxes, and a store.

    A missing extra that only some commands need is reported, but is not a failure.
    """
    import platform

    rows = [("python", platform.python_version(), sys.executable), *_spark(), *map(_package, _PACKAGES)]
    rows += [*map(_optional, _OPTIONAL), *_sandbox(), *_sql_process()]
    if store is not None:
        rows.append(_store(store, settings))
    for line in table_lines(("what", "version", "where"), rows):
        click.echo(line)
    if any(found == _MISSING for _, found, _ in rows):
        raise SystemExit(1)


def _spark() -> list[tuple[str, str, str]]:
    """Spark and the Java that it needs; without the one, the other is not looked for."""
    found = _version("pyspark")
    if found is None:
        return [("pyspark", _NOT_INSTALLED, f"`penstock index` and `reindex` need it: {install_line('spark')}")]
    return [_java(), ("pyspark", found, "installed")]


def _java() -> tuple[str, str, str]:

    from penstock.cli.running.warm_start import java_shim_directory
    from penstock.pipelines import find_java

    try:
        runtime = find_java(os.environ, java_shim_directory())
    except PenstockError as error:
        return "java", _MISSING, str(error)
    return "java", str(runtime.version), f"{runtime.home} (from {runtime.source})"


def _package(name: str) -> tuple[str, str, str]:
    found = _version(name)
    return (name, found, "installed") if found else (name, _MISSING, "install what requirements.lock names")


def _optional(name: str) -> tuple[str, str, str]:
    found = _version(name)
    return (name, found, "installed") if found else (name, _NOT_INSTALLED, install_line(_OPTIONAL[name]))


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _sandbox() -> list[tuple[str, str, str]]:
    try:
        from penstock.documents.parsers import Sandbox

        with Sandbox() as sandbox:
            layers = sandbox.layers()
    except ModuleNotFoundError as error:
        return [("parsers", _NOT_INSTALLED, f"{error.name} is missing: {install_line('documents')}")]
    except PenstockError as error:
        return [("parsers", _MISSING, str(error))]
    return [
        (f"parsers: {layer.name}", "absent" if layer.missing else "active", layer.missing or "confines every parser")
        for layer in layers
    ]


def _sql_process() -> list[tuple[str, str, str]]:
    """What confines the processes in which a gateway answers SQL, told by one."""
    import asyncio

    try:
        from penstock.catalog import Catalog, CatalogConfig
        from penstock.cli.serving.sql_child import bare_environment, sql_command, worker_bounds
        from penstock.gateway import CatalogLender, SqlProcesses
        from penstock.lake import SqlConfig
        from penstock.objects import MemoryStore

        async def ask() -> list[tuple[str, str]]:
            store = MemoryStore()
            processes = SqlProcesses(
                sql_command("memory://", "lake", worker_bounds(SqlConfig(), CatalogConfig())),
                environment=bare_environment(os.environ),
                lender=CatalogLender(store, "lake", lambda: Catalog.open(store, "lake")),
            )
            try:
                return await processes.layers()
            finally:
                await processes.close()

        layers = asyncio.run(ask())
    except ModuleNotFoundError as error:
        return [("SQL process", _NOT_INSTALLED, f"{error.name} is missing: {install_line('gateway')}")]
    except PenstockError as error:
        return [("SQL process", _MISSING, str(error))]
    return [
        (f"SQL process: {name}", "absent" if missing else "active", missing or "confines every query of a gateway")
        for name, missing in layers
    ]


def _store(store: str, settings: Settings) -> tuple[str, str, str]:
    import asyncio

    from penstock.cli.settings.store_access import store_options
    from penstock.indexing import url_of
    from penstock.objects import open_store

    url = url_of(store)

    async def probe() -> None:
        opened = await open_store(url, **store_options(settings, url))
        await opened.close()

    asyncio.run(probe())
    return "store", "ready", f"{url}: conditional writes are enforced"
