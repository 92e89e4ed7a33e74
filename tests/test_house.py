"""The house rules that no single room can check: layers, public lists, and that nothing is undocumented."""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import click
import msgspec
import pytest
from tools.reference import page, sentences

import penstock
from penstock import errors
from penstock.cli import penstock as command_line
from penstock.cli.settings.sections import SECTIONS, WITHOUT_SECTION, class_of, fields_of, is_section
from penstock.observability import names

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "penstock"
OPERATING = (ROOT / "docs" / "operating.md").read_text()
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
ROOMS = sorted(module.name for module in pkgutil.iter_modules([str(SOURCE)]))
# Public classes whose fields an operator may set.
SETTING_CLASS = re.compile(r"^[A-Z].*(Config|Policy|Limits|Options)$")


@pytest.mark.processes
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
    assert all(_is_offered(module, name) for name in module.__all__)


def _is_offered(module: ModuleType, name: str) -> bool:
    try:
        return hasattr(module, name)
    except ModuleNotFoundError as missing:
        # A name that needs a framework which is not installed here; one of our own modules is never missing.
        return not (missing.name or "penstock").startswith("penstock")


def test_the_page_of_public_names_is_what_the_code_says_of_them() -> None:
    assert page(sentences(REFERENCE)) == REFERENCE, "run `make reference`"


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_explained_to_operators(name: str) -> None:
    assert f"`{name}`" in OPERATING


def test_every_metric_event_and_span_is_explained_to_operators() -> None:
    assert [name for name in [*names.METRICS, *names.EVENTS, *names.SPANS] if f"`{name}`" not in OPERATING] == []


def test_every_name_in_the_table_is_emitted_somewhere() -> None:
    constants = {
        key for key, value in vars(names).items() if isinstance(value, names.Metric | names.Event | names.Span)
    }
    words: set[str] = set()
    for path in _modules():
        if path.name != "names.py":
            words |= set(re.findall(r"\w+", path.read_text()))
    assert sorted(constants - words) == []


def _tables(kind: type) -> Iterator[type]:
    """The classes of the tables inside a section, at any depth."""
    for hint in fields_of(kind).values():
        if is_section(hint):
            yield hint
            yield from _tables(hint)


def _setting_classes() -> Iterator[type]:
    """Every class of settings in the house: those named like one, and those of sections and of tables in them."""
    sections = [class_of(section) for section in SECTIONS]
    tables = {table for section in sections for table in _tables(section)}
    configured = {f"{kind.__module__}:{kind.__name__}" for kind in [*sections, *tables]}
    for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if module.name.startswith("penstock.testing") or module.name.endswith("__main__"):
            continue
        for name, value in vars(_loaded(module.name)).items():
            named = SETTING_CLASS.search(name) or f"{module.name}:{name}" in configured
            if not (named and isinstance(value, type) and value.__module__ == module.name):
                continue
            if dataclasses.is_dataclass(value) or issubclass(value, msgspec.Struct):
                yield value


