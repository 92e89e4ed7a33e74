"""The options of commands on one store: which one, and what asks before it stops a running writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import click

__all__ = [
    "confirm_writing",
    "consume_options",
    "end_repair",
    "positions_option",
    "print_consumed",
    "store_argument",
    "yes_option",
]

_WRITER_IS_STOPPED: Final = "Only one process may write: a running writer will be stopped. Continue?"

store_argument: Final = click.argument("store", metavar="STORE")
yes_option: Final = click.option("--yes", is_flag=True, help="Do not ask whether a running writer may be stopped.")


def confirm_writing(yes: bool) -> None:
    """Ask before the fence is taken from another process."""
    if not yes:
        click.confirm(_WRITER_IS_STOPPED, abort=True)


def consume_options(command: Callable[..., Any]) -> Any:
    """`--queue`, `--source` and `--follow`."""
    for option in (
        click.option("--follow", is_flag=True, help="Continue until interrupted, instead of until the queue is empty."),
        click.option(
            "--source", default=None, metavar="NAME", help="Name of the queue in the store.  [default: its URL]"
        ),
        click.option("--queue", required=True, metavar="URL", help="Directory or URL of the queue."),
    ):
        command = option(command)
    return command


def print_consumed(position: int | None, rejected: int) -> None:
    """What a consumer has stored and set aside."""
    click.echo(f"stored through sequence {position}" if position is not None else "nothing was stored yet")
    if rejected:
        click.echo(f"{rejected:,} records were set aside", err=True)


def end_repair(repaired: Sequence[bool]) -> None:
    """Say when nothing was damaged; the exit code is 1 if anything could not be repaired."""
    if not repaired:
        click.echo("Nothing is damaged.")
    if not all(repaired):
        raise SystemExit(1)


def positions_option(command: Callable[..., Any]) -> Any:
    """`--position SOURCE=NUMBER`; the command gets `positions`, by source."""
    return click.option(
        "--position",
        "positions",
        multiple=True,
        metavar="SOURCE=NUMBER",
        callback=_positions,
        help="Position of a source whose own cannot be read; `none` starts it from the beginning. Repeatable.",
    )(command)


def _positions(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, int | None]:
    return dict(map(_position, values))


def _position(text: str) -> tuple[str, int | None]:
    source, _, number = text.rpartition("=")
    if not source or not (number == "none" or number.isdecimal()):
        raise click.BadParameter("name a source and its position, as in source=41, or source=none")
    return source, None if number == "none" else int(number)
