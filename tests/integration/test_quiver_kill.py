"""kill -9 of an ingesting process with two subscribers: all that was stored comes out, nothing again after its ack."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.integration import quiver_worker

from penstock.disk import RealDisk
from penstock.quiver import Quiver
from penstock.quiver.inspection import inspect_store

KILLS = 4
LIFE_SECONDS_MAX = 1.0
START_SECONDS_MAX = 120.0

WORLD = multiprocessing.get_context("forkserver")
WORLD.set_forkserver_preload(["tests.integration.quiver_worker"])


@dataclass
class Told:
    """What the journal of all lives says."""

    sent: set[int] = field(default_factory=set)
    stored: set[int] = field(default_factory=set)
    acking: dict[str, set[int]] = field(default_factory=dict)
    acked: dict[str, list[int]] = field(default_factory=dict)


def told(journal: Path) -> Told:
    found = Told()
    # A line that the kill cut short has no end, and says nothing.
    for line in journal.read_text().split("\n")[:-1]:
        verb, *rest = line.split()
        if verb == "sent":
            found.sent.add(int(rest[0]))
        elif verb == "stored":
            found.stored.add(int(rest[0]))
        elif verb == "acking":
            found.acking.setdefault(rest[0], set()).update(map(int, rest[1:]))
        else:
            found.acked.setdefault(rest[0], []).extend(map(int, rest[1:]))
    return found


@pytest.mark.chaos(seeds=2, weight=2)
@pytest.mark.integration
def test_a_killed_store_loses_nothing_and_delivers_nothing_again(seed: int, tmp_path: Path) -> None:
    draw, journal, path = random.Random(seed), tmp_path / "journal", str(tmp_path / "store")
    journal.touch()
    for life in range(KILLS):
        process = WORLD.Process(target=quiver_worker.work, args=(path, journal, life * 1_000_000))
        process.start()
        told_before = journal.stat().st_size
        began = time.monotonic()
        while b"stored" not in journal.read_bytes()[told_before:]:
            assert process.is_alive()
            assert time.monotonic() < began + START_SECONDS_MAX
            time.sleep(0.005)
        time.sleep(draw.random() * LIFE_SECONDS_MAX)
        process.kill()
        process.join()
    asyncio.run(check(path, told(journal)))


async def check(path: str, told: Told) -> None:
    assert told.stored, "nothing was ever stored"
    store = await Quiver.open(path, quiver_worker.CONFIG)
    assert store.findings.lost_bundles == []
    assert store.findings.lost_segments == []
    await store.flush()
    for name in quiver_worker.SUBSCRIBERS:
        await store.register(name)
        came: list[int] = []
        while (delivery := await store.next(name, 0.0)) is not None:
            came += sorted(set((await delivery.table()).column("n").to_pylist()))
            await delivery.ack()
        acked = told.acked.get(name, [])
        assert len(acked) == len(set(acked)), f"{name} acknowledged something twice"
        assert not set(came) & set(acked), f"{name} got again what it had acknowledged"
        assert told.stored <= set(came) | set(acked) | told.acking.get(name, set()), f"{name} lost something"
        assert set(came) <= told.sent
    await store.close()
    assert all(not report.damage for report in inspect_store(RealDisk(), path, check_payloads=True))
