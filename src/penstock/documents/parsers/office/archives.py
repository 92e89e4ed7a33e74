"""Archives, looked into from inside the sandbox: how much they hold, and which kind of document a zip archive is."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from typing import Final

from penstock.documents.parsers.formats import Format, ParserLimits
from penstock.errors import AtCapacity, InvalidInput, Unsupported

__all__ = ["archive_format", "check_archive", "unpacked"]

# Stands before every entry of an archive's directory.
_ENTRY: Final = b"PK\x01\x02"
# The part that only documents of one kind have.
_PARTS: Final = {
    "word/document.xml": Format.DOCX,
    "ppt/presentation.xml": Format.PPTX,
    "xl/workbook.xml": Format.XLSX,
    "xl/workbook.bin": Format.XLSX,
}
_OPEN_DOCUMENT: Final = "application/vnd.oasis.opendocument."
_TYPES: Final = {
    f"{_OPEN_DOCUMENT}text": Format.ODT,
    f"{_OPEN_DOCUMENT}text-template": Format.ODT,
    f"{_OPEN_DOCUMENT}presentation": Format.ODP,
    f"{_OPEN_DOCUMENT}spreadsheet": Format.ODS,
    "application/epub+zip": Format.EPUB,
}
_TYPE_BYTES_MAX: Final = 100


def archive_format(data: bytes, limits: ParserLimits) -> Format:
    """What an archive is, or why it cannot be indexed."""
    names = {entry.filename for entry in check_archive(data, limits)}
    for part, found in _PARTS.items():
        if part in names:
            return found
    declared = _declared_type(data) if "mimetype" in names else ""
    if declared in _TYPES:
        return _TYPES[declared]
    raise Unsupported(
        "a zip archive cannot be indexed",
        "it is no Word, Excel, PowerPoint, OpenDocument or EPUB file",
        "upload the files in it one by one",
    )


def _declared_type(data: bytes) -> str:
    """What OpenDocument files and books say of themselves in their first entry."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        try:
            with archive.open("mimetype") as entry:
                return entry.read(_TYPE_BYTES_MAX).decode("ascii", "replace").strip()
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
            return ""


def unpacked(data: bytes, limits: ParserLimits) -> bytes:
    """What a gzip file holds, if that is no larger than a document may be."""
    largest = min(limits.archive_bytes, limits.document_bytes)
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            found = file.read(largest + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput("a gzip archive cannot be unpacked", str(error), "upload it again") from error
    if len(found) > largest:
        raise _too_much(len(data), f"would unpack to more than {largest} bytes", limits)
    return found


def check_archive(data: bytes, limits: ParserLimits) -> list[zipfile.ZipInfo]:
    """The entries of an archive; too many are refused before they are listed, too large ones before unpacking."""
    entries_max = data.count(_ENTRY)
    if entries_max > limits.archive_entries:
        # Listing a million of them takes twenty seconds and half a gigabyte; counting them takes neither.
        raise _too_much(len(data), f"has up to {entries_max} entries", limits)
    try:
        entries = zipfile.ZipFile(io.BytesIO(data)).infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise InvalidInput("a zip archive cannot be opened", str(error), "upload it again") from error
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > limits.archive_bytes:
        raise _too_much(len(data), f"would unpack to {unpacked} bytes", limits)
    return entries


def _too_much(size: int, what: str, limits: ParserLimits) -> AtCapacity:
    return AtCapacity(
        f"an archive of {size} bytes {what}",
        f"the limits are {limits.archive_bytes} bytes and {limits.archive_entries} entries",
        "it looks like a zip bomb; raise the limits if it is not",
    )
