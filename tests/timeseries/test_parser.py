"""The parser reads PromQL of Prometheus 3, says where it stopped, and never falls over deep nesting."""

from __future__ import annotations

import pytest

from penstock.errors import AtCapacity, InvalidInput
from penstock.timeseries.promql import Engine, EngineConfig, MatchKind, MemorySource, SyntaxProblem
from penstock.timeseries.promql.syntax.parser import parse
from penstock.timeseries.promql.syntax.tree import (
    AggregateExpr,
    At,
    BinaryExpr,
    Cardinality,
    MatrixSelector,
    NumberLiteral,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)
from penstock.timeseries.promql.syntax.typecheck import check_types


def shape(expression: str) -> str:
    """The tree with every operator in parentheses."""

    def write(node: object) -> str:
        if isinstance(node, BinaryExpr):
            return f"({write(node.left)}{node.operator}{write(node.right)})"
        if isinstance(node, UnaryExpr):
            return f"({node.operator}{write(node.operand)})"
        if isinstance(node, NumberLiteral):
            return f"{node.value:g}"
        assert isinstance(node, VectorSelector)
        return node.matchers[0].value

    return write(parse(expression))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a + b * c", "(a+(b*c))"),
        ("a * b + c", "((a*b)+c)"),
        ("a ^ b ^ c", "(a^(b^c))"),
        ("a - b - c", "((a-b)-c)"),
        ("-a ^ b", "(-(a^b))"),
        ("-a * b", "((-a)*b)"),
        ("a or b and c", "(aor(bandc))"),
        ("a unless b and c", "((aunlessb)andc)"),
        ("a > b + c", "(a>(b+c))"),
        ("a == b or c", "((a==b)orc)"),
        ("a atan2 b % c", "((aatan2b)%c)"),
        ("- 1 + +2", "(-1+2)"),
        ("a AND b # and nothing else", "(aandb)"),
    ],
)
def test_operators_bind_as_documented(expression: str, expected: str) -> None:
    assert shape(expression) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1F", 31),
        ("1e3", 1000),
        (".5", 0.5),
        ("5.", 5),
        ("1_000_000", 1_000_000),
        ("017", 15),
        ("Inf", float("inf")),
        ("1h30m", 5400),
        ("1d1ms", 86400.001),
        ("1y2w", 31_536_000 + 1_209_600),
    ],
)
def test_numbers_and_durations_are_read_as_written(text: str, value: float) -> None:
    tree = parse(text)
    assert isinstance(tree, NumberLiteral)
    assert tree.value == value


@pytest.mark.parametrize("text", ["1m1h", "1x", "1h1h", "1__0", "5mm", "0x", "1e"])
def test_a_malformed_number_is_refused(text: str) -> None:
    with pytest.raises(SyntaxProblem):
        parse(text)


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        (r'"a\n\"b\\"', 'a\n"b\\'),
        (r"'it\'s'", "it's"),
        (r'"\x41\101\u00e9\U0001F600"', "AAé😀"),
        (r'"\xc3\xa9"', "é"),
        (r"`raw\n`", r"raw\n"),
    ],
)
def test_strings_have_escapes_but_in_back_quotes(literal: str, text: str) -> None:
    tree = parse(literal)
    assert isinstance(tree, StringLiteral)
    assert tree.value == text


@pytest.mark.parametrize("literal", [r'"\q"', r'"\xff"', '"open', "'a\nb'", r'"\400"', r'"\ud800"'])
def test_a_string_that_is_no_text_is_refused(literal: str) -> None:
    with pytest.raises(SyntaxProblem):
        parse(literal)


def test_keywords_are_names_where_only_names_can_be() -> None:
    tree = parse("sum by (by, on, offset, sum) (bool{group_left='x', inf='y'})")
    assert isinstance(tree, AggregateExpr)
    assert tree.grouping == ("by", "on", "offset", "sum")
    assert isinstance(tree.operand, VectorSelector)
    assert [matcher.name for matcher in tree.operand.matchers] == ["__name__", "group_left", "inf"]


def test_quoted_names_may_be_any_text() -> None:
    tree = parse('sum by ("label.x") ({"metric.name", "label.x"!="y"})')
    assert isinstance(tree, AggregateExpr)
    assert tree.grouping == ("label.x",)
    assert isinstance(tree.operand, VectorSelector)
    assert [(m.name, m.kind, m.value) for m in tree.operand.matchers] == [
        ("__name__", MatchKind.EQUAL, "metric.name"),
        ("label.x", MatchKind.NOT_EQUAL, "y"),
    ]


