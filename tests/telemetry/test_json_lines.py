"""Lines of JSON: columns found in the data, disagreements named, nothing that breaks the parser."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput, PenstockError
from penstock.records import Signal
from penstock.telemetry import DecodeLimits, RowSource, decode_json_lines, decode_records, encode_records

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


@pytest.mark.parametrize(
    "body",
    [
        b'{"": 1}',
        b"{" + b",".join(b'"c%d":%d' % (number, number) for number in range(2000)) + b"}",
        b'{"a": {"": 1}}',
        b'{"A": 1, "a": 2}',
        b'{"' + b"k" * 100_000 + b'": 1}',
        b'{"a.b": 1, "a": {"b": 2}}',
    ],
    ids=["no name", "as many columns as may be", "no name inside", "two cases", "a long name", "a dot"],
)
def test_what_is_taken_can_be_read_from_the_queue(body):
    """Rows that are acknowledged and then refused by the job would stop it, for every tenant."""
    try:
        batch = rows(body)
    except InvalidInput:
        return
    records, envelope = encode_records({"mine": batch})
    assert decode_records(records, envelope, 0)["mine"][0].to_pylist() == batch.to_pylist()


def test_a_column_without_a_name_is_refused():
    with pytest.raises(InvalidInput, match="no name"):
        rows(b'{"": 1}')
