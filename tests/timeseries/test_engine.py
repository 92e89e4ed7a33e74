"""The engine's door: typed results, annotations, and bounds that refuse hostile queries before they cost anything."""

from __future__ import annotations

import json
import math
import re
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import AtCapacity, DeadlineExceeded, InvalidInput, Unsupported
from penstock.testing import ManualClock
from penstock.timeseries.promql import (
    Engine,
    EngineConfig,
    Matcher,
    MatrixResult,
    MemorySource,
    ScalarResult,
    SeriesColumns,
    StringResult,
    VectorResult,
)
from penstock.timeseries.promql.regex import anchored, substituted
from penstock.timeseries.promql.source import STALE_BITS, STALE_NAN, is_stale

MINUTE = 60_000


def source(count: int = 3, minutes: int = 30) -> MemorySource:
    times = np.arange(minutes) * MINUTE
    return MemorySource(
        ({"__name__": "m_total", "i": str(number)}, times, times / MINUTE * (number + 1)) for number in range(count)
    )


def engine(config: EngineConfig | None = None) -> Engine:
    return Engine(source(), config)


def test_each_type_of_expression_has_its_result() -> None:
    kinds = {"1": ScalarResult, "'x'": StringResult, "m_total": VectorResult, "m_total[2m]": MatrixResult}
    assert {text: type(engine().query(text, MINUTE)) for text in kinds} == kinds


def test_json_is_the_answer_of_prometheus_api() -> None:
    answer = engine().query('m_total{i="1"}', 2 * MINUTE).to_json()
    assert answer == {
        "status": "success",
        "data": {
            "resultType": "vector",
            "result": [{"metric": {"__name__": "m_total", "i": "1"}, "value": [120.0, "4"]}],
        },
    }
    matrix = engine().query_range("sum(m_total)", 0, MINUTE, MINUTE).to_json()
    assert matrix["data"]["result"] == [{"metric": {}, "values": [[0.0, "0"], [60.0, "6"]]}]
    assert json.loads(json.dumps(matrix)) == matrix


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("1/0", "+Inf"),
        ("-1/0", "-Inf"),
        ("0/0", "NaN"),
        ("1e21", "1e+21"),
        ("1e-7", "1e-7"),
        ("0.1+0.2", "0.30000000000000004"),
        ("1e20", "100000000000000000000"),
    ],
)
def test_numbers_in_json_are_written_as_prometheus_writes_them(expression: str, text: str) -> None:
    assert engine().query(expression, 0).to_json()["data"]["result"][1] == text


def test_arrow_has_a_row_for_each_sample_of_a_vector_and_each_series_of_a_matrix() -> None:
    vector = engine().query("m_total", MINUTE).to_arrow()
    assert vector.column_names == ["labels", "timestamp_ms", "value"]
    assert vector.to_pylist()[2] == {
        "labels": [("__name__", "m_total"), ("i", "2")],
        "timestamp_ms": MINUTE,
        "value": 3.0,
    }
    matrix = engine().query_range("m_total", 0, MINUTE, MINUTE).to_arrow()
    assert matrix.to_pylist()[1]["timestamps_ms"] == [0, MINUTE]
    assert matrix.to_pylist()[1]["values"] == [0.0, 2.0]
    assert engine().query("nothing", 0).to_arrow().num_rows == 0
    assert engine().query("1", 0).to_arrow().to_pylist() == [{"timestamp_ms": 0, "value": 1.0}]


def test_annotations_come_with_the_result_and_name_their_place() -> None:
    result = engine().query("quantile(2, m_total) + 0 * sum(rate({i='0', __name__=~'m.*'}[5m]))", 10 * MINUTE)
    assert result.annotations.warnings == ("PromQL warning: quantile value should be between 0 and 1, got 2 (1:10)",)
    gauge = Engine(MemorySource([({"__name__": "gauge"}, [0, MINUTE], [1, 2])]))
    infos = gauge.query("rate(gauge[5m])", MINUTE).annotations.infos
    assert infos == (
        'PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "gauge" (1:6)',
    )


