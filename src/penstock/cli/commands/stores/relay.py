"""`penstock relay`: bring what waits in a store at the edge to a queue, to Parquet files or to a collector.

The command opens the store, so it refuses while another process has it; a program that ingests runs relays itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from penstock.cli.settings.long_running import long_running

if TYPE_CHECKING:
    from penstock.cli.settings.configuration import Settings
    from penstock.cli.settings.observing import Watching

__all__ = ["relay"]

_KINDS: Final = ("queue", "parquet", "otlp")


@click.group()
def relay() -> None:
    """Send stored telemetry to a queue, files or a collector."""


def _targets(
    _context: click.Context, _option: click.Parameter, given: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    kinds = [kind for kind, _ in given]
    if len(set(kinds)) < len(kinds):
        raise click.BadParameter("each kind of target may be named once: it is also the subscriber's name")
    return given


def _headers(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    if any(not name or not equals for name, equals, _ in pairs):
        raise click.BadParameter("a header is NAME=VALUE")
    return {name: value for name, _, value in pairs}


@relay.command()
@click.argument("quiver", metavar="QUIVER", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--to",
    "targets",
    metavar="KIND TARGET",
    type=(click.Choice(_KINDS), str),
    multiple=True,
    required=True,
    callback=_targets,
    help="Target of the segments: queue URL, parquet FOLDER or otlp URL. Repeatable.",
)
@click.option("--instance", type=click.IntRange(min=0), default=0, show_default=True, help="Instance of the store.")
@click.option(
    "--quiver-config", type=click.Path(exists=True, dir_okay=False), help="YAML file with the store's settings."
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    envvar="PENSTOCK_RELAY_HEADERS",
    callback=_headers,
    help="Header of requests to a collector. Repeatable.",
)
@click.option("--until-empty", is_flag=True, help="Stop once nothing is left to send.")
@long_running
def run(
    quiver: str,
    targets: tuple[tuple[str, str], ...],
    instance: int,
    quiver_config: str | None,
    headers: dict[str, str],
    until_empty: bool,
    settings: Settings,
    watching: Watching,
) -> None:
    """Send segments until interrupted, retrying targets that fail.

    QUIVER is the directory of the store. Every target is a subscriber of its own, named by its kind, with its own pace.
    """
    from penstock.cli.jobs.relaying import Relaying

    with watching.opened(warns=True) as observer:
        relaying = Relaying(quiver, instance, settings, headers, observer, store_settings=quiver_config)
        ends = relaying.run(targets, until_empty=until_empty)
    for kind, end in ends.items():
        waiting = f"{end.waiting} segments wait" if end.waiting else "nothing waits"
        refused = f", {end.dead_letters} dead letters" if end.dead_letters else ""
        click.echo(f"{kind}: {waiting}{refused}")
