"""The process that parses: its limits are set before it sees a byte of a document.

It is started by `Sandbox` with two inherited pipes, answers one request after another, and holds nothing of ours: a
document that breaks it takes nothing along. CPU time is counted anew for each document.
"""

from __future__ import annotations

import resource
import sys
from multiprocessing.connection import Connection

import msgspec

from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits, check_size
from penstock.documents.parsers.markup import parse_html
from penstock.documents.parsers.office import parse_docx, parse_pdf
from penstock.documents.parsers.text import parse_markdown, parse_text
from penstock.errors import AtCapacity, InvalidInput, PenstockError

__all__ = ["Answer", "Request", "parse"]


class Request(msgspec.Struct, array_like=True):
    format: Format
    limits: ParserLimits
    data: bytes


class Answer(msgspec.Struct, array_like=True):
    """A document, or the error by its name and parts."""

    document: ParsedDocument | None = None
    error: str = ""
    parts: tuple[str, str, str] = ("", "", "")


def parse(data: bytes, format: Format, limits: ParserLimits) -> ParsedDocument:
    """Parse here and now, within the limits that can be checked from inside."""
    check_size("the document", len(data), limits.document_bytes)
    if format is Format.HTML:
        parsed = parse_html(data, limits)
    elif format is Format.DOCX:
        parsed = parse_docx(data, limits)
    elif format is Format.PDF:
        parsed = parse_pdf(data)
    elif format is Format.MARKDOWN:
        parsed = parse_markdown(data)
    else:
        parsed = parse_text(data)
    check_size("the text of the document", len(parsed.text), limits.text_bytes)
    return parsed


def answer(request: Request) -> Answer:
    _limit_cpu(request.limits.cpu_seconds)
    try:
        return Answer(parse(request.data, request.format, request.limits))
    except PenstockError as error:
        return _failed(error)
    except (MemoryError, RecursionError) as error:
        what = "memory" if isinstance(error, MemoryError) else "nesting"
        limit = AtCapacity(f"a {request.format} document needs too much {what}", f"over the limits of {request.limits}")
        return _failed(limit)
    except Exception as error:  # noqa: BLE001 - whatever a hostile document does to a parser is an outcome
        why = f"{type(error).__name__}: {error}"[:500]
        return _failed(InvalidInput(f"a {request.format} document cannot be parsed", why))


def serve(inbound: Connection, outbound: Connection) -> None:
    limited = False
    while True:
        try:
            request = msgspec.msgpack.decode(inbound.recv_bytes(), type=Request)
        except EOFError:
            return
        if not limited:
            _limit_memory(request.limits.memory_bytes)
            limited = True
        outbound.send_bytes(msgspec.msgpack.encode(answer(request)))


def _failed(error: PenstockError) -> Answer:
    return Answer(None, type(error).__name__, (error.what, error.why, error.remedy))


def _limit_memory(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    # A core file of a parser holds the document: it stays where access to it is checked.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_cpu(seconds: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + 1 + seconds
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


if __name__ == "__main__":
    serve(
        Connection(int(sys.argv[1]), readable=True, writable=False),
        Connection(int(sys.argv[2]), readable=False, writable=True),
    )
