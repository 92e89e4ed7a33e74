"""Words that a PDF breaks at the end of a line are whole in its text."""

import time

import pytest

from penstock.documents.parsers.office.hyphens import mended
from penstock.documents.parsers.office.pdf import parse_pdf


def pdf_of_lines(*lines: bytes) -> bytes:
    drawn = b"BT /F1 12 Tf 72 720 Td 14 TL " + b" ".join(b"(%s) Tj T*" % line for line in lines) + b" ET"
    objects = (
        b"<</Type /Catalog /Pages 2 0 R>>",
        b"<</Type /Pages /Kids [3 0 R] /Count 1>>",
        b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources <</Font <</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(drawn), drawn),
        b"<</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>",
    )
    return (
        b"%PDF-1.4\n"
        + b"".join(b"%d 0 obj\n%s\nendobj\n" % item for item in enumerate(objects, 1))
        + (b"trailer <</Size 6 /Root 1 0 R>>\n%%EOF")
    )


def test_a_word_that_a_pdf_breaks_at_the_end_of_a_line_is_whole():
    text = parse_pdf(pdf_of_lines(b"A document that was hyphen-", b"ated by its type-", b"setter.")).text.decode()
    assert text == "\f\n\nA document that was hyphenated by its typesetter."


def test_a_hyphen_that_the_document_writes_elsewhere_stays():
    lines = (b"A well-known rule.", b"It is a well-", b"known one, and a broad-", b"band one.")
    assert parse_pdf(pdf_of_lines(*lines)).text.decode().endswith("It is a well-known one, and a broadband one.")


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        ("hyphen\x02ated", "hyphenated"),
        ("hyphen\ufffe\r\nated", "hyphenated"),
        ("hyphen\x02\nated", "hyphenated"),
        ("Jean\x02Paul", "Jean-Paul"),
        ("COVID\x0219", "COVID-19"),
        ("\x02", ""),
        ("a\x02", "a"),
        ("a\x03b\x7fc\td\n", "abc\td\n"),
        ("\u00fcber\x02m\u00e4\u00dfig", "\u00fcberm\u00e4\u00dfig"),
    ],
)
def test_signs_of_a_break_never_stay(broken, whole):
    assert mended(broken) == whole


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        ("THE IMPLIED WAR\x02RANTY OF MERCHANTABIL\x02ITY", "THE IMPLIED WARRANTY OF MERCHANTABILITY"),
        ("Fire\x02HOL is a firewall, FireHOL is", "FireHOL is a firewall, FireHOL is"),
        ("a user\x02supplied name is supplied by the user", "a user-supplied name is supplied by the user"),
        ("some\x02thing is a thing of some kind, something", "something is a thing of some kind, something"),
        ("e\x02mail and mail, e and more", "email and mail, e and more"),
        # Halves that were broken off elsewhere are no words.
        ("struc\x02ture, an infra\x02struc\x02ture", "structure, an infrastructure"),
    ],
)
def test_the_words_of_the_document_decide_on_a_hyphen(broken, whole):
    assert mended(broken) == whole


def test_a_soft_hyphen_is_no_part_of_its_word():
    assert mended("soft\u00adware and hard\u00ad\r\nware, well-known") == "software and hardware, well-known"


def test_mending_takes_time_in_proportion_to_the_text():
    def seconds(count: int) -> float:
        text = "a" * count + "word\x02word a-b " * count
        began = time.process_time()
        mended(text)
        return time.process_time() - began

    small, large = (min(seconds(count) for _ in range(3)) for count in (5_000, 40_000))
    assert large < 24 * small + 0.02
