"""What may be asked: one SELECT over tables, read by DuckDB's parser before anything is run.

Another engine has a parser of its own. Where the two would read one text differently, a query that is harmless to the
first could name a file to the second, so such texts are refused: see `tables_of`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import InvalidInput
from penstock.undecodable import UNDECODABLE

if TYPE_CHECKING:
    import duckdb

__all__ = ["check_table", "checked_select", "lists_tables", "scans_tables_once", "tables_of"]

# DuckDB makes a SELECT of some other statements, such as PRAGMA.
_FIRST_WORDS: Final = frozenset({"select", "with", "from", "values", "table", "(", "describe", "show", "summarize"})
# Functions that make rows of nothing but their arguments. All others are refused in the place of a table: those that
# read files, `query`, which runs another text, and those that change the engine (`enable_logging` can end the process).
_TABLE_FUNCTIONS: Final = frozenset(
    {"generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"}
)
_SHOW_WORDS: Final = frozenset({"show", "describe"})
# What SHOW TABLES, and SHOW ALL TABLES or DESCRIBE without a table, are to DuckDB's parser.
_LISTINGS: Final = frozenset({'"tables"', "__show_tables_expanded"})
# Where DuckDB tells of itself. It holds just the tables that a query names, so its answer would be wrong.
_OWN_SCHEMAS: Final = frozenset({"information_schema", "pg_catalog"})
_OWN_TABLES: Final = frozenset(
    {
        f"duckdb_{what}"
        for what in ("columns", "constraints", "databases", "indexes", "logs", "schemas", "tables", "types")
    }
    | {"duckdb_views", "pragma_database_list", "sqlite_master", "sqlite_schema"}
    | {"sqlite_temp_master", "sqlite_temp_schema"}
)
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

    if not _is_unicode(sql):
        raise InvalidInput("the query cannot be read", "it is not UTF-8", "correct it")
    try:
        statements = parser.extract_statements(sql)
        is_one = len(statements) == 1 and statements[0].type == duckdb.StatementType.SELECT
        if is_one and _first_word(sql) in _FIRST_WORDS:
            # DuckDB's own `get_table_names` binds the query to tables without columns, and refuses JOIN … USING.
            syntax = _syntax(sql, parser)
            _check_functions(syntax)
            _check_listings(syntax, is_show=_first_word(sql) in _SHOW_WORDS)
            return _tables(syntax)
    except duckdb.Error as error:
        raise InvalidInput("the query cannot be read", str(error).strip(), "correct it") from error
    kinds = ", ".join(one.type.name for one in statements) or "nothing"
    raise InvalidInput("the query cannot be run", f"it must be one SELECT, but it is {kinds}", "send one SELECT")


def _syntax(sql: str, parser: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """The query as DuckDB's parser has read it."""
    (answer,) = parser.execute("SELECT json_serialize_sql($1)", [sql]).fetchone() or ("{}",)
    # Text with numbers beyond JSON's, or nested deeper than a decoder goes, is no query of a person.
    try:
        syntax = msgspec.json.decode(answer)
    except UNDECODABLE as error:
        raise InvalidInput("the query cannot be read", "it is nested too deeply", "shorten it") from error
    if not isinstance(syntax, dict) or syntax.get("error"):
        why = str(syntax.get("error_message")) if isinstance(syntax, dict) else "its syntax is unknown"
        raise InvalidInput("the query cannot be read", why, "correct it")
    return syntax


def _check_functions(syntax: dict[str, Any]) -> None:
    """Refuse functions in the place of tables that read files, run other texts, or change the engine itself."""
    functions = (node for node, _ in _nodes(syntax) if node.get("type") == "TABLE_FUNCTION")
    for name in (str((node.get("function") or {}).get("function_name")) for node in functions):
        if name.lower() not in _TABLE_FUNCTIONS:
            known = ", ".join(sorted(_TABLE_FUNCTIONS))
            why = f"{name}(…) in the place of a table reaches beyond the catalog"
            raise InvalidInput("the query cannot be run", why, f"query the tables of the catalog; functions:  {known}")


def lists_tables(sql: str, parser: duckdb.DuckDBPyConnection) -> bool:
    """Whether a text that `checked_select` let pass is SHOW TABLES, in one of its forms."""
    return _first_word(sql) in _SHOW_WORDS and any(_is_listing(node) for node, _ in _nodes(_syntax(sql, parser)))


