"""The syntax tree. Every node knows its place in the expression, its type, and how deep it is nested."""

from __future__ import annotations

import dataclasses
import enum
from typing import TypeAlias

from penstock.timeseries.promql.matchers import Matcher

__all__ = [
    "AggregateExpr",
    "At",
    "BinaryExpr",
    "CallExpr",
    "Cardinality",
    "Duration",
    "DurationExpr",
    "Expr",
    "MatrixSelector",
    "Modifiers",
    "NumberLiteral",
    "ParenExpr",
    "RangeBounds",
    "StringLiteral",
    "SubqueryExpr",
    "TextSpan",
    "UnaryExpr",
    "ValueType",
    "VectorMatching",
    "VectorSelector",
    "children",
    "depth_of",
]


class ValueType(enum.StrEnum):
    """The four types of PromQL's values."""

    SCALAR = "scalar"
    STRING = "string"
    VECTOR = "vector"
    MATRIX = "matrix"


@dataclasses.dataclass(frozen=True, slots=True)
class TextSpan:
    """Characters of the expression that a node spans."""

    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class DurationExpr:
    """Arithmetic on durations, in seconds; `step` and `range` are those of the query. Operands stay unevaluated."""

    operator: str
    operands: tuple[Duration, ...]
    place: TextSpan


# Seconds, or what computes them once step and range are known.
Duration: TypeAlias = float | DurationExpr


class At(enum.Enum):
    """The ends of the query, as `@` names them."""

    START = "start"
    END = "end"


class RangeBounds(enum.Enum):
    """What stands at the bounds of a range, other than the samples inside it."""

    # The newest sample at or before the start, as it is.
    ANCHORED = "anchored"
    # Values interpolated at both bounds.
    SMOOTHED = "smoothed"


@dataclasses.dataclass(frozen=True, slots=True)
class Modifiers:
    """`offset`, `@`, `anchored` and `smoothed` of a selector; a subquery has the first two."""

    offset: Duration | None = None
    # Milliseconds, or an end of the query.
    at: int | At | None = None
    bounds: RangeBounds | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class NumberLiteral:
    """A number, or a duration used as one."""

    value: float
    place: TextSpan
    is_duration: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class StringLiteral:
    """A quoted text."""

    value: str
    place: TextSpan


@dataclasses.dataclass(frozen=True, slots=True)
class VectorSelector:
    """Series by their labels."""

    matchers: tuple[Matcher, ...]
    place: TextSpan
    modifiers: Modifiers = Modifiers()


@dataclasses.dataclass(frozen=True, slots=True)
class MatrixSelector:
    """Series with their samples of a range; the modifiers are the inner selector's."""

    selector: VectorSelector
    range: Duration
    place: TextSpan


@dataclasses.dataclass(frozen=True, slots=True)
class SubqueryExpr:
    """An expression evaluated over a range of its own."""

    inner: Expr
    range: Duration
    step: Duration | None
    place: TextSpan
    modifiers: Modifiers = Modifiers()


@dataclasses.dataclass(frozen=True, slots=True)
class ParenExpr:
    """An expression in parentheses."""

    inner: Expr
    place: TextSpan


@dataclasses.dataclass(frozen=True, slots=True)
class UnaryExpr:
    """A sign before an expression."""

    operator: str
    operand: Expr
    place: TextSpan


class Cardinality(enum.Enum):
    """How many series of one side match one of the other."""

    ONE_TO_ONE = "one-to-one"
    MANY_TO_ONE = "many-to-one"
    ONE_TO_MANY = "one-to-many"
    MANY_TO_MANY = "many-to-many"


@dataclasses.dataclass(frozen=True, slots=True)
class VectorMatching:
    """How the series of two vectors find each other."""

    cardinality: Cardinality = Cardinality.ONE_TO_ONE
    on: bool = False
    labels: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    fill_left: float | None = None
    fill_right: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class BinaryExpr:
    """Two expressions with an operator between them."""

    operator: str
    left: Expr
    right: Expr
    place: TextSpan
    returns_bool: bool = False
    matching: VectorMatching = VectorMatching()
    # Whether the expression wrote on(), ignoring(), a group or a fill.
    explicit: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class AggregateExpr:
    """An aggregation over the series of a vector."""

    operator: str
    operand: Expr
    parameter: Expr | None
    grouping: tuple[str, ...]
    without: bool
    place: TextSpan


@dataclasses.dataclass(frozen=True, slots=True)
class CallExpr:
    """A function and its arguments."""

    function: str
    arguments: tuple[Expr, ...]
    place: TextSpan


Expr: TypeAlias = (
    NumberLiteral
    | StringLiteral
    | VectorSelector
    | MatrixSelector
    | SubqueryExpr
    | ParenExpr
    | UnaryExpr
    | BinaryExpr
    | AggregateExpr
    | CallExpr
)


def children(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, SubqueryExpr | ParenExpr):
        return (expr.inner,)
    if isinstance(expr, UnaryExpr):
        return (expr.operand,)
    if isinstance(expr, MatrixSelector):
        return (expr.selector,)
    if isinstance(expr, BinaryExpr):
        return (expr.left, expr.right)
    if isinstance(expr, AggregateExpr):
        return (expr.operand,) if expr.parameter is None else (expr.parameter, expr.operand)
    return expr.arguments if isinstance(expr, CallExpr) else ()


def depth_of(expr: Expr) -> int:
    """Levels of nesting. Counts without recursion, since chains of operators grow a tree that recursion cannot walk."""
    deepest = 0
    waiting = [(expr, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting.extend((child, depth + 1) for child in children(node))
    return deepest
