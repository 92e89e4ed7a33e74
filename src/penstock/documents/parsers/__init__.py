"""Parsers: from a document's bytes to canonical text, sniffed by content, each in a process with limits."""

from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits, sniff
from penstock.documents.parsers.rule import parser_fingerprint
from penstock.documents.parsers.sandbox import Sandbox

__all__ = ["Format", "ParsedDocument", "ParserLimits", "Sandbox", "parser_fingerprint", "sniff"]
