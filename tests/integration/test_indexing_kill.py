"""kill -9 of drivers, Python workers and executors of the indexing job, with a provider that fails often.

Whatever is killed, the store ends up as after an undisturbed run: the same documents, chunks, vectors and reports, none
of them twice; and the provider has seen each batch with one content, the very one of the undisturbed run.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.integration.indexing_world import Driver, Holdings, Library, build_library, every_format, holdings

from penstock.testing.servers.embedding_server import (
    AskFate,
    EmbeddingProcess,
    ProviderFaults,
    contents_by_place,
    embedding_process,
)
from penstock.testing.servers.spark_cluster import SparkCluster, descendants, python_workers

pytestmark = [pytest.mark.chaos, pytest.mark.integration]

# Of one round. A task is given up at its fourth failure, and each kill costs one at most.
KILLS_MAX = 3
LOCAL = "local[2]"
FAULTS: dict[str, Any] = {"busy": 0.1, "failing": 0.1, "silent": 0.03, "hung_up": 0.05}
DIMENSIONS = 32
SOURCE_PROCESS = "python_streaming_source_runner"


@dataclass
class World:
    """The documents, a driver of each kind that is alive, and what an undisturbed run comes to."""

    folder: Path
    library: Library
    drivers: dict[str, Driver] = field(default_factory=dict)
    expected: Holdings = field(default_factory=Holdings)
    batches: dict[str, set[str]] = field(default_factory=dict)

    def driver(self, cluster: SparkCluster | None) -> Driver:
        """The one that is there, or a new one; without a cluster, a local one."""
        master = cluster.master if cluster else LOCAL
        settings = cluster.settings if cluster else {}
        found = self.drivers.get(master)
        if found is None or found.process.poll() is not None:
            found = self.drivers[master] = Driver(master, settings, self.folder / "driver.log")
        return found

    def close(self) -> None:
        for driver in self.drivers.values():
            driver.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("indexing")
    world = World(folder, build_library(folder / "documents"))
    try:
        with embedding_process(folder / "undisturbed.log", dimensions=DIMENSIONS) as provider:
            trial = Trial(world, "undisturbed", provider)
            trial.begin()
            assert trial.driver.end() == "done", trial.driver.story
            world.expected, world.batches = holdings(trial.url), contents_by_place(provider.asks)
        yield world
    finally:
        world.close()


@dataclass
class Trial:
    """One run of the job on a store of its own."""

    world: World
    name: str
    provider: EmbeddingProcess
    seed: int = 0
    cluster: SparkCluster | None = None
    # The last sequence of the queue, for a job that follows it.
    through: int | None = None
    kills: int = 0

    @property
    def url(self) -> str:
        return f"file://{self.world.folder}/{self.name}/store"

    @property
    def driver(self) -> Driver:
        return self.world.driver(self.cluster)

    def begin(self, batches: int | None = None) -> None:
        (self.world.folder / self.name).mkdir()
        self.world.library.send(self.url, end=batches)
        self.resume()

    def resume(self) -> None:
        checkpoint = self.world.folder / self.name / "checkpoint"
        self.driver.begin(self.url, checkpoint, self.provider.url, self.through)

    def strike(self, chance: random.Random, victims: Callable[[], list[int]]) -> None:
        """Kill one of `victims` a moment after the provider has been asked some more."""
        goal = len(self.provider.asks) + chance.randint(1, 12)
        if not self.driver.until(lambda: len(self.provider.asks) >= goal):
            return
        # The moment is anywhere in a round: reading, batching, embedding or writing.
        time.sleep(chance.uniform(0, 0.6))
        if found := sorted(victims()):
            with suppress(ProcessLookupError):
                os.kill(chance.choice(found), signal.SIGKILL)
                self.kills += 1

    def check(self) -> None:
        story = f"seed {self.seed}, {self.kills} kills; the driver says\n{self.driver.story}"
        held, asks = holdings(self.url), self.provider.asks
        expected = self.world.expected
        assert {tenant: [row[0] for row in rows] for tenant, rows in held.rows.items()} == {
            tenant: [row[0] for row in rows] for tenant, rows in expected.rows.items()
        }, story
        sent = contents_by_place(asks)
        assert {place: contents for place, contents in sent.items() if len(contents) > 1} == {}, story
        if self.through is None:
            assert (held, sent) == (expected, self.world.batches), story
        else:
            # When a round was worked decides what is in it, and so in its batches.
            assert held.without_costs() == expected.without_costs(), story
        assert {ask.fate for ask in asks} > {AskFate.ANSWERED}, "the provider has not failed at all"


@contextmanager
def failing_provider(world: World, seed: int) -> Iterator[EmbeddingProcess]:
    log = world.folder / f"asks-{len(list(world.folder.glob('asks-*')))}.log"
    with embedding_process(log, dimensions=DIMENSIONS, faults=ProviderFaults(seed=seed, **FAULTS)) as provider:
        yield provider


def test_the_library_is_what_the_tests_need(world: World) -> None:
    """Several rounds, several batches a tenant, a deleted document and side-car, and everything else searchable."""
    reports = [entry.report for entries in world.expected.entries.values() for entry in entries]
    statuses = sorted(report.status for report in reports if report)
    assert statuses == ["deleted"] * 2 + ["indexed"] * (10 + len(every_format())) + ["metadata"]
    said = {(row["key"], row["meta.about"]) for row in (dict(row[2]) for row in world.expected.rows["acme"])}
    assert said >= {("large.txt", "large.txt"), ("note-1.txt", "nothing yet"), ("page.html", None)}
    assert {len(contents) for contents in world.batches.values()} == {1}
    assert len(world.batches) > 20
    for rows in world.expected.rows.values():
        assert len({row[0] for row in rows}) == len(rows) > 0


@pytest.mark.chaos(seeds=1, weight=3)
def test_a_killed_python_worker_does_not_end_the_query(world: World, seed: int) -> None:
    with failing_provider(world, seed) as provider:
        trial = Trial(world, f"worker-{seed}", provider, seed)
        chance = random.Random(seed)
        trial.begin()
        while trial.kills < KILLS_MAX and trial.driver.process.poll() is None:
            before = trial.kills
            trial.strike(chance, lambda: python_workers(trial.driver.pid))
            if trial.kills == before:
                break
        assert trial.driver.end() == "done", f"seed {seed}\n{trial.driver.story}"
        assert trial.kills > 0, f"seed {seed}: nothing was killed"
        trial.check()


@pytest.mark.chaos(seeds=1, weight=3)
def test_a_killed_process_of_the_source_ends_the_query_and_the_next_one_goes_on(world: World, seed: int) -> None:
    """Spark keeps the queue's consumer in a process of its own beside the driver, and does not start it again."""
    with failing_provider(world, seed) as provider:
        trial = Trial(world, f"source-{seed}", provider, seed)
        trial.begin()
        trial.strike(random.Random(seed), lambda: descendants(trial.driver.pid, SOURCE_PROCESS))
        assert trial.kills == 1, f"seed {seed}: nothing was killed"
        if trial.driver.end() != "done":
            trial.resume()
            assert trial.driver.end() == "done", f"seed {seed}\n{trial.driver.story}"
        trial.check()


