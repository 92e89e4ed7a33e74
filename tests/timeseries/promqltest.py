"""Runs files in the text format of Prometheus' own PromQL tests: load, clear, eval instant, eval range, expect.

Every case is counted, and those that need what the engine does not offer are listed by reason. To run files:

    python tests/timeseries/promqltest.py file.test …
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.errors import PenstockError, Unsupported
from penstock.timeseries.promql import (
    Engine,
    EngineConfig,
    Matcher,
    MatrixResult,
    MemorySource,
    QueryResult,
    ScalarResult,
    SeriesColumns,
    StringResult,
    VectorResult,
)
from penstock.timeseries.promql.labels import Labels, labels_from, text
from penstock.timeseries.promql.source import STALE_NAN
from penstock.timeseries.promql.syntax.duration_parser import to_ms
from penstock.timeseries.promql.syntax.durations import duration_seconds, number_value
from penstock.timeseries.promql.syntax.parser import parse
from penstock.timeseries.promql.syntax.quoting import unquote
from penstock.timeseries.promql.syntax.tree import VectorSelector

TOLERANCE = 1e-6
EVAL = re.compile(
    r"eval(?P<legacy>_\w+)?\s+(?:instant\s+(?:at\s+(?P<at>\S+))?|range\s+from\s+(?P<start>\S+)\s+to\s+(?P<end>\S+)"
    r"\s+step\s+(?P<step>\S+))\s*(?P<expr>.*)"
)
SERIES = re.compile(
    r"\s*(?P<name>[^{\s]*)(?P<labels>\{(?:[^\"'}]|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')*\})?(?P<rest>.*)"
)
VALUE = re.compile(
    r"(?P<first>[+-]?(?:[0-9.]+(?:[eE][+-]?[0-9]+)?|0x[0-9a-f]+|inf|nan)|_|stale)"
    r"(?:(?P<delta>[+-](?:[0-9.]+(?:[eE][+-]?[0-9]+)?|inf|nan))?x(?P<times>[0-9]+))?",
    re.IGNORECASE,
)
POSITION = re.compile(r" \(\d+:\d+\)$")
_MINUTE_MS = 60_000
Cell = float | None


class NeedsNativeHistograms(Exception):
    """A line with a sample in double braces."""


@dataclasses.dataclass
class Case:
    line: int
    expression: str
    start_ms: int
    end_ms: int
    step_ms: int
    instant: bool
    legacy: str
    expected: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Verdict:
    line: int
    expression: str
    # "pass", "fail", or why it was not run.
    status: str
    detail: str = ""


def run(script: str, config: EngineConfig | None = None) -> Iterator[Verdict]:
    """A verdict on each eval of a file."""
    settings = config or EngineConfig(experimental=True)
    series: dict[Labels, dict[int, float]] = {}
    native: set[Labels] = set()
    for command in _commands(script):
        if command[0] == "clear":
            series, native = {}, set()
        elif isinstance(command[1], Case):
            yield _judged(command[1], series, settings, native)
        elif command[0].startswith("load"):
            _load(command[0], command[1], series, native)
        else:
            yield Verdict(0, command[0], "command not known")


def _commands(script: str) -> Iterator[tuple[str, list[str] | Case]]:
    block: tuple[str, list[str] | Case] | None = None
    for number, raw in enumerate(script.splitlines(), 1):
        line = "" if raw.strip().startswith("#") else raw.rstrip()
        if line and line[0].isspace() and block is not None:
            target = block[1]
            (target.expected if isinstance(target, Case) else target).append(line.strip())
            continue
        if block is not None:
            yield block
            block = None
        if line.startswith("eval"):
            block = ("eval", _case(number, line))
        elif line.strip():
            block = (line.strip(), [])
    if block is not None:
        yield block


def _case(number: int, line: str) -> Case:
    match = EVAL.match(line)
    assert match, line
    legacy = (match["legacy"] or "").lstrip("_")
    if match["start"] is None:
        at = _ms(match["at"] or "0")
        return Case(number, match["expr"], at, at, 1, True, legacy)
    return Case(number, match["expr"], _ms(match["start"]), _ms(match["end"]), _ms(match["step"]), False, legacy)


def _ms(duration: str) -> int:
    sign = -1 if duration.startswith("-") else 1
    plain = duration.lstrip("-")
    seconds = duration_seconds(plain)
    return sign * to_ms(float(plain) if seconds is None else seconds)


def _load(command: str, lines: list[str], series: dict[Labels, dict[int, float]], native: set[Labels]) -> None:
    """Native histograms stay out, and their labels are noted."""
    step = _ms(command.split()[1])
    for line in lines:
        try:
            labels, cells = _series(line)
        except NeedsNativeHistograms:
            native.add(_series_labels(line))
            continue
        if command.startswith("load_with_nhcb"):
            name = dict(labels)["__name__"].removesuffix("_bucket")
            native.add(labels_from({**dict(labels), "__name__": name, "le": ""}))
        samples = series.setdefault(labels, {})
        samples.update({index * step: cell for index, cell in enumerate(cells) if cell is not None})


def _series(line: str) -> tuple[Labels, list[Cell]]:
    match = SERIES.match(line)
    assert match, line
    if "{{" in match["rest"]:
        raise NeedsNativeHistograms
    return _series_labels(line), [cell for word in match["rest"].split() for cell in _cells(word)]


def _series_labels(line: str) -> Labels:
    match = SERIES.match(line)
    assert match, line
    return _labels(match["name"], match["labels"] or "{}")


def _labels(name: str, braces: str) -> Labels:
    found = {"__name__": name} if name else {}
    if braces.strip("{} \t"):
        # A selector's grammar is the series' own; the extra matcher keeps a selector of empty values readable.
        tree = parse(f'{{{braces.strip()[1:-1].rstrip(", ")}, __runner__="x"}}')
        assert isinstance(tree, VectorSelector)
        found |= {matcher.name: matcher.value for matcher in tree.matchers if matcher.name != "__runner__"}
    return labels_from(found)


def _cells(word: str) -> Iterator[Cell]:
    match = VALUE.fullmatch(word)
    if match is None:
        raise NeedsNativeHistograms
    times = int(match["times"]) if match["times"] else 0
    if match["first"] == "_":
        yield from [None] * (times or 1)
        return
    value = STALE_NAN if match["first"] == "stale" else _number(match["first"])
    delta = _number(match["delta"]) if match["delta"] else 0.0
    for _ in range(times + 1):
        yield value
        # Added up one by one, rounding errors included.
        value = value + delta if delta else value


def _number(word: str) -> float:
    sign = -1.0 if word.startswith("-") else 1.0
    return sign * number_value(word.lstrip("+-"))


class _Watched(MemorySource):
    """Knows of series that are not there because they are native histograms, and whether anybody asked for one."""

    def __init__(self, series: dict[Labels, dict[int, float]], native: set[Labels]) -> None:
        super().__init__((dict(labels), list(samples), list(samples.values())) for labels, samples in series.items())
        self._native = native
        self.missed = False

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesColumns:
        tests = [(matcher.name, matcher.predicate()) for matcher in matchers]
        self.missed |= any(all(test(dict(labels).get(name, "")) for name, test in tests) for labels in self._native)
        return super().select(matchers, start_ms, end_ms)


def _judged(case: Case, series: dict[Labels, dict[int, float]], config: EngineConfig, native: set[Labels]) -> Verdict:
    source = _Watched(series, native)
    engine = Engine(source, config)
    try:
        problem = _problem(case, engine)
    except (AssertionError, NeedsNativeHistograms) as error:
        problem = f"not understood: {error}"
    except Unsupported as error:
        return Verdict(case.line, case.expression, error.what)
    if source.missed or any("{{" in line for line in case.expected):
        return Verdict(case.line, case.expression, "native histograms")
    return Verdict(case.line, case.expression, "fail" if problem else "pass", problem or "")


def _problem(case: Case, engine: Engine) -> str | None:
    expects = [line.removeprefix("expect ") for line in case.expected if line.startswith("expect ")]
    rows = [line for line in case.expected if not line.startswith("expect ") and not line.startswith("expected_fail")]
    must_fail = case.legacy == "fail" or any(line.split()[0] == "fail" for line in expects)
    try:
        result = _ask(engine, case)
    except Unsupported:
        raise
    except PenstockError as error:
        return _failure_problem(error, expects) if must_fail else f"failed: {error}"
    if must_fail:
        return "did not fail"
    ordered = case.legacy == "ordered" or "ordered" in expects
    return (
        _annotation_problem(result, expects, case.legacy)
        or _value_problem(case, result, rows, expects, ordered=ordered)
        or (_range_problem(engine, case, result) if case.instant else None)
    )


def _ask(engine: Engine, case: Case) -> QueryResult:
    if case.instant:
        return engine.query(case.expression, case.start_ms)
    return engine.query_range(case.expression, case.start_ms, case.end_ms, case.step_ms)


def _annotation_problem(result: QueryResult, expects: list[str], legacy: str) -> str | None:
    given = {"warn": result.annotations.warnings, "info": result.annotations.infos}
    for kind, found in given.items():
        wanted = [line for line in expects if line.split()[0] == kind]
        missing = (wanted or legacy == kind) and not found
        # Each expectation is met by a text, and each text was expected.
        unmet = [line for line in wanted if not any(_says_at(line, text) for text in found)]
        surprising = [text for text in found if wanted and not any(_says_at(line, text) for line in wanted)]
        if missing or unmet or surprising or (f"no_{kind}" in expects and found):
            return f"{kind}: {found}"
    return None


def _says_at(expectation: str, text: str) -> bool:
    """With its place in the expression, as files since 3.15 have it, or without."""
    return _says(expectation, text) or _says(expectation, POSITION.sub("", text))


def _says(expectation: str, text: str) -> bool:
    match = re.fullmatch(r"\w+(?:\s+(msg|regex)\s*:\s*(.*))?", expectation)
    assert match, expectation
    if match[1] is None:
        return True
    return text == match[2] if match[1] == "msg" else re.search(match[2], text) is not None


def _failure_problem(error: PenstockError, expects: list[str]) -> str | None:
    wanted = [line for line in expects if line.split()[0] == "fail"]
    met = all(_says(line, error.what) or _says(line, str(error)) for line in wanted[:1])
    return None if met else f"failed otherwise: {error}"


def _value_problem(
    case: Case, result: QueryResult, rows: list[str], expects: list[str], *, ordered: bool
) -> str | None:
    texts = [line for line in expects if line.startswith("string ")]
    if isinstance(result, StringResult):
        wanted = texts[0].removeprefix("string ") if texts else rows[0]
        return None if unquote(wanted) == result.value else f"string {result.value!r}"
    if isinstance(result, ScalarResult):
        return None if len(rows) == 1 and _same(_number(rows[0]), result.value) else f"scalar {result.value}"
    if isinstance(result, MatrixResult) and case.instant:
        return _range_vector_problem(result, rows, expects)
    found = _found(case, result)
    wanted_rows = [_series(row) if not _is_number(row) else ((), [_number(row)]) for row in rows]
    if ordered and [labels for labels, _ in wanted_rows] != list(found):
        return f"order {[text(labels) for labels in found]}"
    return _difference(dict(wanted_rows), found)


def _is_number(row: str) -> bool:
    return "{" not in row and VALUE.fullmatch(row) is not None


def _range_vector_problem(result: MatrixResult, rows: list[str], expects: list[str]) -> str | None:
    described = re.match(
        r"range vector from (\S+) to (\S+) step (\S+)", next((e for e in expects if e.startswith("range")), "")
    )
    assert described, "a range vector needs its times"
    start, end, step = (_ms(part) for part in described.groups())
    case = Case(0, "", start, end, step, False, "")
    return _difference(dict(_series(row) for row in rows), _found(case, result))


def _found(case: Case, result: QueryResult) -> dict[Labels, list[Cell]]:
    if isinstance(result, VectorResult):
        return {labels: [float(value)] for labels, value in zip(result.labels, result.values, strict=True)}
    assert isinstance(result, MatrixResult)
    steps = (case.end_ms - case.start_ms) // case.step_ms + 1
    columns = result.columns
    out: dict[Labels, list[Cell]] = {}
    for row, labels in enumerate(columns.labels):
        cells: list[Cell] = [None] * steps
        for position in range(columns.offsets[row], columns.offsets[row + 1]):
            index = (int(columns.timestamps[position]) - case.start_ms) // case.step_ms
            cells[index] = float(columns.values[position])
        out[labels] = cells
    return out


def _difference(wanted: dict[Labels, list[Cell]], found: dict[Labels, list[Cell]]) -> str | None:
    wanted = {labels: cells for labels, cells in wanted.items() if any(cell is not None for cell in cells)}
    if wanted.keys() != found.keys():
        return f"series {sorted(map(text, found))}, not {sorted(map(text, wanted))}"
    for labels, cells in wanted.items():
        got = found[labels]
        padded = cells + [None] * (len(got) - len(cells))
        if len(padded) != len(got) or not all(map(_same, padded, got)):
            return f"{text(labels)}: {got}, not {cells}"
    return None


def _same(wanted: Cell, found: Cell) -> bool:
    if wanted is None or found is None:
        return wanted is found
    if math.isnan(wanted) or math.isnan(found):
        return math.isnan(wanted) and math.isnan(found)
    return wanted == found or (
        math.isfinite(wanted)
        and math.isfinite(found)
        and abs(wanted - found) <= TOLERANCE * max(min(abs(wanted) + abs(found), sys.float_info.max), 1e-300)
    )


def _range_problem(engine: Engine, case: Case, result: QueryResult) -> str | None:
    """An instant query is also the middle step of a range query."""
    if not isinstance(result, VectorResult | ScalarResult) or re.search(
        r"\b(start|end|range|step)\(\)", case.expression
    ):
        return None
    around = Case(0, "", case.start_ms - _MINUTE_MS, case.start_ms + _MINUTE_MS, _MINUTE_MS, False, "")
    try:
        matrix = engine.query_range(case.expression, around.start_ms, around.end_ms, around.step_ms)
    except PenstockError as error:
        return f"as a range it failed: {error}"
    middle = {labels: [cells[1]] for labels, cells in _found(around, matrix).items() if cells[1] is not None}
    instant = {(): [result.value]} if isinstance(result, ScalarResult) else _found(case, result)
    difference = _difference(dict(instant), dict(middle))  # type: ignore[arg-type]
    return f"as a range: {difference}" if difference else None


def main(paths: list[str]) -> None:
    total: collections.Counter[str] = collections.Counter()
    for path in paths:
        counts: collections.Counter[str] = collections.Counter()
        for verdict in run(Path(path).read_text()):
            counts[verdict.status] += 1
            if verdict.status == "fail":
                print(f"{Path(path).name}:{verdict.line}: {verdict.expression}\n    {verdict.detail[:300]}")
        print(f"{Path(path).name}: {dict(counts)}")
        total += counts
    print(dict(total))


if __name__ == "__main__":
    main(sys.argv[1:])
