"""The engine: reads an expression, evaluates it over a source, and answers with a typed result. It does no I/O."""

from __future__ import annotations

import dataclasses

import numpy as np

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import AtCapacity, InvalidInput
from penstock.timeseries.promql.annotations import Annotations, Notes
from penstock.timeseries.promql.budget import QueryBudget
from penstock.timeseries.promql.columns.frame import VectorFrame, single
from penstock.timeseries.promql.columns.grid import Grid, whole_ms
from penstock.timeseries.promql.columns.windows import Windows
from penstock.timeseries.promql.config import EngineConfig
from penstock.timeseries.promql.context import EvaluationContext
from penstock.timeseries.promql.evaluation.evaluator import Evaluator
from penstock.timeseries.promql.evaluation.selections import SeriesSelection, selections
from penstock.timeseries.promql.labels import Labels, drop_metadata
from penstock.timeseries.promql.results import MatrixResult, QueryResult, ScalarResult, StringResult, VectorResult
from penstock.timeseries.promql.source import SeriesColumns, SeriesSource
from penstock.timeseries.promql.statistics import SampleCounts
from penstock.timeseries.promql.syntax.parser import parse
from penstock.timeseries.promql.syntax.tree import Expr, ValueType
from penstock.timeseries.promql.syntax.typecheck import check_types

__all__ = ["Engine"]

# Times beyond this cannot be told apart as seconds in a double.
_TIME_MS_MAX = 2**53
# From the first time to the last.
_STEP_MS_MAX = 2 * _TIME_MS_MAX


