"""Durations in brackets and behind `offset`: literals, and arithmetic on them where that is enabled."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from penstock.errors import InvalidInput
from penstock.timeseries.promql.syntax.cursor import TokenCursor
from penstock.timeseries.promql.syntax.durations import duration_seconds, number_value
from penstock.timeseries.promql.syntax.lexer import LexemeKind
from penstock.timeseries.promql.syntax.tree import Duration, DurationExpr

__all__ = ["parse_duration", "parse_offset", "resolve", "to_ms"]

_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "^": 3}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": math.fmod,
    "^": math.pow,
    "max_of": max,
    "min_of": min,
}
_SECONDS_MAX = 2**63 / 1e9


def to_ms(seconds: float) -> int:
    """Milliseconds, rounded as Go rounds."""
    return math.floor(abs(seconds) * 1000 + 0.5) * (1 if seconds >= 0 else -1)


def parse_duration(cursor: TokenCursor, *, experimental: bool) -> Duration:
    """A range or a step, which must be positive."""
    start = cursor.next.start
    found = _binary(cursor, 1, experimental=experimental)
    if isinstance(found, float) and found <= 0:
        raise cursor.fail(start, "duration must be greater than 0")
    return found


def parse_offset(cursor: TokenCursor, *, experimental: bool) -> Duration:
    """An offset: one term with a sign. Arithmetic needs parentheses here."""
    return _term(cursor, experimental=experimental, alone=True)


def resolve(duration: Duration, *, step_ms: int, range_ms: int) -> float:
    """Seconds of a duration in a query of this step and range."""
    if isinstance(duration, float):
        return duration
    if duration.operator == "step":
        return step_ms / 1000
    if duration.operator == "range":
        return range_ms / 1000
    operands = [resolve(operand, step_ms=step_ms, range_ms=range_ms) for operand in duration.operands]
    if len(operands) == 1:
        return -operands[0]
    left, right = operands
    if duration.operator in ("/", "%") and right == 0:
        why = "division by zero" if duration.operator == "/" else "modulo by zero"
        raise InvalidInput("a duration of the expression cannot be computed", why)
    try:
        seconds = _ARITHMETIC[duration.operator](left, right)
    except (ValueError, OverflowError) as error:
        raise InvalidInput("a duration of the expression cannot be computed", str(error)) from None
    if not -_SECONDS_MAX < seconds < _SECONDS_MAX:
        raise InvalidInput("a duration of the expression cannot be computed", "it is out of range")
    return seconds


def _binary(cursor: TokenCursor, precedence_min: int, *, experimental: bool) -> Duration:
    cursor.enter()
    left = _term(cursor, experimental=experimental)
    links = 0
    while cursor.next.kind == LexemeKind.OPERATOR and _PRECEDENCE.get(cursor.next.value, 0) >= precedence_min:
        sign = cursor.take()
        # Every link makes the tree a level deeper.
        links += 1
        cursor.enter()
        _check_enabled(cursor, sign.start, experimental=experimental)
        precedence = _PRECEDENCE[sign.value]
        right = _binary(cursor, precedence if sign.value == "^" else precedence + 1, experimental=experimental)
        left = DurationExpr(sign.value, (left, right), cursor.place_from(sign.start))
        left = _folded(left)
    cursor.leave(links + 1)
    return left


def _folded(expr: DurationExpr) -> Duration:
    """Constants are computed at once, so that errors show where they were written."""
    constant = all(isinstance(operand, float) for operand in expr.operands)
    return resolve(expr, step_ms=0, range_ms=0) if constant and expr.operands else expr


def _term(cursor: TokenCursor, *, experimental: bool, alone: bool = False) -> Duration:
    start = cursor.next.start
    if sign := cursor.accept("+", "-"):
        # A sign binds less than a power, and an offset without parentheses is one term.
        if alone:
            cursor.enter()
            operand = _term(cursor, experimental=experimental, alone=True)
            cursor.leave()
        else:
            operand = _binary(cursor, _PRECEDENCE["^"], experimental=experimental)
        if sign.value == "+":
            return operand
        return -operand if isinstance(operand, float) else DurationExpr("-", (operand,), cursor.place_from(start))
    if cursor.next.kind == LexemeKind.NUMBER:
        value = number_value(cursor.take().value)
        if not -_SECONDS_MAX < value < _SECONDS_MAX:
            raise cursor.fail(start, "duration out of range")
        return value
    if cursor.next.kind == LexemeKind.DURATION:
        seconds = duration_seconds(cursor.take().value)
        if seconds is None:
            raise cursor.fail(start, "duration out of range")
        return seconds
    return _enclosed(cursor, start, experimental=experimental)


def _enclosed(cursor: TokenCursor, start: int, *, experimental: bool) -> Duration:
    if cursor.accept("("):
        _check_enabled(cursor, start, experimental=experimental)
        inner = _binary(cursor, 1, experimental=experimental)
        cursor.expect(")", "duration")
        return inner
    if not cursor.at_word("step", "range", "max_of", "min_of"):
        raise cursor.unexpected("duration", "number, duration, step(), or range()")
    word = cursor.take().value.lower()
    _check_enabled(cursor, start, experimental=experimental)
    cursor.expect("(", "duration")
    operands: tuple[Duration, ...] = ()
    if word in ("max_of", "min_of"):
        first = _binary(cursor, 1, experimental=experimental)
        cursor.expect(",", "duration")
        operands = (first, _binary(cursor, 1, experimental=experimental))
    cursor.expect(")", "duration")
    return _folded(DurationExpr(word, operands, cursor.place_from(start)))


def _check_enabled(cursor: TokenCursor, at: int, *, experimental: bool) -> None:
    if not experimental:
        raise cursor.fail(at, "experimental duration expression is not enabled")
