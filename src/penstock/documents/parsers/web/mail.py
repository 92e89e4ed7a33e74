"""Email messages (.eml): who, when and what about, the body, and the attachments that can be read."""

from __future__ import annotations

from collections.abc import Callable
from email import message_from_bytes, policy
from email.message import EmailMessage, MIMEPart
from typing import Final

from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits
from penstock.documents.parsers.headings import heading, verbatim
from penstock.documents.parsers.web.markup import parse_html
from penstock.errors import AtCapacity, InvalidInput, PenstockError

__all__ = ["ParseAttachment", "parse_mail"]

# Data, name and declared type of an attachment, to its text.
ParseAttachment = Callable[[bytes, str, str], ParsedDocument]
_SHOWN: Final = ("From", "To", "Cc", "Date", "Subject")
_PARTS_MAX: Final = 1_000


def parse_mail(data: bytes, limits: ParserLimits, parse_attachment: ParseAttachment) -> ParsedDocument:
    """An attachment that cannot be read costs a warning."""
    message = message_from_bytes(data, _class=EmailMessage, policy=policy.default)
    subject = _header(message, "Subject")
    parts = [part for part in message.walk() if not part.is_multipart()]
    if len(parts) > _PARTS_MAX:
        raise AtCapacity(f"a message has {len(parts)} parts", f"at most {_PARTS_MAX} are read", "send them one by one")
    warnings: list[str] = []
    head = "\n".join(f"{name}: {value}" for name in _SHOWN if (value := _header(message, name)))
    body = message.get_body(("plain", "html"))
    blocks = [heading(subject or "", 1), head, _body_text(body, limits) if body is not None else ""]
    for part in parts:
        name = part.get_filename() or ""
        if part is body or not (name or part.is_attachment()):
            continue
        try:
            content = part.get_payload(decode=True) or b""
            parsed = parse_attachment(
                bytes(content) if isinstance(content, bytes) else b"", name, part.get_content_type()
            )
        except PenstockError as error:
            warnings.append(f"attachment {name[:120]!r} was left out: {error.what}")
            continue
        text = parsed.text.decode("utf-8", "replace")
        if text.strip():
            blocks += [heading(f"Attachment {name or parsed.title or parsed.format}", 2), text]
    if not any(block.strip() for block in blocks):
        raise InvalidInput("a message has no text", "neither headers nor a body were found", "save it as .eml again")
    text = "\n\n".join(block for block in blocks if block.strip())
    return ParsedDocument(text.encode("utf-8", "replace"), Format.EMAIL, subject or None, tuple(warnings))


def _header(message: EmailMessage, name: str) -> str:
    try:
        return " ".join(str(message.get(name) or "").split())
    except (ValueError, IndexError, LookupError, AttributeError, TypeError):
        # The standard library stumbles over some broken headers; a message is more than one of them.
        return ""


def _body_text(body: MIMEPart, limits: ParserLimits) -> str:
    content = body.get_payload(decode=True)
    data = bytes(content) if isinstance(content, bytes) else b""
    if body.get_content_subtype() == "html":
        return parse_html(data, limits, str(body.get("Content-Type") or "")).text.decode("utf-8", "replace")
    try:
        text = data.decode(body.get_content_charset() or "utf-8", "replace")
    except LookupError:
        text = data.decode("utf-8", "replace")
    return verbatim(text.replace("\r\n", "\n").strip("\n"))
