"""`penstock compact`: merge small data files into large ones, drop old ones, delete removed ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.settings.long_running import long_running
from penstock.cli.settings.options import LAKE_PREFIX, STORE_DEFAULT, master_option

if TYPE_CHECKING:
    from penstock.cli.settings.configuration import Settings
    from penstock.cli.settings.observing import Watching

__all__ = ["compact"]


@click.command()
@click.option("--store", default=STORE_DEFAULT, show_default=True, help="Directory or URL of the store.")
@click.option("--prefix", default=LAKE_PREFIX, show_default=True, help="Prefix of the catalog below the store.")
@click.option("--follow", is_flag=True, help="Keep merging until interrupted.")
@click.option("--upkeep", is_flag=True, help="Also apply retention and vacuum once; --follow does so regularly.")
@click.option(
    "--engine",
    type=click.Choice(["spark", "local"]),
    default="spark",
    show_default=True,
    help="What merges files: Spark, or this process alone.",
)
@master_option
@long_running
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compact(
    store: str,
    prefix: str | None,
    follow: bool,
    upkeep: bool,
    engine: str,
    master: str,
    as_json: bool,
    settings: Settings,
    watching: Watching,
) -> None:
    """Merge small data files of a catalog into large ones.

    Several of these may run at once, alongside ingest: files are leased, and each merge is one commit.
    """
    from penstock.cli.jobs.compacting import Compacting

    with watching.opened() as observer:
        told = Compacting(store, prefix, settings, observer, engine, master).run(follow=follow, upkeep=upkeep)
    click.echo(json.dumps(told) if as_json else _line(told))


def _line(told: dict[str, Any]) -> str:
    found = f"{told['merged']:,} merges: {told['files_before']:,} files became {told['files_after']:,}"
    found += f", {told['bytes_before']:,} bytes became {told['bytes_after']:,}"
    if told["failed"] or told["lost"]:
        found += f"; {told['failed']:,} failed, {told['lost']:,} were taken over"
    if (upkept := told.get("upkeep")) is not None:
        found += f"; {upkept['expired_files']:,} files expired, {upkept['deleted']:,} objects deleted"
    return found
