"""Distinct entries are decoded once; what is kept of them is bounded, and never taken for that of other bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.telemetry.samples import SOURCE, first_write

from penstock.errors import InvalidInput
from penstock.records import Signal
from penstock.telemetry import DecodeLimits, RowSource, decode_otlp, decode_write_requests
from penstock.telemetry.columns.entries import EntryColumns, EntryMemory, distinct_entries, key_ranks
from penstock.telemetry.otlp.decode import request_message
from penstock.telemetry.remote_write.decode import RemoteWriteVersion

LIMITS = DecodeLimits()


class CountingDecoder:
    """Takes bytes for keys, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, entries: Any, limits: DecodeLimits) -> EntryColumns:
        self.asked += 1
        keys = entries.cast(pa.string())
        return EntryColumns(keys, keys, np.zeros(len(keys), np.int8), key_ranks(keys))


def entries(*texts: str) -> Any:
    return pa.array([text.encode() for text in texts], pa.binary())


def test_each_distinct_entry_is_decoded_once_and_every_entry_is_one_of_them() -> None:
    found, codes = distinct_entries(entries("b", "a", "b", "b"), LIMITS, CountingDecoder(), EntryMemory())
    assert found.keys.take(pa.array(codes)).to_pylist() == ["b", "a", "b", "b"]
    assert found.ranks.tolist() == [1, 0]


def test_the_same_entries_are_looked_up_and_others_are_not_taken_for_them() -> None:
    memory, decode = EntryMemory(), CountingDecoder()
    for texts in (("ab", "c"), ("a", "bc"), ("abc",), ("ab", "c")):
        assert memory.decoded(entries(*texts), LIMITS, decode).keys.to_pylist() == list(texts)
    assert decode.asked == 3


def test_another_limit_or_decoder_is_asked_anew() -> None:
    memory, one, other = EntryMemory(), CountingDecoder(), CountingDecoder()
    memory.decoded(entries("a"), LIMITS, one)
    memory.decoded(entries("a"), DecodeLimits(depth_max=1), one)
    memory.decoded(entries("a"), LIMITS, other)
    assert (one.asked, other.asked) == (2, 1)


def test_a_slice_is_not_taken_for_the_whole() -> None:
    memory, decode = EntryMemory(), CountingDecoder()
    whole = entries("a", "b", "c")
    assert memory.decoded(whole, LIMITS, decode).keys.to_pylist() == ["a", "b", "c"]
    assert memory.decoded(whole.slice(0, 1), LIMITS, decode).keys.to_pylist() == ["a"]
    assert memory.decoded(whole.slice(1), LIMITS, decode).keys.to_pylist() == ["b", "c"]


def test_what_is_kept_is_bounded_and_the_last_used_stays() -> None:
    """Also of sets of a few bytes each: what they take beside those counts."""
    memory, decode = EntryMemory(bytes_max=100_000), CountingDecoder()
    for number in range(500):
        memory.decoded(entries("often"), LIMITS, decode)
        memory.decoded(entries(f"once {number}"), LIMITS, decode)
        assert memory.bytes <= 100_000
    assert decode.asked == 501
    assert len(memory) < 30


def test_many_entries_at_once_are_not_kept() -> None:
    memory, decode = EntryMemory(), CountingDecoder()
    memory.decoded(entries(*[f"{number:08}" for number in range(10_000)]), LIMITS, decode)
    assert memory.bytes == 0


def test_entries_that_are_refused_are_refused_again() -> None:
    def refusing(entries: Any, limits: DecodeLimits) -> EntryColumns:
        raise InvalidInput("no")

    memory = EntryMemory()
    for _ in range(2):
        with pytest.raises(InvalidInput):
            memory.decoded(entries("a"), LIMITS, refusing)


def otlp(points: int, value: str = "x") -> bytes:
    request = request_message(Signal.METRICS)()
    scope = request.resource_metrics.add().scope_metrics.add()
    gauge = scope.metrics.add(name="m").gauge
    for number in range(points):
        point = gauge.data_points.add(time_unix_nano=1 + number, as_double=number)
        for key in ("b", "a"):
            point.attributes.add(key=key).value.string_value = f"{value}{number % 7}"
        point.attributes.add(key="n").value.int_value = number % 3
    body: bytes = request.SerializeToString()
    return body


def test_the_second_request_of_a_sender_has_the_rows_of_the_first_and_another_tenant_its_own() -> None:
    body = otlp(2000)
    first, again = (decode_otlp(Signal.METRICS, body, SOURCE).batch for _ in range(2))
    assert first.equals(again)
    other = decode_otlp(Signal.METRICS, body, RowSource("other", SOURCE.received_ns)).batch
    assert set(other.column("tenant").to_pylist()) == {"other"}
    assert other.column("labels").equals(first.column("labels"))
    assert decode_otlp(Signal.METRICS, otlp(2000, "y"), SOURCE).batch.column("labels")[0].as_py() == [
        ("a", "y0"),
        ("b", "y0"),
        ("n", "0"),
    ]


def test_series_that_are_all_different_have_their_own_labels() -> None:
    series = [({"__name__": "m", "i": str(number), "j": "k"}, [(1, 1.0), (2, 2.0)]) for number in range(3000)]
    body = first_write(series).SerializeToString()
    batch = decode_write_requests([body, body], SOURCE, RemoteWriteVersion.V1).batch
    assert batch.num_rows == 12_000
    assert batch.column("labels").to_pylist()[:12_000:2] == [[("i", str(n)), ("j", "k")] for n in range(3000)] * 2
    assert batch.column("value").to_pylist()[:4] == [1.0, 2.0, 1.0, 2.0]


def test_labels_in_any_order_are_sorted_and_a_label_given_twice_is_refused() -> None:
    message = first_write([({"z": "1", "__name__": "m", "a": str(number)}, [(1, 1.0)]) for number in range(2000)])
    batch = decode_write_requests([message.SerializeToString()], SOURCE, RemoteWriteVersion.V1).batch
    assert batch.column("labels")[5].as_py() == [("a", "5"), ("z", "1")]
    message.timeseries[7].labels.add(name="z", value="2")
    found = decode_write_requests([message.SerializeToString()], SOURCE, RemoteWriteVersion.V1)
    assert (found.batch.num_rows, found.rejected) == (1999, 1)
    assert "has a label twice" in found.message
