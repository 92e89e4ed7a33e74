"""What may be asked: one SELECT over tables, read by DuckDB's parser before anything is run.

Another engine has a parser of its own. Where the two would read one text differently, a query that is harmless to the
first could name a file to the second, so such texts are refused: see `tables_of`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from penstock.errors import InvalidInput

if TYPE_CHECKING:
    import duckdb

__all__ = ["checked_select", "tables_of"]

# DuckDB makes a SELECT of some other statements, such as PRAGMA.
_FIRST_WORDS: Final = frozenset({"select", "with", "from", "values", "table", "(", "describe", "show", "summarize"})
# Statements that every engine takes for a query.
_PORTABLE_WORDS: Final = frozenset({"select", "with", "from", "values", "table", "("})
# Where a text or a comment ends is a matter of opinion as soon as one of these is in it.
_UNCLEAR: Final = {"\\": "a backslash", "`": "a backtick", "$": "a dollar sign", "\0": "a null character"}
# Functions of Spark that call any method of Java, or read a file that they are given.
_FORBIDDEN: Final = re.compile(
    r"\b(?:try_)?(?:reflect|java_method|from_protobuf|to_protobuf|input_file_name)\b", re.IGNORECASE
)


def checked_select(sql: str, parser: duckdb.DuckDBPyConnection) -> set[str]:
    """The tables that one SELECT names; anything else is refused before it is looked at any further."""
    import duckdb

    try:
        statements = parser.extract_statements(sql)
        is_one = len(statements) == 1 and statements[0].type == duckdb.StatementType.SELECT
        if is_one and _first_word(sql) in _FIRST_WORDS:
            return set(parser.get_table_names(sql))
    except duckdb.Error as error:
        raise InvalidInput("the query cannot be read", str(error).strip(), "correct it") from error
    kinds = ", ".join(one.type.name for one in statements) or "nothing"
    raise InvalidInput("the query cannot be run", f"it must be one SELECT, and it is {kinds}", "send one SELECT")


def tables_of(sql: str) -> set[str]:
    """The tables of one SELECT that every engine reads in the same way.

    Refused is what DuckDB and Spark split into texts, names and comments differently (`'\\'` is a whole text for one and
    the beginning of one for the other), and functions of Spark that reach beyond tables.
    """
    import duckdb

    for sign, name in _UNCLEAR.items():
        if sign in sql:
            raise _refusal(f"it contains {name}", "leave it out, or ask DuckDB")
    if any(kind == duckdb.token_type.comment for _, kind in duckdb.tokenize(sql)) or _has_comment(sql):
        raise _refusal("it contains a comment", "leave it out")
    if found := _FORBIDDEN.search(sql):
        raise _refusal(f"it names {found.group()}, which reaches beyond tables", "leave it out")
    with duckdb.connect(":memory:", config={"autoload_known_extensions": "false"}) as parser:
        parser.execute("SET enable_external_access = false; SET lock_configuration = true")
        tables = checked_select(sql, parser)
    if _first_word(sql) not in _PORTABLE_WORDS:
        raise _refusal("it is no SELECT", "send one SELECT")
    return tables


def _has_comment(sql: str) -> bool:
    """Whether a comment begins outside of texts and quoted names, which DuckDB's tokens do not all show."""
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", " ", sql)
    return "--" in bare or "/*" in bare


def _refusal(why: str, remedy: str) -> InvalidInput:
    return InvalidInput("the query cannot be run on this engine", why, remedy)


def _first_word(sql: str) -> str:
    import duckdb

    places = [place for place, kind in duckdb.tokenize(sql) if kind != duckdb.token_type.comment]
    text = sql.encode()[places[0] :].decode(errors="replace") if places else ""
    word = re.match(r"\w+|\S", text)
    return word.group().lower() if word is not None else ""
