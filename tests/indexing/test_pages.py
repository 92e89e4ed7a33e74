"""A passage tells the page, the slide or the sheet on which it begins, whatever cells and rounds its document took."""

from __future__ import annotations

from tests.documents.parsers.made import number_cell, presentation, shape, text_cell, workbook

from penstock.documents import NO_OUTLINE
from penstock.indexing import RoundLimits
from penstock.testing.shelf import IndexShelf


def pdf_of_pages(*pages: str) -> bytes:
    """A PDF of some lines a page."""
    kids = " ".join(f"{3 + 2 * number} 0 R" for number in range(len(pages)))
    objects = ["<</Type /Catalog /Pages 2 0 R>>", f"<</Type /Pages /Kids [{kids}] /Count {len(pages)}>>"]
    font = f"{3 + 2 * len(pages)} 0 R"
    for number, page in enumerate(pages):
        lines = " ".join(f"({line}) Tj T*" for line in page.split("\n"))
        drawn = f"BT /F1 9 Tf 36 760 Td 11 TL {lines} ET"
        resources = f"/Resources <</Font <</F1 {font}>>>>"
        contents = f"/Contents {4 + 2 * number} 0 R"
        objects.append(f"<</Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] {contents} {resources}>>")
        objects.append(f"<</Length {len(drawn)}>>stream\n{drawn}\nendstream")
    objects.append("<</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>")
    body = "".join(f"{number} 0 obj\n{each}\nendobj\n" for number, each in enumerate(objects, 1))
    return f"%PDF-1.4\n{body}trailer <</Size {len(objects) + 1} /Root 1 0 R>>\n%%EOF".encode()


def page_text(number: int) -> str:
    return "\n".join(f"Line {line} of page {number} tells of rivers and mills." for line in range(20))


def test_every_passage_of_a_pdf_tells_its_page(shelf: IndexShelf) -> None:
    pages = ["" if number == 3 else page_text(number) for number in range(1, 7)]
    shelf.run(shelf.write("a.pdf", pdf_of_pages(*pages)), rounds=RoundLimits(cells_max=1, bytes_max=1 << 20))
    passages = shelf.passages()
    assert {attributes["page"] for attributes, _ in passages} == {1, 2, 4, 5, 6}
    for attributes, text in passages:
        assert f"of page {attributes['page']} tells" in text


def test_slides_and_sheets_are_pages(shelf: IndexShelf) -> None:
    slides = [shape(f"Topic {number}", "title") + shape("Words of the slide. " * 30) for number in range(1, 4)]
    cells = text_cell("A1", "item") + text_cell("B1", "price"), text_cell("A2", "fish") + number_cell("B2", "3")
    shelf.run(shelf.write("a.pptx", presentation(*slides)), shelf.write("b.xlsx", workbook(*cells)))
    rows = shelf.attributes()
    assert {(row["page"], row["headings"]) for row in rows if row["key"] == "a.pptx"} == {
        (1, "Topic 1"),
        (2, "Topic 2"),
        (3, "Topic 3"),
    }
    assert [(row["page"], row["headings"]) for row in rows if row["key"] == "b.xlsx"] == [(1, "Prices")]


def test_texts_without_pages_have_none_and_a_form_feed_makes_none(shelf: IndexShelf) -> None:
    shelf.run(shelf.write("a.md", "# Title\n\nOne\f\n\nTwo"), shelf.write("b.txt", "One\f\nTwo\f\nThree"))
    assert all("page" not in row for row in shelf.attributes())


def test_an_outline_passes_headings_and_the_beginning_of_a_page() -> None:
    outline = NO_OUTLINE.past("\f\n\n# A\n\nwords\n\n## B\n\nmore\n\n")
    assert (outline.page, outline.headings) == (1, "A › B")
    entered = outline.entering("\f\n\n## C\n\n### D\n\nhere # no heading\n")
    assert (entered.page, entered.headings, entered.title) == (2, "A › C › D", "A")
    assert outline.entering("plain words\n## later").headings == "A › B"
    assert NO_OUTLINE.entering("").page == 0
