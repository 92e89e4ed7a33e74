"""New files get stamps above what they replace, whatever a foreign file says of its time."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from penstock.disk import FileStat, RealDisk
from penstock.objects import DirectoryStore
from penstock.objects.directory.staging import Staging
from penstock.testing import ManualClock, SeededEntropy

YEAR_SECONDS = 31_556_952


def staging(tmp_path: Path) -> Staging:
    return Staging(str(tmp_path), disk=RealDisk(), clock=ManualClock(), entropy=SeededEntropy(1))


def test_a_stamp_lies_above_the_file_that_is_replaced_and_above_the_last(tmp_path: Path) -> None:
    stage = staging(tmp_path)
    first = stage.stamp(None)
    ahead = first + 10**15
    assert stage.stamp(FileStat(1, ahead, 7, is_directory=False)) > ahead
    assert stage.stamp(None) > ahead


@pytest.mark.parametrize("modified_ns", [(1 << 63) * 10**9 - 1, 60_000 * YEAR_SECONDS * 10**9])
def test_a_file_from_the_end_of_time_is_replaced_and_no_later_stamp_counts_on_from_it(
    tmp_path: Path, modified_ns: int
) -> None:
    stage = staging(tmp_path)
    before = stage.stamp(None)
    path, written = stage.write(b"new", FileStat(1, modified_ns, 7, is_directory=False))
    assert before < written.modified_ns < before + 10**12
    assert Path(path).read_bytes() == b"new"


@pytest.mark.parametrize("modified_ns", [-1, -(10**18), 0, (1 << 63) - 1, 15_000_000_000 * 10**9])
def test_objects_of_any_time_are_read_listed_and_replaced(tmp_path: Path, modified_ns: int) -> None:
    (tmp_path / "foreign").write_bytes(b"old")
    os.utime(tmp_path / "foreign", ns=(modified_ns, modified_ns))

    async def run() -> None:
        store = DirectoryStore(str(tmp_path))
        found = await store.get("foreign")
        assert [meta async for page in store.list() for meta in page] == [found.meta]
        placed = await store.put_if("foreign", b"new", version=found.meta.version)
        assert placed.version != found.meta.version
        assert (await store.get("foreign")).data == b"new"
        await store.close()

    asyncio.run(run())
