"""The process that parses: it confines itself before it sees a byte of a document.

`ParserProcess` starts it with two pipes. It says first what confines it, then answers one request after another, and
holds nothing of ours: a document that breaks it takes nothing along. CPU time is counted anew for each document.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.documents.parsers.formats import PAGED, Format, ParsedDocument, ParserLimits, check_size
from penstock.documents.parsers.isolation.confinement import confine, own_pipes
from penstock.documents.parsers.office.archives import archive_format, unpacked
from penstock.documents.parsers.office.books import parse_epub
from penstock.documents.parsers.office.opendocument import parse_odt
from penstock.documents.parsers.office.pdf import parse_pdf
from penstock.documents.parsers.office.rich_text import parse_rtf
from penstock.documents.parsers.office.slides import parse_pptx
from penstock.documents.parsers.office.tables import parse_csv, parse_workbook
from penstock.documents.parsers.office.word import parse_docx
from penstock.documents.parsers.plain.code import parse_code
from penstock.documents.parsers.plain.json_text import parse_json, parse_json_lines
from penstock.documents.parsers.plain.marked_up import parse_marked_up
from penstock.documents.parsers.plain.text import parse_text
from penstock.documents.parsers.plugins import DocumentParser, load_plugin, parsed_by
from penstock.documents.parsers.processes.exchange import receive, send
from penstock.documents.parsers.processes.messages import Answer, Hello, ParserSetup, Request
from penstock.documents.parsers.sniffing import sniff
from penstock.documents.parsers.web.mail import parse_mail
from penstock.documents.parsers.web.markdown import parse_markdown
from penstock.documents.parsers.web.markup import parse_html
from penstock.documents.parsers.web.notebook import parse_notebook
from penstock.errors import AtCapacity, InvalidInput, PenstockError

__all__ = ["DocumentReader", "main"]

# Of processor time. A megabyte of sound code takes half a second; a grammar that recovers from one broken place after
# another takes time by the third power of their number, and cannot be interrupted.
_DEFINITIONS_SECONDS_MAX: Final = 3
# A message may be attached to a message, and so on.
_ATTACHED_DEPTH_MAX: Final = 3


class DocumentReader:
    """Parses here and now, within the limits that can be checked from inside."""

    def __init__(self, setup: ParserSetup) -> None:
        self.limits = setup.limits
        self._fields = setup.options.json_fields
        self._plugins: dict[str, DocumentParser] = {spec: load_plugin(spec)() for spec in setup.plugins}

    def parse(self, request: Request, depth: int = 0) -> ParsedDocument:
        check_size("the document", len(request.data), self.limits.document_bytes)
        if request.plugin:
            parsed = parsed_by(self._plugins[request.plugin], request.data, request.name)
        else:
            found = archive_format(request.data, self.limits) if request.format is Format.ZIP else request.format
            parsed = self._by_format(found, request, depth)
        check_size("the text of the document", len(parsed.text), self.limits.text_bytes)
        if parsed.format not in PAGED and b"\f" in parsed.text:
            return msgspec.structs.replace(parsed, text=parsed.text.replace(b"\f", b" "))
        return parsed

    def _by_format(self, found: Format, request: Request, depth: int) -> ParsedDocument:
        data, declared, limits = request.data, request.content_type, self.limits
        by_format: dict[Format, Callable[[], ParsedDocument]] = {
            Format.HTML: lambda: parse_html(data, limits, declared),
            Format.MARKDOWN: lambda: parse_markdown(data, limits, declared),
            Format.PDF: lambda: parse_pdf(data),
            Format.DOCX: lambda: parse_docx(data, limits),
            Format.PPTX: lambda: parse_pptx(data, limits),
            Format.ODT: lambda: parse_odt(data, limits),
            Format.ODP: lambda: parse_odt(data, limits, Format.ODP),
            Format.XLSX: lambda: parse_workbook(data, limits, Format.XLSX),
            Format.ODS: lambda: parse_workbook(data, limits, Format.ODS),
            Format.EPUB: lambda: parse_epub(data, limits),
            Format.RTF: lambda: parse_rtf(data),
            Format.CSV: lambda: parse_csv(data, limits, declared),
            Format.JSON: lambda: parse_json(data, self._fields, declared),
            Format.JSON_LINES: lambda: parse_json_lines(data, self._fields, declared),
            Format.CODE: lambda: parse_code(data, request.name, declared, structured=request.structured),
            Format.MARKED_UP: lambda: parse_marked_up(data, request.name, declared),
            Format.NOTEBOOK: lambda: parse_notebook(data, limits),
            Format.GZIP: lambda: self._compressed(request, depth + 1),
            Format.EMAIL: lambda: parse_mail(
                data, limits, lambda content, name, kind: self._attached(content, name, kind, depth + 1)
            ),
        }
        return by_format.get(found, lambda: parse_text(data, declared))()

    def _compressed(self, request: Request, depth: int) -> ParsedDocument:
        """The one file in a compressed one, under its own name."""
        name = request.name[:-3] if request.name.lower().endswith(".gz") else request.name
        # What is declared is mostly said of the compressed file.
        return self._attached(unpacked(request.data, self.limits), name, "", depth)

    def _attached(self, data: bytes, name: str, content_type: str, depth: int) -> ParsedDocument:
        if depth > _ATTACHED_DEPTH_MAX:
            raise AtCapacity("documents are packed into documents too deeply", f"{_ATTACHED_DEPTH_MAX} levels are read")
        found = sniff(data, name=name, content_type=content_type)
        # Broken code would take the message's own time along.
        return self.parse(Request(found, data, content_type, name=name, structured=False), depth)


def main(reader: Callable[[ParserSetup], DocumentReader] = DocumentReader) -> None:
    setup = msgspec.json.decode(sys.argv[1], type=ParserSetup)
    inbound, outbound = own_pipes()
    # Modules of added parsers are loaded while files can still be read; no document has been seen yet.
    ready = reader(setup)
    hello = Hello(confine(setup.limits))
    send(outbound, msgspec.msgpack.encode(hello))
    while True:
        try:
            request = msgspec.msgpack.decode(receive(inbound), type=Request)
        except EOFError:
            return
        send(outbound, msgspec.msgpack.encode(_answer(request, ready)))


def _answer(request: Request, reader: DocumentReader) -> Answer:
    limits: ParserLimits = reader.limits
    seconds = limits.cpu_seconds if request.budget_seconds is None else request.budget_seconds
    _limit_cpu(min(seconds, _DEFINITIONS_SECONDS_MAX) if request.finds_definitions else seconds)
    try:
        return Answer(reader.parse(request), cpu_seconds=_cpu_seconds())
    except PenstockError as error:
        return _failed(error)
    except (MemoryError, RecursionError) as error:
        what = "memory" if isinstance(error, MemoryError) else "nesting"
        return _failed(AtCapacity(f"a {request.format} document needs too much {what}", f"over the limits of {limits}"))
    except Exception as error:  # noqa: BLE001 - whatever a hostile document does to a parser is an outcome
        why = f"{type(error).__name__}: {error}"[:500]
        return _failed(InvalidInput(f"a {request.format} document cannot be parsed", why))


def _failed(error: PenstockError) -> Answer:
    return Answer(None, type(error).__name__, (error.what, error.why, error.remedy), _cpu_seconds())


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _limit_cpu(seconds: int) -> None:
    """A signal that ends the process once this document has had its time; the hard limit stays."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = int(_cpu_seconds()) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
