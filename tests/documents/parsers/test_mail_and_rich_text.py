"""Messages with their attachments, and rich text."""

from __future__ import annotations

import time
from email.message import EmailMessage

import pytest
from tests.documents.parsers.made import open_document

from penstock.documents.parsers import Format, ParsedDocument, ParserLimits, Sandbox
from penstock.documents.parsers.office.rich_text import parse_rtf
from penstock.documents.parsers.web.mail import parse_mail
from penstock.errors import AtCapacity


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as opened:
        yield opened


def message(subject: str = "Río report") -> EmailMessage:
    made = EmailMessage()
    made["From"], made["To"], made["Subject"] = "Ann <ann@example.org>", "bo@example.org", subject
    made.set_content("The otters are back.\n")
    return made


def test_a_message_tells_who_what_and_its_attachments(sandbox):
    made = message()
    made.add_alternative("<p>The otters are <b>back</b>.</p>", subtype="html")
    odt = open_document("<text:p>Seen in May.</text:p>")
    made.add_attachment(odt, maintype="application", subtype="octet-stream", filename="notes.odt")
    made.add_attachment(b"\x89PNG", maintype="image", subtype="png", filename="otter.png")
    parsed = sandbox.parse(bytes(made), tenant="t", name="mail.eml")
    assert (parsed.format, parsed.title) == (Format.EMAIL, "Río report")
    assert parsed.text.decode() == (
        "# Río report\n\nFrom: Ann <ann@example.org>\nTo: bo@example.org\nSubject: Río report\n\nThe otters are back.\n\n"
        "## Attachment notes.odt\n\n# On Rivers\n\nSeen in May."
    )
    assert parsed.warnings == ("attachment 'otter.png' was left out: an image cannot be indexed",)


def test_a_part_without_a_name_is_read_or_named_by_its_type(sandbox):
    made = message()
    made.add_alternative("<p>The otters are <img src='cid:x'></p>", subtype="html")
    _, page = made.iter_parts()
    page.add_related(b"\x89PNG\r\n\x1a\n", maintype="image", subtype="png", cid="<x>")
    made.make_mixed()
    odt = open_document("<text:p>Seen in May.</text:p>")
    for kind, data in (("vnd.oasis.opendocument.text", odt), ("x-unheard-of", b"\0\1\2"), ("x-unheard-of", b"\0\3")):
        part = EmailMessage()
        part.set_content(data, maintype="application", subtype=kind)
        made.attach(part)
    parsed = sandbox.parse(bytes(made), tenant="t", name="mail.eml")
    assert parsed.text.decode().endswith(
        "The otters are back.\n\n## Attachment On Rivers\n\n# On Rivers\n\nSeen in May."
    )
    named, unheard = parsed.warnings
    assert named == "a part without a name of type image/png was left out: an image cannot be indexed"
    assert unheard.startswith("a part without a name of type application/x-unheard-of was left out: ")


def test_a_page_is_read_where_there_is_no_plain_body(sandbox):
    made = EmailMessage()
    made["Subject"] = "x"
    made.set_content("<h2>Head</h2><p>Body</p>", subtype="html")
    assert sandbox.parse(bytes(made), tenant="t", name="a.eml").text.decode().endswith("## Head\n\nBody")


def test_messages_inside_messages_end_somewhere(sandbox):
    inner = bytes(message("inner"))
    for _ in range(8):
        made = message("around")
        made.add_attachment(inner, maintype="application", subtype="octet-stream", filename="forwarded.eml")
        inner = bytes(made)
    text = sandbox.parse(inner, tenant="t", name="a.eml").text.decode()
    assert 2 <= text.count("# around") <= 4


def test_a_message_that_is_forwarded_inside_another_is_read_with_its_own_parts(sandbox):
    inner = message("inner")
    inner.add_attachment(b"Seen in May.", maintype="text", subtype="plain", filename="notes.txt")
    around = message("around")
    around.add_attachment(inner)
    assert sandbox.parse(bytes(around), tenant="t", name="a.eml").text.decode() == (
        "# around\n\nFrom: Ann <ann@example.org>\nTo: bo@example.org\nSubject: around\n\nThe otters are back.\n\n"
        "## Message inner\n\nFrom: Ann <ann@example.org>\nTo: bo@example.org\nSubject: inner\n\nThe otters are back.\n\n"
        "## Attachment notes.txt\n\nSeen in May."
    )


