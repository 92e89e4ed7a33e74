"""Selectors and lists of labels. Names may be quoted, which makes every UTF-8 text a name."""

from __future__ import annotations

from penstock.timeseries.promql.labels import METRIC_NAME
from penstock.timeseries.promql.matchers import Matcher, MatchKind
from penstock.timeseries.promql.regex import anchored
from penstock.timeseries.promql.syntax.cursor import TokenCursor
from penstock.timeseries.promql.syntax.lexer import Lexeme, LexemeKind
from penstock.timeseries.promql.syntax.tree import VectorSelector

__all__ = ["parse_grouping", "parse_selector"]

_KINDS = {"=": MatchKind.EQUAL, "!=": MatchKind.NOT_EQUAL, "=~": MatchKind.REGEX, "!~": MatchKind.NOT_REGEX}


def parse_selector(cursor: TokenCursor, *, may_be_empty: bool = False) -> VectorSelector:
    """`name`, `name{…}` or `{…}`. A selector that would take every series is a mistake, unless it may be empty."""
    start = cursor.next.start
    matchers: list[Matcher] = []
    if cursor.next.kind == LexemeKind.NAME:
        matchers.append(Matcher(METRIC_NAME, MatchKind.EQUAL, cursor.take().value))
    name = matchers[0].value if matchers else None
    if cursor.accept("{"):
        matchers += _braces(cursor)
    for matcher in matchers[1:] if name else ():
        if matcher.name == METRIC_NAME:
            raise cursor.fail(start, f'metric name must not be set twice: "{name}" or "{matcher.value}"')
    if not may_be_empty and not any(not matcher.predicate()("") for matcher in matchers):
        raise cursor.fail(start, "vector selector must contain at least one non-empty matcher")
    return VectorSelector(tuple(matchers), cursor.place_from(start))


def parse_grouping(cursor: TokenCursor) -> tuple[str, ...]:
    """Labels in parentheses; a comma may follow the last one."""
    cursor.expect("(", "grouping opts")
    labels: list[str] = []
    while not cursor.accept(")"):
        label = cursor.next
        if label.kind not in (LexemeKind.NAME, LexemeKind.STRING) and not _is_number_word(label):
            raise cursor.unexpected("grouping opts", "label")
        if ":" in label.value and label.kind == LexemeKind.NAME:
            raise cursor.fail(label.start, f"invalid label name {label.value!r}")
        labels.append(cursor.take().value)
        if not cursor.next.is_operator(")"):
            cursor.expect(",", "grouping opts", 'or ")"')
    return tuple(labels)


def _is_number_word(lexeme: Lexeme) -> bool:
    """`inf` and `nan` are names where only names can be."""
    return lexeme.kind == LexemeKind.NUMBER and lexeme.value.isalpha()


def _braces(cursor: TokenCursor) -> list[Matcher]:
    matchers: list[Matcher] = []
    while not cursor.accept("}"):
        matchers.append(_matcher(cursor))
        if not cursor.next.is_operator("}"):
            cursor.expect(",", "label matching", 'or "}"')
    return matchers


def _matcher(cursor: TokenCursor) -> Matcher:
    name = cursor.next
    if name.kind not in (LexemeKind.NAME, LexemeKind.STRING) and not _is_number_word(name):
        raise cursor.unexpected("label matching", 'identifier or "}"')
    cursor.take()
    if name.kind == LexemeKind.STRING and cursor.next.is_operator(",", "}"):
        return Matcher(METRIC_NAME, MatchKind.EQUAL, name.value)
    if name.kind == LexemeKind.NAME and ":" in name.value:
        raise cursor.fail(name.start, f"invalid label name {name.value!r}")
    kind = cursor.next
    if kind.kind != LexemeKind.OPERATOR or kind.value not in _KINDS:
        raise cursor.unexpected("label matching", "label matching operator")
    cursor.take()
    value = cursor.next
    if value.kind != LexemeKind.STRING:
        raise cursor.unexpected("label matching", "string")
    cursor.take()
    matcher = Matcher(name.value, _KINDS[kind.value], value.value)
    if matcher.kind in (MatchKind.REGEX, MatchKind.NOT_REGEX):
        anchored(matcher.value)
    return matcher