def test_a_staleness_marker_keeps_its_bits_and_ends_a_series() -> None:
    assert np.float64(STALE_NAN).view(np.uint64) == STALE_BITS
    values = np.array([1.0, STALE_NAN, math.nan])
    assert is_stale(values).tolist() == [False, True, False]
    stale = Engine(MemorySource([({"__name__": "a"}, [0, MINUTE, 2 * MINUTE], values)]))
    assert len(stale.query("a", MINUTE).to_arrow()) == 0
    assert len(stale.query("a", 2 * MINUTE).to_arrow()) == 1


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(0, 10**9, 1), (0, 2**53, 1), (-(2**53), 2**53, 2)],
)
def test_a_query_of_a_billion_steps_is_refused_before_anything_is_read(start: int, end: int, step: int) -> None:
    class Unread:
        def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesColumns:
            raise AssertionError("read")

    with pytest.raises(AtCapacity, match="too many steps"):
        Engine(Unread()).query_range("m_total", start, end, step)


@pytest.mark.parametrize("expression", ["sum_over_time(m_total[100y:1ms])", "max_over_time(vector(1)[250y:1ms])"])
def test_a_subquery_of_too_many_steps_is_refused(expression: str) -> None:
    with pytest.raises(AtCapacity, match="too many samples"):
        engine().query(expression, 10**12)


def test_series_and_samples_are_bounded() -> None:
    with pytest.raises(AtCapacity, match="too many series"):
        engine(EngineConfig(series_max=2)).query("m_total", 0)
    with pytest.raises(AtCapacity, match="too many samples"):
        engine(EngineConfig(samples_max=20)).query("rate(m_total[30m])", 29 * MINUTE)
    with pytest.raises(AtCapacity, match="too many samples"):
        engine(EngineConfig(samples_max=100)).query_range("m_total", 0, 29 * MINUTE, MINUTE // 2)


def test_a_long_expression_is_refused_unread() -> None:
    with pytest.raises(AtCapacity, match="bytes"):
        engine().query("a" * 70_000, 0)


def test_a_query_that_takes_too_long_stops() -> None:
    clock = ManualClock()

    class Slow(MemorySource):
        def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesColumns:
            clock.advance(7)
            return super().select(matchers, start_ms, end_ms)

    slow = Slow([({"__name__": "a"}, [0], [1])])
    config = EngineConfig(timeout_seconds=10)
    assert len(Engine(slow, config, clock=clock).query("a", 0).to_arrow()) == 1
    with pytest.raises(DeadlineExceeded, match="10 s"):
        Engine(slow, config, clock=clock).query("a + a", 0)


def test_a_pattern_that_would_explode_is_answered_in_linear_time() -> None:
    hostile = Engine(MemorySource([({"__name__": "a", "l": "a" * 5_000 + "!"}, [0], [1])]))
    assert len(hostile.query('a{l=~"(a+)+(a|aa)*$"}', 0).to_arrow()) == 0
    assert len(hostile.query('label_replace(a, "x", "$1", "l", "((a*)*)*b")', 0).to_arrow()) == 1


@pytest.mark.parametrize("pattern", ["(", "a{1001}", "(?=a)", r"\\1", r"\\C", "((a{100}){100}){100}", "x" * 20_000])
def test_a_pattern_that_re2_does_not_take_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInput):
        engine().query(f'm_total{{i=~"{pattern}"}}', 0)


def test_what_is_wrong_with_a_pattern_is_told_in_words() -> None:
    with pytest.raises(InvalidInput) as refused:
        engine().query(f'm_total{{i=~"{"[" * 500}"}}', 0)
    assert "missing ]" in str(refused.value)
    assert "b'" not in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("start", "end", "step"), [(0, 1, 0), (0, 1, -1), (2, 1, 1), (0, 2**60, 2**59), (-(2**60), 0, 2**59)]
)
def test_times_and_steps_that_make_no_query_are_refused(start: int, end: int, step: int) -> None:
    with pytest.raises(InvalidInput):
        engine().query_range("m_total", start, end, step)


@pytest.mark.parametrize(("start", "end", "step"), [(0, 10, 1.5), (0.5, 10, 1), (0, None, 1), (0, 10, "1")])
def test_times_and_steps_that_are_no_whole_numbers_are_refused(start: Any, end: Any, step: Any) -> None:
    with pytest.raises(InvalidInput, match="whole number"):
        engine().query_range("m_total", start, end, step)


