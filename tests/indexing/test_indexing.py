"""The indexing job whichever engine runs it: documents in, passages out, each exactly once whatever the events say."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import docx as word
import msgspec
import pytest

from penstock.documents import (
    Chunker,
    DocumentStatus,
    UploadNotification,
    chunk_id,
    decode,
    encode,
)
from penstock.documents.embedding import EMBEDDED_MODEL, DispatchPolicy, profile_of
from penstock.documents.parsers import Sandbox
from penstock.documents.sequencers import stamped
from penstock.errors import PenstockError
from penstock.indexing.planning.plan import RoundLimits
from penstock.indexing.stages.embedding import Embedding
from penstock.testing.shelf import SMALL_CHUNKS, IndexShelf, prose


def docx(*paragraphs: str) -> bytes:
    document = word.Document()
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    written = io.BytesIO()
    document.save(written)
    return written.getvalue()


def _later(event: bytes) -> bytes:
    """The same event, told as the newest."""
    upload = decode(event, UploadNotification)
    moment = datetime.fromtimestamp(10_000, UTC)
    return encode(msgspec.structs.replace(upload, created_at=moment, sequencer=stamped(10_000)))


def test_documents_of_several_formats_become_searchable_and_a_poisonous_one_is_set_aside(shelf: IndexShelf) -> None:
    summary = shelf.run(
        shelf.write("penguins.txt", prose("penguins on the ice of Antarctica", 30)),
        shelf.write("bread.md", "# Bread\n\nKnead the dough, let the yeast rise, and bake the loaf in the oven."),
        shelf.write("orbit.html", "<html><body><p>The satellite circles the planet in a low orbit.</p></body></html>"),
        shelf.write("law.docx", docx("The court heard the appeal of the tenant against the landlord.")),
        shelf.write("broken.pdf", b"%PDF-1.7 and then nothing that a parser could use"),
        shelf.write("picture.txt", b"\x89PNG\r\n\x1a\n and so on"),
        shelf.write("empty.txt", ""),
        shelf.upload("never.txt"),
        b"{not a notification",
    )
    assert shelf.search("penguins in Antarctica")[0][0] == "penguins.txt"
    assert shelf.search("baking a loaf with yeast")[0][0] == "bread.md"
    assert shelf.search("satellite in orbit around a planet")[0] == (
        "orbit.html",
        "The satellite circles the planet in a low orbit.",
    )
    assert shelf.search("a tenant appeals to the court")[0][0] == "law.docx"
    status = {key: entry.report.status for key, entry in shelf.entries().items() if entry.report}
    assert status == {
        "penguins.txt": DocumentStatus.INDEXED,
        "bread.md": DocumentStatus.INDEXED,
        "orbit.html": DocumentStatus.INDEXED,
        "law.docx": DocumentStatus.INDEXED,
        "broken.pdf": DocumentStatus.QUARANTINED,
        "picture.txt": DocumentStatus.QUARANTINED,
        "empty.txt": DocumentStatus.EMPTY,
        "never.txt": DocumentStatus.QUARANTINED,
    }
    picture = shelf.entries()["picture.txt"].report
    assert picture is not None
    assert "an image cannot be indexed" in str(picture.reason)
    assert (summary.documents, len(summary.set_aside), summary.refused) == (5, 3, 1)
    assert summary.chunks == len(shelf.chunks())


@pytest.mark.slow
def test_updates_replace_deletes_remove_and_duplicates_change_nothing(shelf: IndexShelf) -> None:
    """One object's life, in micro-batches of their own: A, B, A again, gone, and an old event that comes late."""
    first = shelf.write("note.txt", prose("glaciers in Norway", 8))
    other = shelf.write("other.txt", prose("volcanoes in Iceland", 8))
    shelf.run(first, other)
    with_a = shelf.chunks()
    a_again = shelf.upload("note.txt", at=3)
    second = shelf.write("note.txt", prose("deserts in Namibia", 8))
    shelf.run(second, second, first)
    assert shelf.search("deserts in Namibia")[0][0] == "note.txt"
    assert "glaciers" not in " ".join(text for _, text in shelf.search("glaciers in Norway", 50))
    replaced = shelf.chunks()

    summary = shelf.run(second, first, shelf.upload("note.txt"), checkpoint="another")
    assert (summary.documents, summary.unchanged, shelf.chunks()) == (0, 1, replaced)

    shelf.run(shelf.delete("note.txt"), shelf.upload("note.txt", at=4))
    assert {key for key, _ in shelf.search("deserts in Namibia", 50)} == {"other.txt"}
    report = shelf.entries()["note.txt"].report
    assert report is not None
    assert report.status is DocumentStatus.DELETED
    assert set(shelf.chunks()) < set(with_a)
    # What was notified as A is B by now: its reader is told so, and nothing of B is taken for A.
    shelf.run(_later(a_again))
    report = shelf.entries()["note.txt"].report
    assert report is not None
    assert report.status is DocumentStatus.SUPERSEDED


def test_an_endpoint_that_is_not_there_ends_the_query_by_name_and_loses_nothing(shelf: IndexShelf) -> None:
    event = shelf.write("note.txt", "Otters swim in the river.")
    # Nobody listens on the port of the discard service; a key in the wrong place would be refused just so.
    absent = Embedding("http://127.0.0.1:9", profile=profile_of(EMBEDDED_MODEL), policy=DispatchPolicy(attempts_max=1))
    with pytest.raises(PenstockError, match="did not embed batch"):
        shelf.run(event, embedding=absent)
    assert shelf.run().documents == 1
    assert shelf.search("otters")[0] == ("note.txt", "Otters swim in the river.")


def test_a_large_text_is_read_in_rounds_and_gives_the_chunks_of_one_reading(shelf: IndexShelf) -> None:
    text = prose("rivers, bridges and mills", 400)
    event = shelf.write("large.txt", text)
    summary = shelf.run(event, rounds=RoundLimits(cells_max=4))
    expected = Chunker(SMALL_CHUNKS).chunk(text.encode())
    document = shelf.entries()["large.txt"].current
    assert document is not None
    assert shelf.chunks() == sorted(chunk_id(document, chunk.start, chunk.end) for chunk in expected)
    assert (summary.chunks, summary.tokens) == (len(expected), sum(chunk.tokens for chunk in expected))


@pytest.mark.processes
def test_a_large_parsed_document_is_read_by_ranges_of_its_text_and_leaves_no_text_behind(shelf: IndexShelf) -> None:
    paragraphs = [f"Paragraph {number} tells of canals, locks and number {number}." for number in range(200)]
    event = shelf.write("large.docx", docx(*paragraphs))
    kept = shelf.folder / "store" / "parsed"
    kept.mkdir(parents=True)
    (kept / "orphan-of-a-killed-run").write_text("nobody's")
    most: list[int] = []
    shelf.send(event)
    count = lambda _: most.append(len(list(kept.glob("*"))))  # noqa: E731
    with shelf.job(rounds=RoundLimits(cells_max=3), progress=count) as job:
        summary = job.run_available()
    with Sandbox() as sandbox:
        text = sandbox.parse((shelf.documents / "large.docx").read_bytes(), tenant="any").text
    expected = Chunker(SMALL_CHUNKS).chunk(text)
    document = shelf.entries()["large.docx"].current
    assert document is not None
    assert shelf.chunks() == sorted(chunk_id(document, chunk.start, chunk.end) for chunk in expected)
    assert (summary.chunks, max(most), most[-1]) == (len(expected), 1, 0)
