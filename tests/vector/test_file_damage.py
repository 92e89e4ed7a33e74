"""A vector store over files that were damaged on the disk: answers are partial and say what they lack."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from slatedb import uniffi

from penstock.errors import Corrupt
from penstock.vector import ALL_LISTS, VectorConfig, VectorStore, partial_blocks

ROWS, DIMENSIONS = 2000, 32
CONFIG = VectorConfig(threads=1, list_rows=32)


async def _written(folder: Path) -> Path:
    """A store with all its blocks in one sorted file, which is returned."""
    vectors = np.random.default_rng(1).normal(size=(ROWS, DIMENSIONS)).astype(np.float32)
    table = pa.table(
        {
            "id": [f"row {number}" for number in range(ROWS)],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSIONS),
        }
    )
    async with await VectorStore.open(folder.as_uri(), "vectors", CONFIG) as store:
        collection = await store.collection("tenant", "index", "model", dimensions=DIMENSIONS, metric="l2")
        await collection.upsert(table, durable=True)
        await store.tend()
        raw: Any = store._keyvalue
        await raw._raw.flush_with_options(uniffi.FlushOptions(flush_type=uniffi.FlushType.MEM_TABLE))
    return max((folder / "vectors" / "compacted").glob("*.sst"), key=lambda path: path.stat().st_size)


async def _searched(folder: Path, opening: Any) -> tuple[int, tuple[str, ...]]:
    store = await opening(folder.as_uri(), "vectors", CONFIG)
    try:
        collection = await store.collection("tenant", "index", "model")
        answer = await collection.search([[0.0] * DIMENSIONS], 50, probes=ALL_LISTS)
        return answer.num_rows, tuple(partial_blocks(answer))
    finally:
        await store.close()


@pytest.mark.slow
def test_a_flipped_bit_in_a_file_costs_a_block_and_not_the_answer(tmp_path: Path) -> None:
    async def run() -> None:
        table = await _written(tmp_path)
        whole = table.read_bytes()
        for share in (0.05, 0.2, 0.35, 0.65, 0.75, 0.85):
            damaged = bytearray(whole)
            damaged[int(len(damaged) * share)] ^= 4
            table.write_bytes(damaged)
            for opening in (VectorStore.open, VectorStore.open_reader):
                rows, lost = await _searched(tmp_path, opening)
                assert rows == 50
                assert all("of tenant/index/model" in block for block in lost)
                # Small blocks of ours share one of the file's.
                assert len(lost) < 10, f"at {share}: {lost}"
                found.append(bool(lost))
        table.write_bytes(whole)
        assert await _searched(tmp_path, VectorStore.open) == (50, ())

    found: list[bool] = []
    asyncio.run(run())
    assert sum(found) >= len(found) // 2, "the damage was never met"


@pytest.mark.slow
def test_a_file_that_was_cut_short_is_named(tmp_path: Path) -> None:
    async def run() -> None:
        table = await _written(tmp_path)
        table.write_bytes(table.read_bytes()[: table.stat().st_size // 2])
        for opening in (VectorStore.open, VectorStore.open_reader):
            with pytest.raises(Corrupt, match=f"{table.name} cut short"):
                await _searched(tmp_path, opening)

    asyncio.run(run())