def _loaded(name: str) -> ModuleType:
    """A module; an empty one where it stands on a framework that is not installed here."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if (missing.name or "penstock").startswith("penstock"):
            raise
        return ModuleType(name)


@cache
def _explained(owner: str) -> str:
    """What the operating page says of a class of settings."""
    section = re.search(rf"^### `{owner}`$(.*?)(?=^##|\Z)", OPERATING, re.MULTILINE | re.DOTALL)
    assert section, f"docs/operating.md has no section for {owner}"
    return section.group(1)


def test_every_setting_is_explained_to_operators() -> None:
    settings = [(kind.__name__, field) for kind in _setting_classes() for field in fields_of(kind)]
    assert len(settings) > 300
    assert [(owner, setting) for owner, setting in settings if f"`{setting}`" not in _explained(owner)] == []


def _written(value: object) -> set[str]:
    """How a default may be written in the table."""
    if isinstance(value, enum.Enum):
        return {f"`{value.name.lower().replace('_', '-')}`", f"`{value.value}`"}
    if isinstance(value, str):
        return {f"`{value}`"} if value else {"–"}
    if isinstance(value, float):
        return {str(value), f"{value:g}", f"{value:g} s", f"{value * 1000:g} ms"}
    if isinstance(value, int) and not isinstance(value, bool) and value and value % 1024 == 0:
        return {str(value), f"{value >> 10} KiB", f"{value >> 20} MiB", f"{value >> 30} GiB"} - {"0 MiB", "0 GiB"}
    return {str(value)}


def _plain_defaults() -> Iterator[tuple[str, str, object]]:
    """Settings with a default that a table can hold: numbers, texts, choices; not lists and nested classes."""
    for kind in _setting_classes():
        for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else msgspec.structs.fields(kind):
            if isinstance(field.default, bool | int | float | str | enum.Enum):
                yield kind.__name__, field.name, field.default


def test_the_default_that_operators_read_is_the_one_that_acts() -> None:
    wrong = []
    for owner, setting, default in _plain_defaults():
        rows = re.findall(rf"^\| `{setting}` \| ([^|]*) \|", _explained(owner), re.MULTILINE)
        if len(rows) != 1 or rows[0].strip() not in _written(default):
            wrong.append((owner, setting, default, rows))
    assert wrong == []


def test_a_public_class_is_not_described_by_what_python_says_of_its_parents() -> None:
    inherited = [
        inspect.getdoc(parent) or "" for parent in (enum.Enum, enum.StrEnum, enum.IntEnum, tuple, msgspec.Struct)
    ]
    openings = {text.splitlines()[0].rstrip(".") for text in inherited if text}
    assert [line for line in REFERENCE.splitlines() if line.partition(": ")[2].rstrip(".") in openings] == []


def test_every_class_of_settings_has_a_section_or_a_reason_to_have_none() -> None:
    """Of the rooms that commands reach: a room that no command uses yet has nobody to configure it."""
    using = [path for room in ("cli", "gateway", "indexing", "pipelines") for path in (SOURCE / room).rglob("*.py")]
    imports = re.compile(r"^\s*(?:from|import) (penstock\.\w+)", re.MULTILINE)
    reached = {room for path in using for room in imports.findall(path.read_text())}
    configured = [class_of(section) for section in SECTIONS]
    unreachable = [
        kind.__name__
        for kind in _setting_classes()
        if kind not in configured and kind.__name__ not in WITHOUT_SECTION
        if ".".join(kind.__module__.split(".")[:2]) in reached
    ]
    assert unreachable == []


def test_every_section_is_in_the_table_of_the_operating_page() -> None:
    written = re.findall(r"^\| `\[(\w+)\]` \| `(\w+)` \|", OPERATING, re.MULTILINE)
    assert written == [(section, path.partition(":")[2]) for section, path in SECTIONS.items()]


def _attributes_read(path: Path) -> Iterator[str]:
    """Names of attributes that a module's code reads, but for those that only a class's own checks look at."""
    waiting: list[ast.AST] = [_tree(path)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        if not (isinstance(node, ast.FunctionDef) and node.name == "__post_init__"):
            waiting += ast.iter_child_nodes(node)


def test_a_setting_that_nothing_reads_is_no_setting() -> None:
    # Handed to the client of the service as a whole.
    passed_on = {field for section in ("s3", "azure", "google") for field in fields_of(class_of(section))}
    unread = {field for section in SECTIONS for field in fields_of(class_of(section))} - passed_on
    for path in _modules():
        # Parsing all of the house takes seconds: what a module cannot read by its text is not looked for in it.
        if not unread.isdisjoint(re.findall(r"\.(\w+)", path.read_text())):
            unread.difference_update(_attributes_read(path))
    assert sorted(unread) == []


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_a_module_opens_with_what_it_promises() -> None:
    openings = {str(path.relative_to(SOURCE)): path.read_text()[:120].lstrip() for path in _modules()}
    assert [path for path, text in openings.items() if not re.match(r'"""\w*[^"]', text)] == []


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


def test_every_command_is_on_the_page_of_commands() -> None:
    """With its subcommands: `penstock vector stats` is in a cell as `vector stats|verify`."""
    text = (ROOT / "docs" / "rooms" / "cli.md").read_text()
    cells = [cell for line in text.splitlines() if line.startswith("| `") for cell in re.findall(r"`([^`]+)`", line)]
    subcommands = {name: re.split(r"[^a-z-]+", rest) for name, _, rest in (cell.partition(" ") for cell in cells)}
    context = click.Context(command_line)
    for name in command_line.list_commands(context):
        command = command_line.get_command(context, name)
        assert command is not None
        if command.hidden:
            continue
        assert name in subcommands, f"docs/rooms/cli.md has no line for `penstock {name}`"
        if isinstance(command, click.Group):
            assert sorted(set(command.list_commands(context)) - set(subcommands[name])) == [], name


# Imports past a public list, by the importing room and the module, and why.
DEEP_IMPORTS: dict[tuple[str, str], str] = {
    ("cli", "penstock.observability.logs"): "loads a library that only processes with a log need",
    ("cli", "penstock.observability.otlp"): "loads a library that only processes with traces need",
}


def _public_list(module: str) -> set[str] | None:
    """The names in the `__all__` of a package or of a room that is one module; None for a module inside a room."""
    path = SOURCE.joinpath(*module.split(".")[1:])
    if module.count(".") == 1 and path.with_suffix(".py").exists():
        path = path.with_suffix(".py")
    elif (path / "__init__.py").exists():
        path = path / "__init__.py"
    else:
        return None
    for node in _tree(path).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            return set(ast.literal_eval(node.value))
    return set()


# By the text: parsing all of the house takes seconds.
IMPORT = re.compile(r"^ *from (penstock\.[\w.]+) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def _imports_between_rooms() -> Iterator[tuple[str, str, str]]:
    """The importing room, the module and the name, for everything that one room imports from another."""
    for path in _modules():
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for module, listed in IMPORT.findall(path.read_text()):
            if module.split(".")[1] != room:
                names_of = (name.split(" as ")[0].strip() for name in re.sub(r"#.*|[()]", "", listed).split(","))
                yield from ((room, module, name) for name in names_of if name)


def test_what_another_room_imports_is_on_a_public_list() -> None:
    """Of the room, or of a folder in it that has a list of its own. What is not there may change without notice."""
    past = {
        (room, module, name)
        for room, module, name in _imports_between_rooms()
        if (public := _public_list(module)) is None or name not in public
    }
    assert sorted(one for one in past if one[:2] not in DEEP_IMPORTS) == []
    assert sorted(set(DEEP_IMPORTS) - {one[:2] for one in past}) == [], "exceptions that nobody needs"


def _lazy_packages() -> dict[str, tuple[set[str], set[str]]]:
    """Of each package with a lazy public list: names by module as type checkers see them, and as processes do."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for path in SOURCE.rglob("__init__.py"):
        tree = _tree(path)
        package = ".".join(path.relative_to(SOURCE.parent).parent.parts)
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("lazy_names("):
                assert isinstance(node.value, ast.Call)
                homes = ast.literal_eval(node.value.args[1])
                loaded = {f"{package}.{home}:{name}" for home, names_of in homes.items() for name in names_of}
                imports = (one for one in ast.walk(tree) if isinstance(one, ast.ImportFrom) and one.module)
                typed = {f"{one.module}:{alias.name}" for one in imports for alias in one.names}
                found[package] = ({one for one in typed if one.startswith(f"{package}.")}, loaded)
    return found


@pytest.mark.parametrize("package", sorted(_lazy_packages()))
def test_a_lazy_public_list_offers_what_type_checkers_see(package: str) -> None:
    typed, loaded = _lazy_packages()[package]
    assert typed == loaded
    assert {one.partition(":")[2] for one in loaded} == _public_list(package)


def test_a_folder_that_holds_more_than_twenty_modules_has_outgrown_one_level() -> None:
    sizes = {folder: len(list(folder.glob("*.py"))) for folder in SOURCE.rglob("*/") if folder != SOURCE}
    assert {str(folder.relative_to(SOURCE)): size for folder, size in sizes.items() if size > 21} == {}


def _public_classes() -> dict[str, list[str]]:
    """Modules by the public classes that they define."""
    found: dict[str, list[str]] = {}
    for path in _modules():
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE):
            found.setdefault(name, []).append(str(path.relative_to(SOURCE)))
    return found


def test_a_class_name_means_one_thing_in_the_whole_house() -> None:
    assert {name: modules for name, modules in _public_classes().items() if len(modules) > 1} == {}


def test_the_machinery_of_blocks_knows_nothing_of_the_stores_that_stand_on_it() -> None:
    told = re.compile(r"vector|embedding|centroid|posting|sample|series", re.IGNORECASE)
    paths = sorted((SOURCE / "blocks").rglob("*.py"))
    assert [str(path.relative_to(SOURCE)) for path in paths if told.search(path.read_text())] == []
