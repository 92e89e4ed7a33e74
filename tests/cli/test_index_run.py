"""Before most of an index is removed somebody is asked, and a dry run changes nothing. None of it needs Spark."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from penstock.cli.jobs.index_run import has_set_aside
from penstock.cli.main import penstock
from penstock.clock import SYSTEM_CLOCK
from penstock.documents import ChunkingConfig, DocumentReport, DocumentStatus, doc_id_of
from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.indexing.planning.plan import plan_events
from penstock.indexing.registry.entries import (
    REGISTRY_DIMENSIONS,
    REGISTRY_METRIC,
    VECTOR_PATH,
    entry_rows,
    registry_name,
)
from penstock.indexing.sending.listing import upload_of
from penstock.indexing.sending.places import url_of
from penstock.indexing.stages.embedding import Embedding
from penstock.objects import open_store
from penstock.vector import CollectionName, VectorStore

NAME = CollectionName("default", "default", EMBEDDED_MODEL)


class Library:
    """A folder of documents, and an index that is up to date with it."""

    def __init__(self, home: Path, status: DocumentStatus, *keys: str) -> None:
        self.folder, self.store = home / "shelf", home / "store"
        self.folder.mkdir()
        for key in keys:
            (self.folder / key).write_text(f"The text of {key}.")
        asyncio.run(self._index(status))

    async def _index(self, status: DocumentStatus) -> None:
        folder = await open_store(url_of(str(self.folder)), read_only=True)
        metas = [meta async for page in folder.list("") for meta in page]
        await folder.close()
        rule = Embedding().chunking_of(EMBEDDED_MODEL, ChunkingConfig()).fingerprint
        now_ms = SYSTEM_CLOCK.now_ms() - 60_000
        uploads = [upload_of(NAME, url_of(str(self.folder)), meta, now_ms) for meta in metas]
        entries = [
            msgspec.structs.replace(
                entry,
                pending=None,
                current=doc_id_of(entry.upload) if status is DocumentStatus.INDEXED else None,
                fingerprint=rule,
                report=DocumentReport(doc_id=doc_id_of(entry.upload), status=status),
            )
            for entry in plan_events({}, uploads, rule).entries.values()
            if entry.upload
        ]
        found = registry_name(NAME)
        async with await VectorStore.open(url_of(str(self.store)), VECTOR_PATH) as store:
            registry = await store.collection(
                found.tenant, found.index, found.model, dimensions=REGISTRY_DIMENSIONS, metric=REGISTRY_METRIC
            )
            await registry.upsert(entry_rows(entries), durable=True)

    def remove(self, *keys: str) -> None:
        for key in keys:
            (self.folder / key).unlink()

    def index(self, *options: str) -> Result:
        return CliRunner().invoke(penstock, ["index", str(self.folder), "--store", str(self.store), *options])

    @property
    def queued(self) -> bool:
        return (self.store / "ingest").exists()


KEYS = ("a.txt", "b.txt", "c.txt", "d.txt")


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path, DocumentStatus.INDEXED, *KEYS)


def test_an_emptied_folder_removes_nothing_unless_somebody_says_so(library: Library) -> None:
    library.remove(*KEYS)
    refused = library.index("--queue-only")
    assert refused.exit_code == 1
    said = " ".join(refused.output.split())
    assert "4 of the 4 documents of index default would be removed" in said
    assert "--yes" in said
    assert not library.queued
    assert "0 to index, 4 to remove" in library.index("--queue-only", "--yes").output
    assert library.queued


def test_half_of_an_index_goes_without_a_question(library: Library) -> None:
    library.remove("a.txt", "b.txt")
    answer = library.index("--queue-only")
    assert (answer.exit_code, "0 to index, 2 to remove, 2 unchanged" in answer.output) == (0, True)


def test_the_only_document_of_an_index_goes_without_a_question(tmp_path: Path) -> None:
    library = Library(tmp_path, DocumentStatus.INDEXED, "a.txt")
    library.remove("a.txt")
    assert library.index("--queue-only").exit_code == 0


def test_a_dry_run_names_what_it_would_do_and_queues_nothing(library: Library) -> None:
    library.remove(*KEYS[1:])
    (library.folder / "new.txt").write_text("new")
    said = library.index("--dry-run").output
    assert f"index {url_of(str(library.folder))}/new.txt" in said
    assert f"remove {url_of(str(library.folder))}/b.txt" in said
    assert "1 to index, 3 to remove, 1 unchanged: nothing was changed" in said
    told = json.loads(library.index("--dry-run", "--json").output)
    assert [each["event"] for each in told["planned"]].count("remove") == 3
    assert told["done"] is None
    assert not library.queued


def test_a_dry_run_tells_what_a_run_then_takes(tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / "long.md").write_text("# Otters\n\n" + "\n\n".join(f"Otter {n} swims in river {n}." for n in range(400)))
    (shelf / "people.csv").write_text("name,city\nAnn,Rome\n")
    (shelf / "scan.png").write_bytes(b"\x89PNG\r\n")
    store = ["--store", str(tmp_path / "store"), "--json"]
    planned = json.loads(CliRunner().invoke(penstock, ["index", str(shelf), "--dry-run", *store]).output)
    assert not (tmp_path / "store").exists()
    (unreadable,) = planned["estimate"]["unreadable"]
    assert unreadable[0] == "scan.png"
    assert "an image cannot be indexed" in unreadable[1]
    done = json.loads(CliRunner().invoke(penstock, ["index", str(shelf), "--engine", "local", *store]).output)["done"]
    assert planned["estimate"]["chunks"] == done["chunks"] > 2
    assert planned["estimate"]["tokens"] == done["tokens"]


@pytest.mark.parametrize("options", [["--queue-only"], ["--follow"]])
def test_a_dry_run_and_its_opposite_are_refused_together(tmp_path: Path, options: list[str]) -> None:
    assert CliRunner().invoke(penstock, ["index", str(tmp_path), "--dry-run", *options]).exit_code == 2


def test_documents_set_aside_before_fail_a_strict_run_alone(tmp_path: Path) -> None:
    library = Library(tmp_path, DocumentStatus.QUARANTINED, "a.txt")
    assert "1 set aside before" in library.index().output
    assert (library.index().exit_code, library.index("--strict").exit_code) == (0, 1)


@pytest.mark.parametrize(
    ("before", "done", "fails"),
    [
        (0, None, False),
        (1, None, True),
        (0, {"set_aside": []}, False),
        (0, {"set_aside": [{"key": "a"}]}, True),
    ],
)
def test_a_strict_run_fails_for_what_this_run_or_one_before_set_aside(
    before: int, done: Mapping[str, object] | None, fails: bool
) -> None:
    assert has_set_aside({"listed": {"set_aside_before": before}, "done": done}) is fails
