"""Random expressions over the same data: the engine agrees with a real Prometheus, where one is installed.

The packaged releases differ in age. Samples lie beside the edges of every window, so that an older one, whose windows
are closed on both sides, sees the same samples; and every metric has labels of its own, so that it does not matter when
names are dropped.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.timeseries import Engine, MemorySource, SeriesColumns, write_open_metrics
from penstock.timeseries.promql.labels import Labels, labels_from

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("promtool") is None,
        reason="there is no prometheus and promtool on PATH (apt-get install prometheus)",
    ),
]

BASE_MS = 1_700_000_000_000
# Not a multiple of any step or range below.
OFFSET_MS = 7
SAMPLES, INTERVAL_MS = 240, 15_000
START_SECONDS_MAX = 60.0
EXPRESSIONS = 150

RANGES = ["1m", "2m", "5m", "10m"]
OVER_TIME = ["avg", "min", "max", "sum", "count", "stddev", "stdvar", "last", "present"]
RATES = ["rate", "increase", "delta", "irate", "idelta", "changes", "resets", "deriv"]
VECTORS = ["abs", "ceil", "floor", "sqrt", "exp", "ln", "log2", "log10", "sgn", "timestamp", "hour", "sin", "atan"]
AGGREGATES = ["sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"]


def columns() -> SeriesColumns:
    numbers = np.random.default_rng(1)
    labels: list[Labels] = []
    values = []
    for name in ("a_total", "b_total", "c"):
        for group in "xy":
            for item in "12":
                labels.append(labels_from({"__name__": name, "g": group, "i": item, "m": name}))
                steps = numbers.integers(0, 9, SAMPLES).astype(float)
                rising = np.cumsum(steps) - (np.arange(SAMPLES) > 130) * steps[:131].sum()
                values.append(rising if name != "c" else numbers.normal(0, 100, SAMPLES).round(3))
    for bound, share in (("0.1", 1), ("1", 3), ("+Inf", 4)):
        labels.append(labels_from({"__name__": "d_bucket", "le": bound, "m": "d"}))
        values.append(np.arange(SAMPLES, dtype=float) * share)
    order = sorted(range(len(labels)), key=labels.__getitem__)
    times = np.tile(BASE_MS + OFFSET_MS + np.arange(SAMPLES) * INTERVAL_MS, len(labels))
    offsets = np.arange(len(labels) + 1) * SAMPLES
    return SeriesColumns([labels[row] for row in order], offsets, times, np.concatenate([values[row] for row in order]))


def source(data: SeriesColumns) -> MemorySource:
    spans = [slice(data.offsets[row], data.offsets[row + 1]) for row in range(len(data.labels))]
    return MemorySource(
        (dict(labels), data.timestamps[span], data.values[span])
        for labels, span in zip(data.labels, spans, strict=True)
    )


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server over the same samples, on a port of its own."""
    folder = tmp_path_factory.mktemp("prometheus")
    text = folder / "samples.om"
    text.write_text("".join(f"{line}\n" for line in write_open_metrics(columns())))
    blocks = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(text), str(folder / "data")]
    subprocess.run(blocks, check=True, capture_output=True, timeout=START_SECONDS_MAX)
    (folder / "prometheus.yml").write_text("global: {}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(f"http://{address}/-/ready", process)
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < end:
        assert process.poll() is None, "prometheus ended by itself"
        try:
            urllib.request.urlopen(url, timeout=5)
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("prometheus did not start")


class Expressions:
    """Random ones, of what all releases have."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def vector(self, depth: int) -> str:
        kind = self._random.random()
        if depth == 0 or kind < 0.15:
            return self._selector()
        if kind < 0.45:
            return self._of_range(depth)
        if kind < 0.65:
            grouping = self._one(["", "by (g)", "by (g, i)", "without (i)", "without (g, i)"])
            return f"{self._one(AGGREGATES)} {grouping} ({self.vector(depth - 1)})"
        if kind < 0.72:
            return f"{self._one(['topk', 'bottomk'])}(2, {self._one(['c', 'delta(c[5m])'])})"
        if kind < 0.8:
            return f"{self._one(VECTORS)}({self.vector(depth - 1)})"
        if kind < 0.85:
            return f"histogram_quantile({self._one(['0.1', '0.5', '0.95'])}, rate(d_bucket[{self._one(RANGES)}]))"
        if kind < 0.93:
            operator = self._one(["+", "-", "*", "/", "%", ">", "<=", "== bool"])
            return f"({self.vector(depth - 1)} {operator} {self._one(['2', '0.5', '-7'])})"
        operator = self._one(["+", "-", "*", "and", "or", "unless"])
        return f"({self._one(['a_total', 'rate(a_total[5m])'])} {operator} on (g, i) {self._one(['b_total', 'c'])})"

    def _selector(self) -> str:
        name = self._one(["a_total", "b_total", "c", 'a_total{g="x"}', 'c{i=~"1|3"}', 'b_total{g!="x"}'])
        return name + self._one(["", "", " offset 1m", " @ 1700001000", " offset -2m"])

    def _of_range(self, depth: int) -> str:
        length = self._one(RANGES)
        name = self._one(["a_total", "b_total", "c"])
        ranged = f"{name}[{length}]"
        kind = self._random.random()
        if kind < 0.1:
            return f"quantile_over_time(0.3, {ranged})"
        if kind < 0.2:
            return f"predict_linear({ranged}, 600)"
        return f"{self._one(RATES)}({ranged})" if kind < 0.6 else f"{self._one(OVER_TIME)}_over_time({ranged})"

    def _one(self, choices: list[str]) -> str:
        return self._random.choice(choices)


def _asked(url: str, expression: str, start_ms: int, end_ms: int, step_ms: int) -> dict[tuple[Labels, int], float]:
    times = {"start": start_ms / 1000, "end": end_ms / 1000, "step": step_ms / 1000}
    query = urllib.parse.urlencode({"query": expression, **times})
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{query}", timeout=30) as answer:
        result: list[Any] = json.load(answer)["data"]["result"]
    return {
        (labels_from(one["metric"]), round(at * 1000)): float(value) for one in result for at, value in one["values"]
    }


def test_random_expressions_have_the_same_answers(prometheus: str) -> None:
    data = columns()
    engine = Engine(source(data))
    expressions = Expressions(seed=1)
    start_ms, end_ms, step_ms = BASE_MS + 600_000, BASE_MS + 3_000_000, 60_000
    compared = 0
    for _ in range(EXPRESSIONS):
        expression = expressions.vector(3)
        try:
            expected = _asked(prometheus, expression, start_ms, end_ms, step_ms)
        except urllib.error.HTTPError:
            with pytest.raises(PenstockError):
                engine.query_range(expression, start_ms, end_ms, step_ms)
            continue
        found = engine.query_range(expression, start_ms, end_ms, step_ms).columns
        owners = np.repeat(np.arange(len(found.labels)), np.diff(found.offsets))
        answered = {
            (found.labels[row], int(at)): float(value)
            for row, at, value in zip(owners, found.timestamps, found.values, strict=True)
        }
        assert answered.keys() == expected.keys(), expression
        # Differences of large sums are as exact as the sums.
        scale = 1e-9 * max([abs(value) for value in expected.values() if math.isfinite(value)], default=0.0)
        for key, value in expected.items():
            same = math.isnan(value) and math.isnan(answered[key])
            close = value == answered[key] or math.isclose(value, answered[key], rel_tol=1e-9, abs_tol=scale)
            assert same or close, (expression, key, value, answered[key])
            compared += 1
    assert compared > 10_000
