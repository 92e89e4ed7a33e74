"""kill -9 of a writing process at random: all that was reported durable is there, nothing twice, all in agreement."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration import vector_worker

from penstock.testing.servers.object_stores import S3Server
from penstock.vector import ALL_LISTS, Collection, VectorStore

# Deaths in one round, and how long a writer lives after its first durable change.
KILLS = 5
LIFE_SECONDS_MAX = 1.2
START_SECONDS_MAX = 120.0

WORLD = multiprocessing.get_context("forkserver")
WORLD.set_forkserver_preload(["tests.integration.vector_worker"])


class Plain:
    """What the store must hold."""

    def __init__(self) -> None:
        self.visible: dict[str, tuple[list[float], tuple[str, str] | None]] = {}
        self.hidden: dict[tuple[str, str], dict[str, list[float]]] = {}
        self.current: dict[str, str] = {}

    def upsert(self, rows: dict[str, list[float]], version: tuple[str, str] | None) -> None:
        if version is None:
            self.visible.update({name: (vector, None) for name, vector in rows.items()})
        else:
            self.hidden.setdefault(version, {}).update(rows)

    def delete(self, ids: list[str]) -> None:
        for name in ids:
            self.visible.pop(name, None)

    def flip(self, document: str, version: str) -> None:
        self._drop(document)
        rows = self.hidden.pop((document, version), {})
        self.visible.update({name: (vector, (document, version)) for name, vector in rows.items()})
        self.current[document] = version

    def remove(self, document: str) -> None:
        self._drop(document)
        self.hidden = {version: rows for version, rows in self.hidden.items() if version[0] != document}

    def _drop(self, document: str) -> None:
        gone = (document, self.current.pop(document, ""))
        self.visible = {name: row for name, row in self.visible.items() if row[1] != gone}


@pytest.mark.chaos(seeds=2, weight=2)
@pytest.mark.integration
def test_on_a_directory_nothing_durable_is_lost_and_nothing_is_doubled(seed: int, tmp_path: Path) -> None:
    play(f"file://{tmp_path}/store", {}, tmp_path / "journal", seed)


@pytest.mark.chaos(seeds=2, weight=2)
@pytest.mark.integration
def test_on_s3_nothing_durable_is_lost_and_nothing_is_doubled(seed: int, tmp_path: Path, s3_server: S3Server) -> None:
    url = f"s3://penstock/vector-kill/{tmp_path.parent.name}/{tmp_path.name}"
    play(url, s3_server.options, tmp_path / "journal", seed)


def play(url: str, options: dict[str, Any], journal: Path, seed: int) -> None:
    entropy = random.Random(seed)
    for _ in range(KILLS):
        kill_one(url, options, journal, entropy.uniform(0, LIFE_SECONDS_MAX))
    durable = max(map(int, whole_lines(journal)))
    assert durable > 20, f"too little happened: {durable + 1} changes"
    asyncio.run(check(url, options, durable, f"seed {seed}, {durable + 1} changes reported durable"))


def kill_one(url: str, options: dict[str, Any], journal: Path, seconds: float) -> None:
    """Let a writer live for some time after its first durable change, then kill it."""
    before = len(whole_lines(journal))
    process = WORLD.Process(target=vector_worker.write, args=(url, options, journal), daemon=True)
    process.start()
    try:
        end = time.monotonic() + START_SECONDS_MAX
        while len(whole_lines(journal)) == before:
            assert process.exitcode is None, f"the writer ended by itself with {process.exitcode}"
            assert time.monotonic() < end, "nothing became durable"
            time.sleep(0.01)
        time.sleep(seconds)
        assert process.pid is not None
        assert process.exitcode is None, f"the writer ended by itself with {process.exitcode}"
    finally:
        process.kill()
        process.join()


def whole_lines(journal: Path) -> list[str]:
    """A line that was cut off by the kill does not count."""
    return journal.read_text().split("\n")[:-1] if journal.exists() else []


async def check(url: str, options: dict[str, Any], durable: int, story: str) -> None:
    async with await VectorStore.open(url, "vectors", vector_worker.CONFIG, **options) as store:
        position = store.position(vector_worker.SOURCE)
        assert position is not None, story
        assert position >= durable, f"durable and lost: {position} < {durable} ({story})"
        expected = Plain()
        for number in range(position + 1):
            vector_worker.apply(expected, number)
        collection = await vector_worker.collection_of(store)
        await agrees(collection, expected, story)
        await store.compact()
        await agrees(collection, expected, f"compacted, {story}")


async def agrees(collection: Collection, expected: Plain, story: str) -> None:
    assert (await collection.verify()).problems == [], story
    names = sorted(expected.visible)
    held = await collection.get(names, ("id", "vector", "text", "attributes"))
    assert held["id"].to_pylist() == names, story
    vectors = np.array([expected.visible[name][0] for name in names], np.float32)
    assert np.array_equal(np.array(held["vector"].to_pylist(), np.float32).reshape(vectors.shape), vectors), story
    changes = [int(vector[0]) for vector in vectors]
    assert [row["change"] for row in held["attributes"].to_pylist()] == changes, story
    found = await collection.search(np.zeros((1, vector_worker.DIMENSIONS)), len(names) + 10, probes=ALL_LISTS)
    assert sorted(found["id"].to_pylist()) == names, f"a row is missing from its list, or twice in one ({story})"
    assert (await collection.stats()).hidden_rows == sum(map(len, expected.hidden.values())), story
