"""The syntax tree of an expression as JSON, in the shape that Prometheus' `parse_query` has and its clients draw."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidInput
from penstock.timeseries.promql.matchers import Matcher
from penstock.timeseries.promql.syntax.durations import duration_seconds
from penstock.timeseries.promql.syntax.number_text import general_text
from penstock.timeseries.promql.syntax.parser import parse
from penstock.timeseries.promql.syntax.tree import (
    AggregateExpr,
    At,
    BinaryExpr,
    CallExpr,
    Cardinality,
    Duration,
    DurationExpr,
    Expr,
    MatrixSelector,
    Modifiers,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)
from penstock.timeseries.promql.syntax.typecheck import check_types

__all__ = ["parse_duration_text", "parse_selector_text", "syntax_json"]

_GROUPED = {
    Cardinality.ONE_TO_ONE: "one-to-one",
    Cardinality.MANY_TO_ONE: "many-to-one",
    Cardinality.ONE_TO_MANY: "one-to-many",
    Cardinality.MANY_TO_MANY: "many-to-many",
}


def syntax_json(expression: str, *, depth_max: int = 80, experimental: bool = False) -> dict[str, Any]:
    """The tree of an expression that can be evaluated; a `SyntaxProblem` says what is wrong with another one."""
    tree = parse(expression, depth_max=depth_max, experimental=experimental)
    check_types(expression, tree)
    return _node(tree)


def parse_duration_text(text: str) -> float | None:
    """Seconds of a duration as PromQL writes it (`1h30m`); None for anything else."""
    return duration_seconds(text)


def parse_selector_text(text: str) -> tuple[Matcher, ...]:
    """The matchers of a selector alone, as `match[]` of the HTTP API has it."""
    tree = parse(text)
    if not isinstance(tree, VectorSelector) or tree.modifiers != Modifiers():
        raise InvalidInput(f"{text[:80]!r} is not a series selector", "", "write a name, labels in braces, or both")
    return tree.matchers


def _node(expr: Expr) -> dict[str, Any]:
    if isinstance(expr, NumberLiteral):
        return {"type": "numberLiteral", "val": general_text(expr.value)}
    if isinstance(expr, StringLiteral):
        return {"type": "stringLiteral", "val": expr.value}
    if isinstance(expr, VectorSelector):
        return {"type": "vectorSelector", **_selector(expr)}
    if isinstance(expr, MatrixSelector):
        return {"type": "matrixSelector", **_selector(expr.selector), "range": _milliseconds(expr.range)}
    if isinstance(expr, SubqueryExpr):
        step = 0 if expr.step is None else _milliseconds(expr.step)
        own = {"range": _milliseconds(expr.range), "step": step, **_modifiers(expr.modifiers)}
        return {"type": "subquery", "expr": _node(expr.inner), **own}
    if isinstance(expr, ParenExpr):
        return {"type": "parenExpr", "expr": _node(expr.inner)}
    if isinstance(expr, UnaryExpr):
        return {"type": "unaryExpr", "op": expr.operator, "expr": _node(expr.operand)}
    if isinstance(expr, BinaryExpr):
        return _binary(expr)
    if isinstance(expr, AggregateExpr):
        return {
            "type": "aggregation",
            "op": expr.operator,
            "expr": _node(expr.operand),
            "param": _node(expr.parameter) if expr.parameter is not None else None,
            "grouping": list(expr.grouping),
            "without": expr.without,
        }
    assert isinstance(expr, CallExpr)
    return {"type": "call", "func": {"name": expr.function}, "args": [_node(each) for each in expr.arguments]}


def _selector(expr: VectorSelector) -> dict[str, Any]:
    named = [one for one in expr.matchers if one.name == "__name__" and one.kind == "="]
    name = named[0].value if len(named) == 1 else ""
    return {"name": name, "matchers": [_matcher(one) for one in expr.matchers], **_modifiers(expr.modifiers)}


def _matcher(one: Matcher) -> dict[str, str]:
    return {"name": one.name, "type": str(one.kind), "value": one.value}


def _modifiers(modifiers: Modifiers) -> dict[str, Any]:
    at = modifiers.at
    return {
        "offset": 0 if modifiers.offset is None else _milliseconds(modifiers.offset),
        "timestamp": at if isinstance(at, int) else None,
        "startOrEnd": at.value if isinstance(at, At) else None,
    }


def _binary(expr: BinaryExpr) -> dict[str, Any]:
    matching = {
        "card": _GROUPED[expr.matching.cardinality],
        "labels": list(expr.matching.labels),
        "on": expr.matching.on,
        "include": list(expr.matching.include),
    }
    return {
        "type": "binaryExpr",
        "op": expr.operator,
        "lhs": _node(expr.left),
        "rhs": _node(expr.right),
        "matching": matching,
        "bool": expr.returns_bool,
    }


def _milliseconds(duration: Duration) -> int | str:
    """A duration that only the query's step or range decides is shown by its operator."""
    return duration.operator if isinstance(duration, DurationExpr) else round(duration * 1000)
