"""A table shows every cell whole, in columns that stand under one another."""

from penstock.cli.terminal.tables import table_lines


def test_cells_are_whole_and_columns_are_aligned() -> None:
    rows = [["a" * 200, "1"], ["b", "1,000"]]
    assert list(table_lines(["key", "count"], rows, right=["count"])) == [
        f"{'key':<200}  count",
        f"{'a' * 200}      1",
        f"{'b':<200}  1,000",
    ]


def test_wide_letters_and_marks_keep_the_columns() -> None:
    lines = list(table_lines(["key", "status"], [["日本.md", "ok"], ["e\u0301t.md", "ok"], ["plain.md", "ok"]]))
    assert lines[1:] == ["日本.md   ok", "e\u0301t.md     ok", "plain.md  ok"]


def test_a_cell_with_line_breaks_stays_on_its_line() -> None:
    assert list(table_lines(["why"], [["first\nsecond"]])) == ["why", "first second"]


def test_no_rows_are_a_heading_alone() -> None:
    assert list(table_lines(["a", "b"], [])) == ["a  b"]
