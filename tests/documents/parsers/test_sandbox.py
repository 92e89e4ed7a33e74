import hashlib
import io
import os
import signal
import struct
import zipfile
from typing import Any

import docx
import pytest

from penstock.documents.chunker import Chunker
from penstock.documents.parsers import Format, ParserLimits, Sandbox, lasting_sandbox, sniff
from penstock.errors import AtCapacity, InvalidInput, Unsupported

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as opened:
        yield opened


def pdf(*objects: bytes, trailer: bytes = b"") -> bytes:
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    end = b"trailer <</Size %d /Root 1 0 R %s>>\nstartxref\n%d\n%%%%EOF" % (size, trailer, len(out))
    return out + b"xref\n0 %d\n0000000000 65535 f \n" % size + table + end


def pdf_of(text: bytes, trailer: bytes = b"", *more: bytes) -> bytes:
    drawn = b"BT /F1 12 Tf 72 720 Td (%s) Tj ET" % text
    return pdf(
        b"<</Type /Catalog /Pages 2 0 R>>",
        b"<</Type /Pages /Kids [3 0 R] /Count 1>>",
        b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources <</Font <</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(drawn), drawn),
        b"<</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>",
        *more,
        trailer=trailer,
    )


def encrypted_pdf(password: bytes) -> bytes:
    """The oldest encryption of PDF, by hand: 40-bit RC4."""
    padding = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
    user, identity, allowed = (password + padding)[:32], b"0123456789abcdef", -4
    owner = rc4(hashlib.md5(user).digest()[:5], user)
    key = hashlib.md5(user + owner + struct.pack("<i", allowed) + identity).digest()[:5]
    lock = b"<</Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P %d>>"
    entry = lock % (owner.hex().encode(), rc4(key, padding).hex().encode(), allowed)
    found = identity.hex().encode()
    return pdf_of(b"hidden", b"/Encrypt 6 0 R /ID [<%s> <%s>]" % (found, found), entry)


def rc4(key: bytes, data: bytes) -> bytes:
    box, j = list(range(256)), 0
    for i in range(256):
        j = (j + box[i] + key[i % len(key)]) % 256
        box[i], box[j] = box[j], box[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + box[i]) % 256
        box[i], box[j] = box[j], box[i]
        out.append(byte ^ box[(box[i] + box[j]) % 256])
    return bytes(out)


def word(*paragraphs: str) -> bytes:
    document = docx.Document()
    document.add_heading("A title", 1)
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    table = document.add_table(rows=1, cols=2)
    table.rows[0].cells[0].text, table.rows[0].cells[1].text = "left", "right"
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def bomb(size: int) -> bytes:
    """A Word document whose text is one letter, very often."""
    out = io.BytesIO()
    source = zipfile.ZipFile(io.BytesIO(word("x")))
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for entry in source.infolist():
            data = source.read(entry)
            if entry.filename == "word/document.xml":
                data = data.replace(b">x<", b">" + b"x" * size + b"<")
            made.writestr(entry.filename, data)
    return out.getvalue()


PAGE = b"""<!DOCTYPE html><html><head><title>Cats</title><style>p {}</style></head><body><nav>Menu</nav><article>
<h1>Cats</h1><p>The cat sleeps beside the old window and dreams of fish. %s</p><p>Tomorrow we go to the market.</p>
</article><script>alert('no')</script><footer>Imprint</footer></body></html>""" % (b"It purrs. " * 60)
MARKDOWN = "# Cats\n\nThe *cat* sleeps [here](http://x).\n\n- one\n- two\n\n```\ncode()\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"


def test_a_page_gives_its_words_and_not_its_menus_scripts_or_styles(sandbox):
    parsed = sandbox.parse(PAGE, tenant="t")
    text = parsed.text.decode()
    assert (parsed.format, parsed.title) == (Format.HTML, "Cats")
    assert "dreams of fish" in text
    assert "alert" not in text
    assert "p {}" not in text
    assert "Menu" not in text


