"""A driver of the indexing job that is killed in the middle of a document goes on there, and no chunk is there twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest

from penstock.buffer import SyncProducer
from penstock.documents import Chunker, ChunkingConfig, UploadNotification, chunk_id, doc_id_of, encode
from penstock.documents.embedding import EMBEDDED_MODEL, StaticProvider
from penstock.objects import open_store
from penstock.pipelines.registry import DocumentEntry, list_entries, registry_name
from penstock.vector import ALL_LISTS, CollectionName, VectorStore

DRIVER = Path(__file__).with_name("index_driver.py")
CHUNKING = ChunkingConfig(target_tokens=60, max_tokens=90, overlap_tokens=10, cell_bytes=1024)
NAME = CollectionName("acme", "handbook", EMBEDDED_MODEL)
PARAGRAPHS = 800


def notified(folder: Path, key: str) -> UploadNotification:
    async def head() -> tuple[str, int]:
        store = await open_store(f"file://{folder}", read_only=True)
        try:
            meta = await store.head(key)
            return meta.version, meta.size
        finally:
            await store.close()

    version, size = asyncio.run(head())
    return UploadNotification(
        tenant_id=NAME.tenant,
        index_id=NAME.index,
        model=NAME.model,
        bucket=f"file://{folder}",
        key=key,
        etag=version,
        size_bytes=size,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def found(url: str) -> tuple[list[str], list[DocumentEntry]]:
    """The ids of all visible chunks, and the entries of the documents."""

    async def read() -> tuple[list[str], list[DocumentEntry]]:
        async with await VectorStore.open_reader(url, "vectors") as reader:
            vectors = await reader.collection(NAME.tenant, NAME.index, NAME.model)
            everything = await vectors.search(StaticProvider().embed_now(["a"]).rows, 10_000, probes=ALL_LISTS)
            registry = registry_name(NAME)
            entries = await list_entries(await reader.collection(registry.tenant, registry.index, registry.model))
            return sorted(everything["id"].to_pylist()), entries

    return asyncio.run(read())


@pytest.mark.chaos
@pytest.mark.integration
def test_a_driver_killed_in_the_middle_of_a_document_resumes_there(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    rounds = random.Random(seed).randint(2, 6)
    url, folder = f"file://{tmp_path}/store", tmp_path / "documents"
    folder.mkdir()
    text = "\n\n".join(f"Paragraph {number} tells of rivers and mills." for number in range(PARAGRAPHS))
    (folder / "large.txt").write_text(text)
    (folder / "small.txt").write_text("Otters swim in the river.")
    uploads = [notified(folder, "large.txt"), notified(folder, "small.txt")]
    with SyncProducer(url) as producer:
        producer.produce([encode(upload) for upload in uploads]).durable()

    command = [sys.executable, str(DRIVER), url, str(tmp_path)]
    with subprocess.Popen(command, stdout=PIPE, stderr=DEVNULL, start_new_session=True) as driver:
        assert driver.stdout is not None
        for _ in range(rounds):
            assert driver.stdout.readline() == b"round\n", f"seed {seed}"
        os.killpg(driver.pid, signal.SIGKILL)
    _, halfway = found(url)
    progress = next(entry.pending.progress for entry in halfway if entry.pending is not None)
    assert progress.next_byte_start > 0, f"seed {seed}"

    answer = subprocess.run(command, check=True, capture_output=True)
    chunks, entries = found(url)
    expected = [
        chunk_id(doc_id_of(upload), chunk.start, chunk.end)
        for upload in uploads
        for chunk in Chunker(CHUNKING).chunk((folder / upload.key).read_bytes())
    ]
    assert chunks == sorted(expected), f"seed {seed}"
    assert {entry.key: entry.pending for entry in entries} == {"large.txt": None, "small.txt": None}
    # Fewer rounds than from the start: what was written was not read again.
    cells = -(-len(text) // CHUNKING.cell_bytes)
    assert answer.stdout.count(b"round\n") <= -(-cells // 4) - rounds + 3, f"seed {seed}"
