"""Real processes of the telemetry job, killed at random: the rows of both stores are those of the ledger."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from tests.campaigns import IS_LONG
from tests.landing.world import config_at, landed_values, metric_rows, produce, sample_values

from penstock.landing import TelemetryConfig

BATCHES, ROWS = 24, 50
# Seconds a process may live before it is killed: from the middle of its start to the middle of its work.
LIFE_SECONDS = (0.6, 3.5)
SPARK_LIFE_SECONDS = (8.0, 25.0)
SETTINGS = ["--config", "penstock.toml"]


@pytest.mark.chaos(seeds=1)
@pytest.mark.slow
def test_rows_in_are_rows_out_however_often_the_job_is_killed(tmp_path: Path, seed: int) -> None:
    _campaign(tmp_path, seed, "local", 20 if IS_LONG else 2, LIFE_SECONDS)


@pytest.mark.chaos(seeds=1)
@pytest.mark.slow
@pytest.mark.integration
def test_rows_in_are_rows_out_when_spark_is_killed_with_its_workers(tmp_path: Path, seed: int) -> None:
    _campaign(tmp_path, seed, "spark", 5 if IS_LONG else 1, SPARK_LIFE_SECONDS)


def _campaign(tmp_path: Path, seed: int, engine: str, kills: int, life: tuple[float, float]) -> None:
    chance = random.Random(seed)
    store = tmp_path / "store"
    config = config_at(store / "telemetry")
    # Rounds of a few batches: there is something to kill in between.
    (tmp_path / "penstock.toml").write_text("[landing]\nbatches_per_round = 3\nbytes_per_task = 2000\n")
    asyncio.run(produce(config, [{"metrics": metric_rows(ROWS * n, ROWS, hours=2)} for n in range(BATCHES)]))
    for _ in range(kills):
        _killed(tmp_path, _command(store, engine), chance.uniform(*life))
    _finished(tmp_path, _command(store, engine))
    _check(config)


def _command(store: Path, engine: str) -> list[str]:
    command = [sys.executable, "-m", "penstock.cli", "telemetry", "run", "--engine", engine, "--store", str(store)]
    return [*command, *(["--master", "local[2]"] if engine == "spark" else []), *SETTINGS]


def _killed(folder: Path, command: list[str], seconds: float) -> None:
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    # The whole group: Java and the workers die with the driver.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _finished(folder: Path, command: list[str]) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def _check(config: TelemetryConfig) -> None:
    expected = Counter(float(number) for number in range(BATCHES * ROWS))
    assert asyncio.run(landed_values(config)) == expected
    assert asyncio.run(sample_values(config)) == expected
