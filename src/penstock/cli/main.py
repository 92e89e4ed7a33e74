"""The command line: the one place that reads the environment, chooses doors and wires rooms together.

Every command prints for a person by default. An expected failure ends with what happened, why and the remedy on three
lines and exit code 1, never with a traceback. A command's module is imported when the command is named, and what it
works with when it works: help and wrong options are answered before any room is loaded.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, cast

import click

from penstock.cli.running.interrupted_import import end_during_imports
from penstock.cli.terminal.explanation import explain, system_refusal
from penstock.cli.terminal.extras import explain_missing
from penstock.errors import BudgetSpent, PenstockError

if TYPE_CHECKING:
    # Loading it takes 20 ms, and a finder needs to be no more than an object with this one method.
    from importlib.abc import MetaPathFinder

__all__ = ["main", "penstock"]


class _Entry(NamedTuple):
    """Where a command is, and what it does, in one line."""

    module: str
    attribute: str
    help: str


# A map of the house: what works on documents, what works on one room's data, what is about this machine.
_SECTIONS: Final = {
    "Everything": {
        "serve": _Entry(
            "commands.gateway.serve", "serve", "Run the gateway, the jobs and the queries until interrupted."
        ),
        "init": _Entry("commands.gateway.config", "init", "Write a commented configuration with every setting."),
        "check-config": _Entry(
            "commands.gateway.config", "check_config", "Validate the configuration and what it names."
        ),
        "token": _Entry("commands.gateway.token", "token", "Create, list and revoke the tokens of a gateway."),
    },
    "Documents": {
        "index": _Entry("commands.documents.index", "index", "Make files, folders and buckets searchable."),
        "search": _Entry("commands.documents.search", "search", "Find the passages that best answer a question."),
        "documents": _Entry(
            "commands.documents.documents", "documents", "List, count, retry and forget documents, with their status."
        ),
        "mcp": _Entry("commands.documents.mcp", "mcp", "Serve search to language models over MCP, on standard input."),
        "notify": _Entry("commands.documents.notify", "notify", "Queue the notifications of an object store."),
        "reindex": _Entry(
            "commands.documents.reindex", "reindex", "Rebuild an index with another model or chunk size."
        ),
    },
    "Telemetry": {
        "ingest": _Entry(
            "commands.telemetry.ingest", "ingest", "Send telemetry in a file to a queue or a store at the edge."
        ),
        "telemetry": _Entry(
            "commands.telemetry.telemetry", "telemetry", "Land queued telemetry in data files and time series."
        ),
        "sql": _Entry("commands.telemetry.sql", "sql", "Answer a SELECT over the tables of a catalog."),
        "compact": _Entry(
            "commands.telemetry.compact", "compact", "Merge small data files of a catalog into large ones."
        ),
    },
    "Stores": {
        "quiver": _Entry(
            "commands.stores.quiver", "quiver", "Inspect, verify, query, repair or drain a store at the edge."
        ),
        "relay": _Entry("commands.stores.relay", "relay", "Send stored telemetry to a queue, files or a collector."),
        "buffer": _Entry(
            "commands.stores.buffer", "buffer", "Inspect, verify, replay or clean up a queue on object storage."
        ),
        "catalog": _Entry(
            "commands.stores.catalog", "catalog", "Inspect, migrate, split or vacuum a catalog of data files."
        ),
        "timeseries": _Entry(
            "commands.stores.timeseries", "timeseries", "Query, inspect, fill or maintain a time-series store."
        ),
        "vector": _Entry("commands.stores.vector", "vector", "Inspect, verify, compact or repair a vector store."),
    },
    "This machine": {
        "doctor": _Entry(
            "commands.machine.doctor", "doctor", "Check Python, Java, libraries, the sandboxes, and a store."
        ),
        "demo": _Entry("commands.machine.demo", "demo", "Run and kill real processes, and count what arrived."),
    },
}
# Started by the demo and by `serve`, for their own processes.
_HIDDEN: Final = {
    "demo-consume": _Entry("demonstration.workers", "consume", ""),
    "demo-produce": _Entry("demonstration.workers", "produce", ""),
    "sql-worker": _Entry("commands.gateway.sql_worker", "sql_worker", ""),
}
_COMMANDS: Final = {name: entry for section in (*_SECTIONS.values(), _HIDDEN) for name, entry in section.items()}
_ON_SPARK: Final = frozenset({"compact", "demo", "index", "reindex", "sql", "telemetry"})
# Those of them that run without it when asked to.
_ON_EITHER: Final = frozenset({"index", "reindex"})
_INTERRUPTED: Final = 130

# A run that stopped at its budget: neither done nor failed, and worth starting again.
_BUDGET_SPENT: Final = 3


class _Commands(click.Group):
    """Finds commands by name, and turns the project's own errors into an answer that a person can act on."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        entry = _COMMANDS[name]
        command = getattr(import_module(f"penstock.cli.{entry.module}"), entry.attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table: click would import every command for its line."""
        width = max(len(name) for section in _SECTIONS.values() for name in section)
        for title, section in _SECTIONS.items():
            with formatter.section(title):
                # One column in all sections.
                formatter.write_dl([(name.ljust(width), entry.help) for name, entry in section.items()])

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS and not args[0].startswith("-"):
            # click looks for near names among the commands it holds, and here they are not loaded yet.
            raise click.exceptions.NoSuchCommand(args[0], possibilities=_COMMANDS, ctx=context)
        return super().resolve_command(context, args)

    def invoke(self, context: click.Context) -> object:
        try:
            return self._explained(context)
        except KeyboardInterrupt:
            # As shells count it. Commands that have something to end hear of it in another way: `running.py`.
            context.exit(_INTERRUPTED)

    def _explained(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except PenstockError as error:
            explain(error)
            context.exit(_BUDGET_SPENT if isinstance(error, BudgetSpent) else 1)
        except SystemExit as error:
            # As rich ends a program that nobody reads.
            if isinstance(error.__context__, BrokenPipeError):
                _read_enough(context)
            raise
        except ModuleNotFoundError as error:
            missing = explain_missing(error)
            if missing is None:
                raise
            explain(missing)
            context.exit(1)
        except OSError as error:
            from errno import EPIPE

            if error.errno == EPIPE:
                _read_enough(context)
            explain(system_refusal(error))
            context.exit(1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="penstock", prog_name="penstock")
def penstock() -> None:
    """Durable, exactly-once ingest and indexing on object storage and Spark."""


def main() -> None:
    """The entry point of the `penstock` command."""
    if os.environ.get("PENSTOCK_SUPERVISED"):
        from penstock.cli.serving.supervisor import end_with_parent

        end_with_parent(os.environ)
    if not _may_start_spark(sys.argv):
        sys.meta_path.insert(0, cast("MetaPathFinder", _WithoutPandas()))
    if _is_local_job(sys.argv):
        # Arrow's own pool keeps what was freed, and a job's memory is for its rounds. Read when Arrow is loaded.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    leaving = _Leaving()
    end_during_imports()
    try:
        penstock(prog_name="penstock")
    except SystemExit as ended:
        leaving.code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise


class _Leaving:
    """Ends the process after everything else that is due at its end, without taking Python apart.

    Threads of the native libraries run on until the very end. One that comes to call Python when that is half gone
    aborts the process, and a command that has done its work would end with the code of a crash.
    """

    def __init__(self) -> None:
        # Of an error that nobody has caught.
        self.code = 1
        # What is registered first is called last.
        atexit.register(self._leave)

    def _leave(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(self.code)


class _WithoutPandas:
    """Keeps pandas out of a process that has no use for it.

    pyarrow imports it, where it is installed, with the first array that it makes of Python objects: a third of a second
    of every search, and 40 MB.
    """

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("only commands that may start Spark load pandas", name=name)


def _may_start_spark(arguments: list[str]) -> bool:
    return _command(arguments) in _ON_SPARK and not _is_local_job(arguments)


def _is_local_job(arguments: list[str]) -> bool:
    """Whether documents are read and embedded by this process alone."""
    if _command(arguments) not in _ON_EITHER:
        return False
    joined = [each for each in arguments if each.startswith("--engine=")]
    apart = [f"{name}={value}" for name, value in pairwise(arguments) if name == "--engine"]
    return bool(joined or apart) and {*joined, *apart} == {"--engine=local"}


def _command(arguments: list[str]) -> str | None:
    return next((each for each in arguments[1:] if each in _COMMANDS), None)


def _read_enough(context: click.Context) -> NoReturn:
    """Whoever reads has read enough, as `head` has: that is no failure, and what is left is written nowhere."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
    except OSError:
        # A confined process may write to no file; and its interpreter would complain of what it cannot flush.
        os._exit(0)
    os.dup2(nowhere, sys.stdout.fileno())
    context.exit(0)
