"""Our settings reach SlateDB, and what is collected when depends on what the disk can promise."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.keyvalue import WriteBatch, open_keyvalue
from penstock.keyvalue.engine import Tuning, _settings
from penstock.observability import names
from penstock.testing import RecordingObserver

MEMORY_DISK = Path("/dev/shm")


def settings(directory: Any = None, **tuning: Any) -> dict[str, Any]:
    given = {"interval_ms": 5, "cache_bytes_max": 1 << 20, "retries_max": 6, "unflushed_bytes_max": 256 << 20} | tuning
    return json.loads(_settings(Tuning(**given), directory).to_json_string())


def test_the_bounds_are_passed_on() -> None:
    made = settings(interval_ms=25, retries_max=3, unflushed_bytes_max=100 << 20)
    assert made["flush_interval"] == "025ms"
    assert settings(interval_ms=0.2)["flush_interval"] == "001ms"
    assert made["object_store_max_retries"] == 3
    assert made["max_unflushed_bytes"] == 100 << 20


def test_a_tight_bound_on_memory_makes_smaller_tables() -> None:
    assert settings(unflushed_bytes_max=8 << 20)["l0_sst_size_bytes"] == 2 << 20
    assert settings(unflushed_bytes_max=1 << 30)["l0_sst_size_bytes"] == 64 << 20


def test_a_tight_bound_on_memory_has_tables_written_and_merged_one_after_the_other() -> None:
    tight, wide = settings(unflushed_bytes_max=64 << 20), settings()
    assert (tight["l0_flush_parallelism"], wide["l0_flush_parallelism"]) == (1, 4)
    for name in ("max_concurrent_compactions", "max_subcompactions", "max_fetch_tasks"):
        assert tight["compactor_options"]["worker"][name] == 1
        assert wide["compactor_options"]["worker"][name] > 1
    for name in ("bytes_to_fetch", "max_sst_size"):
        assert tight["compactor_options"]["worker"][name] < wide["compactor_options"]["worker"][name]


def test_an_ordered_directory_collects_while_it_is_open_and_an_unordered_one_does_not() -> None:
    assert settings(SimpleNamespace(ordered=True))["garbage_collector_options"]["wal_options"]["min_age"] == "60s"
    assert settings(SimpleNamespace(ordered=False))["garbage_collector_options"] is None


@pytest.fixture
def memory_disk() -> Iterator[Path]:
    if not MEMORY_DISK.is_dir():
        pytest.skip("this machine has no file system in memory, which stands for one without flags")
    folder = Path(tempfile.mkdtemp(dir=MEMORY_DISK))
    yield folder
    shutil.rmtree(folder)


def test_a_store_on_a_file_system_without_flags_works_and_says_so(memory_disk: Path) -> None:
    async def scenario() -> None:
        for number in range(3):
            observer = RecordingObserver()
            store = await open_keyvalue(memory_disk.as_uri(), "store", observer=observer)
            await (await store.write(WriteBatch().put(b"%d" % number, b"value"))).durable()
            assert [key async for block in store.scan() for key, _ in block] == [b"0", b"1", b"2"][: number + 1]
            ordered: bool = store._directory.ordered  # type: ignore[attr-defined]
            assert len(observer.events(names.KEYVALUE_UNORDERED)) == (0 if ordered else 1)
            await store.close()

    asyncio.run(scenario())
