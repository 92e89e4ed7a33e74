"""The command line: the one place that reads the environment, chooses doors and wires rooms together.

Every command prints for a person by default. An expected failure ends with what happened, why and
the remedy on three lines and exit code 1, never with a traceback. A command's room is imported when
the command is used, so that `penstock --help` does not wait for Spark.
"""

from __future__ import annotations

import os
import sys
from errno import EPIPE
from importlib import import_module
from importlib.metadata import version
from typing import Final, NoReturn

import click
from rich.console import Console

from penstock.cli.plain import plain
from penstock.errors import PenstockError

__all__ = ["main", "penstock"]

# Where each command lives: the module, and its name there.
_COMMANDS: Final = {
    "buffer": ("penstock.cli.buffer", "buffer"),
    "demo": ("penstock.cli.demo", "demo"),
    "demo-consume": ("penstock.cli.demo_workers", "consume"),
    "demo-produce": ("penstock.cli.demo_workers", "produce"),
    "doctor": ("penstock.cli.doctor", "doctor"),
    "documents": ("penstock.cli.documents", "documents"),
    "index": ("penstock.cli.index", "index"),
    "notify": ("penstock.cli.notify", "notify"),
    "reindex": ("penstock.cli.reindex", "reindex"),
    "search": ("penstock.cli.search", "search"),
    "vector": ("penstock.cli.vector", "vector"),
}
_INTERRUPTED: Final = 130


class _Commands(click.Group):
    """Finds commands by name, and turns the project's own errors into an answer that a person can act on."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[name]
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS and not args[0].startswith("-"):
            # click looks for near names among the commands it holds, and here they are not loaded yet.
            raise click.exceptions.NoSuchCommand(args[0], possibilities=_COMMANDS, ctx=context)
        return super().resolve_command(context, args)

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except PenstockError as error:
            _explain(error)
            context.exit(1)
        except KeyboardInterrupt:
            # As shells count it. Commands that have something to end hear of it in another way: `running.py`.
            context.exit(_INTERRUPTED)
        except SystemExit as error:
            # As rich ends a program that nobody reads.
            if isinstance(error.__context__, BrokenPipeError):
                _read_enough(context)
            raise
        except OSError as error:
            if error.errno == EPIPE:
                _read_enough(context)
            _explain(PenstockError(str(error.filename or "the system refused"), error.strerror or str(error)))
            context.exit(1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("penstock"), prog_name="penstock")
def penstock() -> None:
    """Durable, exactly-once ingest and indexing on object storage and Spark."""


def main() -> None:
    """The entry point of the `penstock` command."""
    penstock(prog_name="penstock")


def _read_enough(context: click.Context) -> NoReturn:
    """Whoever reads has read enough, as `head` has: that is no failure, and what is left is written nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    context.exit(0)


def _explain(error: PenstockError) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"[bold red]{type(error).__name__}[/]: ", end="")
    console.print(plain(error.what), markup=False)
    if error.why:
        console.print(f"  why:    {plain(error.why)}", markup=False)
    if error.remedy:
        console.print(f"  remedy: {plain(error.remedy)}", markup=False)