def test_a_page_without_an_article_gives_all_of_its_text(sandbox):
    rows = b"".join(b"<tr><td>name %d</td><td>value %d</td></tr>" % (n, n) for n in range(50))
    text = sandbox.parse(b"<html><body><table>" + rows + b"</table></body></html>", tenant="t").text.decode()
    assert "name 49" in text
    assert "value 0" in text


@pytest.mark.parametrize(
    ("page", "word"),
    [
        ('<html><meta charset="iso-8859-1"><body><p>caf\xe9</p></body></html>'.encode("latin-1"), "café"),
        ('<html><meta charset="shift_jis"><body><p>猫です</p></body></html>'.encode("shift_jis"), "猫です"),
        ("<html><body><p>naïve</p></body></html>".encode("cp1252"), "naïve"),
        ("<html><body><p>猫</p></body></html>".encode("utf-16"), "猫"),
    ],
)
def test_a_page_is_read_in_the_encoding_it_declares(sandbox, page, word):
    assert word in sandbox.parse(page, name="page.html", tenant="t").text.decode()


def test_markdown_gives_its_words_headings_code_and_tables_without_other_markup(sandbox):
    parsed = sandbox.parse(MARKDOWN.encode(), name="readme.md", tenant="t")
    assert (parsed.format, parsed.title) == (Format.MARKDOWN, "Cats")
    assert parsed.text.decode() == "# Cats\n\nThe cat sleeps here.\n\n- one\n- two\n\ncode()\n\na | b\n1 | 2"


def test_a_pdf_gives_the_text_of_its_pages(sandbox):
    parsed = sandbox.parse(pdf_of(b"Cats dream of fish"), tenant="t")
    assert (parsed.format, parsed.text) == (Format.PDF, b"\f\n\nCats dream of fish")


def test_what_is_filled_into_a_form_is_text_of_its_page_once(sandbox):
    field = b"<</Type /Annot /Subtype /Widget /FT /Tx /T (%s) /V (%s) /Rect [0 0 99 20] /P 3 0 R>>"
    box = b"<</Type /Annot /Subtype /Widget /FT /Btn /T (agree) /V /Yes /AS /Yes /Rect [0 0 9 9] /P 3 0 R>>"
    filled = pdf_of(b"Name:", b"", field % (b"name", b"Otter Brook"), field % (b"again", b"Otter Brook"), box)
    page = b"/MediaBox [0 0 612 792]"
    form = b"/Type /Catalog /AcroForm <</Fields [6 0 R 7 0 R 8 0 R]>>"
    filled = filled.replace(page, page + b" /Annots [6 0 R 7 0 R 8 0 R]").replace(b"/Type /Catalog", form)
    parsed = sandbox.parse(filled, tenant="t", name="form.pdf")
    assert parsed.text.decode().split() == ["Name:", "Otter", "Brook"]


def test_a_pdf_without_text_says_so(sandbox):
    parsed = sandbox.parse(pdf_of(b""), tenant="t")
    assert (parsed.text, parsed.warnings) == (b"", ("the pages hold no text",))


def test_a_pdf_of_pictures_is_refused_by_name(sandbox):
    drawn = b"q 100 0 0 100 0 0 cm /Im1 Do Q"
    picture = (
        b"<</Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8 /Length 1>>"
    )
    scanned = pdf(
        b"<</Type /Catalog /Pages 2 0 R>>",
        b"<</Type /Pages /Kids [3 0 R] /Count 1>>",
        b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources <</XObject <</Im1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(drawn), drawn),
        picture + b"stream\n\x00\nendstream",
    )
    with pytest.raises(Unsupported, match=r"a PDF of pictures .* character recognition"):
        sandbox.parse(scanned, tenant="t")


def test_a_word_document_gives_its_paragraphs_and_tables_in_order(sandbox):
    parsed = sandbox.parse(word("First, naïve.", "Second."), tenant="t")
    assert parsed.format is Format.DOCX
    assert parsed.text.decode() == "# A title\n\nFirst, naïve.\n\nSecond.\n\nleft | right"


