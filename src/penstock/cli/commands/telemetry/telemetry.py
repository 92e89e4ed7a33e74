"""`penstock telemetry`: bring telemetry from the queue into data files and time series."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from penstock.cli.settings.long_running import long_running
from penstock.cli.settings.options import STORE_DEFAULT, json_option, master_option, settings_option

if TYPE_CHECKING:
    from penstock.cli.settings.configuration import Settings
    from penstock.cli.settings.observing import Watching

__all__ = ["telemetry"]


@click.group()
def telemetry() -> None:
    """Land queued telemetry in data files and time series."""


@telemetry.command()
@click.option("--store", default=STORE_DEFAULT, show_default=True, help="Directory or URL of the store.")
@click.option("--catalog", "catalog_path", default="lake", show_default=True, help="Prefix of the catalog.")
@click.option("--series", "series_path", default="series", show_default=True, help="Prefix of the time series.")
@click.option("--no-series", is_flag=True, help="Write data files only.")
@click.option("--follow", is_flag=True, help="Keep landing new batches until interrupted.")
@click.option(
    "--shard",
    "shards",
    type=click.IntRange(min=0),
    multiple=True,
    help="Shard to work on; others are left to other processes. Repeatable.  [default: all]",
)
@click.option(
    "--engine",
    type=click.Choice(["spark", "local"]),
    default="spark",
    show_default=True,
    help="What decodes batches and writes data files: Spark, or this process alone.",
)
@master_option
@json_option
@long_running
def run(
    store: str,
    catalog_path: str,
    series_path: str,
    no_series: bool,
    follow: bool,
    shards: tuple[int, ...],
    engine: str,
    master: str,
    as_json: bool,
    settings: Settings,
    watching: Watching,
) -> None:
    """Land queued telemetry, each row exactly once.

    Rows become data files of the catalog, and metrics also samples of the time series.
    """
    import asyncio

    from penstock.cli.jobs.landing_run import landing_config, opened_landing
    from penstock.cli.running.stop import ENDING, Stop
    from penstock.cli.settings.sharding import apply_sharding

    with watching.opened() as observer, Stop(lambda: click.echo(ENDING, err=True)) as stop:
        config = landing_config(settings, store, catalog_path, "" if no_series else series_path)
        asyncio.run(apply_sharding(config.url, settings, observer))
        with opened_landing(config, engine, master, stop, observer, shards or None) as job:
            done = job.follow() if follow else job.run_available()
    if as_json:
        click.echo(json.dumps(asdict(done), ensure_ascii=False))
    else:
        click.echo(
            f"{done.batches:,} batches: {done.rows:,} rows in {done.files:,} files, {done.samples:,} samples"
            + (f"; {done.repeats:,} repeated" if done.repeats else "")
            + (f"; {done.set_aside:,} set aside" if done.set_aside else "")
            + (f"; {done.quarantined:,} rows quarantined" if done.quarantined else "")
        )
        for reason, points in sorted(done.refused.items()):
            click.echo(f"  {points:,} points have no series: {reason}")
    if stop.requested and not follow:
        raise SystemExit(stop.exit_code)


@telemetry.command()
@click.option("--store", default=STORE_DEFAULT, show_default=True, help="Directory or URL of the store.")
@json_option
@settings_option
def shards(store: str, as_json: bool, settings: Settings) -> None:
    """List the shards of telemetry with what waits in each.

    A new `[sharding] shards = N` in the configuration takes effect first. No data moves: new rows follow the new layout,
    and shards of earlier layouts are drained.
    """
    import asyncio

    from penstock.cli.inspection.shards import listed_shards
    from penstock.cli.terminal.tables import table_lines

    told = asyncio.run(listed_shards(store, settings))
    if as_json:
        click.echo(json.dumps(told))
        return
    layout = told["layout"]
    click.echo(f"version {told['version']}: {layout['shards']:,} shards by {layout['by']}")
    rows = [
        [str(one["shard"]), one["state"], f"{one['waiting']:,}", f"{one['next_sequence']:,}", one["queue"]]
        for one in told["shards"]
    ]
    names = ("shard", "state", "waiting", "next sequence", "queue")
    for line in table_lines(names, rows, right={"shard", "waiting", "next sequence"}):
        click.echo(line)
