"""Source code by its structure: every definition under a heading with its qualified name.

Scripts and settings without a grammar here stay as they are. Broken code is read as far as it goes: the grammars recover. Where that
takes too long the process ends, and a fresh one is asked for the same code without its structure.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from penstock.documents.parsers.encodings import declared_charset, decoded
from penstock.documents.parsers.formats import Format, ParsedDocument
from penstock.documents.parsers.headings import code_block, heading, verbatim

__all__ = ["CODE_SUFFIXES", "parse_code"]

# Module and function of the grammar of each suffix.
_GRAMMARS: Final = {
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "cs": ("tree_sitter_c_sharp", "language"),
    "go": ("tree_sitter_go", "language"),
    "java": ("tree_sitter_java", "language"),
    "js": ("tree_sitter_javascript", "language"),
    "php": ("tree_sitter_php", "language_php"),
    "py": ("tree_sitter_python", "language"),
    "rb": ("tree_sitter_ruby", "language"),
    "rs": ("tree_sitter_rust", "language"),
    "ts": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
}
_ALIASES: Final = {
    "h": "c", "cc": "cpp", "cxx": "cpp", "hpp": "cpp", "hh": "cpp", "hxx": "cpp",
    "mjs": "js", "cjs": "js", "jsx": "js", "pyi": "py", "mts": "ts", "cts": "ts",
}  # fmt: skip
# Languages without a grammar here whose comments would pass for headings.
_SCRIPTS: Final = frozenset(
    [
        "awk",
        "bash",
        "cfg",
        "cmake",
        "conf",
        "ex",
        "exs",
        "hcl",
        "ini",
        "jl",
        "mk",
        "pl",
        "pm",
        "properties",
        "ps1",
        "r",
        "sh",
        "tcl",
        "tf",
        "toml",
        "yaml",
        "yml",
        "zsh",
    ]
)
CODE_SUFFIXES: Final = frozenset((*_GRAMMARS, *_ALIASES, *_SCRIPTS))
# Nodes that define something with a name, over all grammars.
_DEFINITIONS: Final = frozenset(
    [
        "class",
        "class_declaration",
        "class_definition",
        "class_specifier",
        "constructor_declaration",
        "enum_declaration",
        "enum_item",
        "enum_specifier",
        "function_declaration",
        "function_definition",
        "function_item",
        "impl_item",
        "interface_declaration",
        "macro_definition",
        "method",
        "method_declaration",
        "method_definition",
        "mod_item",
        "module",
        "namespace_declaration",
        "namespace_definition",
        "record_declaration",
        "singleton_method",
        "struct_declaration",
        "struct_item",
        "struct_specifier",
        "trait_declaration",
        "trait_item",
        "type_spec",
        "union_item",
    ]
)
# What wraps a definition and belongs to it: decorators, `export`, templates.
_WRAPPERS: Final = frozenset(
    ("decorated_definition", "export_statement", "template_declaration", "ambient_declaration")
)
# Deeper definitions are details of their function.
_DEPTH_MAX: Final = 3


def parse_code(data: bytes, name: str, content_type: str = "", *, structured: bool = True) -> ParsedDocument:
    read = decoded(data, declared_charset(content_type))
    suffix = name.rpartition(".")[2].lower()
    file = name.rstrip("/").rpartition("/")[2]
    source = read.text.replace("\r\n", "\n").encode("utf-8", "replace")
    if suffix in _SCRIPTS:
        text = verbatim(source.decode()).strip("\n")
        return ParsedDocument(text.encode(), Format.CODE, file or None, read.warnings, read.encoding)
    definitions = _parsed(source, _ALIASES.get(suffix, suffix)) if structured else None
    text = "\n\n".join(_sections(source, definitions)) if definitions is not None else code_block(source.decode())
    return ParsedDocument(text.encode("utf-8", "replace"), Format.CODE, file or None, read.warnings, read.encoding)


def _parsed(source: bytes, language: str) -> list[Any] | None:
    """The nodes of all definitions, outer ones first; None where there is no grammar installed."""
    try:
        from tree_sitter import Language, Parser, Query, QueryCursor

        module, function = _GRAMMARS[language]
        grammar = Language(getattr(import_module(module), function)())
    except (ImportError, KeyError):
        return None
    kinds = [kind for kind in sorted(_DEFINITIONS) if grammar.id_for_node_kind(kind, True) is not None]
    query = Query(grammar, f"[{' '.join(f'({kind})' for kind in kinds)}] @definition")
    found = QueryCursor(query).captures(Parser(grammar).parse(source).root_node).get("definition", [])
    return sorted(found, key=lambda node: (node.start_byte, -node.end_byte))


def _sections(source: bytes, definitions: list[Any]) -> Iterator[str]:
    """Definitions under their names, and what stands between them as it is."""
    place = 0
    # Where each definition around this place ends, and its name.
    around: list[tuple[int, str]] = []
    for node in definitions:
        while around and around[-1][0] <= node.start_byte:
            around.pop()
        name = _name(node)
        if not name or len(around) >= _DEPTH_MAX:
            continue
        around.append((node.end_byte, name))
        first = node.parent if node.parent is not None and node.parent.type in _WRAPPERS else node
        # What stands before it on its line stays with it.
        start = source.rfind(b"\n", 0, first.start_byte) + 1
        if start < place or (start == place and place and not _text(source[place : node.start_byte])):
            continue
        if between := _text(source[place:start]):
            yield between
        yield heading(".".join(words for _, words in around), len(around) + 1)
        place = start
    if rest := _text(source[place:]):
        yield rest


def _name(node: Any) -> str:
    """The name that a definition gives: its own field, or the first identifier of its declarator."""
    for field in ("name", "declarator", "type"):
        found = node.child_by_field_name(field)
        while found is not None and (inner := found.child_by_field_name("declarator")) is not None:
            found = inner
        if found is not None:
            return str(found.text.decode("utf-8", "replace")).split("(")[0].strip("*& \n")[:200]
    return ""


def _text(piece: bytes) -> str:
    return code_block(piece.decode("utf-8", "replace").strip("\n").rstrip())
