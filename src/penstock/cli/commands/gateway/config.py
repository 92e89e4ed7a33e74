"""`penstock init` and `penstock check-config`: write a configuration, and find out whether it works."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from penstock.cli.settings.options import SETTINGS_FILE, json_option, settings_option
from penstock.errors import Conflict, PenstockError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.cli.settings.configuration import Settings

__all__ = ["check_config", "init"]

_OK: Final = "ok"


@click.command()
@click.argument("file", default=SETTINGS_FILE, type=click.Path(dir_okay=False))
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(file: str, force: bool) -> None:
    """Write a commented configuration with every setting."""
    from penstock.cli.settings.template import commented_configuration

    path = Path(file)
    if path.exists() and not force:
        raise Conflict(f"{path} is not written", "the file exists", "choose another, or give --force")
    # Keys of buckets may be written into it; a file that others may write is not read.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(commented_configuration())
    click.echo(f"wrote {path}: edit it, then run `penstock check-config` and `penstock serve`")


@click.command(name="check-config")
@settings_option
@json_option
def check_config(settings: Settings, as_json: bool) -> None:
    """Validate the configuration and what it names.

    Checks every setting, the store, the store at the edge, tokens and TLS.
    """
    import asyncio
    import json

    found = asyncio.run(_checked(settings))
    for name, problem in found:
        if as_json:
            click.echo(json.dumps({"part": name, "ok": problem is None, "problem": str(problem) if problem else None}))
        else:
            click.echo(f"{name:<12} {_OK if problem is None else problem}")
    if any(problem for _, problem in found):
        raise SystemExit(1)


async def _checked(settings: Settings) -> list[tuple[str, PenstockError | None]]:
    """Every part, and what is wrong with it. A part that cannot be asked because of another is left out."""
    from penstock.cli.serving.serve_config import ServeConfig
    from penstock.cli.settings.sections import SECTIONS, class_of
    from penstock.gateway import GatewayConfig

    found: list[tuple[str, PenstockError | None]] = []

    async def check(name: str, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except PenstockError as error:
            found.append((name, error))
        else:
            found.append((name, None))

    async def sections() -> None:
        for section in SECTIONS:
            settings.of(class_of(section))

    await check("settings", sections)
    if found[0][1] is not None:
        return found
    serve, gateway = settings.of(ServeConfig), settings.of(GatewayConfig)
    await check("store", lambda: _store(settings, serve.url))
    await check("uploads", lambda: _store(settings, serve.uploads_url))
    await check("edge", lambda: _edge(serve.edge_path))
    await check("gateway", lambda: _gateway(gateway))
    return found


async def _store(settings: Settings, url: str) -> None:
    """Opening a store probes its conditional writes."""
    from penstock.cli.settings.store_access import store_options
    from penstock.objects import open_store

    store = await open_store(url, **store_options(settings, url))
    await store.close()


async def _edge(path: str) -> None:
    _look_at_edge(Path(path))


def _look_at_edge(folder: Path) -> None:
    """Refuse a folder that cannot be written, and name what is damaged in one that is there; an absent one is fine."""
    import os

    from penstock.disk import RealDisk
    from penstock.errors import PermissionDenied
    from penstock.quiver import inspect_store

    parent = next(one for one in (folder, *folder.parents) if one.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionDenied(f"{folder} cannot be written", f"{parent} is not writable", "change its owner or mode")
    if folder.exists():
        inspect_store(RealDisk(), str(folder))


async def _gateway(gateway: object) -> None:
    """The token file, keys of notifications, and the certificate."""
    from penstock.cli.settings.secrets import read_secret
    from penstock.gateway import GatewayConfig, TokenBook

    assert isinstance(gateway, GatewayConfig)
    if gateway.tokens is not None:
        TokenBook.load(Path(gateway.tokens))
    for file in (file for files in gateway.notifications.key_files.values() for file in files):
        read_secret(file)
    gateway.check_certificate()
