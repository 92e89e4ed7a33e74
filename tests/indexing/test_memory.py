"""Holes between blocks that live on go back to the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.indexing.job import memory
from penstock.indexing.job.memory import MemoryKeeper, give_back_memory

# Below the size that the C library asks the machine for directly.
PIECE_BYTES = 64 << 10
PIECES = 1000


def resident_bytes() -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) << 10


@pytest.mark.skipif(memory._trim() is None, reason="this machine's C library has no call to give memory back")
def test_holes_between_blocks_that_live_on_are_given_back() -> None:
    pieces = [bytearray(b"x" * PIECE_BYTES) for _ in range(PIECES)]
    del pieces[:-1]
    held = resident_bytes()
    assert give_back_memory()
    assert held - resident_bytes() > PIECES * PIECE_BYTES // 2
    assert len(pieces) == 1


@pytest.fixture
def given_back(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often memory was given back; the keeper's own thread does not look."""
    times: list[int] = []
    monkeypatch.setattr(memory, "give_back_memory", lambda: times.append(1))
    monkeypatch.setattr(memory, "_LOOK_SECONDS", 3600.0)
    return times


def test_a_process_that_grows_gives_its_holes_back_each_time_it_has_grown_enough(given_back: list[int]) -> None:
    mebibytes = iter([100, 120, 131, 132, 110, 140, 141, 142])
    keeper = MemoryKeeper(lambda: next(mebibytes) << 20)
    # At 132, 32 above where it began; what it held then is the next measure, and so is what it falls to.
    assert [keeper.look() for _ in range(3)] == [False, False, True]
    assert [keeper.look() for _ in range(2)] == [False, False]
    keeper.close()
    assert len(given_back) == 1


def test_a_machine_that_does_not_tell_what_a_process_holds_is_left_alone(given_back: list[int]) -> None:
    keeper = MemoryKeeper(lambda: None)
    assert not keeper.look()
    assert not given_back


def test_a_library_without_the_call_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_trim", lambda: None)
    assert not give_back_memory()


SETTLED = """
import pyarrow as pa
from penstock.indexing.job.memory import settle_allocators
from tests.indexing.test_memory import resident_bytes

taken = settle_allocators()
columns = [bytearray(1 << 20) for _ in range(100)]
for column in columns:
    column[:] = b"x" * len(column)
held = resident_bytes()
del columns[::2]
print(taken, pa.default_memory_pool().backend_name, held - resident_bytes())
"""


@pytest.mark.processes
@pytest.mark.skipif(memory._trim() is None, reason="this machine's C library has no call to set its allocator")
def test_a_large_column_goes_back_to_the_machine_when_it_is_freed() -> None:
    """Every second of many lives on, and no trim is needed for the others. A process that has holes would fill them."""
    answer = subprocess.run(
        [sys.executable, "-c", SETTLED], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    taken, backend, given_back = answer.stdout.split()
    assert (taken, backend) == ("True", "system")
    assert int(given_back) > 40 << 20
