"""From text to syntax tree: PromQL of Prometheus 3, by precedence climbing, with bounded depth."""

from __future__ import annotations

import dataclasses
import math

from penstock.errors import AtCapacity
from penstock.timeseries.promql.syntax.cursor import KEYWORDS, TokenCursor
from penstock.timeseries.promql.syntax.duration_parser import parse_duration, parse_offset, to_ms
from penstock.timeseries.promql.syntax.durations import duration_seconds, number_value
from penstock.timeseries.promql.syntax.lexer import Lexeme, LexemeKind
from penstock.timeseries.promql.syntax.number_text import go_text
from penstock.timeseries.promql.syntax.selector_parser import parse_grouping, parse_selector
from penstock.timeseries.promql.syntax.signatures import AGGREGATIONS, EXPERIMENTAL_AGGREGATIONS, SIGNATURES
from penstock.timeseries.promql.syntax.tree import (
    AggregateExpr,
    At,
    BinaryExpr,
    CallExpr,
    Cardinality,
    Expr,
    MatrixSelector,
    Modifiers,
    NumberLiteral,
    ParenExpr,
    RangeBounds,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
    VectorMatching,
    VectorSelector,
    depth_of,
)

__all__ = ["COMPARISONS", "SET_OPERATORS", "parse"]

COMPARISONS = frozenset({"==", "!=", ">", "<", ">=", "<="})
SET_OPERATORS = frozenset({"and", "or", "unless"})
_PRECEDENCE = {
    "or": 1,
    "and": 2,
    "unless": 2,
    **dict.fromkeys([*COMPARISONS, "</", ">/"], 3),
    "+": 4,
    "-": 4,
    "*": 5,
    "/": 5,
    "%": 5,
    "atan2": 5,
    "^": 6,
}
_WORD_OPERATORS = SET_OPERATORS | {"atan2"}
_SIGN_PRECEDENCE = 6
_AT_SECONDS_MAX = 2**63 / 1e3


def parse(expression: str, *, depth_max: int = 80, experimental: bool = False) -> Expr:
    """The tree of an expression; a SyntaxProblem says where reading stopped."""
    reading = _ExpressionParser(expression, depth_max, experimental=experimental)
    return reading.whole()


