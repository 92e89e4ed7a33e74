"""Text that repeats, read as Parquet stores it: its distinct values once, and a number for each row.

DuckDB then groups and joins by numbers. But Arrow leaves out neither files nor row groups by the statistics of such a
column, so a column that a query filters by is read as plain text. This is about speed alone: answers are the same
either way, so a guess will do.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat

__all__ = ["REPEATED_TEXT", "columns_to_read", "is_repeated_text", "mark_repeated"]

REPEATED_TEXT: Final = pa.dictionary(pa.int32(), pa.string())
# A number for each row takes one or two bytes; text that does not repeat takes its length.
_BYTES_A_VALUE_MAX: Final = 3.0
_VALUES_MIN: Final = 1000
_TEXTS: Final = re.compile(r"'[^']*'")
_CONDITIONS: Final = re.compile(r"\bwhere\b(.*?)(?=\bgroup\b|\border\b|\blimit\b|\bunion\b|$)", re.DOTALL)
_WORDS: Final = re.compile(r"\w+")


def is_repeated_text(kind: Any) -> bool:
    return pat.is_dictionary(kind) and pat.is_string(kind.value_type)


def mark_repeated(schema: pa.Schema, sample: pq.FileMetaData) -> pa.Schema:
    """The schema of a table with the type of repeated text where the footer of one of its files shows some."""
    repeated = _repeated_columns(sample)
    fields = [
        field.with_type(REPEATED_TEXT) if field.name in repeated and pat.is_string(field.type) else field
        for field in schema
    ]
    return pa.schema(fields)


def columns_to_read(schema: pa.Schema, sql: str) -> pa.Schema:
    """The schema for one query: repeated text by which it filters is plain text."""
    words = _words_of_conditions(sql)
    fields = [
        field.with_type(pa.string()) if is_repeated_text(field.type) and field.name.lower() in words else field
        for field in schema
    ]
    return pa.schema(fields)


def _repeated_columns(sample: pq.FileMetaData) -> set[str]:
    if sample.num_row_groups == 0:
        return set()
    group = sample.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    return {
        one.path_in_schema
        for one in columns
        if one.num_values >= _VALUES_MIN
        and one.has_dictionary_page
        and one.total_uncompressed_size <= _BYTES_A_VALUE_MAX * one.num_values
    }


def _words_of_conditions(sql: str) -> set[str]:
    text = _TEXTS.sub(" ", sql).lower()
    return {word for condition in _CONDITIONS.findall(text) for word in _WORDS.findall(condition)}
