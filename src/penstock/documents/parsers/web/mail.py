"""Email messages (.eml): who, when and what about, the body, messages inside it, and the attachments that can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from email.message import EmailMessage, MIMEPart
from email.parser import BytesFeedParser
from email.policy import EmailPolicy
from typing import Any, Final, cast

from penstock.documents.parsers.encodings import decoded
from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits
from penstock.documents.parsers.headings import heading, verbatim
from penstock.documents.parsers.web.markup import parse_html
from penstock.errors import AtCapacity, InvalidInput, PenstockError

__all__ = ["ParseAttachment", "parse_mail"]

# Data, name and declared type of an attachment, to its text.
ParseAttachment = Callable[[bytes, str, str], ParsedDocument]
_SHOWN: Final = ("From", "To", "Cc", "Date", "Subject")
# Of a body in several forms.
_PREFERRED: Final = ("plain", "html")
_PARTS_MAX: Final = 1_000
# The standard library takes time by the square of a header's length: a second for one ten times as long.
_HEADER_CHARACTERS_MAX: Final = 16_384

# What the standard library raises for some broken headers; a message is more than one of them.
_STUMBLES: Final = (ValueError, IndexError, LookupError, AttributeError, TypeError)


class _BoundedHeaders(EmailPolicy):
    """The usual reading of headers, of as much of each as may be read; one that cannot be read is empty."""

    def header_fetch_parse(self, name: str, value: str) -> Any:
        try:
            return super().header_fetch_parse(name, value[:_HEADER_CHARACTERS_MAX])
        except _STUMBLES:
            return super().header_fetch_parse(name, "")


_POLICY: Final = _BoundedHeaders()


def parse_mail(data: bytes, limits: ParserLimits, parse_attachment: ParseAttachment) -> ParsedDocument:
    """An attachment that cannot be read costs a warning."""
    message = _message(data)
    subject = _header(message, "Subject")
    warnings = _long_headers(message)
    body = message.get_body(_PREFERRED)
    blocks = [heading(subject or "", 1), _head(message)]
    if body is not None:
        text, about = _body_text(body, limits)
        blocks.append(text)
        warnings += about
    for part in _parts(message):
        if part is body:
            continue
        try:
            found, about = _further(part, limits, parse_attachment)
        except PenstockError as error:
            warnings.append(f"{_called(part)} was left out: {error.what}")
            continue
        blocks += found
        warnings += about
    if not any(block.strip() for block in blocks):
        raise InvalidInput("a message has no text", "neither headers nor a body were found", "save it as .eml again")
    text = "\n\n".join(block for block in blocks if block.strip())
    told = tuple(dict.fromkeys(warnings))
    return ParsedDocument(text.encode("utf-8", "replace"), Format.EMAIL, subject or None, told)


def _parts(part: MIMEPart) -> Iterator[MIMEPart]:
    """What is read of a message, in its order: of alternatives one, a message inside it before its own parts."""
    if part.get_content_type() == "multipart/alternative":
        chosen = part.get_body(_PREFERRED)
        yield from (each for each in part.walk() if each is chosen or (_is_file(each) and not each.is_multipart()))
    elif part.is_multipart():
        if part.get_content_maintype() == "message":
            yield part
        for inner in cast("list[MIMEPart]", part.get_payload()):
            yield from _parts(inner)
    else:
        yield part


def _further(
    part: MIMEPart, limits: ParserLimits, parse_attachment: ParseAttachment
) -> tuple[list[str], tuple[str, ...]]:
    """The text of a part that is not the body: a message inside, a file, or text between and behind files."""
    if part.is_multipart():
        inner = cast("list[MIMEPart]", part.get_payload())[0]
        return [heading(f"Message {_header(inner, 'Subject')}".rstrip(), 2), _head(inner)], ()
    if not _is_file(part):
        text, about = _body_text(part, limits)
        return [text], about
    name, content = part.get_filename() or "", part.get_payload(decode=True)
    parsed = parse_attachment(bytes(content) if isinstance(content, bytes) else b"", name, part.get_content_type())
    text = parsed.text.decode("utf-8", "replace")
    return ([heading(f"Attachment {name or parsed.title or parsed.format}", 2), text] if text.strip() else []), ()


def _is_file(part: MIMEPart) -> bool:
    """Whether a part is more than text: it has a name, is said to be attached, or is of another type."""
    return bool(part.get_filename()) or part.is_attachment() or part.get_content_maintype() != "text"


def _called(part: MIMEPart) -> str:
    name = part.get_filename()
    return f"attachment {name[:120]!r}" if name else f"a part without a name of type {part.get_content_type()[:120]}"


def _head(message: MIMEPart) -> str:
    return "\n".join(f"{name}: {value}" for name in _SHOWN if (value := _header(message, name)))


def _message(data: bytes) -> EmailMessage:
    """The message in `data`. Its parts are counted while they are found: each takes the standard library its time."""
    found = 0

    def next_part(policy: EmailPolicy = _POLICY) -> EmailMessage:
        nonlocal found
        found += 1
        # One is the message itself.
        if found > _PARTS_MAX + 1:
            raise AtCapacity(
                f"a message has more than {_PARTS_MAX} parts", f"{_PARTS_MAX} are read", "send them one by one"
            )
        return EmailMessage(policy)

    parser = BytesFeedParser(next_part, policy=_POLICY)
    parser.feed(data)
    return cast("EmailMessage", parser.close())


def _header(message: MIMEPart, name: str) -> str:
    try:
        return " ".join(str(message.get(name) or "").split())
    except _STUMBLES:
        return ""


def _long_headers(message: EmailMessage) -> list[str]:
    """A warning for each header of the message that is read in part."""
    return [
        f"the header {name[:60]!r} is longer than {_HEADER_CHARACTERS_MAX} characters: the rest was left out"
        for name, value in message.raw_items()
        if len(value) > _HEADER_CHARACTERS_MAX
    ]


def _body_text(body: MIMEPart, limits: ParserLimits) -> tuple[str, tuple[str, ...]]:
    """The text of a body, and what is to be said about it."""
    content = body.get_payload(decode=True)
    data = bytes(content) if isinstance(content, bytes) else b""
    if body.get_content_subtype() == "html":
        parsed = parse_html(data, limits, str(body.get("Content-Type") or ""))
        return parsed.text.decode("utf-8", "replace"), parsed.warnings
    read = decoded(data, body.get_content_charset() or "")
    return verbatim(read.text.replace("\r\n", "\n").strip("\n")), read.warnings
