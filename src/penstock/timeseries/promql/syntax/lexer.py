"""Tokens of PromQL, each with its position. Comments and white space are left out."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator

from penstock.errors import InvalidInput
from penstock.timeseries.promql.syntax.durations import DURATION, NUMBER, number_value
from penstock.timeseries.promql.syntax.quoting import unquote

__all__ = ["Lexeme", "LexemeKind", "SyntaxProblem", "tokenize"]

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)+")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
# Inside brackets a colon stands between a subquery's range and its step.
_PLAIN_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OPERATOR = re.compile(r"==|!=|=~|!~|<=|>=|</|>/|[-+*/%^=<>(){}\[\],:@;]")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|`[^`]*`', re.DOTALL)
_WORD = re.compile(r"[0-9a-zA-Z_.]+")
_JOINED = re.compile(r"[0-9a-zA-Z_.]")


_CLOSES = {")": "(", "]": "[", "}": "{"}
_UNOPENED = {
    ")": "unexpected right parenthesis ')'",
    "]": "unexpected right bracket ']'",
    "}": "unexpected character: '}'",
}
_UNCLOSED = {
    "{": "unexpected end of input inside braces",
    "[": "unexpected end of input in duration expression",
    "(": "unclosed left parenthesis",
}
_IN_BRACES = frozenset({"=", "==", "!=", "=~", "!~", ","})


class LexemeKind:
    """Kinds of tokens."""

    NAME = "name"
    NUMBER = "number"
    DURATION = "duration"
    STRING = "string"
    OPERATOR = "operator"
    END = "end of input"
    # What cannot be read; its value says why. Reported when the parser comes to it.
    ERROR = "error"


class SyntaxProblem(InvalidInput):
    """An expression that cannot be read, with the place where reading stopped."""


@dataclasses.dataclass(frozen=True, slots=True)
class Lexeme:
    """A token; `value` is the content of a string and the text of everything else."""

    kind: str
    value: str
    start: int
    end: int

    def is_operator(self, *texts: str) -> bool:
        return self.kind == LexemeKind.OPERATOR and self.value in texts


def problem(expression: str, at: int, why: str) -> SyntaxProblem:
    """An error that says where."""
    return SyntaxProblem(f"{position(expression, at)}: parse error", why, "correct the expression")


def position(expression: str, at: int) -> str:
    """Line and column, both from 1; columns are bytes, as Prometheus counts them."""
    line = expression.count("\n", 0, at) + 1
    before = expression[expression.rfind("\n", 0, at) + 1 : at]
    return f"{line}:{len(before.encode('utf-8', 'surrogatepass')) + 1}"


def tokenize(expression: str) -> list[Lexeme]:
    """All tokens; the last one is the end of input, or an error."""
    return list(_lexemes(expression))


def _lexemes(expression: str) -> Iterator[Lexeme]:
    at = 0
    nesting = dict.fromkeys("([{", 0)
    while True:
        blank = _BLANK.match(expression, at)
        at = blank.end() if blank else at
        if at >= len(expression):
            break
        try:
            lexeme = _nested(_lexeme(expression, at, in_brackets=nesting["["] > 0), nesting)
        except ValueError as error:
            lexeme = Lexeme(LexemeKind.ERROR, str(error), at, len(expression))
        yield lexeme
        if lexeme.kind == LexemeKind.ERROR:
            return
        at = lexeme.end
    unclosed = next((why for opened, why in _UNCLOSED.items() if nesting[opened] > 0), None)
    kind = LexemeKind.ERROR if unclosed else LexemeKind.END
    yield Lexeme(kind, unclosed or "", len(expression), len(expression))


def _nested(lexeme: Lexeme, nesting: dict[str, int]) -> Lexeme:
    """Counts what is open, and refuses to close what is not."""
    if lexeme.kind != LexemeKind.OPERATOR:
        return lexeme
    if lexeme.value in nesting:
        nesting[lexeme.value] += 1
    elif opened := _CLOSES.get(lexeme.value):
        if not nesting[opened]:
            raise ValueError(_UNOPENED[lexeme.value])
        nesting[opened] -= 1
    elif nesting["{"] and lexeme.value not in _IN_BRACES:
        raise ValueError(f"unexpected character inside braces: '{lexeme.value[0]}'")
    elif not nesting["{"] and lexeme.value in ("=~", "!~"):
        raise ValueError(f"unexpected character after '{lexeme.value[0]}': '~'")
    return lexeme


def _lexeme(expression: str, at: int, *, in_brackets: bool) -> Lexeme:
    character = expression[at]
    if character in "\"'`":
        return _string(expression, at)
    if character.isdecimal() or (character == "." and expression[at + 1 : at + 2].isdecimal()):
        return _number(expression, at)
    name = (_PLAIN_NAME if in_brackets else _NAME).match(expression, at)
    # A lone colon is no name.
    if name and name.group() != ":":
        kind = LexemeKind.NUMBER if name.group().lower() in ("inf", "nan") else LexemeKind.NAME
        return Lexeme(kind, name.group(), at, name.end())
    operator = _OPERATOR.match(expression, at)
    if operator is None:
        raise ValueError(f"unexpected character: '{character}'")
    return Lexeme(LexemeKind.OPERATOR, operator.group(), at, operator.end())


def _string(expression: str, at: int) -> Lexeme:
    match = _STRING.match(expression, at)
    if match is None:
        raise ValueError("unterminated raw string" if expression[at] == "`" else "unterminated quoted string")
    return Lexeme(LexemeKind.STRING, unquote(match.group()), at, match.end())


def _number(expression: str, at: int) -> Lexeme:
    number = NUMBER.match(expression, at)
    duration = DURATION.match(expression, at)
    kind, match = LexemeKind.NUMBER, number
    if duration and (number is None or duration.end() > number.end()):
        kind, match = LexemeKind.DURATION, duration
    end = match.end() if match else at
    if match is None or end == at or _JOINED.match(expression, end):
        word = _WORD.match(expression, at)
        raise ValueError(f'bad number or duration syntax: "{word.group() if word else expression[at]}"')
    if kind == LexemeKind.NUMBER and math.isinf(number_value(match.group())):
        raise ValueError(f'error parsing number: strconv.ParseFloat: parsing "{match.group()}": value out of range')
    return Lexeme(kind, match.group(), at, end)