def test_numpys_whole_numbers_are_times() -> None:
    start, end, step = np.array([0, 600_000, 60_000])
    found = engine().query_range("m_total", start, end, step)
    assert found.to_json() == engine().query_range("m_total", 0, 600_000, 60_000).to_json()


@pytest.mark.parametrize("expression", [None, b"m_total", 5])
def test_an_expression_that_is_no_text_is_refused(expression: Any) -> None:
    with pytest.raises(InvalidInput, match="not text"):
        engine().query(expression, 0)


@pytest.mark.parametrize("expression", ["m_total[5m]", "'text'"])
def test_only_scalars_and_instant_vectors_are_evaluated_over_a_range(expression: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be evaluated over a range"):
        engine().query_range(expression, 0, MINUTE, MINUTE)


@pytest.mark.parametrize("expression", ["start_timestamp(m_total)", "m_total </ 1"])
def test_what_is_not_supported_is_refused_by_name(expression: str) -> None:
    with pytest.raises(Unsupported, match="is not supported"):
        engine(EngineConfig(experimental=True)).query(expression, 0)


def test_experimental_functions_need_their_setting() -> None:
    with pytest.raises(InvalidInput, match="not enabled"):
        engine().query("mad_over_time(m_total[5m])", 0)


@pytest.mark.parametrize(
    "expression",
    [
        "nothing",
        "rate(nothing[5m])",
        "sum(nothing)",
        "nothing + m_total",
        "topk(1, nothing)",
        "nothing or nothing",
        "histogram_quantile(0.5, nothing)",
        "count_values('v', nothing)",
        "sort(nothing)",
        "max_over_time(nothing[5m:1m])",
        "label_replace(nothing, 'a', 'b', 'c', 'd')",
        "deriv(nothing[5m])",
    ],
)
def test_nothing_makes_nothing(expression: str) -> None:
    assert engine().query(expression, 0).to_json()["data"]["result"] == []
    assert engine().query_range(expression, 0, MINUTE, MINUTE).to_json()["data"]["result"] == []


def test_a_source_in_memory_sorts_samples_and_the_last_of_one_time_counts() -> None:
    memory = MemorySource([({"__name__": "a", "empty": ""}, [MINUTE, 0, MINUTE], [1, 2, 3])])
    columns = memory.select([], 0, MINUTE)
    assert columns.labels == [(("__name__", "a"),)]
    assert columns.timestamps.tolist() == [0, MINUTE]
    assert columns.values.tolist() == [2.0, 3.0]


def test_a_source_in_memory_refuses_a_series_given_twice_or_torn() -> None:
    with pytest.raises(InvalidInput, match="twice"):
        MemorySource([({"a": "b"}, [0], [1]), ({"a": "b", "c": ""}, [0], [1])])
    with pytest.raises(InvalidInput, match="timestamps"):
        MemorySource([({"a": "b"}, [0, 1], [1])])


def test_far_times_do_not_overflow_the_search() -> None:
    far = 2**52
    distant = Engine(MemorySource(({"__name__": "a", "i": str(i)}, [-far, 0, far], [1, 2, 3]) for i in range(2_000)))
    result = distant.query_range("count(count_over_time(a[200y]))", -far, far, far)
    assert [value for _, value in result.to_json()["data"]["result"][0]["values"]] == ["2000"] * 3


@pytest.mark.parametrize("setting", ["steps_max", "depth_max", "lookback_ms", "samples_max", "timeout_seconds"])
def test_a_bound_that_refuses_every_query_is_refused(setting: str) -> None:
    with pytest.raises(InvalidInput):
        EngineConfig(**{setting: 0})  # type: ignore[arg-type]


def test_deep_nesting_that_the_stack_cannot_hold_is_no_setting() -> None:
    with pytest.raises(InvalidInput, match="stack"):
        EngineConfig(depth_max=10_000)


@pytest.mark.parametrize(
    "expression",
    [
        "m_total",
        "rate(m_total[5m] offset 1m) + m_total @ 60",
        "max_over_time(rate(m_total[2m])[10m:1m]) / on (i) m_total @ end()",
        "sum by (i) (topk(2, m_total)) and label_replace(m_total, 'a', 'b', 'i', '.*')",
        "avg_over_time(m_total[1m:5m] @ 61)",
    ],
)
def test_what_a_query_is_going_to_read_is_told_before(expression: str) -> None:
    asked: list[tuple[tuple[Matcher, ...], int, int]] = []

    class Noting(MemorySource):
        def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesColumns:
            asked.append((tuple(matchers), start_ms, end_ms))
            return super().select(matchers, start_ms, end_ms)

    noting = Engine(Noting([({"__name__": "m_total", "i": "1"}, [0, MINUTE], [1, 2])]))
    told = noting.selections(expression, 0, 10 * MINUTE, MINUTE)
    assert asked == []
    noting.query_range(expression, 0, 10 * MINUTE, MINUTE)
    assert sorted(map(repr, asked)) == sorted(repr((one.matchers, one.start_ms, one.end_ms)) for one in told)


def test_the_engines_example_of_the_page_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "rooms" / "timeseries.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (example,) = (one for one in examples if "MemorySource" in one)
    names: dict[str, Any] = {}
    exec(example, names)
    answer = names["engine"].query("rate(requests_total[2m])", 2 * MINUTE)
    assert answer.to_json()["data"]["result"] == [{"metric": {"code": "200"}, "value": [120.0, "0.5"]}]


@pytest.mark.parametrize(
    "expression",
    [
        "abs(" * 79 + "m_total" + ")" * 79,
        "(" * 79 + "m_total" + ")" * 79,
        "m_total" + "+m_total" * 79,
        "-" * 79 + "m_total",
    ],
    ids=["calls", "parentheses", "chain", "signs"],
)
def test_the_deepest_expression_is_answered_to_a_caller_deep_in_the_stack(expression: str) -> None:
    def below(frames: int) -> int:
        return below(frames - 1) if frames else len(engine().query(expression, 0).to_arrow())

    assert below(250) == 3


@pytest.mark.parametrize(
    "expression",
    [
        f"0x{'f' * 400}",
        "0x8000000000000000",
        f"0{'7' * 5000}",
        f"{'9' * 5000}s",
        f"m_total[{'9' * 5000}s]",
        f"m_total offset {'9' * 5000}s",
        f"m_total[5m:{'9' * 5000}s]",
        r'"\UFFFFFFFF"',
    ],
)
def test_numbers_beyond_all_bounds_are_refused_as_the_expression_they_are(expression: str) -> None:
    with pytest.raises(InvalidInput, match="parse error"):
        engine().query(expression, MINUTE)


def test_a_whole_number_beyond_64_bits_is_read_as_prometheus_reads_it() -> None:
    octal = engine().query("0777777777777777777777777", 0)
    assert isinstance(octal, ScalarResult)
    assert octal.value == 777777777777777777777777.0
    longest = engine().query(f"{'0' * 5000}90s", 0)
    assert isinstance(longest, ScalarResult)
    assert longest.value == 90.0


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("$1-$01", "7-"),
        (f"${'9' * 5000}", ""),
        (f"x${{{'1' * 20}}}y", "xy"),
        ("$\N{SUPERSCRIPT TWO}", "$\N{SUPERSCRIPT TWO}"),
        ("${1}$\N{ARABIC-INDIC DIGIT ONE}", "7"),
        ("$$1", "$1"),
    ],
)
def test_a_reference_to_a_group_is_a_number_as_go_writes_it(template: str, value: str) -> None:
    series = 'label_replace(vector(1), "a", "7", "", "")'
    found = engine().query(f'label_replace({series}, "to", "{template}", "a", "(.*)")', 0)
    assert isinstance(found, VectorResult)
    assert dict(found.labels[0]).get("to", "") == value


