"""A row of a table says what its values are: every one stands under its column's header."""

from __future__ import annotations

import pytest
from tests.documents.parsers.made import number_cell, text_cell, workbook, zipped

from penstock.documents.parsers import Format, ParserLimits, Sandbox
from penstock.documents.parsers.office.tables import parse_csv, parse_workbook
from penstock.errors import AtCapacity, InvalidInput

LIMITS = ParserLimits()


def csv_text(data: bytes) -> str:
    return parse_csv(data, LIMITS).text.decode()


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_rows_name_their_columns_whatever_the_delimiter(delimiter):
    data = "name,city\nAnn,Rome\nBo,\n".replace(",", delimiter).encode()
    assert csv_text(data) == "name | city\nname: Ann | city: Rome\nname: Bo"


def test_quotes_line_feeds_long_rows_and_empty_rows():
    data = b'name,note\r\n"Ann, the first","two\r\nlines"\r\n\r\nBo,x,surplus\r\n'
    assert csv_text(data) == "name | note\nname: Ann, the first | note: two lines\nname: Bo | note: x | surplus"


def test_a_table_of_numbers_or_of_one_column_has_no_headers():
    assert csv_text(b"1,2\n3,4\n") == "1 | 2\n3 | 4"
    assert csv_text(b"alpha\nbeta\n") == "alpha\nbeta"


def test_nothing_and_blanks_are_no_rows():
    assert csv_text(b"") == ""
    assert csv_text(b"\n , \n") == ""


def test_a_legacy_encoding_is_decoded_and_told():
    parsed = parse_csv(
        "name,stadt\nJürgen,Köln\nZoë,Düren\n".encode("cp1252"), LIMITS, "text/csv; charset=windows-1252"
    )
    assert "name: Jürgen | stadt: Köln" in parsed.text.decode()
    assert parsed.encoding == "cp1252"


def test_a_field_of_many_kilobytes_is_one_field():
    assert len(csv_text(b"a,b\nx," + b"y" * 300_000)) > 300_000


def test_a_line_that_would_pass_for_a_heading_is_none():
    assert csv_text(b"# no heading,b\n1,2\n").startswith(" # no heading")


def test_a_workbook_reads_visible_sheets_with_numbers_as_a_person_writes_them():
    rows = (text_cell("A1", "item") + text_cell("B1", "price"), text_cell("A2", "fish") + number_cell("B2", "3"))
    parsed = parse_workbook(workbook(*rows), LIMITS, Format.XLSX)
    assert parsed.text.decode() == "\f\n\n## Prices\n\nitem | price\nitem: fish | price: 3"
    hidden = parse_workbook(workbook(*rows, name="Drafts", state="hidden"), LIMITS, Format.XLSX)
    assert (hidden.text, hidden.warnings) == (b"", ("hidden sheet 'Drafts' was left out",))


@pytest.mark.processes
def test_a_sheet_that_spans_everything_is_refused_before_there_is_room_for_it():
    far = workbook(number_cell("A1", "1"), '<c r="XFD2000"><v>2</v></c>')
    with Sandbox(ParserLimits(cpu_seconds=20)) as sandbox, pytest.raises(AtCapacity, match=r"spans 2000 rows|memory"):
        sandbox.parse(far, tenant="t", name="far.xlsx")


def test_a_broken_workbook_is_refused_by_name():
    with pytest.raises(InvalidInput, match="workbook"):
        parse_workbook(zipped({"xl/workbook.xml": "<x/>"}), LIMITS, Format.XLSX)
