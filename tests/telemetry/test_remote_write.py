"""Remote write 1.0 and 2.0 become rows; what cannot be kept is refused by name, and the rest is taken."""

from __future__ import annotations

import struct
from typing import Any

import cramjam
import numpy as np
import pytest
from tests.telemetry.samples import SOURCE, first_write, packed, second_write

from penstock.errors import InvalidInput
from penstock.telemetry import DecodeLimits, RemoteWriteVersion, decode_remote_write
from penstock.telemetry.columns.schemas import METRICS

SERIES = [
    ({"__name__": "up", "job": "a", "zone": "x"}, [(1_000, 1.0), (2_000, 0.0)]),
    ({"__name__": "load", "job": "b"}, [(1_500, 0.5)]),
]
SAMPLES = sum(len(samples) for _, samples in SERIES)
BOTH = [(RemoteWriteVersion.V1, first_write), (RemoteWriteVersion.V2, second_write)]


@pytest.mark.parametrize(("version", "write"), BOTH)
def test_samples_become_rows_with_the_name_as_metric(version: RemoteWriteVersion, write: Any) -> None:
    batch = decode_remote_write(packed(write(SERIES)), SOURCE, version).batch
    assert batch.schema.equals(METRICS)
    assert batch.column("metric").to_pylist() == ["up", "up", "load"]
    assert batch.column("value").to_pylist() == [1.0, 0.0, 0.5]
    assert [time.value for time in batch.column("time")] == [10**9, 2 * 10**9, 15 * 10**8]
    assert batch.column("labels").to_pylist()[0] == [("job", "a"), ("zone", "x")]
    assert set(batch.column("convention").to_pylist()) == {"prometheus"}


def test_a_stale_marker_keeps_its_bits() -> None:
    stale = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
    batch = decode_remote_write(packed(first_write([({"__name__": "up"}, [(1, stale)])])), SOURCE).batch
    assert np.asarray(batch.column("value")).view(np.uint64)[0] == 0x7FF0000000000002


def test_type_and_help_come_from_the_metadata_of_the_same_request() -> None:
    request = first_write(SERIES)
    request.metadata.add(type=2, metric_family_name="load", help="Load.", unit="ratio")
    batch = decode_remote_write(packed(request), SOURCE).batch
    assert batch.column("type").to_pylist() == ["unknown", "unknown", "gauge"]
    assert batch.column("description").to_pylist() == [None, None, "Load."]


def test_second_version_has_metadata_a_series_and_the_start_of_a_sample() -> None:
    request = second_write(SERIES)
    request.symbols.append("Is it up?")
    request.timeseries[0].metadata.type = 1
    request.timeseries[0].metadata.help_ref = len(request.symbols) - 1
    request.timeseries[0].samples[0].start_timestamp = 500
    batch = decode_remote_write(packed(request), SOURCE, RemoteWriteVersion.V2).batch
    assert batch.column("type").to_pylist() == ["counter", "counter", "unknown"]
    assert batch.column("description").to_pylist()[0] == "Is it up?"
    assert [start.value for start in batch.column("start_time")] == [5 * 10**8, None, None]


def test_exemplars_go_with_the_first_sample_or_alone() -> None:
    request = first_write(SERIES)
    request.timeseries[0].exemplars.add(value=4, timestamp=900).labels.add(name="trace_id", value="abc")
    alone = request.timeseries.add()
    alone.labels.add(name="__name__", value="only")
    alone.exemplars.add(value=5, timestamp=700)
    rows = decode_remote_write(packed(request), SOURCE).batch.select(["metric", "value", "exemplars"]).to_pylist()
    assert [len(row["exemplars"] or []) for row in rows] == [1, 0, 0, 1]
    assert rows[0]["exemplars"][0]["trace_id"] == "abc"
    assert (rows[3]["metric"], rows[3]["value"]) == ("only", None)


def test_a_native_histogram_becomes_an_exponential_one() -> None:
    request = first_write([({"__name__": "h"}, [])])
    histogram = request.timeseries[0].histograms.add(count_int=5, sum=3.5, schema=3, zero_count_int=1, timestamp=2)
    histogram.positive_spans.add(offset=2, length=2)
    histogram.positive_spans.add(offset=1, length=1)
    histogram.positive_deltas.extend([1, 1, -1])
    row = decode_remote_write(packed(request), SOURCE).batch.to_pylist()[0]
    assert (row["type"], row["scale"], row["count"], row["sum"]) == ("exponential_histogram", 3, 5, 3.5)
    # Prometheus' bucket i is (base^(i-1), base^i], OTLP's is (base^i, base^(i+1)].
    assert (row["positive_offset"], row["positive_counts"]) == (1, [1, 2, 0, 1])


