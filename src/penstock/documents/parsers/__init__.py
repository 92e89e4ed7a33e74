"""Parsers: from a document's bytes to canonical text, sniffed by content, each in a process with limits."""

from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits, sniff
from penstock.documents.parsers.rule import parser_fingerprint
from penstock.documents.parsers.sandbox import Sandbox, lasting_sandbox

__all__ = ["Format", "ParsedDocument", "ParserLimits", "Sandbox", "lasting_sandbox", "parser_fingerprint", "sniff"]
