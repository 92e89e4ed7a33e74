"""Real processes of the telemetry job, killed at random: the rows of both stores are those of the ledger.

The ledger is what was produced. At every sequence of the catalog the rows of a shard are those of its first so many
batches: never a part of one, never one twice, never one before another.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.campaigns import IS_LONG
from tests.landing.world import config_at, metric_rows, produce

from penstock.buffer import ShardLayout, change_routing, queued_now
from penstock.catalog import Catalog
from penstock.landing import TelemetryConfig
from penstock.objects import open_store
from penstock.testing.servers.object_stores import S3Server
from penstock.testing.servers.spark_cluster import SparkCluster, descendants, python_workers
from penstock.timeseries import Matcher, MatchKind, TimeSeriesStore

BATCHES, ROWS = 24, 50
# Produced before each further kill, so that none of them meets a job with nothing to do.
MORE_BATCHES = 12
# Seconds a process may live before it is killed: from the middle of its start to the middle of its work.
LIFE_SECONDS = (0.6, 3.5)
SPARK_LIFE_SECONDS = (8.0, 25.0)
# A cold session on a busy machine, and what it has to do.
ANSWER_SECONDS_MAX = 400.0
ROOT = Path(__file__).parents[2]
# One for each of four shards, by the pinned hash.
TENANTS = {ShardLayout(4).shard_of(name, "metrics"): name for name in (f"t{number}" for number in range(40))}
# Of the catalog's sequences, so many are read back.
POSITIONS_MAX = 12


@dataclass
class Scene:
    """A store with batches in its queues, and commands on it."""

    folder: Path
    store: str
    shards: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    # Batches so far, over all shards.
    batches_made: int = 0

    @property
    def config(self) -> TelemetryConfig:
        if self.store.startswith("s3://"):
            return TelemetryConfig(f"{self.store}/telemetry", self.options)
        return config_at(Path(self.store) / "telemetry")

    def prepare(self) -> None:
        # Rounds of a few batches: there is something to kill in between.
        settings = "[landing]\nbatches_per_round = 3\nbytes_per_task = 2000\n[compaction]\npause_seconds = 0.1\n"
        if self.options:
            settings += "[s3]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in self.options.items())
        (self.folder / "penstock.toml").write_text(settings)
        if self.shards > 1:
            asyncio.run(self._shard())
        self.produce(BATCHES)

    async def _shard(self) -> None:
        store = await open_store(self.config.url, **self.options)
        await change_routing(store, ShardLayout(self.shards))
        await store.close()

    def produce(self, count: int) -> None:
        asyncio.run(self._produce(range(self.batches_made, self.batches_made + count)))
        self.batches_made += count

    async def _produce(self, numbers: range) -> None:
        for number in numbers:
            shard = number % self.shards
            rows = metric_rows(ROWS * number, ROWS, self.tenant(shard), hours=2)
            await produce(self.config.of_shard(shard), [{"metrics": rows}])

    def tenant(self, shard: int) -> str:
        return TENANTS[shard] if self.shards > 1 else "acme"

    def batches(self, shard: int) -> list[list[float]]:
        """What was produced into a shard, in order."""
        return [
            [float(value) for value in range(ROWS * number, ROWS * number + ROWS)]
            for number in range(shard, self.batches_made, self.shards)
        ]

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "penstock.cli", *words, "--store", self.store, "--config", "penstock.toml"]

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        out = subprocess.DEVNULL
        return subprocess.Popen(command, cwd=self.folder, stdout=out, stderr=out, start_new_session=True)

    def finish(self, command: list[str]) -> None:
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=ANSWER_SECONDS_MAX, check=False
        )
        assert done.returncode == 0, done.stderr

    def check(self) -> None:
        asyncio.run(self._check())

    async def _check(self) -> None:
        config = self.config
        store = await open_store(config.url, **config.options)
        try:
            async with await Catalog.open(store, config.catalog_path) as catalog:
                last = (await catalog.shard("").fresh()).seq
                for sequence in sorted(
                    {last, *random.Random(last).sample(range(1, last), min(POSITIONS_MAX, last - 1))}
                ):
                    await self._check_sequence(catalog, sequence, is_last=sequence == last)
            for shard in range(self.shards):
                manifest = await queued_now(store, config.of_shard(shard).consumer.manifest_path)
                assert len(manifest) == 0
        finally:
            await store.close()
        for shard in range(self.shards):
            path = config.of_shard(shard).series_path
            async with await TimeSeriesStore.open(config.url, path, **config.options) as series:
                found = await series.select([Matcher("__name__", MatchKind.REGEX, ".+")], tenant=self.tenant(shard))
            values = Counter(value for some in found.column("values").to_pylist() for value in some)
            assert values == Counter(value for batch in self.batches(shard) for value in batch), f"shard {shard}"

    async def _check_sequence(self, catalog: Catalog, sequence: int, *, is_last: bool) -> None:
        async with catalog.scan(table="metrics", columns=["tenant", "value"], as_of=sequence, pin=False) as scan:
            rows = (await scan.to_table()).to_pylist()
        for shard in range(self.shards):
            found = Counter(row["value"] for row in rows if row["tenant"] == self.tenant(shard))
            batches = self.batches(shard)
            landed = found.total() // ROWS
            assert found == Counter(value for batch in batches[:landed] for value in batch), (
                f"shard {shard} at {sequence}: not the first {landed} batches"
            )
            assert landed == len(batches) or not is_last, f"shard {shard} lacks batches"


def killed(process: subprocess.Popen[bytes], seconds: float) -> None:
    """The whole group: Java and the workers die with the driver."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.chaos(seeds=1)
