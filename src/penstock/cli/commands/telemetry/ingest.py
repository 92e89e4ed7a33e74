"""`penstock ingest`: telemetry of a file or of standard input into a queue, or into a store at the edge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from penstock.cli.settings.long_running import long_running
from penstock.cli.settings.options import STORE_DEFAULT

if TYPE_CHECKING:
    from penstock.cli.settings.configuration import Settings
    from penstock.cli.settings.observing import Watching

__all__ = ["FORMATS", "ingest"]

FORMATS: Final = (
    "auto",
    "otlp-metrics",
    "otlp-logs",
    "otlp-traces",
    "remote-write",
    "remote-write-2",
    "openmetrics",
    "prometheus",
    "arrow",
    "parquet",
    "ndjson",
)


@click.command()
@click.argument("file", metavar="FILE")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="auto",
    show_default=True,
    help="Format of FILE; auto goes by its name. OTLP may be protobuf or JSON.",
)
@click.option("--table", default=None, help="Table of Arrow, Parquet or JSON rows: metrics, logs, traces or your own.")
@click.option("--tenant", default="default", show_default=True, help="Tenant that owns the rows.")
@click.option(
    "--store", default=None, help=f"Directory or URL of the store with the queue.  [default: {STORE_DEFAULT}]"
)
@click.option(
    "--quiver", default=None, type=click.Path(file_okay=False), help="Directory of a store at the edge instead."
)
@long_running
def ingest(
    file: str,
    form: str,
    table: str | None,
    tenant: str,
    store: str | None,
    quiver: str | None,
    settings: Settings,
    watching: Watching,
) -> None:
    """Send telemetry in a file to a queue or a store at the edge.

    FILE is - for standard input. The command returns when the rows are durable. A malformed file is rejected as a
    whole. Points, records and spans that cannot be kept are counted.
    """
    if store is not None and quiver is not None:
        raise click.UsageError("rows go to a queue or to a store at the edge: give --store or --quiver")
    from penstock.cli.jobs.ingesting import read_rows, send_to_queue, send_to_quiver
    from penstock.cli.terminal.input_file import read_input

    name, decoded = read_rows(file, read_input(file), form, table, tenant, settings)
    place = quiver or store or STORE_DEFAULT
    with watching.opened() as observer:
        if quiver is not None:
            send_to_quiver(quiver, name, decoded.batch, observer)
        else:
            send_to_queue(place, name, decoded.batch, settings, observer)
    click.echo(f"{decoded.batch.num_rows:,} rows of {name} are durable in {place}")
    if decoded.rejected:
        click.echo(f"{decoded.rejected:,} were rejected: {decoded.message}", err=True)
        raise SystemExit(1)
