"""Short texts are read from bytes in bulk as the protobuf project's parser reads them; everything else is left to it."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from tests.telemetry.samples import SOURCE

from penstock.records import Signal
from penstock.telemetry import decode_otlp
from penstock.telemetry.otlp.decode import request_message
from penstock.telemetry.remote_write.messages import label
from penstock.telemetry.wire.outline import Uncommon
from penstock.telemetry.wire.text_pairs import text_pairs


def attribute(key: str, **value: Any) -> bytes:
    found = KeyValue(key=key)
    for name, one in value.items():
        setattr(found.value, name, one)
    return found.SerializeToString()


def name_and_value(name: str, value: str) -> bytes:
    body: bytes = label()(name=name, value=value).SerializeToString()
    return body


def read(*entries: bytes, is_nested: bool) -> tuple[list[bool], list[str], list[str]]:
    plain, first, second = text_pairs(pa.array(entries, pa.binary()), is_nested=is_nested)
    return plain.tolist(), first.to_pylist(), second.to_pylist()


def test_attributes_that_are_texts_are_read_and_others_left() -> None:
    entries = [
        attribute("a", string_value="x"),
        attribute("n", int_value=10),
        attribute("\u00e9", string_value=""),
        attribute("k" * 127, string_value="v" * 125),
        attribute("k", string_value="v" * 126),
        attribute("k" * 128, string_value="v"),
        attribute("", string_value="v"),
        attribute("empty"),
        b"",
    ]
    plain, keys, values = read(*entries, is_nested=True)
    assert plain == [True, False, True, True, False, False, False, False, False]
    assert keys == ["a", "\u00e9", "k" * 127]
    assert values == ["x", "", "v" * 125]


def test_labels_are_read_and_those_with_an_empty_text_left() -> None:
    entries = [name_and_value("job", "api"), name_and_value("job", ""), name_and_value("", "x"), b"\n\x03jo"]
    assert read(*entries, is_nested=False) == ([True, False, False, False], ["job"], ["api"])


def test_nothing_is_nothing() -> None:
    for entries in ((), (b"",), (b"", b"")):
        assert read(*entries, is_nested=True) == ([False] * len(entries), [], [])


def test_what_is_no_utf8_is_left_to_the_parser_that_refuses_it() -> None:
    with pytest.raises(Uncommon):
        read(b"\x0a\x01\xff\x12\x01a", is_nested=False)
    with pytest.raises(Uncommon):
        read(b"\x0a\x01a\x12\x03\x0a\x01\xff", is_nested=True)


def test_a_slice_is_read_from_where_it_begins() -> None:
    entries = pa.array([name_and_value("a", "b"), name_and_value("c", "d"), name_and_value("e", "f")], pa.binary())
    _, names, values = text_pairs(entries.slice(1, 1), is_nested=False)
    assert (names.to_pylist(), values.to_pylist()) == (["c"], ["d"])


@pytest.mark.parametrize("is_nested", [True, False])
def test_mutated_entries_are_left_or_mean_what_the_parser_reads(is_nested: bool) -> None:
    chance, passed = random.Random(3), 0
    message = KeyValue if is_nested else label()
    for _ in range(3000):
        body = bytearray(attribute("key", string_value="value") if is_nested else name_and_value("key", "value"))
        for _ in range(chance.randint(1, 2)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        try:
            plain, first, second = read(b"\x12", bytes(body), b"\x0a", is_nested=is_nested)
        except Uncommon:
            continue
        assert not plain[0]
        assert not plain[2]
        if not plain[1]:
            continue
        passed += 1
        found = message()
        try:
            found.ParseFromString(bytes(body))
        except DecodeError:
            pytest.fail(f"{body.hex()} is malformed")
        assert found.SerializeToString(deterministic=True) == bytes(body)
        assert (first[0], second[0]) == (
            (found.key, found.value.string_value) if is_nested else (found.name, found.value)
        )
    assert passed


def test_attributes_without_anything_are_kept_in_long_requests() -> None:
    request = request_message(Signal.METRICS)()
    gauge = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m").gauge
    for number in range(2000):
        gauge.data_points.add(time_unix_nano=1 + number, as_double=1.0).attributes.add()
    batch = decode_otlp(Signal.METRICS, request.SerializeToString(), SOURCE).batch
    assert batch.column("labels")[0].as_py() == [("", "")]
    assert batch.column("label_types")[1999].as_py() == [6]
