"""A cluster to be killed: its processes can be found, and one that does not come up says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.servers import spark_cluster as module
from penstock.testing.servers.spark_cluster import descendants, python_workers, spark_cluster

# A process with a child, both waiting for their input to end; the child carries the word.
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()", *sys.argv[1:]], stdin=subprocess.PIPE)
print(child.pid, flush=True)
sys.stdin.read()
child.communicate()
"""


def started(*words: str) -> tuple[subprocess.Popen[bytes], int]:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@pytest.mark.processes
def test_processes_are_found_below_their_ancestor_by_what_they_run() -> None:
    parent, child = started("needle")
    try:
        assert descendants(os.getpid(), "needle") == [parent.pid, child]
        assert descendants(parent.pid) == [child]
        assert descendants(parent.pid, "hay") == []
    finally:
        parent.communicate()
    assert descendants(os.getpid(), "needle") == []


@pytest.mark.processes
def test_python_workers_are_the_children_of_daemons_and_not_the_daemons() -> None:
    parent, child = started("pyspark.daemon", "pyspark.worker")
    try:
        # A Spark of other tests may still hold workers of its own below this process.
        workers = python_workers(os.getpid())
        assert child in workers
        assert parent.pid not in workers
    finally:
        parent.communicate()


@pytest.mark.processes
def test_a_cluster_that_does_not_come_up_is_an_error_that_shows_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "home" / "bin" / "spark-class"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\necho no master today\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(module, "_spark_home", lambda: tmp_path / "home")
    with pytest.raises(RuntimeError, match="no master today"), spark_cluster(tmp_path / "cluster"):
        pytest.fail("it started")
