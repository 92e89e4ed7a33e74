"""The command line: the one place that reads the environment, chooses doors and wires rooms together.

Every command prints for a person by default. An expected failure ends with what happened, why and
the remedy on three lines and exit code 1, never with a traceback.
"""

from __future__ import annotations

from importlib.metadata import version

import click
from rich.console import Console

from penstock.cli.demo import demo
from penstock.cli.demo_workers import consume, produce
from penstock.cli.doctor import doctor
from penstock.errors import PenstockError

__all__ = ["main", "penstock"]


class _Commands(click.Group):
    """Turns the project's own errors into an answer that a person can act on."""

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except PenstockError as error:
            _explain(error)
            context.exit(1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("penstock"), prog_name="penstock")
def penstock() -> None:
    """Durable, exactly-once ingest and indexing on object storage and Spark."""


for _command in (demo, doctor, produce, consume):
    penstock.add_command(_command)


def main() -> None:
    """The entry point of the `penstock` command."""
    penstock(prog_name="penstock")


def _explain(error: PenstockError) -> None:
    console = Console(stderr=True, highlight=False)
    console.print(f"[bold red]{type(error).__name__}[/]: {error.what}", soft_wrap=True)
    if error.why:
        console.print(f"  why:    {error.why}", soft_wrap=True, markup=False)
    if error.remedy:
        console.print(f"  remedy: {error.remedy}", soft_wrap=True, markup=False)
