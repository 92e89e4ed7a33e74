"""Blocks of samples: every bit comes back, whole or of some series, and what is alike is stored once."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import Corrupt
from penstock.timeseries import SeriesTable
from penstock.timeseries.arrays import Array, Floats
from penstock.timeseries.format.decimals import decimals_of
from penstock.timeseries.format.sample_block import SampleBlock
from penstock.timeseries.payloads import labels_of_payload, labels_of_payloads
from penstock.timeseries.promql.source import STALE_NAN

SAMPLES = 240
ODD = np.array(
    [0.0, -0.0, np.nan, np.inf, -np.inf, STALE_NAN, 5e-324, 1.7e308, -1.7e308, 2.0**53, 2.0**53 + 2, 0.1, 1e22, 1e-12]
)


def block_of(*series: Floats, times: Sequence[Array] | None = None) -> SampleBlock:
    """A block of some series, a sample every 15 s unless times are given."""
    when = [15_000 * np.arange(len(one)) for one in series] if times is None else times
    ids = np.repeat(np.arange(len(series), dtype=np.uint32) * 3, [len(one) for one in series])
    return SampleBlock.of(7, ids, np.concatenate(when).astype(np.int32), np.concatenate(series).astype(np.float64))


def body_of(block: SampleBlock) -> bytes:
    return b"".join(part if isinstance(part, bytes) else part.tobytes() for part in block.encode().parts)


def read_back(block: SampleBlock) -> SampleBlock:
    return SampleBlock.decode(memoryview(body_of(block)))


def assert_same(found: Floats, expected: Floats) -> None:
    assert found.view(np.uint64).tolist() == expected.view(np.uint64).tolist()


def random_series(entropy: np.random.Generator, count: int) -> Floats:
    kinds = [
        lambda: np.cumsum(entropy.integers(0, 100, count)),
        lambda: np.round(entropy.normal(50, 9, count), int(entropy.integers(0, 10))),
        lambda: entropy.normal(0, 1, count),
        lambda: np.full(count, entropy.choice(ODD)),
        lambda: np.where(
            entropy.random(count) < 0.2, entropy.choice(ODD, count), np.round(entropy.normal(0, 9, count), 2)
        ),
        lambda: 1e9 + 1500.0 * np.arange(count),
        lambda: entropy.integers(-(2**53), 2**53, count),
        lambda: entropy.integers(0, 2**63, count).view(np.float64),
        lambda: 4096 * entropy.integers(-50, 10**6, count) + int(entropy.integers(0, 4096)),
        lambda: np.cumsum(entropy.integers(0, 10**6, count)) / 1000 / 1000,
        lambda: np.cumsum(entropy.integers(0, 10**6, count)) * entropy.choice([1e-3, -1e-6, 1e-9]),
    ]
    found: Floats = kinds[int(entropy.integers(len(kinds)))]().astype(np.float64)
    return found


@pytest.mark.cases(quick=5)
@pytest.mark.parametrize("seed", range(20))
def test_every_bit_comes_back_of_all_series_and_of_some(seed: int) -> None:
    entropy = np.random.default_rng(seed)
    for _ in range(20):
        shared = np.sort(entropy.choice(3_600_000, int(entropy.integers(1, 30)), replace=False))
        times = [
            shared
            if entropy.random() < 0.6
            else np.sort(entropy.choice(3_600_000, int(entropy.integers(1, 30)), False))
            for _ in range(int(entropy.integers(1, 24)))
        ]
        columns = [random_series(entropy, len(when)) for when in times]
        for place in range(1, len(columns)):
            if entropy.random() < 0.3 and len(columns[place]) == len(columns[place - 1]):
                # The same, or what counts the same things from another beginning.
                with np.errstate(invalid="ignore"):
                    columns[place] = columns[place - 1] + (1000.0 if entropy.random() < 0.5 else 0.0)
        block = block_of(*columns, times=times)
        few = np.flatnonzero(entropy.random(len(block.ids)) < 0.2)
        partly, whole = read_back(block), read_back(block)
        rows = np.concatenate([np.empty(0, np.int64), *(np.arange(*block.offsets[[at, at + 1]]) for at in few)])
        found_times, found_values = partly.samples_of(few)
        assert found_times.tolist() == block.times[rows].tolist()
        assert_same(found_values, block.values[rows])
        assert (whole.ids.tolist(), whole.times.tolist()) == (block.ids.tolist(), block.times.tolist())
        assert_same(whole.values, block.values)
        assert_same(partly.values, block.values)


def test_series_that_were_sampled_together_share_their_times() -> None:
    jitter = np.cumsum(np.random.default_rng(1).integers(14_990, 15_010, SAMPLES))
    alone = len(body_of(block_of(np.zeros(SAMPLES), times=[jitter])))
    together = len(body_of(block_of(*[np.zeros(SAMPLES)] * 50, times=[jitter] * 50)))
    assert together < alone + 50 * 8


def test_constant_and_steady_series_take_no_column() -> None:
    steady = [np.full(SAMPLES, 5.25), 3.0 + 1500 * np.arange(SAMPLES), np.full(SAMPLES, STALE_NAN)]
    assert len(body_of(block_of(*steady))) < 400


def test_numbers_with_decimal_places_take_little_more_than_their_entropy() -> None:
    """Steps of a normal distribution in hundredths, with a standard deviation of 50 of them: 7.7 bits each."""
    entropy = np.random.default_rng(2)
    walks = [np.round(50 + np.cumsum(entropy.normal(0, 0.5, SAMPLES)), 2) for _ in range(200)]
    assert len(body_of(block_of(*walks))) / (200 * SAMPLES) < 1.03 * 7.7 / 8


def test_a_stale_marker_costs_its_series_a_few_bytes() -> None:
    counters = [np.cumsum(np.random.default_rng(row).integers(0, 9, SAMPLES)).astype(np.float64) for row in range(40)]
    before = len(body_of(block_of(*counters)))
    ended = [np.append(one[:-1], STALE_NAN) for one in counters]
    assert len(body_of(block_of(*ended))) < before + 40 * 6 + 40


@pytest.mark.parametrize(
    ("values", "exponent"),
    [([1.0, 2.0], 0), ([0.5, 3.0], 1), ([1e-12], 12), ([1e-13], -1), ([1 / 3], -1), ([2.0**53], 0), ([1e300], -1)],
)
def test_a_series_is_decimal_if_its_whole_numbers_give_it_back(values: list[float], exponent: int) -> None:
    exponents, numbers = decimals_of(np.array(values), np.array([0, len(values)]))
    assert exponents.tolist() == [exponent]
    if exponent >= 0:
        assert (numbers / 10.0**exponent).tolist() == values


def test_any_cut_or_changed_body_is_refused_or_read_without_a_crash() -> None:
    """The checksum finds damage; what passes it all the same must not be more than `Corrupt`."""
    entropy = np.random.default_rng(3)
    block = block_of(*(random_series(entropy, 20) for _ in range(8)))
    body = body_of(block)
    for size in range(0, len(body), 7):
        with pytest.raises(Corrupt):
            assert len(SampleBlock.decode(memoryview(body[:size])).values) == 160
    for at in range(0, len(body), 5):
        changed = body[:at] + bytes([body[at] ^ 0x11]) + body[at + 1 :]
        try:
            found = SampleBlock.decode(memoryview(changed))
            assert len(found.values) == len(found.times)
        except Corrupt:
            pass


def test_labels_of_many_series_are_those_of_each() -> None:
    rows = [
        {"__name__": f"m{row % 7}", "größe": "ü" * (row % 5), **({"job": f"\x00{row}"} if row % 3 else {})}
        for row in range(300)
    ]
    payloads = SeriesTable.of(rows).payloads
    assert labels_of_payloads(payloads) == [labels_of_payload(one) for one in payloads.to_pylist()]
    assert labels_of_payloads(payloads[17:200]) == labels_of_payloads(payloads)[17:200]


@pytest.mark.parametrize("series", [1, 300])
def test_labels_that_are_cut_short_are_refused(series: int) -> None:
    whole = SeriesTable.of([{"__name__": "up", "job": "a"}] * series).payloads.to_pylist()
    for broken in (whole[0][:-1], whole[0][:3], whole[0] + struct.pack("<I", 0)):
        with pytest.raises(Corrupt, match="cut short"):
            labels_of_payloads(pa.array([*whole[1:], broken], pa.binary()))


@pytest.mark.processes
def test_an_answer_imports_no_pandas() -> None:
    """It takes longer to import than the answer does."""
    golden = Path(__file__).parents[1] / "formats" / "golden" / "timeseries" / "store-v1.msgpack"
    program = f"""
