"""What a document is, told from its first bytes; its name and its declared type only decide where bytes cannot.

This runs outside the sandbox, so it looks at a bounded head, moves forward only, and opens no container: an archive is
told as one, and what it holds is for a parser's process to find out.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.documents.parsers.encodings import head_in_utf8
from penstock.documents.parsers.formats import Format
from penstock.documents.parsers.plain.code import CODE_SUFFIXES
from penstock.documents.parsers.plain.marked_up import MARKED_UP_SUFFIXES
from penstock.errors import Unsupported

__all__ = ["SNIFF_BYTES", "sniff"]

# Enough for a preamble of comments before the first tag, and for `%PDF-`, which may come late.
SNIFF_BYTES: Final = 4096
_PAGE: Final = re.compile(
    rb"<(?:!doctype[ \t\r\n]+html|html|head|body|title|meta|table|div|p|h1|article)\b", re.IGNORECASE
)
_WHOLE_PAGE: Final = re.compile(rb"<(?:!doctype[ \t\r\n]+html|html)\b", re.IGNORECASE)
_KNOWN: Final = {
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"GIF8": "an image",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ": "an xz archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!\x1a\x07": "a RAR archive",
    b"\x28\xb5\x2f\xfd": "a Zstandard archive",
    b"\x7fELF": "a program",
    b"\xca\xfe\xba\xbe": "a program",
    b"\0asm": "a program",
    b"PAR1": "a Parquet file",
    b"SQLite format 3\0": "a database",
    b"8BPS": "an image",
    b"\0\0\1\0": "an image",
    b"\0\0\0\x0cjP  ": "an image",
    b"AT&TFORM": "an image",
    b"%!PS": "a PostScript file",
    b"II*\0": "an image",
    b"MM\0*": "an image",
    b"BM": "an image",
    b"RIFF": "an image, a sound or a film",
    b"OggS": "a sound or a film",
    b"ID3": "a sound",
    b"fLaC": "a sound",
    b"\xff\xfb": "a sound",
    b"\xff\xf3": "a sound",
    b"\xd0\xcf\x11\xe0": "an old or encrypted Office document",
}
# Images and films of the ISO base format have their mark behind a length.
_BOXED: Final = b"ftyp"
_TAR_MARK_AT: Final = 257
_REMEDIES: Final = {
    "an image": "images of text need character recognition first: upload what it gives",
    "a tar archive": "upload the files in it one by one",
    "a PostScript file": "convert it to PDF",
    "an old or encrypted Office document": "save it in a present format, without a password",
}
# What may stand before a page's first tag, and what ends it.
_PREAMBLES: Final = ((b"<!--", b"-->"), (b"<?xml", b">"))
_TYPES: Final = {
    "text/csv": Format.CSV,
    "text/tab-separated-values": Format.CSV,
    "application/json": Format.JSON,
    "application/x-ndjson": Format.JSON_LINES,
    "application/jsonl": Format.JSON_LINES,
    "application/x-ipynb+json": Format.NOTEBOOK,
    "message/rfc822": Format.EMAIL,
}
_SUFFIXES: Final = {
    **dict.fromkeys(CODE_SUFFIXES, Format.CODE),
    **dict.fromkeys(MARKED_UP_SUFFIXES, Format.MARKED_UP),
    "ipynb": Format.NOTEBOOK,
    "csv": Format.CSV,
    "tsv": Format.CSV,
    "json": Format.JSON,
    "jsonl": Format.JSON_LINES,
    "ndjson": Format.JSON_LINES,
    **dict.fromkeys(("eml", "mht", "mhtml"), Format.EMAIL),
}
_MARKDOWN_NAMES: Final = (".md", ".markdown", ".mdown", ".mkd")


def sniff(data: bytes, *, name: str = "", content_type: str | None = None) -> Format:
    """The format of a document from its first bytes."""
    head = data[:SNIFF_BYTES]
    if b"%PDF-" in head[:1024]:
        return Format.PDF
    if head.startswith(b"PK\x03\x04"):
        return Format.ZIP
    if head.startswith(b"{\\rtf"):
        return Format.RTF
    if head.startswith(b"\x1f\x8b"):
        return Format.GZIP
    for magic, what in _KNOWN.items():
        if head.startswith(magic) and (magic != b"BM" or b"\0" in head):
            raise _refused(what)
    if head[4:8] == _BOXED:
        raise _refused("an image or a film")
    if head[_TAR_MARK_AT:].startswith(b"ustar"):
        raise _refused("a tar archive")
    head = head_in_utf8(head)
    if b"\0" in head:
        raise Unsupported("a binary file cannot be indexed", "it has zero bytes, so it is not text")
    found, start = _text_format(name, content_type), _first_tag(head)
    # Markdown often opens with a part in HTML.
    page = _WHOLE_PAGE if found is Format.MARKDOWN else _PAGE
    return Format.HTML if page.match(head, start) else found


def _first_tag(head: bytes) -> int:
    """Where a page's first tag would be: after blanks, comments and an XML declaration."""
    place = 0
    while True:
        rest = head[place : place + 16].lstrip()
        if not rest:
            if place >= len(head):
                return place
            place += 16
            continue
        place += len(head[place : place + 16]) - len(rest)
        end = next((end for start, end in _PREAMBLES if head.startswith(start, place)), None)
        if end is None:
            return place
        found = head.find(end, place)
        if found < 0:
            return len(head)
        place = found + len(end)


def _text_format(name: str, content_type: str | None) -> Format:
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml") or name.lower().endswith((".html", ".htm", ".xhtml")):
        return Format.HTML
    if kind == "text/markdown" or name.lower().endswith(_MARKDOWN_NAMES):
        return Format.MARKDOWN
    suffix = name.lower().rpartition("/")[2].rpartition(".")
    return _TYPES.get(kind) or (_SUFFIXES.get(suffix[2], Format.TEXT) if suffix[0] else Format.TEXT)


def _refused(what: str) -> Unsupported:
    return Unsupported(f"{what} cannot be indexed", "there is no parser for it", _REMEDIES.get(what, ""))
