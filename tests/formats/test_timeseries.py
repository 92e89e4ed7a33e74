"""Bytes of every released version of the time-series store's formats. They lie in shared buckets: they never change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import numpy as np
import pyroaring
import pytest

from penstock.blocks import Block, RecordKind
from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.timeseries import MetricMetadata, SampleBatch, SeriesTable, TimeSeriesStore
from penstock.timeseries.format.index_block import IndexBlock
from penstock.timeseries.format.keys import (
    SeriesFamily,
    day_of,
    hour_key,
    hour_of_key,
    label_key,
    metric_key,
    period_hours,
    tenant_key,
)
from penstock.timeseries.format.metadata_block import MetadataBlock
from penstock.timeseries.format.presence_block import PresenceBlock
from penstock.timeseries.format.sample_block import SampleBlock
from penstock.timeseries.format.series_block import FingerprintBlock, LabelBlock
from penstock.timeseries.format.state import SeriesStoreRecord, TenantHead, TenantRecord
from penstock.timeseries.format.store_format import FORMAT
from penstock.timeseries.promql.source import STALE_NAN

GOLDEN = Path(__file__).parent / "golden" / "timeseries"

_TABLE = SeriesTable.of([{"__name__": "up", "job": "größe"}, {"__name__": "x", "a": "bc"}])
_IDS = np.array([3, 4], np.uint32)
_BLOCKS: dict[str, tuple[SeriesFamily, Block]] = {
    "dictionary-v1.bin": (SeriesFamily.DICTIONARY, FingerprintBlock(_IDS, _TABLE.fingerprints)),
    "labels-v1.bin": (SeriesFamily.LABELS, LabelBlock(_IDS, _TABLE.payloads)),
    "index-v1.bin": (
        SeriesFamily.INDEX,
        IndexBlock.of([label_key(7, "a", "bc")], ["a"], ["bc"], [pyroaring.BitMap([1, 70_000]).serialize()]),
    ),
    "samples-v1.bin": (
        SeriesFamily.SAMPLES,
        SampleBlock.of(
            472_222,
            np.array([3, 3, 3, 9, 9], np.uint32),
            np.array([0, 15_000, 30_001, 5, 3_599_999], np.int32),
            np.array([100.0, 130.0, 90.0, 0.25, STALE_NAN]),
        ),
    ),
    "metadata-v1.bin": (
        SeriesFamily.METADATA,
        MetadataBlock.of({"up": MetricMetadata("gauge", "Whether it is up."), "x": MetricMetadata("counter", "", "s")}),
    ),
}
# The layouts of today; those of version 1 are read and written anew in these.
_BLOCKS["dictionary-v2.bin"] = _BLOCKS["dictionary-v1.bin"]
_BLOCKS["labels-v2.bin"] = _BLOCKS["labels-v1.bin"]
_BLOCKS["samples-v2.bin"] = (
    SeriesFamily.SAMPLES,
    SampleBlock.of(
        472_222,
        np.repeat(np.array([3, 9, 10, 11, 70_000], np.uint32), [3, 3, 3, 4, 1]),
        np.array([0, 15_000, 30_001, 0, 15_000, 30_001, 5, 6, 7, 0, 15_000, 30_001, 3_599_999, 0], np.int32),
        np.array([1e2, 130, 90, 0.25, STALE_NAN, 1.75, 1 / 3, -0.0, 2, -0.0, np.inf, 20.5, 1e15, 7]),
    ),
)
_BLOCKS["samples-v3.bin"] = (
    SeriesFamily.SAMPLES,
    # Counters that count the same, pages, microseconds that were divided twice, and what layout 2 knew.
    SampleBlock.of(
        494_948,
        np.repeat(np.array([0, 1, 2, 3, 4], np.uint32), 4),
        np.tile(np.array([0, 15_000, 30_001, 3_599_999], np.int32), 5),
        np.concatenate(
            [
                [1e2, 130, 190, 191],
                [7e3, 7030, 7090, 7091],
                [8191, 4095, 1048575, -1],
                np.array([555_882_261, 556_264_674, 557_111_162, 557_240_661]) / 1000 / 1000,
                [1 / 3, STALE_NAN, -0.0, 2],
            ]
        ),
    ),
)
_BLOCKS["presence-v2.bin"] = (SeriesFamily.PRESENCE, PresenceBlock(pyroaring.BitMap([*range(500), 70_000])))
_RECORDS: dict[str, tuple[int, msgspec.Struct]] = {
    "store-record-v1.bin": (RecordKind.STORE, SeriesStoreRecord(format=1, next_tenant=3, commit=17)),
    "tenant-record-v1.bin": (RecordKind.NAMED, TenantRecord(2, 1_700_000_000_000)),
    "head-v1.bin": (RecordKind.HEAD, TenantHead(commit=9, next_serial=40, first_hour=472_000)),
    "store-record-v2.bin": (RecordKind.STORE, SeriesStoreRecord(format=2, next_tenant=3, commit=17)),
    "tenant-record-v2.bin": (RecordKind.NAMED, TenantRecord(2, 1_700_000_000_000)),
    "head-v2.bin": (RecordKind.HEAD, TenantHead(commit=9, next_serial=40, first_hour=472_000)),
}


@pytest.mark.parametrize("name", _BLOCKS)
def test_released_blocks_are_read_and_hold_what_was_written(name: str) -> None:
    family, block = _BLOCKS[name]
    found = FORMAT.block(family, (GOLDEN / name).read_bytes())
    assert _parts(found) == _parts(block)
    assert len(found) == len(block)


def _parts(block: Block) -> list[bytes]:
    return [part if isinstance(part, bytes) else part.tobytes() for part in block.encode().parts]


@pytest.mark.parametrize("name", _RECORDS)
def test_released_records_are_read_and_written_as_they_were(name: str) -> None:
    kind, record = _RECORDS[name]
    value = (GOLDEN / name).read_bytes()
    assert FORMAT.decode_record(kind, value, type(record)) == record
    if name.endswith("-v2.bin"):
        assert FORMAT.encode_record(kind, record) == value


def test_fingerprints_and_keys_never_change() -> None:
    assert _TABLE.fingerprints.pairs().tobytes().hex() == (GOLDEN / "fingerprints-v1.txt").read_text().strip()
    assert (hour_key(0), hour_key(-1), hour_of_key(hour_key(-5))) == (1 << 63, (1 << 63) - (1 << 30), -5)
    assert (day_of(0), day_of(-1), period_hours(day_of(23)), period_hours(-7)) == (
        1 << 32,
        (1 << 32) - 1,
        range(24),
        range(-7, -6),
    )
    assert label_key(0, "job", "a") - hour_key(0) == int((GOLDEN / "label-key-v1.txt").read_text())
    assert metric_key("up") == int((GOLDEN / "metric-key-v1.txt").read_text())
    assert tenant_key("größe") == b"\x02gr\xc3\xb6\xc3\x9fe"


@pytest.mark.parametrize("name", ["store-v1.msgpack", "store-v2.msgpack"])
def test_a_released_store_is_opened_and_answers(name: str) -> None:
    async def run() -> None:
        volume = MemoryVolume()
        entries = msgspec.msgpack.decode((GOLDEN / name).read_bytes(), type=list[tuple[bytes, bytes]])
        volume.land("keyvalue", tuple(entries))
        async with await TimeSeriesStore.over(MemoryKeyValue(volume)) as store:
            assert (await store.select([])).num_rows == 5
            assert (await store.verify()).problems == []
            assert store.position("queue") == 3
            await store.write(SampleBatch.of([{"__name__": "new"}], [0], [0], [1.0]), durable=True)
            assert (await store.select([])).num_rows == 6
            # Late samples of hours that are there, of a series that they know and of one that they do not.
            (hour, *_) = (await store.select([]))["timestamps_ms"][0].as_py()
            known = dict((await store.select([]))["labels"][0].as_py())
            late = SampleBatch.of([known, {"__name__": "very late"}], [0, 1], [hour, hour], [5.0, 6.0])
            await store.write(late, durable=True)
            await store.compact()
            assert (await store.select([]))["values"][0].as_py()[0] == 5.0
            assert (await store.select([])).num_rows == 7
            assert (await store.verify()).problems == []

    asyncio.run(run())
