"""Python workers import Spark's library from where it is installed, compiled, and not from an archive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from penstock.pipelines.spark.spark_home import write_spark_home

INSTALLED = Path(pyspark.__file__).parent


def test_the_home_is_the_installed_spark(tmp_path: Path) -> None:
    home = write_spark_home(tmp_path / "spark")
    assert home is not None
    for part in ("bin", "jars"):
        assert (home / part).resolve() == INSTALLED / part


def test_what_spark_puts_on_the_path_gives_the_installed_library(tmp_path: Path) -> None:
    home = write_spark_home(tmp_path / "spark")
    answer = subprocess.run(
        [
            sys.executable,
            "-c",
            "import pyspark.daemon, py4j; print(pyspark.__file__); print(pyspark.daemon.__cached__)",
        ],
        env={**os.environ, "PYTHONPATH": f"{home}/python/lib/pyspark.zip"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    found, compiled = (Path(line) for line in answer.stdout.splitlines())
    assert found.is_relative_to(tmp_path)
    assert found.resolve() == INSTALLED / "__init__.py"
    assert compiled.exists()


def test_a_home_of_another_installation_is_made_anew(tmp_path: Path) -> None:
    home = tmp_path / "spark"
    home.mkdir()
    (home / "jars").symlink_to(tmp_path / "gone")
    write_spark_home(home)
    assert (home / "jars").resolve() == INSTALLED / "jars"


def test_making_it_again_changes_nothing(tmp_path: Path) -> None:
    write_spark_home(tmp_path / "spark")
    before = (tmp_path / "spark" / "jars").lstat().st_ino
    write_spark_home(tmp_path / "spark")
    assert (tmp_path / "spark" / "jars").lstat().st_ino == before


def test_where_it_cannot_be_written_spark_starts_as_it_comes(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, and no folder")
    assert write_spark_home(tmp_path / "taken") is None
