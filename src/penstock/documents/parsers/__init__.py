"""Parsers: from a document's bytes to canonical text, sniffed by content, each in a process with limits."""

from penstock.documents.parsers.encodings import is_utf8
from penstock.documents.parsers.formats import TEXTUAL, Format, OverBudget, ParsedDocument, ParserLimits, ParserOptions
from penstock.documents.parsers.isolation.confinement import Layer
from penstock.documents.parsers.plugins import DocumentParser
from penstock.documents.parsers.rule import parser_fingerprint
from penstock.documents.parsers.sandbox import Sandbox, lasting_sandbox
from penstock.documents.parsers.sniffing import sniff

__all__ = [
    "TEXTUAL",
    "DocumentParser",
    "Format",
    "Layer",
    "OverBudget",
    "ParsedDocument",
    "ParserLimits",
    "ParserOptions",
    "Sandbox",
    "is_utf8",
    "lasting_sandbox",
    "parser_fingerprint",
    "sniff",
]
