from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaigns import examples

from penstock.errors import Corrupt, InvalidInput, Unsupported
from penstock.records import ArrowEnvelope, Signal, TelemetryEnvelope
from penstock.relay import RelayMarks, RelayStamp, decode_part
from penstock.relay.outlets.parts import split_segment, split_table
from penstock.relay.outlets.stamp import encode_part


def stamp(ordinal: int = 1, part: int = 1, relay: str = "A") -> RelayStamp:
    return RelayStamp(relay, ordinal, 0, 10 + ordinal, part, 3, ["logs"])


def test_a_stamp_comes_back_as_it_was_behind_the_envelope_of_its_signal() -> None:
    payload = stamp().encode()
    assert ArrowEnvelope.decode(payload) == ArrowEnvelope(Signal.LOGS)
    assert RelayStamp.decode(payload) == stamp()


def test_rows_of_several_signals_have_the_envelope_of_none() -> None:
    payload = RelayStamp("A", 1, 0, 1, 1, 1, ["logs", "metrics"]).encode()
    assert ArrowEnvelope.decode(payload) == ArrowEnvelope(None)


def test_metadata_of_others_is_told_apart() -> None:
    assert RelayStamp.decode(ArrowEnvelope().encode() + b"theirs") is None
    with pytest.raises(Unsupported):
        RelayStamp.decode(TelemetryEnvelope(Signal.LOGS).encode())
    with pytest.raises(InvalidInput):
        RelayStamp.decode(b"\x01")


def test_the_envelopes_of_requests_and_of_rows_refuse_each_other() -> None:
    with pytest.raises(Unsupported):
        TelemetryEnvelope.decode(ArrowEnvelope(Signal.LOGS).encode())
    with pytest.raises(Unsupported):
        ArrowEnvelope.decode(bytes((1, 9, 2, 0)))


def test_marks_admit_each_batch_once_for_each_relay_and_survive_a_restart() -> None:
    marks = RelayMarks()
    assert [marks.admit(stamp(1, part)) for part in (1, 2, 2, 1, 3)] == [True, True, False, False, True]
    assert marks.admit(stamp(3, 1))
    assert not marks.admit(stamp(2, 9))
    again = RelayMarks(marks.state)
    assert not again.admit(stamp(3, 1))
    assert again.admit(stamp(1, 1, relay="B"))


@settings(max_examples=examples(40))
@given(
    st.lists(st.lists(st.text(max_size=8), max_size=30), min_size=1, max_size=3),
    st.integers(min_value=1, max_value=200),
)
def test_parts_hold_every_row_once_in_order_and_are_the_same_each_time(columns: list[list[str]], size: int) -> None:
    slots = {f"s{at}": [pa.table({"v": pa.array(column, pa.string())})] for at, column in enumerate(columns)}
    parts = split_segment(slots, size)
    again = split_segment(slots, size)
    assert [[(one.slot, one.table) for one in part] for part in parts] == [
        [(one.slot, one.table) for one in part] for part in again
    ]
    assert all(parts)
    back: dict[str, list[str]] = {slot: [] for slot in slots}
    for part in parts:
        for slot, tables in decode_part(encode_part([(one.slot, one.table) for one in part], "zstd")).items():
            for table in tables:
                back[slot] += table.column("v").to_pylist()
    assert back == {f"s{at}": column for at, column in enumerate(columns)}


def test_a_table_without_rows_keeps_its_schema_and_one_without_columns_its_place() -> None:
    empty = pa.table({"v": pa.array([], pa.int64())})
    assert [one.schema for one in split_table(empty, 10)] == [empty.schema]
    (part,) = split_segment({"s": [empty]}, 10)
    assert decode_part(encode_part([("s", part[0].table)], None))["s"][0].schema == empty.schema


def test_a_dictionary_and_metadata_survive_the_way() -> None:
    table = pa.table({"v": pa.array(["a", "b", "a"]).dictionary_encode()}).replace_schema_metadata({"k": "v"})
    (back,) = decode_part(encode_part([("s", table)], "zstd"))["s"]
    assert back.equals(table)
    assert back.schema.metadata == {b"k": b"v"}


def test_a_record_that_is_no_stream_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="not an Arrow stream"):
        decode_part([b"nonsense"])
