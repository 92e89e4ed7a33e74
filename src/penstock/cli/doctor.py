"""`penstock doctor`: what this machine gives Penstock to stand on, and what is missing.

What confines parsers is asked of a real parser process. A layer that the kernel does not offer is told as absent and is
no failure: documents are still parsed, with the layers that there are.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from penstock.documents.parsers import Sandbox
from penstock.errors import PenstockError
from penstock.objects import open_store
from penstock.pipelines import find_java

__all__ = ["doctor", "java_shim_directory"]

_PACKAGES = ("obstore", "slatedb", "pyarrow", "pyspark", "faiss-cpu")


@click.command()
@click.option("--store", default=None, metavar="URL", help="Also open this store and probe its conditional writes.")
def doctor(store: str | None) -> None:
    """Show the Python, Java and library versions in use and what confines parsers, and check a store."""
    rows = [("python", platform.python_version(), sys.executable), _java(), *map(_package, _PACKAGES), *_sandbox()]
    if store:
        rows.append(_store(store))
    table = Table(box=None, pad_edge=False)
    for heading in ("what", "version", "where"):
        table.add_column(heading)
    for row in rows:
        table.add_row(*row)
    Console(soft_wrap=True).print(table)
    if any(found == "missing" for _, found, _ in rows):
        raise SystemExit(1)


def java_shim_directory() -> Path:
    """Where the launcher of the wheel's Java is kept: with the environment it belongs to."""
    return Path(sys.prefix) / "share" / "penstock" / "java"


def _java() -> tuple[str, str, str]:
    try:
        runtime = find_java(os.environ, java_shim_directory())
    except PenstockError as error:
        return "java", "missing", str(error)
    return "java", str(runtime.version), f"{runtime.home} (from {runtime.source})"


def _package(name: str) -> tuple[str, str, str]:
    try:
        return name, version(name), "installed"
    except PackageNotFoundError:
        return name, "missing", "install what requirements.lock names"


def _sandbox() -> list[tuple[str, str, str]]:
    try:
        with Sandbox() as sandbox:
            layers = sandbox.layers()
    except PenstockError as error:
        return [("parsers", "missing", str(error))]
    return [
        (f"parsers: {layer.name}", "absent" if layer.missing else "active", layer.missing or "confines every parser")
        for layer in layers
    ]


def _store(url: str) -> tuple[str, str, str]:
    async def probe() -> None:
        opened = await open_store(url)
        await opened.close()

    asyncio.run(probe())
    return "store", "ready", f"{url}: conditional writes are enforced"