@pytest.mark.chaos(seeds=1, weight=3)
def test_a_killed_driver_goes_on_where_it_was(world: World, seed: int) -> None:
    with failing_provider(world, seed) as provider:
        trial = Trial(world, f"driver-{seed}", provider, seed)
        chance = random.Random(seed)
        trial.begin()
        trial.strike(chance, lambda: [trial.driver.pid, *descendants(trial.driver.pid, "java")])
        assert trial.kills == 1, f"seed {seed}: nothing was killed"
        trial.driver.kill()
        trial.resume()
        assert trial.driver.end() == "done", f"seed {seed}\n{trial.driver.story}"
        trial.check()


@pytest.mark.chaos(seeds=1, weight=3)
def test_a_killed_driver_that_follows_the_queue_goes_on_where_it_was(world: World, seed: int) -> None:
    """Events come before and after the kill; rounds are worked in micro-batches and in the time between them."""
    with failing_provider(world, seed) as provider:
        trial = Trial(world, f"follow-{seed}", provider, seed, through=len(world.library.events) - 1)
        chance = random.Random(seed)
        trial.begin(batches=2)
        trial.strike(chance, lambda: [trial.driver.pid, *descendants(trial.driver.pid, "java")])
        assert trial.kills == 1, f"seed {seed}: nothing was killed"
        trial.driver.kill()
        trial.resume()
        world.library.send(trial.url, start=2)
        assert trial.driver.end() == "done", f"seed {seed}\n{trial.driver.story}"
        trial.check()


@pytest.mark.chaos(seeds=1, weight=3)
def test_a_killed_executor_of_a_cluster_does_not_end_the_query(world: World, cluster: SparkCluster, seed: int) -> None:
    with failing_provider(world, seed) as provider:
        trial = Trial(world, f"executor-{seed}", provider, seed, cluster)
        chance = random.Random(seed)
        trial.begin()
        for _ in range(KILLS_MAX - 1):
            trial.strike(chance, cluster.executors)
        assert trial.driver.end() == "done", f"seed {seed}\n{trial.driver.story}"
        assert trial.kills > 0, f"seed {seed}: nothing was killed"
        trial.check()
