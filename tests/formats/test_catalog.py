"""Bytes of every released version of the catalog's formats. They lie in shared buckets, so they stay readable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.catalog import DataFile, column_stats
from penstock.catalog.format.block import FileBlock
from penstock.catalog.format.data_file import HOUR_NS
from penstock.catalog.format.global_index import GlobalIndex
from penstock.catalog.format.head import HeadState
from penstock.catalog.format.head_json import decode_head, encode_head, stored_time_index
from penstock.catalog.format.legacy import decode_pair, encode_pair
from penstock.catalog.format.segment import decode_segment, deleted_mask
from penstock.catalog.format.shard_map import ShardMapFormat, ShardState

GOLDEN = Path(__file__).parent / "golden" / "catalog"
PAGE = Path(__file__).parents[2] / "docs" / "format" / "catalog.md"
PATH = "tenant/2026/02/06/10/chunk_abc123.parquet"


def read(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def data_file(n: int) -> DataFile:
    return DataFile(
        path=f"acme/cpu/{n}.parquet",
        min_timestamp=n * HOUR_NS,
        max_timestamp=n * HOUR_NS + HOUR_NS // 2,
        row_count=n * 10,
        size_bytes=n * 1000,
        level=n % 4,
        tenant="acme",
        table="cpu",
        column_stats={
            "host": column_stats("a", "z" * 70, has_nulls=False),
            "n": column_stats(-n, n, has_nulls=False),
            "x": column_stats(-0.5, n + 0.5, has_nan=False),
            "ok": column_stats(False, True),
            "at": column_stats(n * HOUR_NS, n * HOUR_NS + 1, type="timestamp"),
            "none": column_stats(None, None, all_null=True),
        },
    )


def test_version_1_is_still_read_and_written() -> None:
    head, faults = decode_pair(read("metadata-v1.json"), read("time-index-v1.json"), 3)
    assert not faults
    assert list(head.chunks) == [PATH]
    chunks, index = encode_pair(head.chunks)
    assert json.loads(chunks) == json.loads(read("metadata-v1.json"))
    assert json.loads(index) == json.loads(read("time-index-v1.json"))


def test_version_2_of_another_program_is_still_read() -> None:
    head = decode_head(read("catalog-v2-other.json"))
    file = head.chunks[PATH].file
    assert (file.row_count, file.shard_id, file.level) == (500_000, "shard-7a3f", 0)
    assert file.column_stats["metric_name"] == column_stats("api_latency", "cpu_usage", has_nulls=False)
    assert set(head.time_index) == {1738839600000000000, 1738843200000000000}
    # It is the very file that the format page shows.
    assert json.loads(read("catalog-v2-other.json")) in map(json.loads, examples())


def examples() -> list[str]:
    blocks = PAGE.read_text().split("```json\n")[1:]
    return [block.split("```")[0] for block in blocks]


@pytest.mark.parametrize("name", ["catalog-v2.json", "catalog-v3.json"])
def test_a_head_is_still_read_and_written_to_the_byte(name: str) -> None:
    assert encode_head(decode_head(read(name))) == read(name)


def test_version_2_holds_what_it_held() -> None:
    head = decode_head(read("catalog-v2.json"))
    assert [(inline.file, inline.added_seq) for inline in head.chunks.values()] == [
        (data_file(1), 3),
        (data_file(2), 7),
    ]
    assert (head.version, head.seq, head.uuid) == (2, 7, "01HV0000000000000000000001")
    assert head.commits == {"01HV0000000000000000000002": 4}
    assert stored_time_index(read("catalog-v2.json")) == {n * HOUR_NS: [f"acme/cpu/{n}.parquet"] for n in (1, 2)}


def test_version_3_holds_what_it_held() -> None:
    head = decode_head(read("catalog-v3.json"))
    assert [inline.file for inline in head.chunks.values()] == [data_file(1)]
    assert (head.version, head.seq, head.fence, head.purged_seq, head.state) == (3, 9, 2, 1, HeadState.OPEN)
    assert [(one.file, one.removed_seq, one.at_ms) for one in head.tombstones] == [(data_file(7), 8, 2000)]
    assert head.leases["01HV0000000000000000000009"].paths == ("acme/cpu/1.parquet",)
    assert head.pins["p"].seq == 7
    assert head.sources == {"telemetry": 41}
    assert [(one.entry.day, one.has_files) for one in head.dropped] == [("1970-01-02", True)]
    [segment], [day], [grave] = head.segments, head.archive, head.graves
    mask = deleted_mask(segment)
    assert mask is not None
    assert mask.tolist() == [True, False]
    rows = block("segment-v1.arrow", segment).rows(np.arange(2))
    assert [row.added_seq for row in rows] == [2, 5]
    assert rows[0].file == data_file(3)
    assert rows[1].rest is not None
    assert rows[1].rest["etag"] == "abc"
    assert rows[1].file.column_stats["huge"].max == 2**70
    assert block("archive-v1.arrow", day).files(np.arange(1)) == [data_file(5)]
    [gone] = block("grave-v1.arrow", grave).rows(np.arange(1))
    assert (gone.file, gone.removed_seq, gone.removed_ms) == (data_file(6), 4, 1000)


def block(name: str, entry: Any) -> FileBlock:
    return decode_segment(read(name), entry)


def test_the_tree_of_shards_is_still_read_and_written_to_the_byte() -> None:
    found = ShardMapFormat().decode(read("shards-v1.json"))
    assert ShardMapFormat().encode(found) == read("shards-v1.json")
    assert found.shards() == ["s1", "s2"]
    assert found.find("s2").state is ShardState.SPLITTING
    assert found.shard_of("acme", "cpu") == "s2"


def test_the_global_index_is_still_read() -> None:
    index = GlobalIndex.decode(read("global-index-v1.json"))
    assert index is not None
    assert index.encode() == read("global-index-v1.json")
    assert index.needed(["s1", "s9"], HOUR_NS, 2 * HOUR_NS) == ["s9"]


def test_what_the_page_shows_can_be_read() -> None:
    _, shards, index = examples()
    assert ShardMapFormat().decode(shards.encode()).shards() == ["s1", "s2"]
    assert GlobalIndex.decode(index.encode()) is not None