import asyncio, pathlib, sys
import msgspec
from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.timeseries import TimeSeriesStore
async def main():
    volume = MemoryVolume()
    entries = msgspec.msgpack.decode(pathlib.Path({str(golden)!r}).read_bytes(), type=list[tuple[bytes, bytes]])
    volume.land("keyvalue", tuple(entries))
    async with await TimeSeriesStore.over(MemoryKeyValue(volume)) as store:
        found = await store.series()
        for labels in found:
            assert (await store.query_range('last_over_time({{__name__=~".+"}}[1000w])', 0, 2**50, 2**50)).columns.labels
    assert len(found) == 5
    return "pandas" in sys.modules
assert not asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_an_hour_of_the_largest_whole_numbers_comes_back() -> None:
    values = np.random.default_rng(3).integers(-(2**53), 2**53, 3_600).astype(np.float64)
    block = block_of(values, times=[np.arange(3_600) * 1000])
    assert_same(read_back(block).values, values)


def test_series_that_count_the_same_are_stored_once() -> None:
    """The highest bucket of a histogram is its count."""
    steps = np.cumsum(np.random.default_rng(1).integers(0, 1000, SAMPLES)).astype(np.float64)
    one, three = (len(body_of(block_of(*(steps + 10.0 * place for place in range(count))))) for count in (1, 3))
    assert three < 1.2 * one


def test_values_beside_their_decimals_take_little_more_than_decimals() -> None:
    """What exporters compute as `n / 1000 / 1000` misses n / 1000000 by a unit in the last place now and then."""
    micros = np.cumsum(np.random.default_rng(1).integers(0, 10**6, SAMPLES)).astype(np.float64)
    near, exact = micros / 1000 / 1000, micros / 1_000_000
    assert (near != exact).any()
    assert len(body_of(block_of(near))) < len(body_of(block_of(exact))) + SAMPLES // 2


def test_sizes_in_pages_take_as_much_as_their_pages() -> None:
    pages = np.random.default_rng(1).integers(0, 10**4, SAMPLES).astype(np.float64)
    assert len(body_of(block_of(4096 * pages + 512))) < len(body_of(block_of(pages))) + 16