def test_plain_text_passes_as_it_is_without_a_process():
    sandbox = Sandbox()
    data = "Just words, naïve ones: \xe9".encode()
    assert sandbox.parse(data, tenant="t").text == data
    assert not sandbox._processes


def test_text_that_is_utf_8_but_for_a_few_bytes_passes_as_it_is(sandbox):
    data = "Just words, naïve ones: \xe9".encode() + b"\xff bad"
    assert sandbox.parse(data, tenant="t").text == data


def test_text_in_utf_16_becomes_utf_8(sandbox):
    assert sandbox.parse("猫 and dog".encode("utf-16"), tenant="t").text.decode() == "猫 and dog"


def test_an_empty_file_is_an_empty_text(sandbox):
    parsed = sandbox.parse(b"", tenant="t")
    assert (parsed.format, parsed.text) == (Format.TEXT, b"")
    assert Chunker().chunk(parsed.text) == []


def test_an_encrypted_pdf_is_refused_with_its_reason(sandbox):
    with pytest.raises(Unsupported, match="encrypted"):
        sandbox.parse(encrypted_pdf(b"secret"), tenant="t")


def test_a_page_200000_deep_is_refused_at_once_and_the_next_one_is_parsed(sandbox):
    for closed in (True, False):
        deep = b"<html><body>" + b"<div>" * 200_000 + b"x" + b"</div>" * 200_000 * closed
        with pytest.raises(AtCapacity, match="nested"):
            sandbox.parse(deep, tenant="t")
    assert sandbox.parse(PAGE, tenant="t").text


def test_many_paragraphs_that_are_never_closed_are_not_deep(sandbox):
    assert sandbox.parse(b"<html><body>" + b"<p>words <li>more" * 5000, tenant="t").text


def test_a_zip_bomb_is_refused_before_it_is_unpacked():
    with Sandbox(ParserLimits(archive_bytes=10 << 20)) as sandbox, pytest.raises(AtCapacity, match="zip bomb"):
        sandbox.parse(bomb(20 << 20), tenant="t")


def test_a_document_that_needs_too_much_memory_is_refused_and_the_next_one_is_parsed():
    with Sandbox(ParserLimits(memory_bytes=400 << 20)) as sandbox:
        with pytest.raises((AtCapacity, InvalidInput)):
            sandbox.parse(bomb(100 << 20), tenant="t")
        assert sandbox.parse(word("still here"), tenant="t").text


@pytest.mark.slow
def test_a_document_that_needs_too_much_processor_time_is_refused_and_the_next_one_is_parsed():
    slow = b"# t\n\n" + b"*a **a " * 400_000
    with Sandbox(ParserLimits(cpu_seconds=1)) as sandbox:
        with pytest.raises(AtCapacity, match="processor time"):
            sandbox.parse(slow, name="slow.md", tenant="t")
        assert sandbox.parse(b"# quick", name="quick.md", tenant="t").text == b"# quick"


def test_a_document_that_takes_too_long_is_refused_and_the_next_one_is_parsed():
    slow = b"# t\n\n" + b"*a **a " * 400_000
    with Sandbox(ParserLimits(wall_seconds=0.5)) as sandbox, pytest.raises(AtCapacity, match="too long"):
        sandbox.parse(slow, name="slow.md", tenant="t")


def test_a_parser_that_dies_is_an_outcome_of_its_document(sandbox):
    sandbox.parse(b"# start", name="a.md", tenant="t")
    os.kill(sandbox._processes["t"].pid, signal.SIGSEGV)
    with pytest.raises(InvalidInput, match="crashed its parser"):
        sandbox.parse(b"# next", name="b.md", tenant="t")
    assert sandbox.parse(b"# after", name="c.md", tenant="t").text == b"# after"


def test_a_document_over_the_size_limit_is_refused_by_name():
    with pytest.raises(AtCapacity, match=r"large\.txt"):
        Sandbox(ParserLimits(document_bytes=10)).parse(b"x" * 11, name="large.txt", tenant="t")


