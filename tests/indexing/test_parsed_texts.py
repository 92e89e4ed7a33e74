"""Texts of documents that are done, and of documents that nobody remembers, are removed from the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.documents.parsers import ParserOptions
from penstock.indexing.job.parsed_texts import ParsedTexts
from penstock.indexing.job.store_door import StoreDoor
from penstock.indexing.stages.parsed_texts import parsed_key
from penstock.objects import StoreSpec


@pytest.fixture
def texts(tmp_path: Path) -> Iterator[ParsedTexts]:
    url = f"file://{tmp_path}"
    (tmp_path / "parsed").mkdir()
    door = StoreDoor(url, "vectors", {})
    found = ParsedTexts(door, StoreSpec(url))
    try:
        yield found
    finally:
        found.close()
        door.close()


def kept(folder: Path, *documents: str) -> list[str]:
    keys = [parsed_key(document, ParserOptions()) for document in documents]
    for key in keys:
        (folder / key).write_text("text")
    return keys


def test_what_no_pending_document_refers_to_is_collected(texts: ParsedTexts, tmp_path: Path) -> None:
    wanted, orphan = kept(tmp_path, "a" * 64, "b" * 64)
    (tmp_path / "parsedness").write_text("of somebody else")
    assert texts.collect([wanted]) == 1
    assert [(tmp_path / key).exists() for key in (wanted, orphan, "parsedness")] == [True, False, True]
    assert texts.collect([wanted]) == 0


def test_texts_are_removed_with_their_documents_and_one_that_is_gone_is_no_error(
    texts: ParsedTexts, tmp_path: Path
) -> None:
    (key,) = kept(tmp_path, "a" * 64)
    texts.discard([])
    texts.discard([key, key])
    texts.discard([key])
    assert not (tmp_path / key).exists()
