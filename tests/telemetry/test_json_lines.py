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
    "text",
    [
        "2026-11-16T20:00:00Z",
        "2026-11-16T20:00:00.5Z",
        "2026-11-16T20:00:00.123456789Z",
        "2026-11-16 20:00",
        "2026-11-16",
    ],
)
def test_a_time_has_one_type_however_many_digits_it_has(text):
    """The parser's own units made rows of one second conflict with those of the next."""
    schema = rows(b'{"time": "%s", "seen": "%s"}\n' % (text.encode(), text.encode())).schema
    assert schema.field("time").type == schema.field("seen").type == pa.timestamp("ns", tz="UTC")


def test_times_are_exact_with_zones_and_fractions_and_text_that_is_no_time_stays_text():
    body = b'{"a": "2026-11-16T20:00:00.000000001+02:00", "b": "2026-11-16T20:00:00.5Z", "c": null}\n'
    body += b'{"a": "2026-11-16T18:00:00Z", "b": "soon", "c": "1970-01-01T00:00:00.001Z"}\n'
    found = rows(body)
    assert found["a"].cast(pa.int64()).to_pylist() == [1_794_852_000_000_000_001, 1_794_852_000_000_000_000]
    assert found["b"].to_pylist() == ["2026-11-16T20:00:00.5Z", "soon"]
    assert found["c"].cast(pa.int64()).to_pylist() == [None, 1_000_000]


def test_a_time_that_nanoseconds_do_not_reach_is_refused_and_another_column_keeps_it():
    with pytest.raises(InvalidInput, match="1677 to 2262"):
        rows(b'{"time": "9999-12-31T00:00:00Z"}\n')
    assert rows(b'{"expires": "9999-12-31T00:00:00Z"}\n')["expires"][0].as_py().year == 9999


def test_rows_of_signals_can_be_written_in_json():
    time = b'"time": "2026-11-16T20:00:00Z"'
    (log,) = rows(
        b'{%s, "body": "hi", "severity": 9, "attributes": {"b": "2", "a": "1"}}' % time, signal=Signal.LOGS
    ).to_pylist()
    assert (log["body"], log["severity"], log["attributes"], log["tenant"]) == (
        "hi",
        9,
        [("a", "1"), ("b", "2")],
        "acme",
    )
    body = (
        b'{%s, "metric": "up", "type": "gauge", "convention": "prometheus", "value": 1, "labels": {"job": "a"}}\n'
        % time
    )
    more = b'{%s, "metric": "up", "type": "gauge", "convention": "prometheus", "value": 2}\n' % time
    empty = (
        b'{%s, "metric": "up", "type": "gauge", "convention": "prometheus", "labels": {}, "bounds": [1, 2]}\n' % time
    )
    found = rows(body + more + empty, signal=Signal.METRICS).to_pylist()
    assert [row["value"] for row in found] == [1.0, 2.0, None]
    assert [row["labels"] for row in found] == [[("job", "a")], None, []]
    assert found[2]["bounds"] == [1.0, 2.0]


@pytest.mark.parametrize(
    "column",
    [b'"value": 9007199254740993', b'"value": "1"', b'"labels": {"a": 1}', b'"flags": 3000000000', b'"other": 1'],
)
def test_what_a_signal_cannot_hold_exactly_is_refused_with_the_column_named(column):
    line = b'{"time": "2026-11-16T20:00:00Z", "metric": "up", "type": "gauge", "convention": "prometheus", %s}' % column
    with pytest.raises(InvalidInput, match=column.split(b'"')[1].decode()):
        rows(line, signal=Signal.METRICS)


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
