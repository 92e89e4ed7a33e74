"""Lines of JSON: columns found in the data, disagreements named, nothing that breaks the parser."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput, PenstockError
from penstock.records import Signal
from penstock.telemetry import DecodeLimits, RowSource, decode_json_lines

SOURCE = RowSource("acme", 5)


def rows(body, **given):
    return decode_json_lines(body, SOURCE, **given).batch


def test_columns_and_types_are_found_and_the_tenant_is_the_senders():
    batch = rows(b'{"a": 1, "b": "x", "tenant": "other"}\n\n{"a": 2, "c": [1.5]}\n')
    assert batch.to_pylist() == [
        {"tenant": "acme", "a": 1, "b": "x", "c": None},
        {"tenant": "acme", "a": 2, "b": None, "c": [1.5]},
    ]


def test_times_become_times():
    batch = rows(b'{"time": "2026-11-16T20:00:00Z"}\n')
    assert pa.types.is_timestamp(batch.schema.field("time").type)


@pytest.mark.parametrize(
    "body", [b"", b"\n \n", b"[1]", b'"x"', b'{"a": 1}\n{"a"', b"\xff\n", b'{"a":1}{"a":2}', b"{}\n"]
)
def test_what_is_no_object_a_line_is_refused(body):
    with pytest.raises(InvalidInput):
        rows(body)


def test_a_column_with_two_types_is_named():
    with pytest.raises(InvalidInput, match="a"):
        rows(b'{"a": 1}\n{"a": {"b": 2}}\n')


@pytest.mark.parametrize("depth", [100, 900, 100_000])
def test_deep_nesting_is_refused_and_breaks_nothing(depth):
    with pytest.raises(InvalidInput, match="line 1"):
        rows(b'{"a": ' + b"[" * depth + b"]" * depth + b"}")


def test_too_many_rows_are_refused_before_they_are_read():
    with pytest.raises(InvalidInput, match="rows"):
        rows(b"{}\n" * 11, limits=DecodeLimits(rows_max=10))


def test_the_table_of_a_signal_takes_its_own_types_only():
    with pytest.raises(InvalidInput):
        rows(b'{"time": 1, "metric": "up"}\n', signal=Signal.METRICS)


@given(st.binary(max_size=80))
def test_any_bytes_give_rows_or_our_errors(body):
    try:
        rows(b'{"a": ' + body + b"}")
    except PenstockError:
        return
