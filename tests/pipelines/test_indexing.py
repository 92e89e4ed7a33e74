"""The indexing job on real Spark: documents in, passages out, each exactly once whatever the events say."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import docx as word
import msgspec
import pytest

from penstock.buffer import ProducerConfig, SyncProducer
from penstock.documents import (
    Chunker,
    ChunkingConfig,
    DeleteNotification,
    DocumentStatus,
    UploadNotification,
    chunk_id,
    decode,
    encode,
)
from penstock.documents.embedding import EMBEDDED_MODEL, DispatchPolicy, StaticProvider, profile_of
from penstock.documents.sequencers import stamped
from penstock.errors import PenstockError
from penstock.objects import open_store
from penstock.pipelines.embedding import Embedding
from penstock.pipelines.indexing import IndexingConfig, IndexingJob, IndexingSummary
from penstock.pipelines.planning import RoundLimits
from penstock.pipelines.registry import DocumentEntry, list_entries, registry_name
from penstock.vector import CollectionName, CollectionReader, VectorStore

pytestmark = pytest.mark.integration

NAME = CollectionName("acme", "handbook", EMBEDDED_MODEL)
SMALL = ChunkingConfig(target_tokens=60, max_tokens=90, overlap_tokens=10, cell_bytes=1024)


@dataclass
class Shelf:
    """A folder of documents, a store, and the events that tell of the one to the other."""

    spark: Any
    folder: Path
    clock: int = 0

    @property
    def documents(self) -> Path:
        return self.folder / "documents"

    @property
    def url(self) -> str:
        return f"file://{self.folder}/store"

    def upload(self, key: str, *, at: int | None = None) -> bytes:
        """The event that this file is there, with the version that it has now."""

        async def version() -> str:
            store = await open_store(f"file://{self.documents}", read_only=True)
            try:
                return (await store.head(key)).version
            finally:
                await store.close()

        path = self.documents / key
        etag = asyncio.run(version()) if path.exists() else "gone"
        size = path.stat().st_size if path.exists() else 1
        return encode(UploadNotification(etag=etag, size_bytes=size, **self._event(key, at)))

    def delete(self, key: str, *, at: int | None = None) -> bytes:
        return encode(DeleteNotification(**self._event(key, at)))

    def write(self, key: str, content: str | bytes) -> bytes:
        path = self.documents / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return self.upload(key)

    def send(self, *events: bytes) -> None:
        with SyncProducer(self.url, ProducerConfig(flush_interval_seconds=0.0)) as producer:
            producer.produce(list(events)).durable()

    def run(self, *events: bytes, checkpoint: str = "checkpoint", **config: Any) -> IndexingSummary:
        if events:
            self.send(*events)
        place = str(self.folder / checkpoint)
        with IndexingJob(self.spark, IndexingConfig(self.url, place, chunking=SMALL, **config)) as job:
            return job.run_available()

    def search(self, words: str, count: int = 3) -> list[tuple[str, str]]:
        """The documents and passages that answer best."""
        query = StaticProvider().embed_now([words]).rows

        async def ask(vectors: CollectionReader, _: CollectionReader) -> list[tuple[str, str]]:
            found = await vectors.search(query, count, columns=["text", "attributes"])
            return [(row["attributes"]["key"], row["text"]) for row in found.to_pylist()]

        return self._ask(ask)

    def chunks(self) -> list[str]:
        """The ids of all visible chunks."""

        async def ask(vectors: CollectionReader, _: CollectionReader) -> list[str]:
            everything = await vectors.search(StaticProvider().embed_now(["a"]).rows, 10_000, probes=1 << 40)
            return sorted(everything["id"].to_pylist())

        return self._ask(ask)

    def entries(self) -> dict[str, DocumentEntry]:
        async def ask(_: CollectionReader, registry: CollectionReader) -> list[DocumentEntry]:
            return await list_entries(registry)

        return {entry.key: entry for entry in self._ask(ask)}

    def _ask(self, work: Callable[[CollectionReader, CollectionReader], Any]) -> Any:
        async def ask() -> Any:
            async with await VectorStore.open_reader(self.url, "vectors") as reader:
                registry = registry_name(NAME)
                return await work(
                    await reader.collection(NAME.tenant, NAME.index, NAME.model),
                    await reader.collection(registry.tenant, registry.index, registry.model),
                )

        return asyncio.run(ask())

    def _event(self, key: str, at: int | None) -> dict[str, Any]:
        self.clock += 1
        moment = self.clock if at is None else at
        return {
            "tenant_id": NAME.tenant,
            "index_id": NAME.index,
            "model": NAME.model,
            "bucket": f"file://{self.documents}",
            "key": key,
            "created_at": datetime.fromtimestamp(moment, UTC),
            "sequencer": stamped(moment),
        }


@pytest.fixture
def shelf(spark: Any, tmp_path: Path) -> Shelf:
    (tmp_path / "documents").mkdir()
    return Shelf(spark, tmp_path)


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


def prose(words: str, paragraphs: int) -> str:
    return "\n\n".join(f"Paragraph {number} tells of {words} and of number {number}." for number in range(paragraphs))


def test_documents_of_several_formats_become_searchable_and_a_poisonous_one_is_set_aside(shelf: Shelf) -> None:
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


def test_updates_replace_deletes_remove_and_duplicates_change_nothing(shelf: Shelf) -> None:
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


def test_an_endpoint_that_is_not_there_ends_the_query_by_name_and_loses_nothing(shelf: Shelf) -> None:
    event = shelf.write("note.txt", "Otters swim in the river.")
    # Nobody listens on the port of the discard service; a key in the wrong place would be refused just so.
    absent = Embedding("http://127.0.0.1:9", profile=profile_of(EMBEDDED_MODEL), policy=DispatchPolicy(attempts_max=1))
    with pytest.raises(PenstockError, match="did not embed batch"):
        shelf.run(event, embedding=absent)
    assert shelf.run().documents == 1
    assert shelf.search("otters")[0] == ("note.txt", "Otters swim in the river.")


def test_a_large_text_is_read_in_rounds_and_gives_the_chunks_of_one_reading(shelf: Shelf) -> None:
    text = prose("rivers, bridges and mills", 400)
    event = shelf.write("large.txt", text)
    summary = shelf.run(event, rounds=RoundLimits(cells_max=4))
    expected = Chunker(SMALL).chunk(text.encode())
    document = shelf.entries()["large.txt"].current
    assert document is not None
    assert shelf.chunks() == sorted(chunk_id(document, chunk.start, chunk.end) for chunk in expected)
    assert (summary.chunks, summary.tokens) == (len(expected), sum(chunk.tokens for chunk in expected))