class Engine:
    """PromQL over a source of series. Times and steps are milliseconds."""

    def __init__(
        self, source: SeriesSource, config: EngineConfig | None = None, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._source = source
        self._config = config or EngineConfig()
        self._clock = clock
        # The expression read last: whoever asks for its selections evaluates it next.
        self._latest: tuple[str, Expr, ValueType] | None = None

    def query(self, expression: str, time_ms: int) -> QueryResult:
        """The value of an expression at one time."""
        tree, kind = self._read(expression)
        time_ms = _checked_time(time_ms)
        notes = Notes(expression)
        counts = SampleCounts(grid := Grid(time_ms, time_ms, 1))
        evaluator = Evaluator(self._context(grid, notes, 0, counts))
        began = self._clock.monotonic()
        with np.errstate(all="ignore"):
            result = _instant_result(evaluator, tree, kind, time_ms, notes)
        return dataclasses.replace(result, stats=counts.collected(self._clock.monotonic() - began))

    def query_range(self, expression: str, start_ms: int, end_ms: int, step_ms: int) -> MatrixResult:
        """The values of an expression from start to end, both included, a step apart."""
        grid = _checked_grid(start_ms, end_ms, step_ms)
        tree, kind = self._read(expression)
        if kind not in (ValueType.SCALAR, ValueType.VECTOR):
            raise InvalidInput(
                f"an expression of type {kind.value} cannot be evaluated over a range",
                "it must be scalar or instant vector",
            )
        notes = Notes(expression)
        counts = SampleCounts(grid)
        context = self._context(grid, notes, grid.step_ms, counts)
        context.budget.check_steps(grid.steps)
        evaluator = Evaluator(context)
        began = self._clock.monotonic()
        with np.errstate(all="ignore"):
            frame = single(evaluator.scalar(tree)) if kind is ValueType.SCALAR else evaluator.vector(tree)
            columns = _sorted_columns(frame.named(), grid)
        return MatrixResult(columns, notes.collected(), counts.collected(self._clock.monotonic() - began))

    def selections(
        self, expression: str, start_ms: int, end_ms: int | None = None, step_ms: int = 1
    ) -> list[SeriesSelection]:
        """What the query of these times is going to ask of its source; without an end it is an instant query."""
        tree, _ = self._read(expression)
        grid = _checked_grid(start_ms, start_ms if end_ms is None else end_ms, step_ms)
        context = self._context(grid, Notes(expression), 0 if end_ms is None else grid.step_ms, SampleCounts(grid))
        context.budget.check_steps(grid.steps)
        return list(selections(tree, context))

    def _read(self, expression: str) -> tuple[Expr, ValueType]:
        latest = self._latest
        if latest is None or latest[0] != expression:
            self._latest = latest = (expression, *self._parsed(expression))
        return latest[1:]

    def _parsed(self, expression: str) -> tuple[Expr, ValueType]:
        if not isinstance(expression, str):
            raise InvalidInput(f"the expression {expression!r:.80} is not text", "PromQL is a string")
        size = len(expression.encode("utf-8", "surrogatepass"))
        if size > self._config.expression_bytes_max:
            raise AtCapacity(
                f"the expression has {size} bytes",
                f"at most {self._config.expression_bytes_max} are read",
                "shorten it, or raise EngineConfig.expression_bytes_max",
            )
        tree = parse(expression, depth_max=self._config.depth_max, experimental=self._config.experimental)
        return tree, check_types(expression, tree)

    def _context(self, grid: Grid, notes: Notes, step_ms: int, counts: SampleCounts) -> EvaluationContext:
        budget = QueryBudget(self._config, self._clock, counts)
        return EvaluationContext(
            self._source, self._config, budget, notes, query=grid, grid=grid, step_ms=step_ms, counts=counts
        )


def _checked_grid(start_ms: int, end_ms: int, step_ms: int) -> Grid:
    start_ms, end_ms, step_ms = _checked_time(start_ms), _checked_time(end_ms), whole_ms("step", step_ms)
    if not 1 <= step_ms <= _STEP_MS_MAX:
        raise InvalidInput(f"the step of the query is {step_ms} ms", f"it must be from 1 to {_STEP_MS_MAX}")
    if end_ms < start_ms:
        raise InvalidInput("the query ends before it starts", f"{start_ms} to {end_ms}")
    return Grid(start_ms, end_ms, step_ms)


def _checked_time(time_ms: int) -> int:
    time_ms = whole_ms("time", time_ms)
    if not -_TIME_MS_MAX <= time_ms <= _TIME_MS_MAX:
        raise InvalidInput(f"the time {time_ms} ms is out of range", f"it must lie within ±{_TIME_MS_MAX}")
    return time_ms


def _instant_result(evaluator: Evaluator, tree: Expr, kind: ValueType, time_ms: int, notes: Notes) -> QueryResult:
    if kind is ValueType.STRING:
        return StringResult(time_ms, evaluator.string(tree))
    if kind is ValueType.SCALAR:
        value = float(evaluator.scalar(tree)[0])
        return ScalarResult(time_ms, value, notes.collected())
    if kind is ValueType.MATRIX:
        return _raw_samples(evaluator.whole_matrix(tree), notes.collected())
    frame = evaluator.vector(tree).named().without_empty()
    return VectorResult(time_ms, frame.labels, frame.values[:, 0], notes.collected())


def _raw_samples(windows: Windows, annotations: Annotations) -> MatrixResult:
    """The samples of the only step, by the labels of their series."""
    labels = [drop_metadata(own) if gone else own for own, gone in zip(windows.labels, windows.unnamed, strict=True)]
    if len(set(labels)) < len(labels):
        raise InvalidInput(
            "vector cannot contain metrics with the same labelset", "names that tell them apart are gone"
        )
    low, high = windows.low[:, 0], windows.high[:, 0]
    order = [row for row in _by_labels(labels) if low[row] < high[row]]
    spans = [np.arange(low[row], high[row]) for row in order]
    positions = np.concatenate(spans) if spans else np.empty(0, np.int64)
    offsets = np.concatenate([[0], np.cumsum([len(span) for span in spans])]).astype(np.int64)
    columns = windows.columns
    return MatrixResult(
        SeriesColumns(
            [labels[row] for row in order], offsets, columns.timestamps[positions], columns.values[positions]
        ),
        annotations,
    )


def _sorted_columns(frame: VectorFrame, grid: Grid) -> SeriesColumns:
    frame = frame.take(np.array(_by_labels(frame.labels), dtype=np.int64)).without_empty()
    offsets = np.concatenate([[0], np.cumsum(frame.present.sum(axis=1))]).astype(np.int64)
    _, steps = np.nonzero(frame.present)
    return SeriesColumns(frame.labels, offsets, grid.times_ms[steps], frame.values[frame.present])


def _by_labels(labels: list[Labels]) -> list[int]:
    return sorted(range(len(labels)), key=labels.__getitem__)
