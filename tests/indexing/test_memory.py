"""Holes between blocks that live on go back to the machine."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.indexing.job import memory
from penstock.indexing.job.memory import give_back_memory, settle_allocators

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


def test_a_library_without_the_call_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_trim", lambda: None)
    assert not give_back_memory()


def test_a_large_column_goes_back_to_the_machine_when_it_is_freed() -> None:
    """Blocks of half a megabyte, every second of which lives on: no trim is needed for the others."""
    if not settle_allocators():
        pytest.skip("this machine's C library has no call to set its allocator")
    assert pa.default_memory_pool().backend_name == "system"
    columns = [bytearray(1 << 20) for _ in range(100)]
    for column in columns:
        column[:] = b"x" * len(column)
    held = resident_bytes()
    del columns[::2]
    assert held - resident_bytes() > 40 << 20
    assert len(columns) == 50