def test_labels_are_sorted_by_their_numbers_however_long() -> None:
    values = ["9" * 5000, "8" * 5000, "x10", "x9", "x-", "x09b", "x9a", "10", "9", "-5"]
    series = MemorySource(({"__name__": "m", "i": value}, [0], [1]) for value in values)
    found = Engine(series, EngineConfig(experimental=True)).query('sort_by_label(m, "i")', 0)
    assert isinstance(found, VectorResult)
    order = ["-5", "9", "10", "8" * 5000, "9" * 5000, "x9", "x9a", "x09b", "x10", "x-"]
    assert [dict(labels)["i"] for labels in found.labels] == order


def test_values_that_are_counted_are_refused_before_they_take_memory() -> None:
    steps = 5_000
    source = MemorySource([({"__name__": "m"}, np.arange(steps), np.arange(steps))])
    config = EngineConfig(samples_max=1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(AtCapacity, match="too many samples"):
            Engine(source, config).query_range('count_values("v", m)', 0, steps - 1, 1)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_counted_values_of_all_kinds_meet_in_their_labels() -> None:
    nans = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    source = MemorySource(
        [
            ({"__name__": "m", "i": "a", "z": "1"}, [0, 1], [1.0, nans[0]]),
            ({"__name__": "m", "i": "a", "z": "2"}, [0, 1], [1.0, nans[1]]),
            ({"__name__": "m", "i": "b", "z": "1"}, [0, 1], [-0.0, 0.0]),
        ]
    )
    answers = {
        'count_values("v", m)': {"1": [2.0, None], "NaN": [None, 2.0], "-0": [1.0, None], "0": [None, 1.0]},
        'count_values by (i) ("v", m)': {
            "1 a": [2.0, None],
            "NaN a": [None, 2.0],
            "-0 b": [1.0, None],
            "0 b": [None, 1.0],
        },
        'count_values without (z, i) ("i", m)': {"": [3.0, 3.0]},
    }
    for expression, wanted in answers.items():
        columns = Engine(source).query_range(expression, 0, 1, 1).columns
        found: dict[str, list[float | None]] = {}
        for row, labels in enumerate(columns.labels):
            cells: list[float | None] = [None, None]
            for at in range(columns.offsets[row], columns.offsets[row + 1]):
                cells[int(columns.timestamps[at])] = float(columns.values[at])
            found[" ".join(dict(labels)[name] for name in ("v", "i") if name in dict(labels))] = cells
        assert found == wanted, expression


def test_a_step_beyond_all_times_is_refused() -> None:
    with pytest.raises(InvalidInput, match="step"):
        engine().query_range("m_total", 0, MINUTE, 10**20)


def test_places_are_counted_in_bytes_as_prometheus_counts_them() -> None:
    said = engine().query('quantile by ("läb el") (2, m_total)', MINUTE).annotations.warnings
    assert said == ("PromQL warning: quantile value should be between 0 and 1, got 2 (1:26)",)
    with pytest.raises(InvalidInput, match=r"^1:20: parse error"):
        engine().query('sum by ("läb el") )', MINUTE)


def test_series_that_could_meet_are_counted_before_they_are_paired() -> None:
    # At no step do two of the right side exist, so that matching is not ambiguous; every pair is possible all the same.
    many = [({"__name__": "a", "i": str(number)}, [0], [1.0]) for number in range(1000)]
    one = [({"__name__": "b", "i": str(number)}, [number * MINUTE], [1.0]) for number in range(1000)]
    small = EngineConfig(lookback_ms=1000, samples_max=1_500_000)
    asked = Engine(MemorySource(many + one), small)
    tracemalloc.start()
    try:
        with pytest.raises(AtCapacity, match=r"too many (series|samples)"):
            asked.query_range("a * on () group_left () b", 0, 999 * MINUTE, MINUTE)
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "pattern", ["(?P<head>p)(.*)", r"(?P<head>p)(\Q.\E|.*)", "(?i)(P)(.*)", "p|(q)(x)?", "", "(.*)(.*)"]
)
@pytest.mark.parametrize("template", ["$1-$2", "${head}", "$0", "$3", "$12", r"\1$$", "", "ü$2"])
def test_replacing_a_column_is_replacing_each_value(pattern: str, template: str) -> None:
    values = ["p", "pod-1", "", "Pö\n", "q", "qx", r"p\1", "p.", "xp"]
    compiled = anchored(pattern)
    alone = [substituted(compiled, template, [value])[0] for value in values]
    matches = [compiled.fullmatch(value) for value in values]
    assert substituted(compiled, template, values) == alone
    assert [text is None for text in alone] == [match is None for match in matches]
    if template == "$1-$2" and compiled.groups >= 2:
        assert alone == [match and f"{match.group(1) or ''}-{match.group(2) or ''}" for match in matches]
