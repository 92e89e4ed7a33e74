"""`penstock timeseries`: ask a time-series store, look into it, fill it, and tidy it.

Only `import`, `consume`, `compact` and `repair` write: they take the fence, and a writer that runs elsewhere stops with an error
that says so. All others read beside a running writer, as its followers do, and see what is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.settings.long_running import long_running
from penstock.cli.settings.options import json_option, settings_option
from penstock.cli.settings.store_options import (
    confirm_writing,
    consume_options,
    end_repair,
    positions_option,
    print_consumed,
    store_argument,
    yes_option,
)

if TYPE_CHECKING:
    from penstock.cli.settings.configuration import Settings
    from penstock.cli.settings.observing import Watching

__all__ = ["TIMESERIES_PATH", "timeseries"]

# Where the telemetry job keeps its series.
TIMESERIES_PATH: Final = "telemetry/series"
FILE_FORMATS: Final = ("openmetrics", "parquet", "arrow")

_path_option = click.option(
    "--path", default=TIMESERIES_PATH, show_default=True, help="Path of the time series in the store."
)
_tenant_option = click.option("--tenant", default="default", show_default=True, help="Tenant that owns the series.")
_match_option = click.option(
    "--match",
    "selector",
    default=None,
    metavar="SELECTOR",
    help="Series selector, as PromQL writes it.  [default: all]",
)
_format_option = click.option(
    "--format",
    "file_format",
    type=click.Choice(FILE_FORMATS),
    default=None,
    help="File format.  [default: by the file's ending]",
)


def _range_options(start: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option("--end", default="now", show_default=True, metavar="TIME", help="End of the range."),
            click.option(
                "--start",
                default=start,
                show_default=True,
                metavar="TIME",
                help="Start of the range: -1h, seconds since 1970, or a date and time.",
            ),
        ):
            command = option(command)
        return command

    return decorate


@click.group()
def timeseries() -> None:
    """Query, inspect, fill or maintain a time-series store.

    STORE is a directory or a URL.
    """


@timeseries.command()
@store_argument
@click.argument("expression")
@click.option("--time", "at", default="now", show_default=True, metavar="TIME", help="Time of the query.")
@_tenant_option
@_path_option
@json_option
@settings_option
def query(store: str, expression: str, at: str, tenant: str, path: str, as_json: bool, settings: Settings) -> None:
    """Evaluate a PromQL expression at one time."""
    from penstock.cli.inspection.timeseries_reading import SeriesQueries

    SeriesQueries(settings, store, path, tenant).query(expression, at, as_json=as_json)


@timeseries.command("range")
@store_argument
@click.argument("expression")
@_range_options("-1h")
@click.option("--step", default=None, metavar="DURATION", help="Step of the query.  [default: 240 steps]")
@click.option("--plot/--no-plot", default=True, show_default=True, help="Plot above the table, on a terminal.")
@_tenant_option
@_path_option
@json_option
@settings_option
def range_(
    store: str,
    expression: str,
    start: str,
    end: str,
    step: str | None,
    plot: bool,
    tenant: str,
    path: str,
    as_json: bool,
    settings: Settings,
) -> None:
    """Evaluate a PromQL expression over a range of time, and plot it."""
    from penstock.cli.inspection.timeseries_reading import SeriesQueries

    queries = SeriesQueries(settings, store, path, tenant)
    queries.query_range(expression, start, end, step, plot=plot, as_json=as_json)


@timeseries.command()
@store_argument
@_match_option
@_range_options("-1h")
@_tenant_option
@_path_option
@json_option
@settings_option
def series(
    store: str, selector: str | None, start: str, end: str, tenant: str, path: str, as_json: bool, settings: Settings
) -> None:
    """List series by their labels."""
    from penstock.cli.inspection.timeseries_reading import SeriesQueries

    SeriesQueries(settings, store, path, tenant).series(selector, start, end, as_json=as_json)


@timeseries.command()
@store_argument
@click.argument("name", required=False)
@_match_option
@_range_options("-1h")
@_tenant_option
@_path_option
@json_option
@settings_option
def labels(
    store: str,
    name: str | None,
    selector: str | None,
    start: str,
    end: str,
    tenant: str,
    path: str,
    as_json: bool,
    settings: Settings,
) -> None:
    """List the names of labels, or the values of one."""
    from penstock.cli.inspection.timeseries_reading import SeriesQueries

    SeriesQueries(settings, store, path, tenant).labels(name, selector, start, end, as_json=as_json)


@timeseries.command()
@store_argument
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Entries of each list.")
@_path_option
@json_option
@settings_option
def stats(store: str, top: int, path: str, as_json: bool, settings: Settings) -> None:
    """Show size, cardinality and the largest series."""
    from penstock.cli.inspection.timeseries import show_stats

    show_stats(settings, store, path, top, as_json=as_json)


@timeseries.command()
@store_argument
@_path_option
@long_running
def verify(store: str, path: str, settings: Settings, watching: Watching) -> None:
    """Read everything and report inconsistencies.

    The exit code is 1 if anything is wrong.
    """
    from penstock.cli.inspection.timeseries import show_verification

    with watching.opened() as observer:
        is_sound = show_verification(settings, store, path, observer)
    if not is_sound:
        raise SystemExit(1)


@timeseries.command("export")
@store_argument
@click.argument("file", type=click.Path(dir_okay=False, writable=True, allow_dash=True))
@_match_option
@_range_options("-1h")
@_format_option
@_tenant_option
@_path_option
@long_running
def export_(
    store: str,
    file: str,
    selector: str | None,
    start: str,
    end: str,
    file_format: str | None,
    tenant: str,
    path: str,
    settings: Settings,
    watching: Watching,
) -> None:
    """Write samples to a file: OpenMetrics text, Parquet or Arrow.

    FILE may be - for OpenMetrics on standard output.
    """
    from penstock.cli.inspection.timeseries_files import export_samples

    place = (store, path, tenant)
    with watching.opened() as observer:
        count, samples = export_samples(settings, place, file, file_format, selector, start, end, observer)
    click.echo(f"{samples:,} samples of {count:,} series", err=True)


@timeseries.command("import")
@store_argument
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@_format_option
@click.option("--time", "at", default="now", show_default=True, metavar="TIME", help="Time of samples without one.")
@_tenant_option
@_path_option
@long_running
def import_(
    store: str,
    files: tuple[str, ...],
    file_format: str | None,
    at: str,
    tenant: str,
    path: str,
    settings: Settings,
    watching: Watching,
) -> None:
    """Read samples from files: OpenMetrics text, Parquet or Arrow.

    All files are read before anything is written. A file may be imported again: a sample of the same series and time
    replaces the earlier one. The store does not keep exemplars: they are counted and left out.
    """
    from penstock.cli.inspection.timeseries_files import import_samples

    with watching.opened() as observer:
        imported = import_samples(settings, observer, (store, path, tenant), files, file_format, at)
    for one in imported:
        left_out = f" ({one.exemplars:,} exemplars left out: the store keeps samples)" if one.exemplars else ""
        click.echo(f"{one.file}: {one.samples:,} samples{left_out}")


@timeseries.command()
@store_argument
@consume_options
@_path_option
@long_running
def consume(
    store: str, queue: str, source: str | None, follow: bool, path: str, settings: Settings, watching: Watching
) -> None:
    """Store the samples of a queue, each exactly once.

    Records that are not samples are set aside next to the queue. Any other consumer of the queue and any other writer
    of the store is stopped.
    """
    from penstock.cli.jobs.consuming import consume_samples

    with watching.opened(warns=True) as observer:
        position, rejected = consume_samples(settings, observer, (store, path), queue, source, follow=follow)
    print_consumed(position, rejected)


@timeseries.command()
@store_argument
@_path_option
@yes_option
@long_running
def compact(store: str, path: str, yes: bool, settings: Settings, watching: Watching) -> None:
    """Merge the samples of every hour into one sorted run."""
    confirm_writing(yes)
    from penstock.cli.inspection.timeseries_files import compact_series

    with watching.opened() as observer:
        tenants = compact_series(settings, observer, store, path)
    for tenant in tenants:
        click.echo(f"{tenant}: folded")
    if not tenants:
        click.echo("There is no tenant yet.")


@timeseries.command()
@store_argument
@positions_option
@_path_option
@yes_option
@long_running
def repair(
    store: str, positions: dict[str, int | None], path: str, yes: bool, settings: Settings, watching: Watching
) -> None:
    """Rebuild damaged records of tenants.

    The exit code is 1 if anything could not be repaired. Damaged blocks cannot be rebuilt: `verify` names their hours.
    """
    confirm_writing(yes)
    from penstock.cli.inspection.timeseries_files import repair_records

    with watching.opened() as observer:
        reports = repair_records(settings, observer, store, path, positions)
    for report in reports:
        click.echo(f"{report.what} {report.outcome}" if report.repaired else f"{report.what} is left: {report.outcome}")
    end_repair([report.repaired for report in reports])