def test_modifiers_come_in_any_order() -> None:
    for expression in ("a[5m] offset -1m @ end()", "a[5m] @ end() offset -1m"):
        tree = parse(expression)
        assert isinstance(tree, MatrixSelector)
        assert (tree.selector.modifiers.offset, tree.selector.modifiers.at) == (-60.0, At.END)
    subquery = parse("rate(a[1m])[10m:] @ 1.5")
    assert isinstance(subquery, SubqueryExpr)
    assert (subquery.range, subquery.step, subquery.modifiers.at) == (600.0, None, 1500)


def test_grouping_may_follow_or_precede_and_matching_is_kept() -> None:
    before, after = parse("sum by (a) (x)"), parse("sum (x) by (a,)")
    assert isinstance(before, AggregateExpr)
    assert isinstance(after, AggregateExpr)
    assert before.grouping == after.grouping == ("a",)
    tree = parse("a / on(x, y) group_left(z) b")
    assert isinstance(tree, BinaryExpr)
    assert (tree.matching.cardinality, tree.matching.labels, tree.matching.include) == (
        Cardinality.MANY_TO_ONE,
        ("x", "y"),
        ("z",),
    )


@pytest.mark.parametrize(
    ("expression", "position"),
    [
        ("", "1:1"),
        ("a +", "1:4"),
        ("a\n  + )", "2:5"),
        ("a{b=c}", "1:5"),
        ("a{b='c'", "1:8"),
        ("sum(", "1:5"),
        ("nosuch(a)", "1:1"),
        ("a offset", "1:9"),
        ("a[5m][5m]", "1:6"),
        ("a[0s]", "1:3"),
        ("1 offset 5m", "1:3"),
        ("a offset 1m offset 2m", "1:13"),
        ("a @ 1 @ 2", "1:7"),
        ("a $ b", "1:3"),
        ("{}", "1:1"),
        ('{a=~".*"}', "1:1"),
        ('a{__name__="b"}', "1:1"),
        ("rate(a[5m],)", "1:11"),
        ("limitk(1, a)", "1:1"),
        ("a[5m+1m]", "1:5"),
    ],
)
def test_an_error_names_the_line_and_column(expression: str, position: str) -> None:
    with pytest.raises(SyntaxProblem, match=f"^{position}: parse error"):
        parse(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "rate(a)",
        "abs(a[5m])",
        "sum(1)",
        "1 and 1",
        "1 == 1",
        "a + bool b",
        "a + 'x'",
        "-a[5m]",
        "a on(x) + 1",
        "1 + on(x) a",
        "topk(a, b)",
        "rate(a[5m], 1)",
        "label_replace(a, 'b', 'c', 'd')",
        "1[5m:]",
    ],
)
def test_an_expression_of_the_wrong_type_is_refused(expression: str) -> None:
    with pytest.raises(SyntaxProblem):
        check_types(expression, parse(expression))


@pytest.mark.cases(quick=2)
@pytest.mark.parametrize(
    "expression",
    [
        "(" * 10_000 + "1" + ")" * 10_000,
        "-" * 20_000 + "1",
        "1+" * 20_000 + "1",
        "2^" * 20_000 + "1",
        "abs(" * 5_000 + "a" + ")" * 5_000,
        "a" + "[1m:1m]" * 5_000,
        "a[" + "(" * 10_000 + "1" + ")" * 10_000 + "]",
        "a offset " + "-" * 20_000 + "1m",
        "a[" + "step()+" * 5_000 + "1m]",
    ],
    ids=["parentheses", "signs", "chain", "powers", "calls", "subqueries", "durations", "offsets", "sums"],
)
def test_hostile_nesting_is_refused_and_never_exhausts_the_stack(expression: str) -> None:
    engine = Engine(MemorySource([]), EngineConfig(experimental=True))
    with pytest.raises((AtCapacity, InvalidInput)):
        engine.query(expression, 0)


@pytest.mark.parametrize("expression", ["rate(a[5m] anchored)", "rate(a[5m] smoothed)", "a + fill(1) b", "a[5m * 2]"])
def test_what_is_experimental_is_refused_until_it_is_enabled(expression: str) -> None:
    with pytest.raises(SyntaxProblem, match=r"experimental.* not enabled"):
        parse(expression)
    parse(expression, experimental=True)
