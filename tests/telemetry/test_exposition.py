"""The one reader of metric text: what stands in it is read exactly, and what cannot be read is refused with its line."""

from __future__ import annotations

import math

import pytest

from penstock.errors import InvalidInput
from penstock.telemetry import ExpositionBatch, ExpositionExemplar, MetricFamily, family_of, read_exposition


def read(text: str, *, seconds: bool = True) -> ExpositionBatch:
    (batch,) = read_exposition(text.split("\n"), seconds=seconds)
    return batch


def test_exemplars_stay_with_their_samples() -> None:
    batch = read('a 1\nb_total 2 # {trace_id="x y",n="1"} 0.5 1.25\nc 3 7 # {} -Inf\n')
    assert batch.values == [1.0, 2.0, 3.0]
    assert batch.exemplars == {
        1: ExpositionExemplar({"trace_id": "x y", "n": "1"}, 0.5, 1_250_000_000),
        2: ExpositionExemplar({}, -math.inf, None),
    }


@pytest.mark.parametrize(
    ("text", "seconds", "time_ns"),
    [
        ("1700000000.123456789", True, 1_700_000_000_123_456_789),
        ("-0.5", True, -500_000_000),
        ("+2.", True, 2_000_000_000),
        ("1.5e3", True, 1_500_000_000_000),
        ("9007199254740991", False, 9_007_199_254_740_991_000_000),
        ("1500", False, 1_500_000_000),
    ],
)
def test_times_are_read_to_the_nanosecond(text: str, seconds: bool, time_ns: int) -> None:
    assert read(f"up 1 {text}", seconds=seconds).times_ns == [time_ns]


@pytest.mark.parametrize("text", ["1_0", "١", "0x10", "1e", "--1", "one", "1,5", "NaN1", "."])
def test_numbers_that_only_python_reads_are_refused(text: str) -> None:
    for line in (f"up {text}", f"up 1 {text}", f"up 1 # {{}} {text}", f"up 1 # {{}} 1 {text}"):
        with pytest.raises(InvalidInput, match="line 1"):
            read(line)


@pytest.mark.parametrize("time", ["NaN", "Inf", "1e999", "9" * 5000])
def test_a_time_must_be_a_finite_number(time: str) -> None:
    with pytest.raises(InvalidInput, match="line 1"):
        read(f"up 1 {time}")


def test_what_stands_behind_the_end_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"line 3 .*EOF"):
        read("up 1\n# EOF\nup 2\n# EOF\n")
    assert read("up 1\n# EOF\n\n").values == [1.0]


def test_a_text_that_was_cut_off_is_refused_where_it_must_end() -> None:
    with pytest.raises(InvalidInput, match="no end"):
        list(read_exposition(["up 1"], seconds=True, must_end=True))


def test_names_of_metadata_may_be_quoted() -> None:
    text = '# TYPE "a b" gauge\n# HELP "a b" It\\nis.\n# UNIT "a b" s\n# TYPE plain untyped\n# a comment\n# TYPES x'
    assert read(text).families == {"a b": MetricFamily("gauge", "It\nis.", "s"), "plain": MetricFamily()}


def test_a_suffix_belongs_to_a_family_whose_type_has_it() -> None:
    families = {"jobs": MetricFamily("counter"), "load": MetricFamily("gauge"), "wait": MetricFamily("histogram")}
    names = ["jobs", "jobs_total", "jobs_sum", "load", "load_count", "wait_bucket", "wait_total", "_total", "other"]
    assert [family_of(name, families) for name in names] == [
        "jobs",
        "jobs",
        None,
        "load",
        None,
        "wait",
        None,
        None,
        None,
    ]


def test_hostile_lines_are_refused_without_long_work() -> None:
    for line in (
        'a{b="' + "\\" * 100_001,
        "a{" * 50_000,
        'a{b="c"' * 20_000,
        "a " + "1" * 100_000 + "x",
        " # " * 50_000,
    ):
        with pytest.raises(InvalidInput):
            read("up 1\n" + "a" + line)
