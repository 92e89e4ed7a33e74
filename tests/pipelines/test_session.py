"""The session's door: a lost Python worker costs a try of a task, and not the query."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.pipelines.session import retrying


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
