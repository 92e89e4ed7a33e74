"""PromQL with the semantics of Prometheus 3, over any source of series: no I/O, no clock but the query's deadline."""

from penstock.timeseries.promql.annotations import Annotations
from penstock.timeseries.promql.config import EngineConfig
from penstock.timeseries.promql.engine import Engine
from penstock.timeseries.promql.evaluation.selections import SeriesSelection
from penstock.timeseries.promql.matchers import Matcher, MatchKind
from penstock.timeseries.promql.results import MatrixResult, QueryResult, ScalarResult, StringResult, VectorResult
from penstock.timeseries.promql.source import MemorySource, SeriesColumns, SeriesSource
from penstock.timeseries.promql.syntax.lexer import SyntaxProblem
from penstock.timeseries.promql.syntax.syntax_json import parse_duration_text, parse_selector_text, syntax_json

__all__ = [
    "Annotations",
    "Engine",
    "EngineConfig",
    "MatchKind",
    "Matcher",
    "MatrixResult",
    "MemorySource",
    "QueryResult",
    "ScalarResult",
    "SeriesColumns",
    "SeriesSelection",
    "SeriesSource",
    "StringResult",
    "SyntaxProblem",
    "VectorResult",
    "parse_duration_text",
    "parse_selector_text",
    "syntax_json",
]
