"""Bundles come back from a frame as they went in: any schema, any slice, alone or many together."""

from __future__ import annotations

import struct

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Corrupt
from penstock.quiver import Bundle
from penstock.quiver.bundles.payload import decode_bundles, encode_bundles

NUMBERS = st.lists(st.one_of(st.none(), st.integers(-(2**62), 2**62)), max_size=6)
WORDS = st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=6)


def payload(bundles: list[Bundle]) -> memoryview:
    return memoryview(b"".join(bytes(part) for part in encode_bundles(bundles, 77)))


def columns(numbers: list, words: list) -> pa.RecordBatch:
    rows = min(len(numbers), len(words))
    return pa.record_batch(
        {
            "n": pa.array(numbers[:rows], pa.int64()),
            "w": pa.array(words[:rows], pa.string()),
            "nested": pa.array([{"a": [word]} for word in words[:rows]], pa.struct([("a", pa.list_(pa.string()))])),
        }
    )


BATCHES = st.one_of(
    st.builds(columns, NUMBERS, WORDS),
    st.builds(lambda words: pa.record_batch({"d": pa.array(words, pa.string()).dictionary_encode()}), WORDS),
    st.builds(lambda numbers: pa.record_batch({"n": pa.array(numbers, pa.int64())}), NUMBERS),
    st.builds(lambda batch: batch.slice(1, 2), st.builds(columns, NUMBERS, WORDS)),
    st.builds(lambda: pa.record_batch([], schema=pa.schema([]))),
    st.builds(lambda: pa.record_batch({"n": [1]}, metadata={b"k": b"v"})),
)
BUNDLES = st.builds(
    Bundle,
    st.dictionaries(st.sampled_from(["logs", "spans", "größe"]), BATCHES, min_size=1, max_size=3),
    st.text(max_size=4),
    st.text(max_size=4),
    st.one_of(st.none(), st.tuples(st.integers(0, 5), st.integers(5, 9))),
)


@given(st.lists(BUNDLES, min_size=1, max_size=5))
def test_what_goes_into_a_frame_comes_out_of_it(bundles: list[Bundle]) -> None:
    ingestion_ms, found = decode_bundles(payload(bundles))
    assert ingestion_ms == 77
    assert len(found) == len(bundles)
    for one, other in zip(bundles, found, strict=True):
        assert (one.signal, one.identity, one.event_time_ns) == (other.signal, other.identity, other.event_time_ns)
        assert list(one.slots) == list(other.slots)
        for slot, batch in one.slots.items():
            assert batch.equals(other.slots[slot], check_metadata=True), slot


def test_small_bundles_share_a_body() -> None:
    alone = len(payload([Bundle({"logs": pa.record_batch({"n": [1]})})]))
    many = len(payload([Bundle({"logs": pa.record_batch({"n": [number]})}) for number in range(100)]))
    assert many < 20 * alone


@given(st.binary(max_size=200))
def test_rubbish_is_told_as_such(rubbish: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_bundles(memoryview(b"\xff\xff\xff\x7f" + rubbish))


def test_a_frame_without_runs_is_still_read() -> None:
    """The head had three members before runs came."""
    parts = encode_bundles([Bundle({"logs": pa.record_batch({"n": [1]})}, identity="a")], 5)
    (length,) = struct.unpack_from("<I", parts[0])
    head = msgspec.msgpack.decode(parts[0][4 : 4 + length])
    assert head[3] == []
    short = msgspec.msgpack.encode(head[:3])
    prefix = struct.pack("<I", len(short)) + short
    payload = b"".join([prefix + bytes(-len(prefix) % 8), *(bytes(part) for part in parts[1:])])
    (found,) = decode_bundles(memoryview(payload))[1]
    assert (found.identity, found.rows) == ("a", 1)


def test_a_run_whose_rows_are_not_those_of_its_body_is_corrupt() -> None:
    parts = encode_bundles([Bundle({"logs": pa.record_batch({"n": [number]})}) for number in range(3)], 5)
    (length,) = struct.unpack_from("<I", parts[0])
    head = msgspec.msgpack.decode(parts[0][4 : 4 + length])
    for rows in ([1, 1], [1, 1, 2], [4, -1, 0], []):
        head[3][0][4] = rows
        body = msgspec.msgpack.encode(head)
        prefix = struct.pack("<I", len(body)) + body
        with pytest.raises(Corrupt):
            decode_bundles(
                memoryview(b"".join([prefix + bytes(-len(prefix) % 8), *(bytes(part) for part in parts[1:])]))
            )
