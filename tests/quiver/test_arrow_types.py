"""Every type that Arrow has goes through the log and a segment, and no bundle fails or stops another one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.quiver.worlds import bundle, drained, opened, small, torn

from penstock.errors import Corrupt, InvalidInput
from penstock.quiver import Bundle, Quiver, SegmentConfig
from penstock.quiver.bundles.payload import decode_bundles, encode_bundles
from penstock.quiver.segment.open_segment import OpenSegment
from penstock.testing import ManualClock

LETTERS = pa.array(list("abcab"))
OFFSETS = pa.array(range(6), pa.int32())
WORDS = LETTERS.dictionary_encode()
# Sealed by time, so that a test says when.
MINUTES = SegmentConfig(target_size=1 << 20, max_open_duration=60.0)
LARGE = {"segment": SegmentConfig(target_size=1 << 20, max_open_duration=1e6, event_time_column="at")}


def extension(kind: pa.BaseExtensionType, storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, storage)


def columns() -> Iterator[tuple[str, pa.Array]]:
    sixteen = pa.array([b"0123456789abcdef"] * 5, pa.binary(16))
    pairs = pa.array([[1.0, 2.0]] * 5, pa.list_(pa.float32(), 2))
    lists = [[1], [2, 3], None, [], [4]]
    tags, places = pa.array([0, 1, 0, 1, 0], pa.int8()), pa.array([0, 0, 1, 1, 2], pa.int32())
    yield "string_view", pa.array(["a", "long enough for a buffer", None, "x", "y"], pa.string_view())
    yield "binary_view", pa.array([b"a", b"long enough for a buffer", None, b"x", b"y"], pa.binary_view())
    yield "list_view", pa.array(lists, pa.list_view(pa.int32()))
    yield "large_list_view", pa.array(lists, pa.large_list_view(pa.int32()))
    yield "run_end_encoded", pa.RunEndEncodedArray.from_arrays(pa.array([3, 5], pa.int32()), pa.array(["a", "b"]))
    yield "dense_union", pa.UnionArray.from_dense(tags, places, [pa.array([1, 2, 3]), pa.array(["a", "b"])])
    yield "sparse_union", pa.UnionArray.from_sparse(tags, [pa.array(range(5)), LETTERS])
    yield "map", pa.array([[("a", 1)], [], None, [("b", 2)], []], pa.map_(pa.string(), pa.int64()))
    yield "struct", pa.array([{"a": 1, "b": "x"}] * 5)
    yield "null", pa.nulls(5)
    yield "decimal", pa.array([Decimal("1.23")] * 5, pa.decimal256(40, 2))
    yield "fixed_size_list", pairs
    yield "interval", pa.array([(1, 2, 3)] * 5, pa.month_day_nano_interval())
    yield "uuid", extension(pa.uuid(), sixteen)
    yield "tensor", extension(pa.fixed_shape_tensor(pa.float32(), [2]), pairs)
    yield "opaque_dictionary", extension(pa.opaque(WORDS.type, "words", "us"), WORDS)
    yield "list_of_dictionary", pa.ListArray.from_arrays(OFFSETS, WORDS)
    yield "struct_of_dictionary", pa.StructArray.from_arrays([WORDS], names=["word"])
    yield "map_of_dictionary", pa.MapArray.from_arrays(OFFSETS, LETTERS, WORDS)  # type: ignore[call-overload]
    yield "dictionary_of_struct", pa.DictionaryArray.from_arrays(tags, pa.array([{"a": 1}, {"a": 2}]))


COLUMNS = dict(columns())


async def rows(store: Quiver) -> list[Any]:
    """Of all deliveries, in order."""
    found: list[Any] = []
    while (delivery := await store.next("s", 0.0)) is not None:
        for table in (await delivery.read())["logs"]:
            found += table.column("c").to_pylist()
        await delivery.ack()
    return found


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_comes_back_from_a_segment_and_from_the_log(name: str, together: bool) -> None:
    """Whole, as a slice and without rows, sent together or one by one."""

    async def scenario() -> None:
        batch = pa.record_batch({"c": COLUMNS[name], "n": pa.array(range(5))})
        bundles = [Bundle({"logs": one}) for one in (batch.slice(0, 0), batch, batch.slice(1, 3), batch.slice(5))]
        sent = COLUMNS[name].to_pylist() + COLUMNS[name].slice(1, 3).to_pylist()
        disk = torn()
        store = await opened(disk, small(**LARGE))
        await store.register("s")
        await (store.ingest_many(bundles) if together else asyncio.gather(*map(store.ingest, bundles)))
        disk.crash()
        store = await opened(disk, small(**LARGE))
        assert store.findings.replayed_bundles == 4
        await store.register("s")
        await store.flush()
        assert store.segments[0].bundles == 4
        assert await rows(store) == sent
        await store.ingest(bundles[0])
        await store.flush()
        assert await rows(store) == []
        await store.close()

    asyncio.run(scenario())


@pytest.mark.cases(quick=9)
@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_is_delivered_from_memory_and_cut_again_the_same(name: str) -> None:
    """So many batches that they are put together, and some without rows."""

    async def scenario() -> None:
        batch = pa.record_batch({"c": COLUMNS[name], "n": pa.array(range(5))})
        pieces = [batch.slice(at % 5, 1 + at % 3) for at in range(130)] + [batch.slice(0, 0)]
        disk, clock = torn(), ManualClock()
        store = await opened(disk, small(segment=MINUTES), clock=clock)
        await store.register("s")
        waiting = asyncio.create_task(store.next("s"))
        for piece in pieces:
            await store.ingest(Bundle({"logs": piece, "none": batch.slice(0, 0)}))
        await clock.run_for(60.5)
        delivery = await waiting
        assert delivery is not None
        assert store.segments == [], "it has no file"
        found = await delivery.read()
        assert [table.num_rows for table in found["none"]] == [0]
        disk.crash()
        store = await opened(disk, small(segment=MINUTES), clock=clock)
        await store.register("s")
        await store.flush()
        again = await store.next("s", 0.0)
        assert again is not None
        assert again.segment_seq == delivery.segment_seq
        came = [row for table in found["logs"] for row in table.column("c").to_pylist()]
        assert came == [row for piece in pieces for row in piece.column(0).to_pylist()]
        for one, other in zip(found["logs"], (await again.read())["logs"], strict=True):
            assert one.column("c").to_pylist() == other.column("c").to_pylist()
            assert [len(part) for part in one.to_batches()] == [len(part) for part in other.to_batches()]
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("count", [2, 20])
def test_dictionaries_that_do_not_fit_together_go_into_several_files(count: int) -> None:
    """Indices of eight bits reach 127 values; Arrow says no to more, and the segment must be written all the same."""

    async def scenario() -> None:
        store = await opened(torn(), small(**LARGE))
        await store.register("s")
        sent: list[str] = []
        for number in range(count):
            words = [f"{number}-{word}" for word in range(100)]
            column = pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), pa.array(words))
            await store.ingest(Bundle({"logs": pa.record_batch({"c": column})}))
            sent += words
        await store.flush()
        assert len(store.segments[0].streams) == count
        assert len({stream.fingerprint for stream in store.segments[0].streams}) == 1
        assert await rows(store) == sent
        await store.close()

    asyncio.run(scenario())


def test_a_time_that_nanoseconds_do_not_reach_fails_nobody() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk, small(**LARGE))
        await store.register("s")
        near, far = (pa.array([1, seconds], pa.timestamp("s", "UTC")) for seconds in (2, 253402300799))
        batches = [
            pa.record_batch({"at": times, "n": pa.array([at] * 2)}) for at, times in enumerate((near, far, near))
        ]
        acks = await asyncio.gather(*(store.ingest(Bundle({"logs": batch})) for batch in batches))
        assert [ack.bundle_seq for ack in acks] == [1, 2, 3]
        assert (await store.scan(1_000_000_001, 2_000_000_001)).num_rows == 2
        assert (await store.scan(3_000_000_000)).column("n").to_pylist() == [1]
        disk.crash()
        store = await opened(disk, small(**LARGE))
        await store.register("s")
        await store.flush()
        assert store.segments[0].event_time_ns == (1_000_000_000, (1 << 63) - 1)
        assert await drained(store) == [0, 1, 2]
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("times", [pa.array([1, 2]), pa.array(["a", "b"]), None])
def test_a_column_of_event_time_that_is_missing_or_no_time_is_left_out(times: pa.Array | None) -> None:
    async def scenario() -> None:
        store = await opened(torn(), small(**LARGE))
        await store.register("s")
        columns = {"n": pa.array([7, 7]), **({} if times is None else {"at": times})}
        await store.ingest(Bundle({"logs": pa.record_batch(columns)}))
        await store.flush()
        assert store.segments[0].event_time_ns is None
        assert (await store.scan(0, 1)).num_rows == 2, "rows without a time are never left out"
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "changes",
    [
        {"signal": None},
        {"identity": 5},
        {"identity": "\ud800"},
        {"slots": {"\ud800": pa.record_batch({"n": [1]})}},
        {"slots": {5: pa.record_batch({"n": [1]})}},
        {"slots": {"logs": pa.table({"n": [1]})}},
        {"event_time_ns": (1.5, 2.0)},
        {"event_time_ns": (1, 1 << 63)},
        {"event_time_ns": (2, 1)},
        {"event_time_ns": [1, 2]},
    ],
)
def test_what_the_log_could_not_hold_is_no_bundle(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Bundle(**{"slots": {"logs": pa.record_batch({"n": [1]})}, **changes})


def test_a_dictionary_of_dictionaries_is_no_bundle() -> None:
    """Arrow writes it and cannot read it back: it would be lost with the process."""
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["x", "y"]).dictionary_encode())
    for nested in (column, pa.StructArray.from_arrays([column], names=["c"])):
        with pytest.raises(InvalidInput, match="dictionary of dictionaries"):
            Bundle({"logs": pa.record_batch({"c": nested})})


def test_an_entry_that_cannot_be_encoded_fails_alone() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk)
        bundles = [bundle(number) for number in range(3)]
        summary = bundles[1].summary
        object.__setattr__(bundles[1], "summary", (*summary[:3], "\ud800", *summary[4:]))
        object.__setattr__(bundles[1], "identity", "\ud800")
        answers = await asyncio.gather(*map(store.ingest, bundles), return_exceptions=True)
        assert isinstance(answers[1], UnicodeEncodeError)
        assert [answer.bundle_seq for answer in answers if not isinstance(answer, BaseException)] == [1, 2]
        disk.crash()
        store = await opened(disk)
        assert store.findings.replayed_bundles == 2
        await store.register("s")
        await store.flush()
        assert await drained(store) == [0, 2]
        await store.close()

    asyncio.run(scenario())


def test_single_rows_are_put_together_in_memory() -> None:
    """A batch takes kilobytes beside its rows: thousands of single rows must not."""
    segment = OpenSegment(0.0)
    for number in range(1000):
        segment.add([bundle(number, rows=1)], number + 1, 0)
    ((slot, mark),) = segment.streams
    assert len(segment.streams[slot, mark]) < 150
    assert segment.table(slot, mark).column("n").to_pylist() == list(range(1000))
    assert (segment.bundles, segment.rows, segment.first_bundle, segment.last_bundle) == (1000, 1000, 1, 1000)


def test_a_frame_of_rubbish_is_corrupt_whatever_arrow_calls_it() -> None:
    """Its checksum holds: some other release wrote it, or a bug did."""
    head, *bodies = map(bytes, encode_bundles([bundle(1)], 5))
    refused = 0
    for at in range(len(head)):
        damaged = head[:at] + bytes([head[at] ^ 0xFF]) + head[at + 1 :]
        try:
            decode_bundles(memoryview(b"".join([damaged, *bodies])))
        except Corrupt:
            refused += 1
    assert refused > len(head) // 2


def test_schemas_that_fit_into_no_table_are_named() -> None:
    async def scenario() -> None:
        store = await opened(torn(), small(**LARGE))
        await store.register("s")
        for value in (1, "one"):
            await store.ingest(Bundle({"logs": pa.record_batch({"v": [value], "n": pa.array([1])})}))
        await store.flush()
        delivery = await store.next("s", 0.0)
        assert delivery is not None
        for reading in (delivery.table, store.scan):
            with pytest.raises(InvalidInput, match="schemas do not fit"):
                await reading()
        assert (await store.scan(columns=["n"])).num_rows == 2
        assert [table.num_rows for table in (await delivery.read())["logs"]] == [1, 1]
        await store.close()

    asyncio.run(scenario())
