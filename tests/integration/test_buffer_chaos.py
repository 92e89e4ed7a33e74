"""Eight producer processes, one consumer process, kill -9 of any of them: every acknowledged record, exactly once."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from contextlib import closing
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from tests.integration import buffer_worker

from penstock.buffer import Manifest
from penstock.objects import StoreSpec
from penstock.testing.servers.object_stores import S3Server

PRODUCERS = 8
# Seconds of killing in one round, and to end in after it.
CHAOS_SECONDS = 6.0
END_SECONDS_MAX = 120.0

# Workers fork from a process that has everything imported, so that a killed one is back at once.
WORLD = multiprocessing.get_context("forkserver")
WORLD.set_forkserver_preload(["tests.integration.buffer_worker"])


class Crew:
    """The processes of one round."""

    def __init__(self, spec: StoreSpec, folder: Path, seed: int) -> None:
        self._spec = spec
        self._folder = folder
        self._random = random.Random(seed)
        self._count = 0
        self.kills: Counter[str] = Counter()
        self.producers = [self._producer() for _ in range(PRODUCERS)]
        self.consumer = self._consumer()

    def run(self) -> None:
        end = time.monotonic() + CHAOS_SECONDS
        while time.monotonic() < end:
            time.sleep(self._random.uniform(0.05, 0.6))
            self._strike()
        (self._folder / "stop-producers").touch()
        for producer in self.producers:
            self._join(producer, "producer")
        (self._folder / "producers-gone").touch()
        self._join(self.consumer, "consumer")

    def stop(self) -> None:
        for process in (*self.producers, self.consumer):
            process.kill()
            process.join()

    def _strike(self) -> None:
        """Kill a producer or the consumer and start another, or start a second consumer beside the first."""
        choice = self._random.random()
        if choice < 0.6:
            place = self._random.randrange(PRODUCERS)
            self._kill(self.producers[place], "producer")
            self.producers[place] = self._producer()
        elif choice < 0.9:
            self._kill(self.consumer, "consumer")
            self.consumer = self._consumer()
        else:
            # The second to take the fence keeps it: on a busy machine that could be the first to be started.
            self._wait_for_fence(self.consumer)
            fenced, self.consumer = self.consumer, self._consumer()
            self._join(fenced, "fenced consumer")
            self.kills["fenced"] += 1

    def _kill(self, process: ForkServerProcess, role: str) -> None:
        assert process.pid is not None
        assert process.exitcode in (None, 0), f"a {role} had failed by itself with {process.exitcode}"
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        self.kills[role] += 1

    def _wait_for_fence(self, process: ForkServerProcess) -> None:
        assert process.pid is not None
        held, end = buffer_worker.holds_fence(self._folder, process.pid), time.monotonic() + END_SECONDS_MAX
        while not held.exists():
            assert process.is_alive(), "a consumer ended before it took the fence"
            assert time.monotonic() < end, "a consumer took no fence"
            time.sleep(0.01)

    def _join(self, process: ForkServerProcess, role: str) -> None:
        process.join(END_SECONDS_MAX)
        assert process.exitcode == 0, f"a {role} ended with {process.exitcode}"

    def _producer(self) -> ForkServerProcess:
        self._count += 1
        return self._start(buffer_worker.produce, f"p{self._count}")

    def _consumer(self) -> ForkServerProcess:
        return self._start(buffer_worker.consume, self._random.choice(buffer_worker.WAYS))

    def _start(self, work: object, argument: object) -> ForkServerProcess:
        process = WORLD.Process(target=work, args=(self._spec, self._folder, argument), daemon=True)  # type: ignore[arg-type]
        process.start()
        return process


@pytest.mark.chaos(seeds=2, weight=2)
@pytest.mark.integration
def test_on_a_directory_every_acknowledged_record_is_consumed_exactly_once(seed: int, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    play(StoreSpec(f"file://{tmp_path}/store"), tmp_path, seed)


@pytest.mark.chaos(seeds=2, weight=2)
@pytest.mark.integration
def test_on_s3_every_acknowledged_record_is_consumed_exactly_once(
    seed: int, tmp_path: Path, s3_server: S3Server
) -> None:
    play(
        StoreSpec(f"s3://penstock/buffer-chaos/{tmp_path.parent.name}/{tmp_path.name}", s3_server.options),
        tmp_path,
        seed,
    )


def play(spec: StoreSpec, folder: Path, seed: int) -> None:
    crew = Crew(spec, folder, seed)
    try:
        crew.run()
    finally:
        crew.stop()
    check(spec, folder, f"seed {seed}, killed {dict(crew.kills)}")


def check(spec: StoreSpec, folder: Path, story: str) -> None:
    acknowledged = dict(
        line.split() for journal in folder.glob("*.journal") for line in whole_lines(journal.read_text())
    )
    with closing(buffer_worker.open_sink(folder)) as sink:
        stored = sink.execute("select name, sequence from record").fetchall()
        batches = [sequence for (sequence,) in sink.execute("select sequence from batch order by sequence")]
    times = Counter(name for name, _ in stored)
    assert len(acknowledged) > 100, f"too little happened: {len(acknowledged)} records ({story})"
    assert [name for name in acknowledged if not times[name]] == [], f"acknowledged and lost ({story})"
    assert [name for name, count in times.items() if count > 1] == [], f"stored twice ({story})"
    assert batches == list(range(len(batches))), f"sequences have a gap ({story})"
    places = dict(stored)
    assert all(places[name] == int(sequence) for name, sequence in acknowledged.items()), f"at another place ({story})"
    manifest = asyncio.run(queue_of(spec))
    assert (len(manifest), manifest.next_sequence) == (0, len(batches)), f"not drained ({story})"


def whole_lines(text: str) -> list[str]:
    """A process killed in mid-write leaves half a line: nobody was told of that one."""
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]


async def queue_of(spec: StoreSpec) -> Manifest:
    store = await spec.open()
    try:
        return Manifest.decode((await store.get("ingest/manifest")).data)
    finally:
        await store.close()
