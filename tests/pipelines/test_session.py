"""The session's door: a lost Python worker costs a try of a task, and not the query."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark_rpc import rpc_answer

import penstock
from penstock.pipelines.spark.session import prepare_environment, retrying


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://127.0.0.1:7077", "spark://127.0.0.1:7077"),
    ],
)
def test_a_local_master_retries_tasks_unless_it_says_how_often(given: str, used: str) -> None:
    assert retrying(given) == used


def test_the_environment_names_a_java_this_python_and_a_home_of_the_installed_spark(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    runtime = prepare_environment(environment, tmp_path / "java")
    assert environment["JAVA_HOME"] == str(runtime.home)
    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert (Path(environment["SPARK_HOME"]) / "bin" / "spark-submit").exists()


def test_a_spark_of_the_callers_own_is_left_alone(tmp_path: Path) -> None:
    environment = {"SPARK_HOME": "/opt/spark", "PYSPARK_PYTHON": "/usr/bin/python3"}
    prepare_environment(environment, tmp_path / "java")
    assert environment["SPARK_HOME"] == "/opt/spark"
    assert environment["PYSPARK_PYTHON"] == "/usr/bin/python3"


@pytest.mark.integration
def test_spark_starts_from_a_folder_of_any_name(tmp_path: Path) -> None:
    """Of the package, and of what Java is given besides."""
    folder = tmp_path / "Söme dir"
    folder.mkdir()
    (folder / "penstock").symlink_to(Path(penstock.__file__).parent)
    option = shlex.join([f"-Dpenstock.place={folder}"])
    program = (
        "import os, sys; from pathlib import Path\n"
        "from penstock.pipelines.spark.session import open_session, prepare_environment\n"
        "prepare_environment(os.environ, Path(sys.argv[1]))\n"
        "session = open_session('local[1]', java_options=sys.argv[2])\n"
        "print(session._jvm.System.getProperty('penstock.place'), session.range(3).count())\n"
        "session.stop()\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, str(folder / "java"), option],
        env={**os.environ, "PYTHONPATH": str(folder), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout == f"{folder} 3\n", answer.stderr[-3000:]


@pytest.mark.integration
def test_a_worker_that_dies_is_replaced_and_its_task_tried_again(spark: Any, tmp_path: Path) -> None:
    died = tmp_path / "died"

    def die_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    assert spark.range(10).mapInArrow(die_once, "id long").count() == 10
    assert died.exists()


@pytest.mark.integration
def test_another_process_of_this_machine_cannot_speak_to_the_driver(spark: Any) -> None:
    """As an attacker would, without the secret: the driver answers before it deserialises anything."""
    answer = rpc_answer(int(spark.conf.get("spark.driver.port")))
    assert b"SaslMessage" in answer, answer
    assert b"StreamCorrupted" not in answer


@pytest.mark.integration
def test_blocks_and_sockets_lie_where_nobody_else_may_look(spark: Any) -> None:
    folder = Path(spark.conf.get("spark.local.dir"))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list(folder.iterdir()) != []
