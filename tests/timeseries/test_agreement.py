"""Random expressions over random series: the engine agrees with an evaluator of single samples, step by step."""

from __future__ import annotations

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.campaigns import examples
from tests.timeseries.slow_evaluator import (
    AGGREGATES,
    RANGE_FUNCTIONS,
    VECTOR_FUNCTIONS,
    Labels,
    Samples,
    SlowEvaluator,
)

from penstock.errors import InvalidInput
from penstock.timeseries.promql import Engine, MemorySource
from penstock.timeseries.promql.syntax.parser import parse

START_MS, END_MS, STEP_MS = 600_000, 1_200_000, 70_000
SERIES: list[Labels] = [
    (("__name__", name), ("g", group), ("i", item))
    for name in ("a_total", "b_total")
    for group in "xy"
    for item in "12"
]

samples = st.dictionaries(
    # Often exactly at the edge of a window.
    st.integers(0, END_MS // 10_000).map(lambda number: number * 10_000),
    st.one_of(st.integers(0, 50).map(float), st.floats(-1e6, 1e6, width=32)),
    min_size=5,
    max_size=40,
).map(lambda found: sorted(found.items()))
series = st.dictionaries(st.sampled_from(SERIES), samples, min_size=3, max_size=8)

name = st.sampled_from(["a_total", "b_total", 'a_total{g="x"}', 'b_total{i=~"1|3"}', 'a_total{g!="x"}'])
modifier = st.sampled_from(["", " offset 1m", " offset -90s", " @ 700", " @ end()", " @ start() offset 30s"])
length = st.sampled_from(["30s", "2m", "5m", "10m"])
selector = st.builds("{}{}".format, name, modifier)
ranged = st.builds("{}[{}]{}".format, name, length, modifier)


def _call(function: str, argument: str) -> str:
    return f"{function}(0.3, {argument})" if function == "quantile_over_time" else f"{function}({argument})"


def _aggregation(operator: str, grouping: str, argument: str) -> str:
    return f"{operator} {grouping} ({'0.3, ' if operator == 'quantile' else ''}{argument})"


# A difference in the last digit decides these, so they see samples as they are, and nothing computed.
ABRUPT = ["changes", "delta", "increase", "rate", "resets"]
SMOOTH = sorted(set(RANGE_FUNCTIONS) - set(ABRUPT))
steps = st.sampled_from(["30s", "1m"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    grouping = st.sampled_from(["", "by (g)", "by (i, nothing)", "without (i)", "without (g, i)"])
    matching = st.sampled_from(["", "on (g, i)", "ignoring (nothing)"])
    return st.one_of(
        st.builds(_call, st.sampled_from(SMOOTH), st.builds("({})[{}:{}]{}".format, inner, length, steps, modifier)),
        st.builds(_aggregation, st.sampled_from(sorted(AGGREGATES)), grouping, inner),
        st.builds("({} {} {} {})".format, inner, st.sampled_from(["+", "-", "*", "and", "unless"]), matching, inner),
        st.builds("({} {} 3)".format, inner, st.sampled_from(["+", "*"])),
        st.builds("-({})".format, inner),
        st.builds("abs({})".format, inner),
    )


leaves = st.one_of(
    selector,
    st.builds(_call, st.sampled_from(sorted(RANGE_FUNCTIONS)), ranged),
    st.builds(_call, st.sampled_from(ABRUPT), st.builds("{}[{}:{}]{}".format, name, length, steps, modifier)),
    st.builds("{}({})".format, st.sampled_from(sorted(VECTOR_FUNCTIONS)), selector),
    st.builds("({} {} 3)".format, selector, st.sampled_from([">", "<= bool", "=="])),
)
expressions = st.recursive(leaves, _grown, max_leaves=4)


def _close(left: float, right: float, scale: float) -> bool:
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return left == right or math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9 * scale)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(series, expressions)
def test_the_engine_agrees_with_an_evaluator_of_single_samples(data: dict[Labels, Samples], expression: str) -> None:
    source = MemorySource(
        (dict(labels), [at for at, _ in rows], [value for _, value in rows]) for labels, rows in data.items()
    )
    slow = SlowEvaluator(data, START_MS, END_MS)
    tree = parse(expression)
    try:
        result = Engine(source).query_range(expression, START_MS, END_MS, STEP_MS)
    except InvalidInput as error:
        # Series that differ by their names alone, which the slow evaluator keeps in a dictionary.
        if "same labelset" not in str(error) and "many-to" not in str(error):
            raise
        return
    columns = result.columns
    found: dict[tuple[int, Labels], float] = {}
    for row, labels in enumerate(columns.labels):
        for position in range(columns.offsets[row], columns.offsets[row + 1]):
            found[int(columns.timestamps[position]), labels] = float(columns.values[position])
    expected: dict[tuple[int, Labels], float] = {}
    for time in range(START_MS, END_MS + 1, STEP_MS):
        vector = slow.at(tree, time)
        assert isinstance(vector, dict)
        expected |= {(time, labels): value for labels, value in vector.items()}
    assert found.keys() == expected.keys()
    scale = 1e6 + max((abs(value) for value in expected.values() if math.isfinite(value)), default=0.0)
    for key, value in expected.items():
        assert _close(value, found[key], scale), (key, value, found[key])
