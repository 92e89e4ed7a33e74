"""kill -9 of a real edge, which ingests and relays, and of the queue's consumer: every acknowledged row, exactly once."""

from __future__ import annotations

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
from tests.integration import relay_worker

from penstock.objects import StoreSpec

# Seconds of killing in one round, and to end in after it.
CHAOS_SECONDS = 5.0
END_SECONDS_MAX = 120.0

WORLD = multiprocessing.get_context("forkserver")
WORLD.set_forkserver_preload(["tests.integration.relay_worker"])


class Round:
    def __init__(self, folder: Path, seed: int) -> None:
        (folder / "store").mkdir()
        self._spec = StoreSpec(f"file://{folder}/store")
        self._folder = folder
        self._random = random.Random(seed)
        self._edges = 0
        self.kills: Counter[str] = Counter()
        self.edge = self._start_edge()
        self.consumer = self._start(relay_worker.consume, "consumer")

    def play(self) -> None:
        end = time.monotonic() + CHAOS_SECONDS
        while time.monotonic() < end or not self.kills["edge"]:
            time.sleep(self._random.uniform(0.1, 0.8))
            if self._random.random() < 0.7:
                self._kill(self.edge, "edge")
                self.edge = self._start_edge()
            else:
                self._kill(self.consumer, "consumer")
                self.consumer = self._start(relay_worker.consume, "consumer")
        self._await_acknowledgement()
        (self._folder / "stop").touch()
        self._join(self.edge, "edge")
        (self._folder / "edge-gone").touch()
        self._join(self.consumer, "consumer")

    def _await_acknowledgement(self) -> None:
        """On a busy machine every edge may have been killed before its first acknowledgement; the last one is left to it."""
        deadline = time.monotonic() + END_SECONDS_MAX
        while not self.ledger()[1] and time.monotonic() < deadline:
            self.edge.join(0.05)

    def stop(self) -> None:
        for process in (self.edge, self.consumer):
            process.kill()
            process.join()

    def ledger(self) -> tuple[set[int], set[int]]:
        """Bundles that were begun, and those that were acknowledged."""
        lines = [
            line.split()
            for path in self._folder.glob("*.ledger")
            for line in path.read_text().splitlines()
            if len(line.split()) == 2
        ]
        begun = {int(number) for what, number in lines if what == "began"}
        return begun, {int(number) for what, number in lines if what == "acked"}

    def arrived(self) -> Counter[int]:
        with closing(relay_worker.open_sink(self._folder)) as sink:
            return Counter(number for (number,) in sink.execute("select number from row"))

    def _start_edge(self) -> ForkServerProcess:
        self._edges += 1
        return self._start(relay_worker.edge, f"edge{self._edges}")

    def _start(self, work: object, name: str) -> ForkServerProcess:
        process = WORLD.Process(target=work, args=(self._spec, self._folder, name), daemon=True)  # type: ignore[arg-type]
        process.start()
        return process

    def _kill(self, process: ForkServerProcess, role: str) -> None:
        assert process.pid is not None
        assert process.exitcode in (None, 0), f"a {role} had failed by itself with {process.exitcode}"
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        self.kills[role] += 1

    def _join(self, process: ForkServerProcess, role: str) -> None:
        process.join(END_SECONDS_MAX)
        assert process.exitcode == 0, f"a {role} ended with {process.exitcode}"


@pytest.mark.chaos(seeds=2)
@pytest.mark.integration
def test_a_killed_relay_loses_nothing_and_repeats_nothing(seed: int, tmp_path: Path) -> None:
    game = Round(tmp_path, seed)
    try:
        game.play()
    finally:
        game.stop()
    begun, acked = game.ledger()
    arrived = game.arrived()
    assert acked, "the edge got nowhere"
    assert acked <= set(arrived), f"lost: {sorted(acked - set(arrived))[:20]}"
    assert set(arrived) <= begun
    wrong = {number: count for number, count in arrived.items() if count != relay_worker.ROWS}
    assert not wrong, f"not exactly once: {wrong}"
