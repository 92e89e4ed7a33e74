"""`penstock sql`: one SELECT over the tables of a catalog, on DuckDB in this process, or on Spark."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.settings.numbers import FiniteRange
from penstock.cli.settings.options import LAKE_PREFIX, STORE_DEFAULT, master_option, settings_option
from penstock.cli.terminal.terminal_text import terminal_text
from penstock.errors import Closed, InvalidInput, PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from penstock.cli.settings.configuration import Settings
    from penstock.lake import SqlAnswer

__all__ = ["sql"]

# Of one cell, for a person; `--json` has it whole.
_CELL_CHARACTERS_MAX: Final = 60
# As shells count it.
_INTERRUPTED: Final = 130


@click.command()
@click.argument("query", metavar="SELECT")
@click.option("--store", default=STORE_DEFAULT, show_default=True, help="Directory or URL of the store.")
@click.option("--prefix", default=LAKE_PREFIX, show_default=True, help="Prefix of the catalog below the store.")
@click.option("--tenant", default=None, help="Tenant whose rows are read.  [default: all]")
@click.option(
    "--as-of", "as_of", default=None, metavar="SEQUENCE", help="Sequence, or position as JSON, of an earlier state."
)
@click.option(
    "--engine", type=click.Choice(["duckdb", "spark"]), default="duckdb", show_default=True, help="Query engine."
)
@master_option
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=None,
    help="Maximum number of rows.  [default: from the settings, else 10,000]",
)
@click.option(
    "--seconds",
    type=FiniteRange(0, min_open=True),
    default=None,
    help="Time limit, in seconds.  [default: from the settings, else 60]",
)
@settings_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def sql(
    query: str,
    store: str,
    prefix: str | None,
    tenant: str | None,
    as_of: str | None,
    engine: str,
    master: str,
    rows: int | None,
    seconds: float | None,
    as_json: bool,
    settings: Settings,
) -> None:
    """Answer a SELECT over the tables of a catalog.

    Tables are metrics, logs, traces and every other table with data files. Conditions on the column `time` limit which
    files are read. The answer reflects one position of the catalog, which --json prints and --as-of takes.
    """
    import asyncio

    from penstock.lake import ProcessWatch, SqlConfig

    config = settings.of(SqlConfig, rows_max=rows, seconds_max=seconds)
    position = _position(as_of)
    if engine == "spark":
        from penstock.cli.jobs.spark_sql import answer_on_spark

        answer = answer_on_spark(query, store, prefix, tenant, position, config, master, settings)
    else:
        # This process answers one query: whatever that does, it ends within its bounds.
        with ProcessWatch(config, _end, seconds_max=config.seconds_max) as watch:
            answer = asyncio.run(
                _hurried(_answered(query, store, prefix, tenant, position, config, settings), watch.hurry)
            )
    if as_json:
        _print_json(answer)
    else:
        _print_table(answer)


def _end(excess: PenstockError) -> None:
    """End the command from a thread while another is in a call that cannot be interrupted."""
    from penstock.cli.terminal.explanation import explain

    explain(excess)
    sys.stderr.flush()
    os._exit(_INTERRUPTED if isinstance(excess, Closed) else 1)


async def _hurried(answering: Coroutine[Any, Any, SqlAnswer], hurry: Callable[[], None]) -> SqlAnswer:
    """The answer; `hurry` is called at once when it is given up, and not only when the query has ended."""
    import asyncio

    work = asyncio.ensure_future(answering)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        hurry()
        work.cancel()
        await asyncio.wait({work})
        raise


async def _answered(
    query: str, store: str, prefix: str | None, tenant: str | None, position: Any, config: Any, settings: Settings
) -> SqlAnswer:
    from penstock.catalog import Catalog, CatalogConfig
    from penstock.cli.settings.store_access import store_options
    from penstock.cli.settings.telemetry_place import catalog_place, signal_tables
    from penstock.lake import SqlEngine
    from penstock.objects import open_store

    url, place = catalog_place(store, prefix)
    # Only what has to be pinned is written: a question about the past, or one that may take long.
    catalog_config = settings.of(CatalogConfig)
    writes = position is not None or config.seconds_max > catalog_config.grace_seconds / 2
    opened = await open_store(url, read_only=not writes, **store_options(settings, url))
    try:
        async with await Catalog.open(opened, place, catalog_config) as catalog:
            async with SqlEngine(catalog, config, known=signal_tables()) as sql_engine:
                return await sql_engine.query(query, tenant=tenant, as_of=position)
    finally:
        await opened.close()


def _position(text: str | None) -> Any:
    if text is None:
        return None
    import msgspec

    from penstock.undecodable import UNDECODABLE

    try:
        return msgspec.json.decode(text, type=int | dict[str, int])
    except UNDECODABLE as error:
        raise InvalidInput(f"--as-of {text}", "it is neither a sequence nor a position as JSON") from error


def _print_json(answer: SqlAnswer) -> None:
    import msgspec

    from penstock.lake import answer_rows

    sys.stdout.buffer.write(
        msgspec.json.encode(
            {
                "columns": answer.table.column_names,
                "rows": answer_rows(answer.table),
                "is_cut": answer.is_cut,
                "position": answer.position,
                "files": answer.files,
                "plan_seconds": round(answer.plan_seconds, 6),
                "seconds": round(answer.seconds, 6),
            },
            enc_hook=str,
        )
        + b"\n"
    )


def _print_table(answer: SqlAnswer) -> None:
    import pyarrow.types as pat

    from penstock.cli.terminal.tables import table_lines
    from penstock.lake import answer_rows

    names = [terminal_text(name) for name in answer.table.column_names]
    numbers = {
        name
        for name, field in zip(names, answer.table.schema, strict=True)
        if pat.is_integer(field.type) or pat.is_floating(field.type) or pat.is_decimal(field.type)
    }
    cells = [[_cell(value) for value in row] for row in answer_rows(answer.table)]
    for line in table_lines(names, cells, right=numbers):
        click.echo(line)
    more = (
        f"first {answer.table.num_rows:,} rows, there are more" if answer.is_cut else f"{answer.table.num_rows:,} rows"
    )
    click.echo(f"({more}; {answer.files:,} files, {answer.seconds:.2f} s)", err=True)


def _cell(value: Any) -> str:
    text = terminal_text("" if value is None else str(value))
    return text if len(text) <= _CELL_CHARACTERS_MAX else text[: _CELL_CHARACTERS_MAX - 1] + "…"
