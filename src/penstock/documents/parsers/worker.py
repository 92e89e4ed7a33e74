"""The process that parses: it confines itself before it sees a byte of a document.

`ParserProcess` starts it with two pipes. It says first what confines it, then answers one request after another, and
holds nothing of ours: a document that breaks it takes nothing along. CPU time is counted anew for each document.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable

import msgspec

from penstock.documents.parsers.archives import archive_format
from penstock.documents.parsers.confinement import confine, own_pipes
from penstock.documents.parsers.exchange import receive, send
from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits, check_size
from penstock.documents.parsers.markup import parse_html
from penstock.documents.parsers.messages import Answer, Hello, Request
from penstock.documents.parsers.office import parse_docx, parse_pdf
from penstock.documents.parsers.text import parse_markdown, parse_text
from penstock.errors import AtCapacity, InvalidInput, PenstockError

__all__ = ["main", "parse"]

Parse = Callable[[Request, ParserLimits], ParsedDocument]


def parse(request: Request, limits: ParserLimits) -> ParsedDocument:
    """Parse here and now, within the limits that can be checked from inside."""
    data, declared = request.data, request.content_type
    check_size("the document", len(data), limits.document_bytes)
    found = archive_format(data, limits) if request.format is Format.ZIP else request.format
    if found is Format.HTML:
        parsed = parse_html(data, limits, declared)
    elif found is Format.DOCX:
        parsed = parse_docx(data, limits)
    elif found is Format.PDF:
        parsed = parse_pdf(data)
    elif found is Format.MARKDOWN:
        parsed = parse_markdown(data, declared)
    else:
        parsed = parse_text(data, declared)
    check_size("the text of the document", len(parsed.text), limits.text_bytes)
    return parsed


def main(parse: Parse = parse) -> None:
    limits = msgspec.json.decode(sys.argv[1], type=ParserLimits)
    inbound, outbound = own_pipes()
    hello = Hello(confine(limits))
    send(outbound, msgspec.msgpack.encode(hello))
    while True:
        try:
            request = msgspec.msgpack.decode(receive(inbound), type=Request)
        except EOFError:
            return
        send(outbound, msgspec.msgpack.encode(_answer(request, limits, parse)))


def _answer(request: Request, limits: ParserLimits, parse: Parse) -> Answer:
    _limit_cpu(limits.cpu_seconds if request.budget_seconds is None else request.budget_seconds)
    try:
        return Answer(parse(request, limits), cpu_seconds=_cpu_seconds())
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
