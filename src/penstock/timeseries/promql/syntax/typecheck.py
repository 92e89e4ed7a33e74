"""Types of expressions, checked before anything is read."""

from __future__ import annotations

from penstock.timeseries.promql.syntax.lexer import SyntaxProblem, problem
from penstock.timeseries.promql.syntax.parser import COMPARISONS, SET_OPERATORS
from penstock.timeseries.promql.syntax.signatures import AGGREGATIONS, SIGNATURES
from penstock.timeseries.promql.syntax.tree import (
    AggregateExpr,
    BinaryExpr,
    CallExpr,
    Expr,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    TextSpan,
    UnaryExpr,
    ValueType,
    VectorSelector,
)

__all__ = ["check_types", "type_of"]

_WORDS = {
    ValueType.SCALAR: "scalar",
    ValueType.STRING: "string",
    ValueType.VECTOR: "instant vector",
    ValueType.MATRIX: "range vector",
}


def type_of(expr: Expr) -> ValueType:
    """The type of an expression that was checked."""
    while isinstance(expr, ParenExpr | UnaryExpr):
        expr = expr.inner if isinstance(expr, ParenExpr) else expr.operand
    if isinstance(expr, NumberLiteral):
        return ValueType.SCALAR
    if isinstance(expr, StringLiteral):
        return ValueType.STRING
    if isinstance(expr, MatrixSelector | SubqueryExpr):
        return ValueType.MATRIX
    if isinstance(expr, CallExpr):
        return SIGNATURES[expr.function].result
    if isinstance(expr, BinaryExpr):
        sides = {type_of(expr.left), type_of(expr.right)}
        return ValueType.SCALAR if sides == {ValueType.SCALAR} else ValueType.VECTOR
    assert isinstance(expr, VectorSelector | AggregateExpr)
    return ValueType.VECTOR


def check_types(expression: str, tree: Expr) -> ValueType:
    """The type of the whole expression; a part that does not fit is named with its place."""
    return _Check(expression).visit(tree)


class _Check:
    def __init__(self, expression: str) -> None:
        self._expression = expression

    def visit(self, expr: Expr) -> ValueType:
        if isinstance(expr, ParenExpr):
            return self.visit(expr.inner)
        if isinstance(expr, UnaryExpr):
            return self._unary(expr)
        if isinstance(expr, SubqueryExpr):
            inner = self.visit(expr.inner)
            if inner is not ValueType.VECTOR:
                raise self._fail(expr.place, f"subquery is only allowed on instant vector, got {inner.value} instead")
            return ValueType.MATRIX
        if isinstance(expr, CallExpr):
            return self._call(expr)
        if isinstance(expr, AggregateExpr):
            return self._aggregate(expr)
        if isinstance(expr, BinaryExpr):
            return self._binary(expr)
        return type_of(expr)

    def _unary(self, expr: UnaryExpr) -> ValueType:
        found = self.visit(expr.operand)
        if found not in (ValueType.SCALAR, ValueType.VECTOR):
            raise self._fail(
                expr.place,
                f'unary expression only allowed on expressions of type scalar or instant vector, got "{_WORDS[found]}"',
            )
        return found

    def _call(self, expr: CallExpr) -> ValueType:
        signature = SIGNATURES[expr.function]
        count = len(expr.arguments)
        least, most = signature.count_min, signature.count_max
        if count < least or (most is not None and count > most):
            bound = f"at least {least}" if count < least else f"at most {most}"
            wanted = str(least) if least == most else bound
            raise self._fail(expr.place, f'expected {wanted} argument(s) in call to "{expr.function}", got {count}')
        for index, argument in enumerate(expr.arguments):
            self._expect(argument, signature.type_of(index), f'call to function "{expr.function}"')
        return signature.result

    def _aggregate(self, expr: AggregateExpr) -> ValueType:
        self._expect(expr.operand, ValueType.VECTOR, "aggregation expression")
        wanted = AGGREGATIONS[expr.operator]
        if wanted is not None and expr.parameter is not None:
            self._expect(expr.parameter, wanted, "aggregation parameter")
        return ValueType.VECTOR

    def _binary(self, expr: BinaryExpr) -> ValueType:
        left, right = self.visit(expr.left), self.visit(expr.right)
        sides = {left, right}
        if not sides <= {ValueType.SCALAR, ValueType.VECTOR}:
            raise self._fail(expr.place, "binary expression must contain only scalar and instant vector types")
        if expr.returns_bool and expr.operator not in COMPARISONS:
            raise self._fail(expr.place, "bool modifier can only be used on comparison operators")
        if sides == {ValueType.SCALAR} and expr.operator in COMPARISONS and not expr.returns_bool:
            raise self._fail(expr.place, "comparisons between scalars must use BOOL modifier")
        if sides != {ValueType.VECTOR}:
            if expr.explicit:
                raise self._fail(expr.place, "vector matching only allowed between instant vectors")
            if expr.operator in SET_OPERATORS:
                raise self._fail(expr.place, f'set operator "{expr.operator}" not allowed in binary scalar expression')
        return ValueType.SCALAR if sides == {ValueType.SCALAR} else ValueType.VECTOR

    def _expect(self, expr: Expr, wanted: ValueType, where: str) -> None:
        found = self.visit(expr)
        if found is not wanted:
            raise self._fail(expr.place, f"expected type {_WORDS[wanted]} in {where}, got {_WORDS[found]}")

    def _fail(self, place: TextSpan, why: str) -> SyntaxProblem:
        return problem(self._expression, place.start, why)