def test_a_native_histogram_with_bounds_of_its_own_becomes_an_explicit_one() -> None:
    request = first_write([({"__name__": "h"}, [])])
    histogram = request.timeseries[0].histograms.add(count_int=3, sum=1, schema=-53, timestamp=2)
    histogram.custom_values.extend([0.5, 1])
    histogram.positive_spans.add(offset=1, length=2)
    histogram.positive_deltas.extend([1, 1])
    row = decode_remote_write(packed(request), SOURCE).batch.to_pylist()[0]
    assert (row["type"], row["bounds"], row["counts"]) == ("histogram", [0.5, 1.0], [0, 1, 2])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"count_float": 1.5}, "fractional"),
        ({"schema": 9}, "schema 9"),
        ({"positive_deltas": [1, 2, 3]}, "more counts than buckets"),
        ({"positive_deltas": []}, "fewer counts"),
        ({"positive_deltas": [-1, 0]}, "below zero"),
    ],
)
def test_histograms_that_cannot_be_kept_are_refused_by_name(change: dict[str, Any], words: str) -> None:
    request = first_write([({"__name__": "odd"}, []), *SERIES])
    histogram = request.timeseries[0].histograms.add(count_int=5, schema=3, timestamp=2)
    histogram.positive_spans.add(offset=2, length=2)
    histogram.positive_deltas.extend([1, 1])
    for name, value in change.items():
        if isinstance(value, list):
            del getattr(histogram, name)[:]
            getattr(histogram, name).extend(value)
        else:
            setattr(histogram, name, value)
    found = decode_remote_write(packed(request), SOURCE)
    assert (found.rejected, found.batch.num_rows) == (1, SAMPLES)
    assert "'odd'" in found.message
    assert words in found.message


def test_a_span_that_asks_for_billions_of_buckets_is_refused() -> None:
    request = first_write([({"__name__": "bomb"}, [])])
    histogram = request.timeseries[0].histograms.add(count_int=5, timestamp=2)
    histogram.positive_spans.add(offset=0, length=1)
    histogram.positive_spans.add(offset=2**31 - 1, length=2**32 - 1)
    histogram.positive_deltas.append(1)
    found = decode_remote_write(packed(request), SOURCE)
    assert (found.rejected, found.batch.num_rows) == (1, 0)
    assert "spans" in found.message


@pytest.mark.parametrize(("version", "write"), BOTH)
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"job": "a"}, "no name"),
        ({"__name__": "up", "": "a"}, "without a name"),
        ({"__name__": "up", "a": ""}, "without a value"),
    ],
)
def test_one_wrong_series_is_refused_alone_and_named(
    version: RemoteWriteVersion, write: Any, labels: dict[str, str], words: str
) -> None:
    samples = [(1, 1.0), (2, 2.0)]
    found = decode_remote_write(packed(write([(labels, samples), *SERIES, (labels, samples)])), SOURCE, version)
    assert found.batch.equals(decode_remote_write(packed(write(SERIES)), SOURCE, version).batch)
    assert found.rejected == 4
    assert words in found.message
    assert "1 more like it" in found.message


def test_a_label_twice_is_refused() -> None:
    request = first_write(SERIES)
    request.timeseries[0].labels.add(name="job", value="again")
    found = decode_remote_write(packed(request), SOURCE)
    assert "twice" in found.message
    assert found.rejected + found.batch.num_rows == SAMPLES


def test_a_name_twice_is_refused() -> None:
    request = first_write(SERIES)
    request.timeseries[0].labels.add(name="__name__", value="again")
    found = decode_remote_write(packed(request), SOURCE)
    assert "twice" in found.message
    assert found.rejected + found.batch.num_rows == SAMPLES


def test_a_request_of_which_every_series_is_wrong_has_no_rows_and_tells_all() -> None:
    found = decode_remote_write(packed(first_write([({}, [(1, 1.0)]), ({"a": "b"}, [])])), SOURCE)
    assert (found.rejected, found.batch.num_rows) == (2, 0)


def test_series_with_references_beyond_the_symbols_and_odd_ones_are_refused() -> None:
    request = second_write(SERIES)
    kept = len(decode_remote_write(packed(request), SOURCE, RemoteWriteVersion.V2).batch)
    kept -= len(request.timeseries[0].samples)
    request.timeseries[0].labels_refs.append(99)
    found = decode_remote_write(packed(request), SOURCE, RemoteWriteVersion.V2)
    assert "without a value" in found.message
    assert found.batch.num_rows == kept
    request.timeseries[0].labels_refs.append(99)
    found = decode_remote_write(packed(request), SOURCE, RemoteWriteVersion.V2)
    assert "reference 99" in found.message
    assert found.batch.num_rows == kept


def test_symbols_that_do_not_begin_with_the_empty_one_refuse_the_request() -> None:
    request = second_write(SERIES)
    request.symbols[0] = "x"
    with pytest.raises(InvalidInput, match="must be empty"):
        decode_remote_write(packed(request), SOURCE, RemoteWriteVersion.V2)


@pytest.mark.parametrize("time", [2**62, -(2**63), 2**63 - 1])
def test_a_time_that_no_row_can_hold_is_refused(time: int) -> None:
    found = decode_remote_write(packed(first_write([({"__name__": "up"}, [(time, 1.0), (5, 2.0)])])), SOURCE)
    assert (found.rejected, found.batch.num_rows) == (1, 1)
    assert "2262" in found.message


@pytest.mark.parametrize("version", list(RemoteWriteVersion))
def test_an_empty_request_has_no_rows(version: RemoteWriteVersion) -> None:
    assert decode_remote_write(bytes(cramjam.snappy.compress_raw(b"")), SOURCE, version).batch.num_rows == 0


def test_a_snappy_bomb_is_refused_by_its_claim() -> None:
    bomb = b"\xff\xff\xff\xff\x0f" + b"\0" * 20
    with pytest.raises(InvalidInput, match="bytes"):
        decode_remote_write(bomb, SOURCE)
    with pytest.raises(InvalidInput, match="snappy"):
        decode_remote_write(b"\x05abc", SOURCE)


def test_more_rows_than_the_bound_are_refused() -> None:
    with pytest.raises(InvalidInput, match="rows"):
        decode_remote_write(packed(first_write(SERIES)), SOURCE, limits=DecodeLimits(rows_max=2))
