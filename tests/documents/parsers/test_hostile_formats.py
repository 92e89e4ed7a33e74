"""Hostile files of every packed and structured format: text or one of our errors, soon, and the next file is parsed.

Nothing else may come out of the sandbox: no crash of this process, no traceback of a parser, no file of the machine.
"""

from __future__ import annotations

import zipfile
from io import BytesIO

import pytest
from tests.documents.parsers import made

from penstock.documents.parsers import ParserLimits, Sandbox
from penstock.errors import PenstockError

# What names another file of the machine, and what multiplies itself.
ENTITIES = (
    '<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">'
    '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;"><!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;">'
    '<!ENTITY e "&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;"><!ENTITY f "&e;&e;&e;&e;&e;&e;&e;&e;&e;&e;">'
    '<!ENTITY g "&f;&f;&f;&f;&f;&f;&f;&f;&f;&f;"><!ENTITY file SYSTEM "file:///etc/passwd">]>'
)
DEEP = 40_000
PACKED = {
    "docx": made.word(made.paragraph("words")),
    "xlsx": made.workbook(f'<row r="1">{made.text_cell("A1", "words")}</row>'),
    "pptx": made.presentation(made.shape("words")),
    "odt": made.open_document("<text:p>words</text:p>"),
    "epub": made.book({"one.xhtml": "<p>words</p>"}),
}


def rewritten(data: bytes, change) -> bytes:
    """An archive with every XML part changed."""
    out = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as read, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as written:
        for entry in read.infolist():
            body = read.read(entry)
            is_text = entry.filename.endswith((".xml", ".xhtml", ".rels", ".opf"))
            written.writestr(entry.filename, change(body.decode()).encode() if is_text else body)
    return out.getvalue()


def with_entities(text: str) -> str:
    declaration, _, rest = text.partition("?>") if text.startswith("<?xml") else ("", "", text)
    return f"{declaration + '?>' if declaration else ''}{ENTITIES}{rest.replace('words', '&g; &file; words')}"


def nested(text: str) -> str:
    return text.replace("words", "<x>" * DEEP + "words" + "</x>" * DEEP)


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2] + data[-30:]


HOSTILE = {
    **{f"entities.{kind}": rewritten(data, with_entities) for kind, data in PACKED.items()},
    **{f"nested.{kind}": rewritten(data, nested) for kind, data in PACKED.items()},
    **{f"cut.{kind}": cut(data) for kind, data in PACKED.items()},
    **{f"mangled.{kind}": rewritten(data, lambda text: text.replace(">", "\x00>")) for kind, data in PACKED.items()},
    "far-cell.xlsx": made.workbook(f'<row r="1048576">{made.text_cell("XFD1048576", "words")}</row>'),
    "odd-cell.xlsx": made.workbook(f'<row r="-1">{made.text_cell("ZZZZZZZZZZ9", "words")}</row>'),
    "repeated.ods": made.open_document(
        '<table:table><table:table-row table:number-rows-repeated="1000000000"><table:table-cell '
        'table:number-columns-repeated="1000000000"><text:p>words</text:p></table:table-cell></table:table-row>'
        "</table:table>",
        "spreadsheet",
    ),
    "blanks.odt": made.open_document('<text:p>words<text:s text:c="4000000000"/></text:p>'),
    "loop.epub": made.book({"one.xhtml": "<p>words</p>"}, order=("one.xhtml",) * 100_000),
    "escape.epub": made.book({"../../../../etc/passwd": "<p>words</p>"}),
    "deep.rtf": b"{\\rtf1 " + b"{" * 2_000_000 + b"words" + b"}" * 2_000_000,
    "binary.rtf": b"{\\rtf1 \\bin2000000000 words}",
    "unicode.rtf": b"{\\rtf1 " + b"\\u99999999999 \\uc99999999 \\'zz" * 1000 + b" words}",
    "wide.csv": b",".join([b"word"] * 200_000),
    "quote.csv": b'a,b\n"' + b"word " * 500_000,
    "deep.json": b"[" * 1_000_000 + b"]" * 1_000_000,
    "keys.json": b"{" + b",".join(b'"k%d":1' % n for n in range(50_000)) + b"}",
    "number.json": b"[" + b"9" * 5_000_000 + b"]",
    "lines.jsonl": b'{"a": "words"}\n' + b"{" * 1_000_000,
    "deep.eml": b"".join(
        b'Content-Type: multipart/mixed; boundary="b%d"\r\n\r\n--b%d\r\n' % (n, n) for n in range(2_000)
    )
    + b"\r\nwords",
    "headers.eml": b"Subject: words\r\n" + b"X-A: b\r\n" * 50_000 + b"\r\nwords",
    "russian-doll.eml": b"Content-Type: message/rfc822\r\n\r\n" * 20_000 + b"\r\nwords",
    "deep.py": b"x = " + b"(" * 50_000 + b"1" + b")" * 50_000,
    "line.js": b"function f(){" * 50_000,
    "nul.py": b"def f():\n    '''words'''\n\0\0\0",
}


@pytest.fixture(scope="module")
def sandbox():
    # Small limits: what a hostile file may take is what a test of it takes.
    with Sandbox(ParserLimits(memory_bytes=512 << 20, cpu_seconds=2, wall_seconds=60.0)) as opened:
        yield opened


@pytest.mark.processes
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_gives_text_or_one_of_our_errors_and_the_next_one_is_parsed(sandbox, name):
    try:
        text = sandbox.parse(HOSTILE[name], name=name, tenant="t").text
    except PenstockError as error:
        text = str(error).encode()
    assert b"root:" not in text
    assert b"Traceback" not in text
    # Entities that multiply themselves are not resolved: a part of this would be megabytes.
    assert b"a" * 10_000 not in text
    assert b"words" in sandbox.parse(PACKED["docx"], name="next.docx", tenant="t").text