@pytest.mark.parametrize("data", [pdf_of(b"x")[:60], b"%PDF-1.4 nothing more", b"PK\x03\x04 broken", word("x")[:2000]])
def test_a_broken_document_is_refused_as_broken(sandbox, data):
    with pytest.raises(InvalidInput):
        sandbox.parse(data, tenant="t")


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n", b"Rar!\x1a\x07", b"\xff\xfb\x90\0", b"\xd0\xcf\x11\xe0\xa1", b"a\0b", b"\x7fELF"]
)
def test_what_is_no_document_is_refused_by_what_it_is(sandbox, data):
    with pytest.raises(Unsupported):
        sandbox.parse(data, name="innocent.txt", content_type="text/plain", tenant="t")


def test_content_decides_over_name_and_declared_type():
    assert sniff(pdf_of(b"x"), name="page.html", content_type="text/html") is Format.PDF
    assert sniff(PAGE, name="page.txt", content_type="text/plain") is Format.HTML
    assert sniff(b"plain words", content_type="text/markdown; charset=utf-8") is Format.MARKDOWN
    assert sniff(b"plain words", name="notes.MD") is Format.MARKDOWN
    assert sniff(b"plain words") is Format.TEXT


def parser_of(sandbox):
    sandbox.parse(b"# Words", name="a.md", tenant="t")
    return sandbox._processes["t"]._process


def test_a_lasting_sandbox_keeps_its_parser_for_the_next_who_takes_one():
    """A parser takes longer to load than most documents to parse."""
    limits = ParserLimits(cpu_seconds=59)
    with lasting_sandbox(limits) as first:
        parser = parser_of(first)
    with lasting_sandbox(limits) as second:
        assert parser_of(second) is parser
        with lasting_sandbox(limits) as meanwhile:
            assert parser_of(meanwhile) is not parser
    assert parser_of(second) is parser


def test_a_lasting_sandbox_of_other_limits_has_a_parser_of_its_own_and_one_is_kept():
    with lasting_sandbox(ParserLimits(cpu_seconds=58)) as first:
        parser = parser_of(first)
    with lasting_sandbox(ParserLimits(cpu_seconds=57)) as second:
        assert parser_of(second) is not parser
    assert parser.poll() is not None


def test_a_parser_that_ended_while_nobody_used_it_is_no_fault_of_the_next_document():
    limits = ParserLimits(cpu_seconds=55)
    with lasting_sandbox(limits) as first:
        parser = parser_of(first)
    parser.kill()
    os.waitid(os.P_PID, parser.pid, os.WEXITED | os.WNOWAIT)
    with lasting_sandbox(limits) as second:
        assert second.parse(b"# Words", name="a.md", tenant="t").text == b"# Words"


def test_a_lasting_sandbox_that_was_left_with_an_error_is_not_used_again():
    limits = ParserLimits(cpu_seconds=56)
    with pytest.raises(KeyError), lasting_sandbox(limits) as first:
        parser = parser_of(first)
        raise KeyError
    assert parser.poll() is not None
    with lasting_sandbox(limits) as second:
        assert parser_of(second) is not parser


def test_a_process_never_serves_two_tenants_and_keeps_serving_its_own():
    with Sandbox() as sandbox:
        served: dict[str, Any] = {}
        for tenant in ("a", "b", "a", "b"):
            sandbox.parse(b"# Words", tenant=tenant, name="a.md")
            served.setdefault(tenant, set()).add(sandbox._processes[tenant].pid)
    assert len(served["a"]) == len(served["b"]) == 1
    assert served["a"] != served["b"]


def test_the_tenant_that_was_served_longest_ago_gives_its_process_up():
    with Sandbox() as sandbox:
        sandbox.parse(b"# Words", tenant="first", name="a.md")
        first = sandbox._processes["first"]
        for tenant in "bcde":
            sandbox.parse(b"# Words", tenant=tenant, name="a.md")
        assert list(sandbox._processes) == list("bcde")
        with pytest.raises(ProcessLookupError):
            os.kill(first.pid, 0)
