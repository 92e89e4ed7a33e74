"""The reading stage, called as an executor calls it: the same chunks from any restart, and an outcome for every fault."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.documents import Chunker, ChunkingConfig, UploadNotification, encode
from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.documents.parsers import ParserLimits
from penstock.objects import open_store
from penstock.pipelines.reading import INPUT_SCHEMA, Outcome, Reading, read_documents

CHUNKING = ChunkingConfig(target_tokens=60, max_tokens=90, overlap_tokens=10, cell_bytes=1024)
TEXT = "\n\n".join(f"Paragraph {number} tells of rivers and mills." for number in range(200)).encode()


def upload(folder: Path, key: str, etag: str | None = None) -> bytes:
    async def version() -> str:
        store = await open_store(f"file://{folder}", read_only=True)
        try:
            return (await store.head(key)).version
        finally:
            await store.close()

    return encode(
        UploadNotification(
            tenant_id="acme",
            index_id="handbook",
            model=EMBEDDED_MODEL,
            bucket=f"file://{folder}",
            key=key,
            etag=etag or asyncio.run(version()),
            size_bytes=1,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
    )


def read(reading: Reading, notification: bytes, cell: int = 0, cells: int = 8, start: int = 0) -> list[dict[str, Any]]:
    row = {"document": 0, "upload": notification, "first_cell": cell, "cells": cells, "next_byte_start": start}

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([row], schema=INPUT_SCHEMA)

    return [found for batch in read_documents(reading, batches()) for found in batch.to_pylist()]


@pytest.mark.parametrize("cells", [1, 3, 100])
def test_rounds_of_any_size_give_the_chunks_of_one_reading(tmp_path: Path, cells: int) -> None:
    (tmp_path / "note.txt").write_bytes(TEXT)
    notification = upload(tmp_path, "note.txt")
    chunks: list[tuple[int, int, int]] = []
    cell = start = 0
    for _ in range(100):
        *found, ending = read(Reading(CHUNKING), notification, cell, cells, start)
        chunks += [(row["start"], row["core_start"], row["end"]) for row in found]
        cell, start = ending["next_byte_start"] // CHUNKING.cell_bytes, ending["next_byte_start"]
        assert ending["text_bytes"] == len(TEXT)
        if ending["outcome"] == Outcome.END:
            break
    assert chunks == [(chunk.start, chunk.core_start, chunk.end) for chunk in Chunker(CHUNKING).chunk(TEXT)]


def test_an_object_that_is_not_what_was_notified_is_superseded(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_bytes(TEXT)
    assert [row["outcome"] for row in read(Reading(), upload(tmp_path, "note.txt", etag="older"))] == ["superseded"]


@pytest.mark.parametrize(
    ("key", "content", "reason"),
    [
        ("missing.txt", None, "missing.txt"),
        ("image.txt", b"\x89PNG and more", "an image"),
        ("bomb.html", b"<html>" + b"x" * 2000, "2006 bytes"),
        ("broken.docx", b"PK\x03\x04 and nothing else", "zip archive"),
    ],
)
def test_a_document_that_cannot_be_read_is_quarantined_with_its_reason(
    tmp_path: Path, key: str, content: bytes | None, reason: str
) -> None:
    if content is not None:
        (tmp_path / key).write_bytes(content)
    reading = Reading(limits=ParserLimits(document_bytes=1000))
    (ending,) = read(reading, upload(tmp_path, key, etag=None if content else "any"))
    assert ending["outcome"] == Outcome.QUARANTINED
    assert reason in ending["detail"][0]


def test_bytes_that_are_not_utf_8_are_told_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_bytes(b"Otters \xff\xfe swim.")
    chunk, ending = read(Reading(), upload(tmp_path, "note.txt"))
    assert (chunk["text"], ending["outcome"]) == ("Otters ?? swim.", Outcome.END)
    assert ending["detail"] == ["2 bytes of [0, 15) are not UTF-8"]