def test_text_behind_a_file_is_read_and_one_form_of_a_body_is_enough():
    forms = [
        b"--in\nContent-Type: text/plain\n\nlast words\n",
        b"--in\nContent-Type: text/html\n\n<p>last words in HTML</p>\n",
    ]
    parts = [
        b"Content-Type: text/plain\n\nbefore the file",
        b"Content-Type: text/plain\nContent-Disposition: attachment; filename=a.txt\n\nin the file",
        b"Content-Type: text/html\n\n<p>behind the file</p>",
        b"Content-Type: multipart/alternative; boundary=in\n\n%s--in--" % b"".join(forms),
    ]
    mixed = b"".join(b"--out\n%s\n" % part for part in parts)
    parsed = read_mail(b"Subject: x\nContent-Type: multipart/mixed; boundary=out\n\n" + mixed + b"--out--\n")
    text = parsed.text.decode()
    places = [text.index(words) for words in ("before the file", "in the file", "behind the file", "last words")]
    assert places == sorted(places)
    assert "in HTML" not in text


@pytest.mark.parametrize(
    "head", [b"Subject: =?utf-8?q?broken\r\n", b"From: \xff\xfe\r\nDate: no date\r\n", b"To: ,,;@\r\n"]
)
def test_a_broken_header_costs_no_message(sandbox, head):
    assert b"the body" in sandbox.parse(head + b"\r\nthe body", tenant="t", name="a.eml").text


def read_mail(data: bytes) -> ParsedDocument:
    return parse_mail(data, ParserLimits(), lambda data, name, kind: ParsedDocument(data, Format.TEXT))


def test_a_body_in_an_undeclared_legacy_encoding_is_read_and_told():
    parsed = read_mail("Subject: x\n\nГород и река, мост и дорога, работа и отдых.\n".encode("cp1251"))
    assert "Город и река" in parsed.text.decode()
    assert "guessed" in parsed.warnings[0]


@pytest.mark.parametrize("charset", ["undefined", "rot13", "unicode_escape", "idna", "x-unknown", "base64"])
def test_a_charset_that_is_no_encoding_of_text_is_ignored(charset):
    parsed = read_mail(f"Subject: x\nContent-Type: text/plain; charset={charset}\n\nplain \\x41 words".encode())
    assert "plain \\x41 words" in parsed.text.decode()


@pytest.mark.parametrize("end", ["a*", "a*1*", "a*1", "=", ";;;", 'a="', "a*=''", "charset*0*"])
def test_a_broken_parameter_costs_no_message(end):
    head = f"Subject: x\nContent-Type: text/plain; {end}\nContent-Disposition: inline; {end}"
    assert "body words" in read_mail(f"{head}\n\nbody words".encode()).text.decode()


def test_bytes_of_a_body_that_do_not_decode_are_told():
    parsed = read_mail(b"Subject: x\nContent-Type: text/plain; charset=shift_jis\n\nwords \x81\xff\xfe\xfd words")
    assert "could not be decoded" in parsed.warnings[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "head",
    [
        b"Content-Type: text/plain" + b"; a*1*=x" * 20_000,
        b"From: " + b"<a@b>," * 20_000,
        b"Content-Disposition: attachment" + b'; filename*0="x"' * 10_000,
    ],
    ids=["parameters", "addresses", "disposition"],
)
def test_a_header_without_end_takes_time_in_proportion_to_its_size(head):
    began = time.process_time()
    parsed = read_mail(head + b"\nSubject: long\n\nbody words")
    # Whole, the first takes 20 s.
    assert time.process_time() - began < 8
    assert "long" in parsed.text.decode()
    assert any("longer than" in warning for warning in parsed.warnings)


def test_the_parts_of_a_message_are_counted_before_all_of_them_are_taken_apart(monkeypatch):
    made = []

    def counted(policy):
        made.append(EmailMessage(policy))
        return made[-1]

    monkeypatch.setattr("penstock.documents.parsers.web.mail.EmailMessage", counted)
    head = b"Subject: many\nContent-Type: multipart/mixed; boundary=B\n\n"
    with pytest.raises(AtCapacity, match="more than 1000 parts"):
        read_mail(head + b"--B\n\nx\n" * 20_000)
    assert len(made) == 1001


def test_rich_text_is_its_words(sandbox):
    data = rb"{\rtf1\ansi{\fonttbl{\f0 Times;}}{\info{\title Rivers}}\f0 Otters \b swim\b0  in caf\'e9s.\par Next \u8364? line.}"
    parsed = sandbox.parse(data, tenant="t", name="a.rtf")
    assert (parsed.format, parsed.title) == (Format.RTF, "Rivers")
    assert parsed.text.decode().strip() == "Otters swim in cafés.\nNext € line."


def test_pictures_in_rich_text_are_no_text():
    data = rb"{\rtf1 before {\pict\pngblip " + b"0a" * 100_000 + rb"} after}"
    assert parse_rtf(data).text.split() == [b"before", b"after"]


def test_rich_text_that_is_nested_without_end_is_refused():
    with pytest.raises(AtCapacity, match="nested"):
        parse_rtf(rb"{\rtf1 " + b"{" * 100_000)
