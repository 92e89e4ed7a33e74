"""What goes to a parser and what may come back: the parser's side is not trusted.

An answer is a document or one of three errors, by name. Everything else that comes, whatever it is, is one outcome of
the document: it broke its parser. Sizes are bounded here once more, because a report is written with every round.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits, ParserOptions
from penstock.documents.parsers.isolation.confinement import Layer
from penstock.errors import AtCapacity, InvalidInput, PenstockError, Unsupported
from penstock.undecodable import UNDECODABLE

__all__ = ["ANSWER_BYTES_BESIDE_TEXT", "Answer", "Hello", "ParserSetup", "Request", "checked", "hello_in", "outcome_in"]

# What a title, warnings and an error may take beside the text, encoded.
ANSWER_BYTES_BESIDE_TEXT: Final = 1 << 20
_ERRORS: Final[dict[str, type[PenstockError]]] = {
    kind.__name__: kind for kind in (AtCapacity, InvalidInput, Unsupported)
}
_CHARACTERS_MAX: Final = 1_000
_WARNINGS_MAX: Final = 100


class Request(msgspec.Struct, array_like=True, frozen=True):
    format: Format
    data: bytes
    # As declared by whoever uploaded it; may name a charset.
    content_type: str = ""
    # Processor time for this document, where it is to take less than it may.
    budget_seconds: int | None = None
    # The document's own name: a suffix tells the language of code.
    name: str = ""
    # Which of the parsers that were added is to read it, `module:Class`.
    plugin: str = ""
    # Whether the definitions in code are looked for.
    structured: bool = True

    @property
    def finds_definitions(self) -> bool:
        return self.format is Format.CODE and self.structured


class ParserSetup(msgspec.Struct, frozen=True):
    """What a process is started with."""

    limits: ParserLimits
    options: ParserOptions = ParserOptions()
    # All parsers that were added, `module:Class`.
    plugins: tuple[str, ...] = ()


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """The first message of a process, before it has seen a document."""

    layers: tuple[Layer, ...]


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """A document, or the error by its name and parts; and the processor time of the process so far."""

    document: ParsedDocument | None = None
    error: str = ""
    parts: tuple[str, str, str] = ("", "", "")
    cpu_seconds: float = 0.0


def hello_in(message: bytes) -> Hello:
    """What a process says first; nothing confines one that talks nonsense."""
    try:
        return msgspec.msgpack.decode(message, type=Hello)
    except (*UNDECODABLE, ValueError, MemoryError):
        return Hello(())


def outcome_in(message: bytes, limits: ParserLimits) -> tuple[ParsedDocument | PenstockError, float]:
    """The document or the error in an answer, and the processor time that it tells of."""
    try:
        answer = msgspec.msgpack.decode(message, type=Answer)
    except (*UNDECODABLE, ValueError, MemoryError):
        return _nonsense("its answer is none of ours"), 0.0
    if answer.document is not None:
        return checked(answer.document, limits), answer.cpu_seconds
    kind = _ERRORS.get(answer.error)
    if kind is None:
        return _nonsense("it answered with an error that parsers do not raise"), answer.cpu_seconds
    return kind(*(_printable(part) for part in answer.parts)), answer.cpu_seconds


def checked(document: ParsedDocument, limits: ParserLimits) -> ParsedDocument | PenstockError:
    """A document as large as it may be, with a title and warnings that fit a report."""
    if len(document.text) > limits.text_bytes:
        why = f"{len(document.text)} bytes, and the limit is {limits.text_bytes}"
        return AtCapacity("the text of a document is too large", why, "split it, or raise the limit")
    return msgspec.structs.replace(
        document,
        title=_printable(document.title) or None if document.title else None,
        encoding=_printable(document.encoding) if document.encoding else None,
        warnings=tuple(_printable(warning) for warning in document.warnings[:_WARNINGS_MAX]),
    )


def _nonsense(why: str) -> InvalidInput:
    return InvalidInput("a document crashed its parser", why, "the document may be an attack: look at it with care")


def _printable(text: str) -> str:
    """One line without control characters: it ends in reports, logs and terminals."""
    cut = text[:_CHARACTERS_MAX]
    return "".join(sign if sign.isprintable() else " " for sign in cut)
