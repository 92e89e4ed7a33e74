"""Documents that are zip archives of XML parts: Word, PowerPoint, OpenDocument and EPUB. Runs inside the sandbox.

A part is read within the limits of the archive, and parsed without entities, external files or the network.
"""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from typing import Any, Final
from urllib.parse import unquote

from penstock.documents.parsers.formats import ParserLimits
from penstock.documents.parsers.office.archives import check_archive
from penstock.errors import AtCapacity, InvalidInput, Unsupported

__all__ = ["Package", "local_name"]

_ENCRYPTED: Final = 0x1
_READ_BYTES: Final = 1 << 20


class Package:
    """The parts of a document by name. What is named and missing is None: most parts are optional."""

    def __init__(self, data: bytes, limits: ParserLimits) -> None:
        self._entries = {entry.filename: entry for entry in check_archive(data, limits)}
        self._archive = zipfile.ZipFile(io.BytesIO(data))
        # What the archive declares can be a lie: this is what may really come out of it.
        self._bytes_left = limits.archive_bytes

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def read(self, name: str) -> bytes | None:
        entry = self._entries.get(name)
        if entry is None:
            return None
        if entry.flag_bits & _ENCRYPTED:
            raise Unsupported("an encrypted document cannot be read", "it asks for a password", "upload it without")
        pieces = []
        try:
            with self._archive.open(entry) as part:
                while piece := part.read(_READ_BYTES):
                    self._bytes_left -= len(piece)
                    if self._bytes_left < 0:
                        raise AtCapacity(
                            "an archive unpacks to more than it declares",
                            "it looks like a zip bomb",
                            "raise the limits",
                        )
                    pieces.append(piece)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise InvalidInput(
                f"part {name[:120]!r} of a document cannot be unpacked", str(error), "save it again"
            ) from error
        return b"".join(pieces)

    def xml(self, name: str) -> Any | None:
        """The root element of a part."""
        from lxml import etree

        data = self.read(name)
        if data is None:
            return None
        parser = etree.XMLParser(
            resolve_entities=False, no_network=True, load_dtd=False, remove_pis=True, remove_comments=True
        )
        try:
            return etree.fromstring(data, parser)
        except etree.XMLSyntaxError as error:
            raise InvalidInput(f"part {name[:120]!r} of a document is not XML", str(error), "save it again") from error

    def related(self, part: str) -> dict[str, tuple[str, str]]:
        """What a part of an Office document refers to, by id: the kind of relation and the name of the other part."""
        folder, file = posixpath.split(part)
        root = self.xml(posixpath.join(folder, "_rels", f"{file}.rels"))
        found: dict[str, tuple[str, str]] = {}
        for each in root if root is not None else ():
            if each.get("TargetMode") == "External":
                continue
            target = each.get("Target") or ""
            name = target.lstrip("/") if target.startswith("/") else posixpath.normpath(posixpath.join(folder, target))
            found[each.get("Id") or ""] = (posixpath.basename(each.get("Type") or ""), unquote(name))
        return found


def local_name(element: Any) -> str:
    """Its name without the namespace; nothing for what is no element."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""
