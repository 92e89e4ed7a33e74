"""A Spark driver that is killed in the middle of a stream resumes, and every record arrives exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import DEVNULL

import pyarrow.parquet as pq
import pytest

from penstock.buffer import ProducerConfig, SyncProducer

KILLS = 2
ROOT = Path(__file__).parents[2]
# Eight micro-batches, of which the kills come behind six at most.
BATCHES = 24
POLL_SECONDS = 0.05


def ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Waits on the process itself, so that nothing here sleeps."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def offsets_planned(folder: Path) -> int:
    return len(list((folder / "checkpoint" / "offsets").glob("[0-9]*")))


def committed_files(folder: Path) -> list[Path]:
    """What Spark's file sink has committed; a file that no log names is the leftover of a killed attempt."""
    logs = sorted((folder / "out" / "_spark_metadata").glob("[0-9]*"))
    entries = [json.loads(line) for log in logs for line in log.read_text().splitlines()[1:]]
    return sorted({Path(entry["path"].removeprefix("file://")) for entry in entries})


@pytest.mark.chaos(seeds=1, weight=2)
@pytest.mark.integration
def test_a_driver_killed_at_any_moment_loses_and_doubles_nothing(seed: int, tmp_path: Path) -> None:
    choose = random.Random(seed)
    url = f"file://{tmp_path}/store"
    expected = [b"record %d" % number for number in range(BATCHES * 20)]
    with SyncProducer(url, ProducerConfig(flush_interval_seconds=0.0)) as producer:
        for start in range(0, len(expected), 20):
            producer.produce(expected[start : start + 20]).durable()

    command = [sys.executable, "-m", "tests.integration.spark_driver", url, str(tmp_path)]
    for _ in range(KILLS):
        # Killed behind a random number of micro-batches, at whatever it happens to do then.
        goal = offsets_planned(tmp_path) + choose.randint(1, 3)
        with subprocess.Popen(command, cwd=ROOT, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True) as driver:
            while offsets_planned(tmp_path) < goal and not ended_within(driver, POLL_SECONDS):
                pass
            os.killpg(driver.pid, signal.SIGKILL)
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)

    rows = [row for path in committed_files(tmp_path) for row in pq.read_table(path)["record"].to_pylist()]
    assert sorted(rows) == sorted(expected), f"seed {seed}"
