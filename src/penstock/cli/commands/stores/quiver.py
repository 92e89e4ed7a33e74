"""`penstock quiver`: look at a store at the edge, check it, query it, repair it, and move what waits in it.

`repair`, `replay` and `drain` open the store and refuse while another process has it; all others only read, beside a
running writer too, and see what is durable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import click

from penstock.cli.settings.options import json_option
from penstock.cli.terminal.terminal_text import terminal_text

__all__ = ["quiver"]

_UNITS: Final = ("B", "KB", "MB", "GB", "TB")
_path_argument = click.argument("path", metavar="PATH", type=click.Path(exists=True, file_okay=False))
_instance_option = click.option(
    "--instance", type=click.IntRange(min=0), default=0, show_default=True, help="Number of the instance."
)
_config_option = click.option(
    "--config", "config_file", type=click.Path(exists=True, dir_okay=False), help="YAML file with the store's settings."
)


@click.group()
def quiver() -> None:
    """Inspect, verify, query, repair or drain a store at the edge.

    PATH is the directory of the store.
    """


@quiver.command()
@_path_argument
@json_option
def status(path: str, as_json: bool) -> None:
    """Show segments, log and subscribers of every instance."""
    from penstock.cli.inspection.quiver import status_of

    found = status_of(path)
    if as_json:
        _print_json(found)
        return
    for each in found:
        click.echo(
            f"instance {each['instance']}: {each['segments']} segments, {_size(each['segment_bytes'])}; "
            f"{each['log_bundles']} bundles in the log only; next segment {each['next_segment_seq']}"
        )
        for name, one in each["subscribers"].items():
            state = "" if one["active"] else ", inactive"
            click.echo(
                f"  {name}: through segment {one['mark']}, {one['waiting']} waiting, "
                f"{one['gaps']} acknowledged above, {one['dead_letters']} dead letters{state}"
            )


@quiver.command()
@_path_argument
@json_option
def inspect(path: str, as_json: bool) -> None:
    """List the segments, and the subscribers they wait for."""
    from penstock.cli.inspection.quiver import segments_of
    from penstock.cli.terminal.tables import table_lines

    found = segments_of(path)
    if as_json:
        _print_json(found)
        return
    headings = ("instance", "segment", "bundles", "rows", "size", "ingested", "slots", "waits for")
    rows = [
        (
            str(each["instance"]),
            str(each["segment_seq"]),
            str(each["bundles"]),
            str(each["rows"]),
            _size(each["bytes"]),
            each["ingested"],
            ", ".join(each["slots"]),
            ", ".join(each["waits_for"]) or "–",
        )
        for each in found
    ]
    for line in table_lines(headings, rows, right=("segment", "bundles", "rows", "size")):
        click.echo(line)


@quiver.command()
@_path_argument
@json_option
def verify(path: str, as_json: bool) -> None:
    """Read everything and report damage.

    The exit code is 1 if anything is wrong.
    """
    from penstock.cli.inspection.quiver import damage_of

    found = damage_of(path)
    if as_json:
        _print_json([{"instance": instance, "damage": lines} for instance, lines in found.items()])
    else:
        for instance, lines in found.items():
            click.echo(f"instance {instance}: {'sound' if not lines else ''}".rstrip())
            for line in lines:
                click.echo(terminal_text(f"  {line}"))
    if any(found.values()):
        raise SystemExit(1)


@quiver.command()
@_path_argument
@_instance_option
@_config_option
@json_option
def repair(path: str, instance: int, config_file: str | None, as_json: bool) -> None:
    """Set aside unreadable data, and rewrite the rest."""
    from penstock.cli.inspection.quiver import repair_store

    found = repair_store(path, instance, config_file)
    if as_json:
        _print_json([found])
        return
    click.echo(f"{found['replayed_bundles']} bundles of the log are in segments now")
    for first, end in found["lost_bundles"]:
        click.echo(f"lost: bundles {first} to {end - 1}")
    for number in found["lost_segments"]:
        click.echo(f"lost: segment {number}")
    for place in found["set_aside"]:
        click.echo(terminal_text(f"set aside: {place}"))


@quiver.command()
@_path_argument
@click.argument("subscriber")
@click.option(
    "--from", "first", type=click.IntRange(min=1), default=None, help="First segment.  [default: dead letters only]"
)
@_instance_option
@_config_option
@json_option
def replay(
    path: str, subscriber: str, first: int | None, instance: int, config_file: str | None, as_json: bool
) -> None:
    """Deliver dead letters or old segments to SUBSCRIBER again.

    Without --from, its dead letters; with it, every segment from that one on.
    """
    from penstock.cli.inspection.quiver import replay_segments

    found = replay_segments(path, subscriber, first, instance, config_file)
    if as_json:
        _print_json([{"subscriber": subscriber, "segments": found}])
    else:
        click.echo(f"{len(found)} segments wait for {subscriber} again")


@quiver.command()
@_path_argument
@click.argument("subscriber")
@click.option("--into", type=click.Path(file_okay=False), required=True, help="Folder for the Arrow files.")
@_instance_option
@_config_option
@json_option
def drain(path: str, subscriber: str, into: str, instance: int, config_file: str | None, as_json: bool) -> None:
    """Copy undelivered bundles to a folder and acknowledge them.

    The bundles that SUBSCRIBER has not acknowledged are written as Arrow files.
    """
    from penstock.cli.inspection.quiver import drain_segments

    found = drain_segments(path, subscriber, into, instance, config_file)
    if as_json:
        _print_json([{"subscriber": subscriber, "files": found}])
    else:
        click.echo(f"{len(found)} files in {into}")


@quiver.command()
@_path_argument
@click.argument("sql")
@json_option
def query(path: str, sql: str, as_json: bool) -> None:
    """Run SQL over the stored bundles; every slot is a table.

    Includes the rows of segments and of the log, of all instances.
    """
    import msgspec

    from penstock.cli.inspection.quiver_query import query_rows
    from penstock.cli.terminal.tables import table_lines

    with query_rows(path, sql) as (columns, rows):
        if as_json:
            # Cells of any type: bytes in base64, and null for a number that JSON does not have.
            for row in rows:
                click.echo(msgspec.json.encode(dict(zip(columns, row, strict=True)), enc_hook=str))
            return
        # All at once: widths are those of the longest.
        for line in table_lines(columns, [["" if cell is None else str(cell) for cell in row] for row in rows]):
            click.echo(line)


def _print_json(found: Iterable[Any]) -> None:
    """One object a line."""
    for each in found:
        click.echo(json.dumps(each, default=str))


def _size(size: float) -> str:
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
