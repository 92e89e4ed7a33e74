"""Documents made for tests: archives of parts as their programs write them."""

from __future__ import annotations

import io
import zipfile

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def zipped(parts: dict[str, str | bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return written.getvalue()


def relations(*targets: tuple[str, str]) -> str:
    """A part of relations: kinds and targets, with ids r1, r2, …"""
    items = "".join(
        f'<Relationship Id="r{number}" Type="{RELATIONS}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return (
        f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{items}</Relationships>'
    )


def word(body: str, **parts: str) -> bytes:
    """A Word document with a body; `footnotes`, `comments`, `header`, `footer` become parts of their own."""
    named = {f"word/{kind}.xml": content for kind, content in parts.items()}
    return zipped(
        {
            "word/document.xml": f"<w:document {W}><w:body>{body}</w:body></w:document>",
            "word/styles.xml": f'<w:styles {W}><w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style></w:styles>',
            "word/_rels/document.xml.rels": relations(*((kind, f"{kind}.xml") for kind in parts)),
            **named,
        }
    )


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


def workbook(*rows: str, name: str = "Prices", state: str = "visible") -> bytes:
    """An Excel workbook of one sheet; a row is its cells as XML."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    lines = "".join(f'<row r="{number}">{cells}</row>' for number, cells in enumerate(rows, 1))
    types = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    return zipped(
        {
            "[Content_Types].xml": (
                '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
                f'<Override PartName="/xl/workbook.xml" ContentType="{types}.sheet.main+xml"/>'
                f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{types}.worksheet+xml"/></Types>'
            ),
            "_rels/.rels": relations(("officeDocument", "xl/workbook.xml")),
            "xl/workbook.xml": (
                f'<workbook xmlns="{main}" xmlns:r="{RELATIONS}"><sheets>'
                f'<sheet name="{name}" sheetId="1" state="{state}" r:id="r1"/></sheets></workbook>'
            ),
            "xl/_rels/workbook.xml.rels": relations(("worksheet", "worksheets/sheet1.xml")),
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{lines}</sheetData></worksheet>',
        }
    )


def text_cell(place: str, text: str) -> str:
    return f'<c r="{place}" t="inlineStr"><is><t>{text}</t></is></c>'


def number_cell(place: str, number: str) -> str:
    return f'<c r="{place}"><v>{number}</v></c>'


def open_document(content: str, kind: str = "text") -> bytes:
    names = " ".join(
        f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{long}:1.0"'
        for short, long in (("office", "office"), ("text", "text"), ("table", "table"), ("draw", "drawing"))
    )
    return zipped(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": (
                f"<office:document-content {names}><office:body><office:{kind}>{content}</office:{kind}>"
                "</office:body></office:document-content>"
            ),
            "meta.xml": ('<m xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>On Rivers</dc:title></m>'),
        }
    )


def book(pages: dict[str, str], *, order: tuple[str, ...] = (), locked: tuple[str, ...] = ()) -> bytes:
    """An EPUB of pages by file name, read in `order`."""
    items = "".join(f'<item id="{name}" href="{name}"/>' for name in pages)
    spine = "".join(f'<itemref idref="{name}"/>' for name in order or pages)
    parts: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
        "OEBPS/book.opf": (
            '<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>The Otter</dc:title></metadata>'
            f"<manifest>{items}</manifest><spine>{spine}</spine></package>"
        ),
        **{f"OEBPS/{name}": page for name, page in pages.items()},
    }
    if locked:
        references = "".join(f'<CipherReference URI="OEBPS/{name}"/>' for name in locked)
        parts["META-INF/encryption.xml"] = f"<encryption>{references}</encryption>"
    return zipped(parts)


def presentation(*slides: str, notes: str = "") -> bytes:
    """A PowerPoint presentation; a slide is its shapes as XML. The first one may have notes."""
    names = (
        'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
        'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
        f'xmlns:r="{RELATIONS}"'
    )
    ids = "".join(f'<p:sldId r:id="r{number}"/>' for number in range(1, len(slides) + 1))
    parts: dict[str, str | bytes] = {
        "ppt/presentation.xml": f"<p:presentation {names}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
        # In files, the order of the parts is not the order of the slides.
        "ppt/_rels/presentation.xml.rels": relations(
            *(("slide", f"slides/slide{len(slides) - place}.xml") for place in range(len(slides)))
        ),
    }
    for place, shapes in enumerate(slides):
        parts[f"ppt/slides/slide{len(slides) - place}.xml"] = f"<p:sld {names}><p:cSld>{shapes}</p:cSld></p:sld>"
    if notes:
        parts[f"ppt/slides/_rels/slide{len(slides)}.xml.rels"] = relations(("notesSlide", "../notesSlides/notes1.xml"))
        parts["ppt/notesSlides/notes1.xml"] = f"<p:notes {names}><p:cSld>{shape(notes, 'body')}</p:cSld></p:notes>"
    return zipped(parts)


def shape(text: str, placeholder: str = "") -> str:
    mark = f'<p:nvSpPr><p:nvPr><p:ph type="{placeholder}"/></p:nvPr></p:nvSpPr>' if placeholder else ""
    lines = "".join(f"<a:p><a:r><a:t>{line}</a:t></a:r></a:p>" for line in text.split("\n"))
    return f"<p:sp>{mark}<p:txBody>{lines}</p:txBody></p:sp>"