@pytest.mark.slow
def test_rows_in_are_rows_out_however_often_the_job_is_killed(tmp_path: Path, seed: int) -> None:
    campaign(Scene(tmp_path, str(tmp_path / "store")), seed, 20 if IS_LONG else 2)


@pytest.mark.chaos(seeds=1)
@pytest.mark.slow
@pytest.mark.integration
def test_on_s3_four_shards_and_a_compactor_that_are_killed_keep_every_row(
    tmp_path: Path, seed: int, s3_server: S3Server
) -> None:
    place = f"s3://penstock/landing/{tmp_path.parent.name}/{tmp_path.name}"
    scene = Scene(tmp_path, place, 4, dict(s3_server.options))
    campaign(scene, seed, 20 if IS_LONG else 2, with_compactor=True)


def campaign(scene: Scene, seed: int, kills: int, *, with_compactor: bool = False) -> None:
    chance = random.Random(seed)
    scene.prepare()
    ingest = scene.command("telemetry", "run", "--engine", "local")
    compact = scene.command("compact", "--engine", "local")
    for number in range(kills):
        if number:
            scene.produce(MORE_BATCHES)
        compactor = scene.start([*compact, "--follow"]) if with_compactor else None
        try:
            killed(scene.start(ingest), chance.uniform(*LIFE_SECONDS))
        finally:
            if compactor is not None:
                killed(compactor, chance.uniform(0.0, 1.0))
    scene.finish(ingest)
    if with_compactor:
        scene.finish(compact)
    scene.check()


@pytest.mark.chaos(seeds=1)
@pytest.mark.slow
@pytest.mark.integration
def test_rows_in_are_rows_out_when_spark_is_killed_with_its_workers(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    scene = Scene(tmp_path, str(tmp_path / "store"))
    scene.prepare()
    command = scene.command("telemetry", "run", "--engine", "spark", "--master", "local[2]")
    for number in range(5 if IS_LONG else 1):
        if number:
            scene.produce(MORE_BATCHES)
        killed(scene.start(command), chance.uniform(*SPARK_LIFE_SECONDS))
    scene.finish(command)
    scene.check()


class ClusterDriver:
    """A driver of the job on a cluster, and what it has said."""

    def __init__(self, cluster: SparkCluster, url: str, log: Path) -> None:
        self.words: queue.Queue[str] = queue.Queue()
        program = [sys.executable, "-m", "tests.integration.landing_driver"]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*program, cluster.master, json.dumps(cluster.settings), url],
                cwd=ROOT,
                env=cluster.environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.words.put(line.strip())
        self.words.put("")

    def await_words(self, word: str, count: int = 1) -> bool:
        """Whether it said so, that often, before it ended."""
        while count:
            said = self.words.get(timeout=ANSWER_SECONDS_MAX)
            if not said:
                return False
            count -= said == word
        return True

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.mark.chaos(seeds=1)
@pytest.mark.slow
@pytest.mark.integration
def test_four_shards_on_a_cluster_keep_every_row_while_executors_workers_and_drivers_are_killed(
    cluster: SparkCluster, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    scene = Scene(tmp_path, str(tmp_path / "store"), 4)
    scene.prepare()
    victims: dict[str, Callable[[ClusterDriver], list[int]]] = {
        "executor": lambda _: cluster.executors(),
        "worker": lambda _: [one for pid in cluster.executors() for one in python_workers(pid)],
        "java": lambda driver: descendants(driver.process.pid, "java"),
        "driver": lambda driver: [driver.process.pid],
    }
    # Without a long run, the one that Spark itself is to survive.
    kinds = [chance.choice(sorted(victims)) for _ in range(20)] if IS_LONG else ["executor"]
    for number, kind in enumerate(kinds):
        if number:
            scene.produce(MORE_BATCHES)
        driver = ClusterDriver(cluster, scene.config.url, tmp_path / "driver.log")
        try:
            if driver.await_words("round", chance.randint(1, 2)):
                time.sleep(chance.uniform(0, 0.3))
                for pid in victims[kind](driver)[:1]:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                if kind in ("executor", "worker"):
                    assert driver.await_words("done"), (tmp_path / "driver.log").read_text()[-3000:]
        finally:
            driver.end()
    if IS_LONG:
        last = ClusterDriver(cluster, scene.config.url, tmp_path / "driver.log")
        try:
            assert last.await_words("done"), (tmp_path / "driver.log").read_text()[-3000:]
        finally:
            last.end()
    scene.check()
