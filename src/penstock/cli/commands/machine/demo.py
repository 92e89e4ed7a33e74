"""`penstock demo`: the path of a record and of a document on this machine, with real processes and real kills.

First the queue (`demo_queue.py`), then telemetry goes in and PromQL and SQL answer (`demo_telemetry.py`), then documents
go in and search comes out (`demo_documents.py`). It exits with 1 if anything is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click

from penstock.errors import DeadlineExceeded, InvalidInput, PenstockError

__all__ = ["demo"]


@click.command()
@click.option("--directory", type=click.Path(path_type=Path), help="New directory to keep the data in.")
@click.option(
    "--records", type=click.IntRange(1000), default=15_000, show_default=True, help="Number of records per producer."
)
def demo(directory: Path | None, records: int) -> None:
    """Run and kill real processes, and count what arrived."""
    if directory is not None:
        _make_new(directory)
    with _temporary_directory() if directory is None else nullcontext(directory.resolve()) as place:
        if not _play(place, records):
            raise SystemExit(1)


@contextmanager
def _temporary_directory() -> Iterator[Path]:
    """Stays after a failure: errors name files in it."""
    from shutil import rmtree
    from tempfile import mkdtemp

    directory = Path(mkdtemp(prefix="penstock-demo-"))
    try:
        yield directory
    except (PenstockError, SystemExit):
        click.echo(f"The demo failed; its data stays in {directory}", err=True)
        raise
    except BaseException:
        rmtree(directory, ignore_errors=True)
        raise
    rmtree(directory, ignore_errors=True)


def _play(directory: Path, records: int) -> bool:
    from subprocess import TimeoutExpired

    from rich.console import Console

    from penstock.cli.demonstration.documents import DocumentsAct
    from penstock.cli.demonstration.queue import QueueAct
    from penstock.cli.demonstration.telemetry import TelemetryAct

    console = Console(emoji=False, highlight=False, soft_wrap=True)
    acts = (
        QueueAct(directory, records, console).run,
        TelemetryAct(directory, console).play,
        DocumentsAct(directory, console).play,
    )
    try:
        return all(act() for act in acts)
    except TimeoutExpired as error:
        command = " ".join(map(str, error.cmd)) if isinstance(error.cmd, list | tuple) else str(error.cmd)
        raise DeadlineExceeded(
            "a step of the demo did not end",
            f"it took longer than {error.timeout:g} s: {command}",
            "run it again when the machine has less to do; `penstock doctor` names what is missing",
        ) from None


def _make_new(directory: Path) -> None:
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        raise InvalidInput(f"{directory} cannot hold the demo", "it already exists", "name a new directory") from None
