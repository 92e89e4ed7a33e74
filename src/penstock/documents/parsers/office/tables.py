"""Tables: spreadsheets (XLSX, ODS) and delimited text (CSV, TSV), a line a row, each value under its column's header.

A passage from the middle of a table says what its numbers are, because every row names its columns.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from typing import Final

from penstock.documents.parsers.encodings import declared_charset, decoded
from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits
from penstock.documents.parsers.headings import PAGE_MARK, heading, joined_blocks, verbatim
from penstock.documents.parsers.office.archives import check_archive
from penstock.documents.parsers.office.opendocument import check_readable
from penstock.documents.parsers.office.packages import Package
from penstock.errors import AtCapacity, InvalidInput, Unsupported

__all__ = ["parse_csv", "parse_workbook", "table_lines"]

_DELIMITERS: Final = ",;\t|"
# Enough lines to tell the delimiter from.
_SAMPLE_CHARACTERS: Final = 16_384
# A sheet may declare its last cell as XFD1048576 and hold two: a parser makes room for all between them.
_CELLS_MAX: Final = 20_000_000
Cell = object


def parse_csv(data: bytes, limits: ParserLimits, content_type: str = "") -> ParsedDocument:
    read = decoded(data, declared_charset(content_type))
    # Values may be as long as the document; the module's own limit is 128 KiB.
    csv.field_size_limit(limits.document_bytes)
    text = read.text.replace("\0", "")
    try:
        rows = csv.reader(io.StringIO(text, newline=""), _dialect(text[:_SAMPLE_CHARACTERS]))
        lines = "\n".join(table_lines(rows))
    except csv.Error as error:
        raise InvalidInput("a table cannot be read", str(error), "save it as CSV again") from error
    return ParsedDocument(verbatim(lines).encode("utf-8", "replace"), Format.CSV, None, read.warnings, read.encoding)


def parse_workbook(data: bytes, limits: ParserLimits, found: Format) -> ParsedDocument:
    """The sheets that can be seen, one after the other under their names."""
    import python_calamine

    if found is Format.ODS:
        check_readable(Package(data, limits))
    else:
        check_archive(data, limits)
    blocks, warnings = [], []
    try:
        workbook = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
        for sheet in workbook.sheets_metadata:
            # Sheets are counted as a person sees them in the file, hidden ones too.
            blocks.append(PAGE_MARK)
            if sheet.typ is not python_calamine.SheetTypeEnum.WorkSheet:
                continue
            if sheet.visible is not python_calamine.SheetVisibleEnum.Visible:
                warnings.append(f"hidden sheet {sheet.name!r} was left out")
                continue
            opened = workbook.get_sheet_by_name(sheet.name)
            _check_cells(sheet.name, opened.total_height, opened.total_width)
            lines = "\n".join(table_lines(opened.iter_rows()))
            if lines:
                blocks += [heading(sheet.name, 2), verbatim(lines)]
    except python_calamine.PasswordError as error:
        raise Unsupported("an encrypted workbook cannot be read", str(error), "upload it without a password") from error
    except python_calamine.CalamineError as error:
        raise InvalidInput("a workbook cannot be opened", str(error), "save it again") from error
    text = joined_blocks(blocks)
    return ParsedDocument(text.encode("utf-8", "replace"), found, None, tuple(warnings))


def table_lines(rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    """A line a row, `header: value | header: value`; the first row that has values names the columns.

    A table of one column, or one whose first row holds numbers, has no headers: its rows stand as they are.
    """
    headers: list[str] | None = None
    for row in rows:
        values = [_flat(value) for value in row]
        if not any(values):
            continue
        if headers is None:
            headers = values if _are_headers(row, values) else []
            yield " | ".join(value for value in values if value)
            continue
        named = (
            f"{headers[place]}: {value}" if place < len(headers) and headers[place] else value
            for place, value in enumerate(values)
            if value
        )
        yield " | ".join(named)


def _are_headers(row: Sequence[Cell], values: Sequence[str]) -> bool:
    filled = [(cell, value) for cell, value in zip(row, values, strict=True) if value]
    return len(filled) > 1 and all(isinstance(cell, str) and not _is_number(value) for cell, value in filled)


def _is_number(value: str) -> bool:
    try:
        float(value.replace(",", "."))
    except ValueError:
        return False
    return True


def _flat(value: Cell) -> str:
    """A value on one line, as a person would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, datetime):
        return value.isoformat(" ") if value.time() != time() else value.date().isoformat()
    if isinstance(value, date | time | timedelta):
        return str(value)
    return " ".join(str(value).split())


def _check_cells(name: str, rows: int, columns: int) -> None:
    if rows * columns > _CELLS_MAX:
        raise AtCapacity(
            f"sheet {name[:120]!r} spans {rows} rows and {columns} columns",
            f"at most {_CELLS_MAX} cells are read",
            "delete the cells far outside of the table, or save it as CSV",
        )


def _dialect(sample: str) -> type[csv.Dialect] | csv.Dialect:
    """The delimiter that cuts the first lines most evenly; a comma where none does."""
    lines = [line for line in sample.splitlines()[:50] if line.strip()]
    best, best_score = ",", 0.0
    for delimiter in _DELIMITERS:
        counts = [len(row) for row in csv.reader(lines, delimiter=delimiter)]
        usual = max(set(counts), key=counts.count, default=1)
        score = counts.count(usual) / len(counts) * (usual > 1) if counts else 0.0
        if score > best_score:
            best, best_score = delimiter, score

    class Found(csv.excel):
        delimiter = best

    return Found
