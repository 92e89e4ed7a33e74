"""The house rules that no single room can check: layers, public lists, and that nothing is undocumented."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock import errors
from penstock.observability import names

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "penstock"
OPERATING = (ROOT / "docs" / "operating.md").read_text()
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
ROOMS = sorted(module.name for module in pkgutil.iter_modules([str(SOURCE)]))
# Public classes whose fields an operator may set.
SETTING_CLASS = re.compile(r"^[A-Z].*(Config|Policy|Limits|Options)$")


def test_a_room_imports_only_from_layers_below() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    answer = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout


def test_every_room_but_pipelines_is_forbidden_to_import_pyspark_and_none_imports_the_doubles() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    forbidding = {
        contract["name"]: set(contract["source_modules"]) for contract in contracts if contract["type"] == "forbidden"
    }
    packages = {f"penstock.{room}" for room in ROOMS if (SOURCE / room).is_dir()} - {"penstock.testing"}
    assert forbidding["No room imports the test doubles"] == packages
    assert forbidding["Only pipelines imports pyspark"] == packages - {"penstock.pipelines"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_its_line_in_the_architecture(room: str) -> None:
    assert f"`{room}`" in ARCHITECTURE


@pytest.mark.parametrize("room", ROOMS)
def test_a_rooms_public_list_is_the_one_in_the_reference(room: str) -> None:
    """docs/reference.md is the written list: a heading per room, its names in code marks below."""
    module = importlib.import_module(f"penstock.{room}")
    section = re.search(rf"^## `penstock\.{room}`$(.*?)(?=^## |\Z)", REFERENCE, re.MULTILINE | re.DOTALL)
    assert section, f"docs/reference.md has no section for penstock.{room}"
    written = re.findall(r"^- `(\w+)`", section.group(1), re.MULTILINE)
    assert written == sorted(module.__all__, key=str.lower)
    assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_explained_to_operators(name: str) -> None:
    assert f"`{name}`" in OPERATING


@pytest.mark.parametrize("name", [*names.METRICS, *names.EVENTS, *names.SPANS])
def test_every_metric_event_and_span_is_explained_to_operators(name: str) -> None:
    assert f"`{name}`" in OPERATING


def test_every_name_in_the_table_is_emitted_somewhere() -> None:
    constants = {
        key for key, value in vars(names).items() if isinstance(value, names.Metric | names.Event | names.Span)
    }
    text = "\n".join(path.read_text() for path in SOURCE.rglob("*.py") if path.name != "names.py")
    assert sorted(key for key in constants if not re.search(rf"\b{key}\b", text)) == []


def _settings() -> Iterator[tuple[str, str]]:
    for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if module.name.startswith("penstock.testing") or module.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, type) and value.__module__ == module.name and SETTING_CLASS.search(name):
                if dataclasses.is_dataclass(value):
                    yield from (
                        (name, field.name) for field in dataclasses.fields(value) if not field.name.startswith("_")
                    )
                elif issubclass(value, msgspec.Struct):
                    yield from ((name, field.name) for field in msgspec.structs.fields(value))


@pytest.mark.parametrize(("owner", "setting"), sorted(_settings()))
def test_every_setting_is_explained_to_operators(owner: str, setting: str) -> None:
    section = re.search(rf"^### `{owner}`$(.*?)(?=^##|\Z)", OPERATING, re.MULTILINE | re.DOTALL)
    assert section, f"docs/operating.md has no section for {owner}"
    assert f"`{setting}`" in section.group(1)


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_opens_with_what_it_promises(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no opening sentence"


def test_the_project_names_no_machine_and_no_registry() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    forbidden = re.compile(
        "|".join(["/wo" + "rk/", "/ro" + "ot/", "pypi" + r"\.org", "pythonho" + "sted", "registry.npm" + "js"])
    )
    guilty = [
        name
        for name in tracked
        if (ROOT / name).is_file() and forbidden.search((ROOT / name).read_bytes().decode("utf-8", "ignore"))
    ]
    assert guilty == []
