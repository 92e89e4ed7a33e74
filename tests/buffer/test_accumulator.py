"""Gathering inputs: sizes that are honest, metadata that every record still finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.buffer.config import ProducerConfig
from penstock.buffer.format.batch import DECODED_RECORDS_MAX, RECORDS_MAX, decode_batch
from penstock.buffer.format.manifest import Descriptor
from penstock.buffer.producing.accumulator import Input, OpenBatch
from penstock.errors import InvalidInput

CONFIG = ProducerConfig(flush_size_bytes=100, max_buffered_inputs=3, max_in_flight_bytes=400)


def offered(*records: bytes, metadata: bytes = b"") -> Input:
    return Input.of(list(records), metadata, CONFIG)


def test_an_input_weighs_its_bytes_its_length_fields_and_its_range() -> None:
    assert offered(b"ab", b"", metadata=b"xyz").size == 2 + 2 * 4 + 3 + 16


def test_an_input_no_bound_will_ever_admit_is_refused_at_once() -> None:
    with pytest.raises(InvalidInput, match="can never be accepted"):
        offered(bytes(181))
    assert offered(bytes(180)).size == 200


def test_metadata_must_be_bytes() -> None:
    with pytest.raises(InvalidInput, match="metadata is str"):
        Input.of([b"x"], "text", CONFIG)  # type: ignore[arg-type]


def test_a_batch_is_full_by_size_or_by_inputs() -> None:
    batch = OpenBatch(0.0)
    batch.add(offered(b"x"), 0)
    assert batch.full(CONFIG) is None
    batch.add(offered(b"x"), 0)
    batch.add(offered(b"x"), 0)
    assert batch.full(CONFIG) == "inputs"
    big = OpenBatch(0.0)
    big.add(offered(bytes(80)), 0)
    assert big.full(CONFIG) == "size"


@pytest.mark.slow
def test_a_batch_is_full_by_records_long_before_a_consumer_refuses_it() -> None:
    batch = OpenBatch(0.0)
    batch.add(Input.of([b""] * (RECORDS_MAX - 1), b"", ProducerConfig()), 0)
    assert batch.full(ProducerConfig()) is None
    batch.add(Input.of([b""] * RECORDS_MAX, b"", ProducerConfig()), 0)
    assert batch.full(ProducerConfig()) == "records"
    assert batch.block.count < DECODED_RECORDS_MAX


def test_metadata_over_the_bound_of_one_input_is_refused_by_name() -> None:
    config = ProducerConfig(metadata_bytes_max=100)
    assert Input.of([b"x"], bytes(100), config).metadata == bytes(100)
    with pytest.raises(InvalidInput, match=r"metadata of 101 bytes .* metadata_bytes_max"):
        Input.of([b"x"], bytes(101), config)


def test_metadata_that_no_manifest_could_hold_is_refused_whatever_its_own_bound() -> None:
    config = ProducerConfig(metadata_bytes_max=65 * 1024 * 1024)
    with pytest.raises(InvalidInput, match="manifest_bytes_max"):
        Input.of([b"x"], bytes(65 * 1024 * 1024), config)


inputs = st.lists(
    st.tuples(
        st.lists(st.binary(max_size=3), min_size=1, max_size=3), st.sampled_from([b"", b"a", b"b"]), st.integers(0, 3)
    ),
    min_size=1,
    max_size=12,
)


@given(inputs)
def test_every_record_keeps_its_metadata_and_time_however_ranges_are_merged(
    calls: list[tuple[list[bytes], bytes, int]],
) -> None:
    batch, expected, now_ms = OpenBatch(0.0), [], 1000
    for records, metadata, later in calls:
        now_ms += later
        batch.add(Input.of(records, metadata, ProducerConfig()), now_ms)
        expected += [(record, metadata, now_ms) for record in records]
    found = decode_batch(batch.block.seal())
    descriptor = Descriptor(0, "x", tuple(batch.metadata))
    ranges = [descriptor.metadata_of(index) for index in range(len(found))]
    assert [(bytes(record), one.payload, one.ingestion_time_ms) for record, one in zip(found, ranges, strict=True)] == (
        expected
    )
    assert len(batch.metadata) <= len(calls)


def test_inputs_of_one_millisecond_with_one_payload_share_a_range() -> None:
    batch = OpenBatch(0.0)
    for now_ms in (5, 5, 5, 6):
        batch.add(offered(b"x", metadata=b"m"), now_ms)
    assert [(one.start_index, one.ingestion_time_ms) for one in batch.metadata] == [(0, 5), (3, 6)]
