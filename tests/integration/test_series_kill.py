"""kill -9 of a writing process at random: all that was reported durable is there, nothing twice, all in agreement."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration import series_worker
from tests.integration.waits import waits_told
from tests.timeseries.model import TENANTS, PlainStore

from penstock.testing.servers.object_stores import S3Server
from penstock.timeseries import TimeSeriesStore

# Deaths in one round, and how long a writer lives after its first durable change.
KILLS = 3
LIFE_SECONDS_MAX = 1.0
# A machine that runs ten times too much takes minutes to start one; a writer that stands still never ends.
START_SECONDS_MAX = 300.0

WORLD = multiprocessing.get_context("forkserver")
WORLD.set_forkserver_preload(["tests.integration.series_worker"])


@pytest.mark.chaos(seeds=2, weight=2)
@pytest.mark.integration
def test_on_a_directory_no_sample_is_lost_doubled_or_orphaned(seed: int, tmp_path: Path) -> None:
    play(f"file://{tmp_path}/store", {}, tmp_path / "journal", seed)


@pytest.mark.chaos(seeds=2, weight=2)
@pytest.mark.integration
def test_on_s3_no_sample_is_lost_doubled_or_orphaned(seed: int, tmp_path: Path, s3_server: S3Server) -> None:
    url = f"s3://penstock/series-kill/{tmp_path.parent.name}/{tmp_path.name}"
    play(url, s3_server.options, tmp_path / "journal", seed)


def play(url: str, options: dict[str, Any], journal: Path, seed: int) -> None:
    entropy = random.Random(seed)
    for _ in range(KILLS):
        kill_one(url, options, journal, entropy.uniform(0, LIFE_SECONDS_MAX))
    durable = max(map(int, whole_lines(journal)))
    asyncio.run(check(url, options, durable, f"seed {seed}, {durable + 1} changes reported durable"))


def kill_one(url: str, options: dict[str, Any], journal: Path, seconds: float) -> None:
    """Let a writer live for some time after its first durable change, then kill it."""
    before = len(whole_lines(journal))
    waits = series_worker.waits_of(journal)
    waits.unlink(missing_ok=True)
    process = WORLD.Process(target=series_worker.write, args=(url, options, journal), daemon=True)
    process.start()
    try:
        end = time.monotonic() + START_SECONDS_MAX
        while len(whole_lines(journal)) == before:
            assert process.exitcode is None, f"the writer ended by itself with {process.exitcode}"
            assert time.monotonic() < end, f"nothing became durable: {waits_told(process.pid, waits)}"
            time.sleep(0.01)
        time.sleep(seconds)
        assert process.exitcode is None, f"the writer ended by itself with {process.exitcode}"
    finally:
        process.kill()
        process.join()


def whole_lines(journal: Path) -> list[str]:
    """A line that was cut off by the kill does not count."""
    return journal.read_text().split("\n")[:-1] if journal.exists() else []


async def check(url: str, options: dict[str, Any], durable: int, story: str) -> None:
    async with await TimeSeriesStore.open(url, "series", series_worker.CONFIG, **options) as store:
        position = store.position(series_worker.SOURCE)
        assert position is not None, story
        assert position >= durable, f"durable and lost: {position} < {durable} ({story})"
        expected = PlainStore()
        for number in range(position + 1):
            expected.apply(number)
        for compacted in (False, True):
            if compacted:
                await store.compact()
            await expected.agrees(store, story)
            for tenant in TENANTS:
                assert (await store.verify(tenant=tenant)).problems == [], story