def _check_listings(syntax: dict[str, Any], *, is_show: bool) -> None:
    """Refuse what asks the engine about itself, except for the list of tables."""
    for node, _ in _nodes(syntax):
        if _asks_engine(node) or (_is_listing(node) and not is_show):
            raise _engine_refusal()


def check_table(name: str) -> None:
    """Refuse a name that the catalog does not have, and that the engine would take for a table about itself."""
    if name.lower() in _OWN_TABLES:
        raise _engine_refusal()


def _engine_refusal() -> InvalidInput:
    why = "it asks the engine about itself, which knows nothing of the catalog"
    return InvalidInput("the query cannot be run", why, "use SHOW TABLES, or DESCRIBE and the name of a table")


def _asks_engine(node: dict[str, Any]) -> bool:
    if node.get("type") == "BASE_TABLE":
        return str(node.get("schema_name")).lower() in _OWN_SCHEMAS
    # DESCRIBE and SUMMARIZE have the table within them; of the others, SHOW DATABASES is one.
    is_show = node.get("type") == "SHOW_REF" and node.get("show_type") in {"SHOW_UNQUALIFIED", "SHOW_FROM"}
    return is_show and not node.get("query") and not _is_listing(node)


def _is_listing(node: dict[str, Any]) -> bool:
    return node.get("type") == "SHOW_REF" and node.get("table_name") in _LISTINGS


def _tables(syntax: dict[str, Any]) -> set[str]:
    """The tables that a query names, without the names that it gives to parts of itself (WITH … AS)."""
    return {
        str(node.get("table_name"))
        for node, parts in _nodes(syntax)
        if node.get("type") == "BASE_TABLE"
        and (node.get("schema_name") or str(node.get("table_name")).lower() not in parts)
    }


def _nodes(syntax: Any) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """All nodes, however deep, each with the names of a WITH that hold there. A part may use those before it."""
    waiting: list[tuple[Any, frozenset[str]]] = [(syntax, frozenset())]
    while waiting:
        node, parts = waiting.pop()
        if isinstance(node, list):
            waiting += ((one, parts) for one in node)
        elif isinstance(node, dict):
            if node.get("type") == "RECURSIVE_CTE_NODE":
                parts |= {str(node.get("cte_name")).lower()}
            for one in (node.get("cte_map") or {}).get("map") or ():
                waiting.append((one.get("value"), parts))
                parts |= {str(one.get("key")).lower()}
            yield node, parts
            waiting += ((inner, parts) for name, inner in node.items() if name != "cte_map")


def _is_unicode(text: str) -> bool:
    """Not so an argument of a command line that is no UTF-8: Python keeps its bytes as half characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def tables_of(sql: str) -> set[str]:
    """The tables of one SELECT that every engine reads in the same way.

    Refused is what DuckDB and Spark split into texts, names and comments differently (`'\\'` is a whole text for one and
    the beginning of one for the other), and functions of Spark that reach beyond tables.
    """
    import duckdb

    if not _is_unicode(sql):
        raise _refusal("it is not UTF-8", "correct it")
    for sign, name in _UNCLEAR.items():
        if sign in sql:
            raise _refusal(f"it contains {name}", "leave it out, or ask DuckDB")
    if any(kind == duckdb.token_type.comment for _, kind in duckdb.tokenize(sql)) or _has_comment(sql):
        raise _refusal("it contains a comment", "leave it out")
    if found := _FORBIDDEN.search(sql):
        raise _refusal(f"it names {found.group()}, which reaches beyond tables", "leave it out")
    with _parser() as parser:
        tables = checked_select(sql, parser)
    if _first_word(sql) not in _PORTABLE_WORDS:
        raise _refusal("it is no SELECT", "send one SELECT")
    return tables


def scans_tables_once(sql: str) -> bool:
    """Whether an engine has no reason to scan a table of this SELECT twice: it has one FROM, which names none twice.

    Parts (WITH), subqueries and unions may be planned in several places, with other conditions in each.
    """
    with _parser() as parser:
        kinds = [
            (str(node.get("type")), str(node.get("table_name")).lower()) for node, _ in _nodes(_syntax(sql, parser))
        ]
    tables = [name for kind, name in kinds if kind == "BASE_TABLE"]
    return sum(kind.endswith("_NODE") for kind, _ in kinds) == 1 and len(tables) == len(set(tables))


def _parser() -> duckdb.DuckDBPyConnection:
    """An engine that reads texts and nothing else."""
    import duckdb

    parser = duckdb.connect(":memory:", config={"autoload_known_extensions": "false"})
    parser.execute("SET enable_external_access = false; SET lock_configuration = true")
    return parser


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