class _ExpressionParser:
    def __init__(self, expression: str, depth_max: int, *, experimental: bool) -> None:
        self._cursor = TokenCursor(expression, depth_max)
        self._depth_max = depth_max
        self._experimental = experimental

    def whole(self) -> Expr:
        if self._cursor.next.kind == LexemeKind.END:
            raise self._cursor.fail(0, "no expression found in input")
        tree = self._binary(1)
        if self._cursor.next.kind != LexemeKind.END:
            raise self._cursor.unexpected()
        if depth_of(tree) > self._depth_max:
            raise AtCapacity(
                "the expression is nested too deeply",
                f"at most {self._depth_max} levels are evaluated",
                "flatten the expression, or raise EngineConfig.depth_max",
            )
        return tree

    def _binary(self, precedence_min: int) -> Expr:
        self._cursor.enter()
        left = self._operand()
        while (operator := self._operator()) and _PRECEDENCE[operator] >= precedence_min:
            left = self._binary_rest(left, operator)
        self._cursor.leave()
        return left

    def _operator(self) -> str | None:
        lexeme = self._cursor.next
        text = lexeme.value.lower()
        if lexeme.kind == LexemeKind.OPERATOR and text in _PRECEDENCE:
            return text
        return text if lexeme.kind == LexemeKind.NAME and text in _WORD_OPERATORS else None

    def _binary_rest(self, left: Expr, operator: str) -> Expr:
        start = left.place.start
        self._cursor.take()
        returns_bool = self._cursor.accept_word("bool") is not None
        matching, explicit = self._matching(operator)
        precedence = _PRECEDENCE[operator]
        right = self._binary(precedence if operator == "^" else precedence + 1)
        return BinaryExpr(
            operator, left, right, self._cursor.place_from(start), returns_bool, matching, explicit=explicit
        )

    def _matching(self, operator: str) -> tuple[VectorMatching, bool]:
        cardinality = Cardinality.MANY_TO_MANY if operator in SET_OPERATORS else Cardinality.ONE_TO_ONE
        matching = VectorMatching(cardinality)
        explicit = False
        if word := self._cursor.accept_word("on", "ignoring"):
            explicit = True
            matching = dataclasses.replace(matching, on=word.value.lower() == "on", labels=parse_grouping(self._cursor))
            if group := self._cursor.accept_word("group_left", "group_right"):
                matching = self._group(matching, group, operator)
        while self._cursor.at_word("fill", "fill_left", "fill_right") and self._cursor.after_next.is_operator("("):
            explicit = True
            matching = self._fill(matching, operator)
        return matching, explicit

    def _group(self, matching: VectorMatching, group: Lexeme, operator: str) -> VectorMatching:
        if operator in SET_OPERATORS:
            raise self._cursor.fail(group.start, f'no grouping allowed for "{operator}" operation')
        left = group.value.lower() == "group_left"
        include = parse_grouping(self._cursor) if self._cursor.next.is_operator("(") else ()
        for label in include:
            if matching.on and label in matching.labels:
                raise self._cursor.fail(group.start, f'label "{label}" must not occur in ON and GROUP clause at once')
        return dataclasses.replace(
            matching, cardinality=Cardinality.MANY_TO_ONE if left else Cardinality.ONE_TO_MANY, include=include
        )

    def _fill(self, matching: VectorMatching, operator: str) -> VectorMatching:
        word = self._cursor.take()
        if operator in SET_OPERATORS:
            raise self._cursor.fail(word.start, f'filling in missing series not allowed for "{operator}" operation')
        if not self._experimental:
            raise self._cursor.fail(word.start, "binop fill modifiers are experimental and not enabled")
        self._cursor.expect("(", "fill modifier")
        value = self._signed_number("fill modifier")
        self._cursor.expect(")", "fill modifier")
        kind = word.value.lower()
        return dataclasses.replace(
            matching,
            fill_left=value if kind != "fill_right" else matching.fill_left,
            fill_right=value if kind != "fill_left" else matching.fill_right,
        )

    def _operand(self) -> Expr:
        if sign := self._cursor.accept("+", "-"):
            operand = self._binary(_SIGN_PRECEDENCE)
            place = self._cursor.place_from(sign.start)
            if isinstance(operand, NumberLiteral):
                return NumberLiteral(-operand.value if sign.value == "-" else operand.value, place)
            return UnaryExpr(sign.value, operand, place)
        return self._modified_by_suffixes(self._primary())

    def _modified_by_suffixes(self, expr: Expr) -> Expr:
        while True:
            start = expr.place.start
            if self._cursor.next.is_operator("["):
                expr = self._bracket(expr, start)
            elif self._cursor.at_word("offset"):
                expr = self._offset(expr)
            elif self._cursor.next.is_operator("@"):
                expr = self._at(expr)
            elif self._cursor.at_word("anchored", "smoothed"):
                expr = self._bounds(expr)
            else:
                return expr

    def _primary(self) -> Expr:
        lexeme = self._cursor.next
        if lexeme.kind in (LexemeKind.NUMBER, LexemeKind.DURATION):
            value = self._number("expression")
            return NumberLiteral(value, self._cursor.place_from(lexeme.start), lexeme.kind == LexemeKind.DURATION)
        if lexeme.kind == LexemeKind.STRING:
            self._cursor.take()
            return StringLiteral(lexeme.value, self._cursor.place_from(lexeme.start))
        if self._cursor.accept("("):
            inner = self._binary(1)
            self._cursor.expect(")", "parentheses")
            return ParenExpr(inner, self._cursor.place_from(lexeme.start))
        if lexeme.kind == LexemeKind.NAME:
            return self._named(lexeme)
        if lexeme.is_operator("{"):
            return parse_selector(self._cursor)
        raise self._cursor.unexpected()

    def _named(self, lexeme: Lexeme) -> Expr:
        following = self._cursor.after_next
        if lexeme.value.lower() in AGGREGATIONS:
            modified = following.kind == LexemeKind.NAME and following.value.lower() in ("by", "without")
            if following.is_operator("(") or modified:
                return self._aggregation()
        if following.is_operator("("):
            return self._call()
        return parse_selector(self._cursor)

    def _aggregation(self) -> Expr:
        word = self._cursor.take()
        operator = word.value.lower()
        if operator in EXPERIMENTAL_AGGREGATIONS and not self._experimental:
            raise self._cursor.fail(word.start, f"{operator}() is experimental and is not enabled")
        modifier = self._cursor.accept_word("by", "without")
        grouping = parse_grouping(self._cursor) if modifier else ()
        arguments = self._arguments()
        if modifier is None and (modifier := self._cursor.accept_word("by", "without")):
            grouping = parse_grouping(self._cursor)
        place = self._cursor.place_from(word.start)
        wanted = 2 if AGGREGATIONS[operator] is not None else 1
        if len(arguments) != wanted:
            raise self._cursor.fail(
                word.start,
                f"wrong number of arguments for aggregate expression provided, expected {wanted}, got {len(arguments)}"
                if arguments
                else "no arguments for aggregate expression provided",
            )
        without = modifier is not None and modifier.value.lower() == "without"
        return AggregateExpr(
            operator, arguments[-1], arguments[0] if wanted > 1 else None, grouping, without=without, place=place
        )

    def _call(self) -> Expr:
        name = self._cursor.take()
        function = SIGNATURES.get(name.value)
        if function is None and name.value.lower() in KEYWORDS:
            raise self._cursor.fail(name.start, f"unexpected <{name.value.lower()}>")
        if function is None:
            raise self._cursor.fail(name.start, f'unknown function with name "{name.value}"')
        if function.experimental and not self._experimental:
            raise self._cursor.fail(name.start, f'function "{name.value}" is not enabled')
        arguments = self._arguments(labels_second=name.value == "info")
        return CallExpr(name.value, tuple(arguments), self._cursor.place_from(name.start))

    def _arguments(self, *, labels_second: bool = False) -> list[Expr]:
        self._cursor.expect("(", "call")
        arguments: list[Expr] = []
        if self._cursor.accept(")"):
            return arguments
        while True:
            labels_only = labels_second and len(arguments) == 1
            arguments.append(self._label_selector() if labels_only else self._binary(1))
            if self._cursor.accept(")"):
                return arguments
            comma = self._cursor.expect(",", "call")
            if self._cursor.next.is_operator(")"):
                raise self._cursor.fail(comma.start, "trailing commas not allowed in function call args")

    def _label_selector(self) -> Expr:
        """Matchers of labels alone, which unlike a selector's may all match the empty value."""
        start = self._cursor.next
        if start.is_operator("{"):
            # When `info` looks is decided by its first argument: modifiers are read, and do nothing.
            selector = self._modified_by_suffixes(parse_selector(self._cursor, may_be_empty=True))
            if isinstance(selector, VectorSelector) and self._cursor.next.is_operator(",", ")"):
                return selector
        selected = start.kind == LexemeKind.NAME and not self._cursor.after_next.is_operator("(")
        instead = ", got vector selector instead" if selected else ""
        raise self._cursor.fail(start.start, f"expected label selectors only{instead}")

    def _bracket(self, expr: Expr, start: int) -> Expr:
        opened = self._cursor.expect("[", "range")
        length = parse_duration(self._cursor, experimental=self._experimental)
        if self._cursor.accept(":"):
            step = None
            if not self._cursor.next.is_operator("]"):
                step = parse_duration(self._cursor, experimental=self._experimental)
            self._cursor.expect("]", "subquery")
            return SubqueryExpr(expr, length, step, self._cursor.place_from(start))
        self._cursor.expect("]", "range")
        if not isinstance(expr, VectorSelector):
            raise self._cursor.fail(opened.start, "ranges only allowed for vector selectors")
        if expr.modifiers.offset is not None:
            raise self._cursor.fail(opened.start, "no offset modifiers allowed before range")
        if expr.modifiers.at is not None:
            raise self._cursor.fail(opened.start, "no @ modifiers allowed before range")
        return MatrixSelector(expr, length, self._cursor.place_from(start))

    def _offset(self, expr: Expr) -> Expr:
        word = self._cursor.take()
        offset = parse_offset(self._cursor, experimental=self._experimental)
        modifiers = self._modifiers(expr, word, "offset")
        if modifiers.offset is not None:
            raise self._cursor.fail(word.start, "offset may not be set multiple times")
        return self._modified(expr, dataclasses.replace(modifiers, offset=offset))

    def _at(self, expr: Expr) -> Expr:
        sign = self._cursor.take()
        at: int | At
        if self._cursor.at_word("start", "end") and self._cursor.after_next.is_operator("("):
            at = At(self._cursor.take().value.lower())
            self._cursor.expect("(", "@ modifier")
            self._cursor.expect(")", "@ modifier")
        else:
            seconds = self._signed_number("@", "timestamp")
            if not -_AT_SECONDS_MAX < seconds < _AT_SECONDS_MAX:
                text = f"{seconds:f}" if math.isfinite(seconds) else go_text(seconds)
                why = f"timestamp out of bounds for @ modifier: {text}"
                raise self._cursor.fail(sign.start, why)
            at = to_ms(seconds)
        modifiers = self._modifiers(expr, sign, "@")
        if modifiers.at is not None:
            raise self._cursor.fail(sign.start, "@ <timestamp> may not be set multiple times")
        return self._modified(expr, dataclasses.replace(modifiers, at=at))

    def _bounds(self, expr: Expr) -> Expr:
        word = self._cursor.take()
        name = word.value.lower()
        at = expr.place.start
        if not self._experimental:
            raise self._cursor.fail(at, f"{name} modifier is experimental and not enabled")
        if isinstance(expr, SubqueryExpr):
            raise self._cursor.fail(at, f"{name} modifier is not supported for subqueries")
        if not isinstance(expr, VectorSelector | MatrixSelector):
            raise self._cursor.fail(at, f"{name} modifier not implemented")
        modifiers = self._modifiers(expr, word, name)
        bounds = RangeBounds(name)
        if modifiers.bounds not in (None, bounds):
            raise self._cursor.fail(at, "anchored and smoothed modifiers cannot be used together")
        return self._modified(expr, dataclasses.replace(modifiers, bounds=bounds))

    def _modifiers(self, expr: Expr, word: Lexeme, name: str) -> Modifiers:
        if isinstance(expr, MatrixSelector):
            return expr.selector.modifiers
        if isinstance(expr, VectorSelector | SubqueryExpr):
            return expr.modifiers
        raise self._cursor.fail(
            word.start,
            f"{name} modifier must be preceded by an instant vector selector or range vector selector or a subquery",
        )

    def _modified(self, expr: Expr, modifiers: Modifiers) -> Expr:
        place = self._cursor.place_from(expr.place.start)
        if isinstance(expr, MatrixSelector):
            return dataclasses.replace(
                expr, selector=dataclasses.replace(expr.selector, modifiers=modifiers), place=place
            )
        assert isinstance(expr, VectorSelector | SubqueryExpr)
        return dataclasses.replace(expr, modifiers=modifiers, place=place)

    def _signed_number(self, where: str, wanted: str = "number") -> float:
        sign = self._cursor.accept("+", "-")
        value = self._number(where, wanted)
        return -value if sign and sign.value == "-" else value

    def _number(self, where: str, wanted: str = "number") -> float:
        lexeme = self._cursor.next
        if lexeme.kind == LexemeKind.NUMBER:
            return number_value(self._cursor.take().value)
        if lexeme.kind != LexemeKind.DURATION:
            raise self._cursor.unexpected(where, wanted)
        seconds = duration_seconds(self._cursor.take().value)
        if seconds is None:
            raise self._cursor.fail(lexeme.start, "duration out of range")
        return seconds
