"""A compressed file is what it holds, within the limits of any document."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from penstock.documents.parsers import Format, ParsedDocument, ParserLimits, ParserOptions, sniff
from penstock.documents.parsers.processes.messages import ParserSetup, Request
from penstock.documents.parsers.processes.worker import DocumentReader
from penstock.errors import AtCapacity, InvalidInput, Unsupported

SMALL = ParserLimits(document_bytes=1 << 20)


def read(data: bytes, name: str, limits: ParserLimits = SMALL) -> ParsedDocument:
    request = Request(sniff(data, name=name, content_type="application/gzip"), data, "application/gzip", name=name)
    return DocumentReader(ParserSetup(limits, ParserOptions(), ())).parse(request)


@pytest.mark.parametrize(
    ("content", "name", "found", "text"),
    [
        (b"Otters swim.\n", "changelog.gz", Format.TEXT, b"Otters swim.\n"),
        (b"<html><body><p>Otters swim.", "page.html.GZ", Format.HTML, b"Otters swim."),
        (b"a,b\n1,2\n", "table.csv.gz", Format.CSV, b"a | b\na: 1 | b: 2"),
        (gzip.compress(b"Otters", mtime=0), "twice.txt.gz.gz", Format.TEXT, b"Otters"),
        ("Größe".encode("utf-16"), "wide.txt.gz", Format.TEXT, "Größe".encode()),
    ],
)
def test_a_compressed_document_is_read_under_its_own_name(
    content: bytes, name: str, found: Format, text: bytes
) -> None:
    parsed = read(gzip.compress(content), name)
    assert (parsed.format, parsed.text) == (found, text)


def test_members_of_one_file_are_read_in_their_order() -> None:
    assert read(gzip.compress(b"one ") + gzip.compress(b"two"), "a.txt.gz").text == b"one two"


def test_a_compressed_bomb_is_refused_before_it_unfolds() -> None:
    with pytest.raises(AtCapacity, match="would unpack to more than 1048576 bytes"):
        read(gzip.compress(bytes(64 << 20)), "bomb.txt.gz")
    bomb = b"Otters"
    for _ in range(5):
        bomb = gzip.compress(bomb)
    with pytest.raises(AtCapacity, match="too deeply"):
        read(bomb, "deep.gz")


@pytest.mark.parametrize("cut", [2, 5, 12, -1, -8, -9])
def test_a_broken_one_is_refused_with_its_reason(cut: int) -> None:
    with pytest.raises(InvalidInput, match="gzip archive cannot be unpacked"):
        read(gzip.compress(b"Otters swim in rivers." * 9)[:cut], "a.txt.gz")


def test_what_is_no_document_inside_is_refused_by_its_name() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("otters.txt"))
    with pytest.raises(Unsupported, match="a tar archive"):
        read(packed.getvalue(), "a.tar.gz")
    with pytest.raises(Unsupported, match="an image"):
        read(gzip.compress(b"\x89PNG\r\n"), "a.png.gz")
