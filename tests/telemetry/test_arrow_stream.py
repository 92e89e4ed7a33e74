"""Arrow streams of clients are taken as they are or refused by name; none unpacks beyond its bound."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from tests.telemetry.samples import SOURCE, some_logs

from penstock.errors import InvalidInput
from penstock.records import Signal
from penstock.telemetry import DecodeLimits, decode_arrow, decode_otlp, encode_arrow
from penstock.telemetry.arrow.ipc_bounds import unpacked_size
from penstock.telemetry.columns.schemas import LOGS


def test_rows_of_a_signal_survive_the_way() -> None:
    batch = decode_otlp(Signal.LOGS, some_logs().SerializeToString(), SOURCE).batch
    assert decode_arrow(encode_arrow(batch), SOURCE, Signal.LOGS).batch.equals(batch)


def test_columns_that_are_missing_are_null_and_the_tenant_is_the_senders() -> None:
    table = pa.table({"time": pa.array([5], pa.timestamp("ns", tz="UTC")), "body": ["x"], "tenant": ["mallory"]})
    batch = decode_arrow(encode_arrow(table), SOURCE, Signal.LOGS).batch
    assert batch.schema.equals(LOGS)
    assert batch.column("tenant").to_pylist() == ["acme"]
    assert batch.column("severity").to_pylist() == [None]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"body": ["x"]}, "no column 'time'"),
        ({"time": [5]}, "'time' has type int64"),
        ({"time": pa.array([5], pa.timestamp("ns", tz="UTC")), "color": ["x"]}, "'color' is not one of logs"),
        ({"time": pa.array([5], pa.timestamp("ns", tz="UTC")), "body": [7]}, "'body' has type int64"),
    ],
)
def test_a_column_that_does_not_fit_its_signal_is_named(columns: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        decode_arrow(encode_arrow(pa.table(columns)), SOURCE, Signal.LOGS)


def test_a_table_of_your_own_keeps_its_columns_and_gets_a_tenant() -> None:
    table = pa.table({"a": [1, 2], "b": [["x"], None], "tenant": ["m", "m"]})
    batch = decode_arrow(encode_arrow(table), SOURCE).batch
    assert batch.schema.names == ["tenant", "a", "b"]
    assert batch.to_pylist()[0] == {"tenant": "acme", "a": 1, "b": ["x"]}
    empty = decode_arrow(encode_arrow(table.slice(0, 0)), SOURCE).batch
    assert (empty.num_rows, empty.schema.names) == (0, ["tenant", "a", "b"])


def test_columns_of_one_name_are_refused() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(InvalidInput, match="twice"):
        decode_arrow(encode_arrow(table), SOURCE)


def test_the_size_that_a_stream_claims_is_known_before_it_is_unpacked() -> None:
    table = pa.table(
        {"zeros": pa.array([0] * 1_000_000, pa.int64()), "d": pa.array(["x"] * 1_000_000).dictionary_encode()}
    )
    body = encode_arrow(table)
    assert len(body) < 100_000
    assert 12_000_000 <= unpacked_size(body) <= 12_500_000
    with pytest.raises(InvalidInput, match="unpacked"):
        decode_arrow(body, SOURCE, limits=DecodeLimits(unpacked_bytes_max=10_000_000))


def test_a_buffer_that_claims_terabytes_is_refused() -> None:
    body = bytearray(encode_arrow(pa.table({"a": pa.array(range(10_000), pa.int64())})))
    at = body.find(struct.pack("<q", 80_000))
    assert at > 0
    body[at : at + 8] = struct.pack("<q", 1 << 42)
    with pytest.raises(InvalidInput, match="unpacked"):
        decode_arrow(bytes(body), SOURCE)


def test_offsets_that_point_outside_are_refused() -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"a": ["abc", "def", "ghi"]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body = bytearray(sink.getvalue().to_pybytes())
    at = body.find(struct.pack("<iiii", 0, 3, 6, 9))
    body[at + 4 : at + 8] = struct.pack("<i", 1000)
    with pytest.raises(InvalidInput, match="cannot be read"):
        decode_arrow(bytes(body), SOURCE)


def test_a_file_and_other_bytes_are_refused() -> None:
    for body in (b"ARROW1\0\0", b"", b"hello", b"\xff\xff\xff\xff\x10\0\0\0"):
        with pytest.raises(InvalidInput):
            decode_arrow(body, SOURCE)
