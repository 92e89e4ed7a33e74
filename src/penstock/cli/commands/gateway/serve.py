"""`penstock serve`: everything on one machine from one configuration, or a role of it on one of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from penstock.cli.settings.long_running import long_running

if TYPE_CHECKING:
    from penstock.cli.settings.configuration import Settings
    from penstock.cli.settings.observing import Watching

__all__ = ["serve"]

_ROLES: Final = ("gateway", "jobs", "query")


def _roles(_context: click.Context, _option: click.Parameter, given: str | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    roles = tuple(role.strip() for role in given.split(","))
    unknown = [role for role in roles if role not in _ROLES]
    if unknown:
        raise click.BadParameter(f"there is no role {unknown[0]!r}; there are {', '.join(_ROLES)}")
    return roles


@click.command()
@click.option("--store", default=None, help="Directory or URL of the store.  [default: penstock-data]")
@click.option("--host", default=None, help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), default=None, help="Port to listen on.  [default: 4318]")
@click.option("--tokens", default=None, metavar="FILE", help="File with the tokens of `penstock token create`.")
@click.option("--roles", default=None, callback=_roles, help="Parts to run, separated by commas.  [default: all]")
@click.option(
    "--engine", type=click.Choice(["spark", "local"]), default=None, help="What runs the jobs.  [default: spark]"
)
@click.option("--master", default=None, help="Spark master of the jobs.  [default: local[*]]")
@long_running
def serve(
    store: str | None,
    host: str | None,
    port: int | None,
    tokens: str | None,
    roles: tuple[str, ...] | None,
    engine: str | None,
    master: str | None,
    settings: Settings,
    watching: Watching,
) -> None:
    """Run the gateway, the jobs and the queries until interrupted.

    Acknowledged data is durable: the server can be stopped or killed at any time.
    """
    import asyncio

    from penstock.cli.terminal.extras import require_gateway

    require_gateway()
    from penstock.cli.serving.house_view import EventBoard
    from penstock.cli.serving.process import Serving
    from penstock.cli.serving.serve_config import ServeConfig
    from penstock.gateway import GatewayConfig

    config = settings.of(ServeConfig, store=store, roles=roles, engine=engine, master=master)
    gateway = settings.of(GatewayConfig, host=host, port=port, tokens=tokens)
    context = click.get_current_context()
    file = context.params.get("config")
    board = EventBoard(show_from=watching.level)
    with watching.opened(heard=board.heard) as observer:
        serving = Serving(
            config,
            gateway,
            settings,
            observer,
            ("--config", str(file)) if file else (),
            lambda address: click.echo(f"Penstock answers at {address}"),
            board,
        )
        asyncio.run(serving.run())
