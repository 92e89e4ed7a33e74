"""A writer and two compactors, kill -9 of any of them: every acknowledged row, exactly once, at every sequence."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
from tests.integration import compaction_worker

from penstock.catalog import Catalog
from penstock.lake import CompactionConfig, Compactor, LocalMerging, MergePlace
from penstock.objects import StoreSpec
from penstock.testing.servers.object_stores import S3Server

# Seconds of killing in one round, and to end in after it.
CHAOS_SECONDS = 4.0
END_SECONDS_MAX = 60.0
# A round with fewer files proves nothing.
FILES_MIN = 5
# Positions that are read back, of all that there were.
POSITIONS_MAX = 16

WORLD = multiprocessing.get_context("forkserver")
WORLD.set_forkserver_preload(["tests.integration.compaction_worker"])


class Crew:
    """The processes of one round."""

    def __init__(self, spec: StoreSpec, folder: Path, seed: int) -> None:
        self._spec, self._folder = spec, folder
        self._random = random.Random(seed)
        self._count = 0
        self.kills: Counter[str] = Counter()
        self.processes = {role: self._start(role) for role in ("writer", "compactor", "compactor-small")}

    def run(self) -> None:
        end = time.monotonic() + CHAOS_SECONDS
        while time.monotonic() < end:
            time.sleep(self._random.uniform(0.1, 0.6))
            role = self._random.choice(sorted(self.processes))
            process = self.processes[role]
            assert process.pid is not None
            assert process.exitcode is None, f"a {role} had failed by itself with {process.exitcode}"
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            self.kills[role] += 1
            self.processes[role] = self._start(role)
        # On a busy machine a writer may have been killed each time before it came to write.
        while len(ledger_of(self._folder)) <= FILES_MIN and time.monotonic() < end + END_SECONDS_MAX:
            time.sleep(0.05)
        (self._folder / "stop").touch()
        for role, process in self.processes.items():
            process.join(END_SECONDS_MAX)
            assert process.exitcode == 0, f"a {role} ended with {process.exitcode}"

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()

    def _start(self, role: str) -> ForkServerProcess:
        self._count += 1
        work: Any = compaction_worker.write if role == "writer" else compaction_worker.compact
        process = WORLD.Process(target=work, args=(self._spec, self._folder, f"p{self._count}-{role}"), daemon=True)
        process.start()
        return process


@pytest.mark.chaos(seeds=1, weight=2)
@pytest.mark.integration
def test_on_a_directory_rows_stay_what_they_are_at_every_sequence(seed: int, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    play(StoreSpec(f"file://{tmp_path}/store"), tmp_path, seed)


@pytest.mark.chaos(seeds=1, weight=2)
@pytest.mark.integration
def test_on_s3_rows_stay_what_they_are_at_every_sequence(seed: int, tmp_path: Path, s3_server: S3Server) -> None:
    place = f"s3://penstock/compaction/{tmp_path.parent.name}/{tmp_path.name}"
    play(StoreSpec(place, s3_server.options), tmp_path, seed)


def play(spec: StoreSpec, folder: Path, seed: int) -> None:
    crew = Crew(spec, folder, seed)
    try:
        crew.run()
    finally:
        crew.stop()
    story = f"seed {seed}, killed {dict(crew.kills)}"
    ledger = ledger_of(folder)
    assert len(ledger) > FILES_MIN, f"too little happened: {len(ledger)} files ({story})"
    compaction_worker.on_catalog(spec, lambda catalog: check(catalog, spec, ledger, random.Random(seed), story))


async def check(catalog: Catalog, spec: StoreSpec, ledger: dict[str, str], dice: random.Random, story: str) -> None:
    # What the dead have left leased is taken over, and merged to the end.
    await catalog.clock.sleep(compaction_worker.CONFIG.lease_seconds)
    last = Compactor(catalog, LocalMerging(MergePlace(spec, compaction_worker.PREFIX), 2), CompactionConfig())
    done = await last.run_available()
    assert done.failed == 0, story
    head = await catalog.shard("").fresh()
    assert any(file.level for file in await catalog.files()), f"nothing was ever merged ({story})"
    sequences = sorted({head.seq, *dice.sample(range(1, head.seq), min(POSITIONS_MAX, head.seq - 1))})
    for sequence in sequences:
        await check_rows(catalog, sequence, ledger, f"sequence {sequence} of {head.seq}, {story}")


async def check_rows(catalog: Catalog, sequence: int, ledger: dict[str, str], story: str) -> None:
    async with catalog.scan(columns=["label"], as_of=sequence, pin=False) as scan:
        found = Counter((await scan.to_table())["label"].to_pylist())
    assert [label for label, count in found.items() if count > 1] == [], f"there twice ({story})"
    files = Counter(str(label).rsplit("-", 1)[0] for label in found)
    assert set(files.values()) <= {compaction_worker.ROWS}, f"a part of a file ({story})"
    lost = [name for name, at in ledger.items() if int(at) <= sequence and name not in files]
    early = [name for name, at in ledger.items() if int(at) > sequence and name in files]
    assert (lost, early) == ([], []), f"not what was acknowledged ({story})"


def ledger_of(folder: Path) -> dict[str, str]:
    """What writers were told is registered, and at which sequence."""
    return dict(line.split() for one in folder.glob("*.ledger") for line in whole_lines(one.read_text()))


def whole_lines(text: str) -> list[str]:
    """A process killed in mid-write leaves half a line: nobody was told of that one."""
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
