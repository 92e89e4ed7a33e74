"""Walking through tokens: what every part of the parser needs."""

from __future__ import annotations

from penstock.errors import AtCapacity
from penstock.timeseries.promql.syntax.lexer import Lexeme, LexemeKind, SyntaxProblem, problem, tokenize
from penstock.timeseries.promql.syntax.tree import TextSpan

__all__ = ["KEYWORDS", "TokenCursor"]

_CALCULATING = frozenset(["+", "-", "*", "/", "%", "^", "==", "!=", "<", "<=", ">", ">=", "</", ">/", "@"])
# Words that are no names of functions.
KEYWORDS = frozenset(
    ["and", "or", "unless", "atan2", "bool", "by", "without", "on", "ignoring", "group_left", "group_right", "offset"]
)


class TokenCursor:
    """The tokens of an expression, and how far they are read."""

    def __init__(self, expression: str, depth_max: int) -> None:
        self._expression = expression
        self._lexemes = tokenize(expression)
        self._at = 0
        self._depth = 0
        self._depth_max = depth_max

    @property
    def next(self) -> Lexeme:
        return self._lexemes[self._at]

    @property
    def after_next(self) -> Lexeme:
        return self._lexemes[min(self._at + 1, len(self._lexemes) - 1)]

    @property
    def last_end(self) -> int:
        """Where the token that was read last ends."""
        return self._lexemes[self._at - 1].end if self._at else 0

    def take(self) -> Lexeme:
        lexeme = self.next
        self._at = min(self._at + 1, len(self._lexemes) - 1)
        return lexeme

    def accept(self, *operators: str) -> Lexeme | None:
        return self.take() if self.next.is_operator(*operators) else None

    def accept_word(self, *words: str) -> Lexeme | None:
        """A keyword, in any case."""
        return self.take() if self.at_word(*words) else None

    def at_word(self, *words: str) -> bool:
        return self.next.kind == LexemeKind.NAME and self.next.value.lower() in words

    def expect(self, operator: str, where: str, otherwise: str = "") -> Lexeme:
        if not self.next.is_operator(operator):
            raise self.unexpected(where, f'"{operator}" {otherwise}'.rstrip())
        return self.take()

    def unexpected(self, where: str = "", wanted: str = "") -> SyntaxProblem:
        """An error about the next token, in the words of Prometheus."""
        if self.next.kind == LexemeKind.ERROR:
            return self.fail(self.next.start, self.next.value)
        place = f" in {where}" if where else ""
        expectation = f", expected {wanted}" if wanted else ""
        return self.fail(self.next.start, f"unexpected {_described(self.next)}{place}{expectation}")

    def fail(self, at: int, why: str) -> SyntaxProblem:
        return problem(self._expression, at, why)

    def place_from(self, start: int) -> TextSpan:
        return TextSpan(start, self.last_end)

    def enter(self) -> None:
        """One level deeper; `leave` when it is read."""
        self._depth += 1
        if self._depth > self._depth_max:
            raise AtCapacity(
                "the expression is nested too deeply",
                f"at most {self._depth_max} levels are read",
                "flatten the expression, or raise EngineConfig.depth_max",
            )

    def leave(self, levels: int = 1) -> None:
        self._depth -= levels


def _described(lexeme: Lexeme) -> str:
    if lexeme.kind == LexemeKind.END:
        return lexeme.kind
    if lexeme.kind == LexemeKind.OPERATOR:
        return f"<op:{lexeme.value}>" if lexeme.value in _CALCULATING else f'"{lexeme.value}"'
    if lexeme.kind == LexemeKind.NAME:
        return f"<{lexeme.value.lower()}>" if lexeme.value.lower() in KEYWORDS else f'identifier "{lexeme.value}"'
    return f'{lexeme.kind} "{lexeme.value}"'
