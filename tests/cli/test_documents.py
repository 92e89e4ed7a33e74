"""`penstock documents` shows what is known, and what it puts on the queue is accepted behind all that was heard."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from penstock.buffer.inspection import read_batches, read_manifest
from penstock.cli.main import penstock
from penstock.documents import (
    DocumentReport,
    DocumentStatus,
    Notification,
    Progress,
    UploadNotification,
    decode_notification,
    doc_id_of,
)
from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.errors import InvalidInput, NotFound
from penstock.indexing.planning.plan import plan_events
from penstock.indexing.registry.entries import (
    REGISTRY_DIMENSIONS,
    REGISTRY_METRIC,
    VECTOR_PATH,
    DocumentEntry,
    entry_rows,
    registry_name,
)
from penstock.indexing.search.lookup import find_entries
from penstock.indexing.sending.places import url_of
from penstock.objects import open_store
from penstock.vector import CollectionName, VectorStore

NAME = CollectionName("default", "handbook", EMBEDDED_MODEL)
RULE = "rule/1"
# Of the bucket's own clock, which is an hour ahead of ours.
AHEAD = datetime.now(UTC) + timedelta(hours=1)


class Archive:
    """A folder of documents that a bucket has told of, and an index that knows them."""

    def __init__(self, folder: Path) -> None:
        self.store, self.shelf = folder / "store", folder / "shelf"
        self.shelf.mkdir()
        self.entries: list[DocumentEntry] = []

    def told(self, key: str, status: DocumentStatus, *, bucket: str = "", pending: bool = False) -> UploadNotification:
        """An upload of the bucket that ended so."""
        upload = UploadNotification(
            tenant_id=NAME.tenant,
            index_id=NAME.index,
            model=NAME.model,
            bucket=bucket or url_of(str(self.shelf)),
            key=key,
            etag="e",
            size_bytes=1234,
            created_at=AHEAD,
            sequencer="s3:0a",
        )
        (entry,) = plan_events({}, [upload], RULE).entries.values()
        report = DocumentReport(
            doc_id=doc_id_of(upload), status=status, chunks=3, tokens=1500, cost_usd=0.25, warnings=("odd bytes",)
        )
        if status is DocumentStatus.QUARANTINED:
            report = DocumentReport(doc_id=doc_id_of(upload), status=status, reason="it is broken")
        begun = msgspec.structs.replace(entry.pending, progress=Progress(2, 700), chunks=2) if pending else None
        done = doc_id_of(upload) if status is DocumentStatus.INDEXED else None
        self.entries.append(
            msgspec.structs.replace(entry, pending=begun, current=done, fingerprint=RULE, report=report)
        )
        return upload

    def save(self) -> None:
        async def write() -> None:
            found = registry_name(NAME)
            async with await VectorStore.open(url_of(str(self.store)), VECTOR_PATH) as store:
                registry = await store.collection(
                    found.tenant, found.index, found.model, dimensions=REGISTRY_DIMENSIONS, metric=REGISTRY_METRIC
                )
                await registry.upsert(entry_rows(self.entries), durable=True)

        asyncio.run(write())

    def run(self, *arguments: str) -> Result:
        options = ["--store", str(self.store), "--index", NAME.index]
        return CliRunner().invoke(penstock, ["documents", *arguments, *options])

    def queued(self) -> list[Notification]:
        async def read() -> list[Notification]:
            store = await open_store(url_of(str(self.store)), read_only=True)
            manifest = await read_manifest(store, "ingest/manifest")
            found = [reading.batch async for reading in read_batches(store, manifest.after(None, len(manifest)))]
            batches = [batch for batch in found if batch is not None]
            await store.close()
            return [decode_notification(bytes(record)) for batch in batches for record in batch.records]

        return asyncio.run(read())


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path)
    made.told("guide/otters.txt", DocumentStatus.INDEXED, pending=True)
    made.told("bread.md", DocumentStatus.INDEXED)
    made.told("broken.pdf", DocumentStatus.QUARANTINED)
    made.told("gone.pdf", DocumentStatus.QUARANTINED)
    made.save()
    for key in ("guide/otters.txt", "bread.md", "broken.pdf"):
        (made.shelf / key).parent.mkdir(exist_ok=True)
        (made.shelf / key).write_text("text")
    return made


def test_show_tells_the_whole_report_and_how_far_a_pending_version_has_come(archive: Archive) -> None:
    answer = archive.run("show", "guide/otters.txt")
    assert answer.exit_code == 0, answer.output
    for text in ("pending", "3", "1,500", "$0.25", "odd bytes", "1,234 bytes", "s3:0a", "up to byte 700 of 1,234"):
        assert text in answer.output
    told = json.loads(archive.run("show", "bread.md", "--json").output)
    assert (told["status"], told["chunks"], told["cost_usd"], told["pending"]) == ("indexed", 3, 0.25, None)
    assert told["upload"]["etag"] == "e"


def test_a_list_can_be_of_one_status(archive: Archive) -> None:
    answer = archive.run("list", "--status", "quarantined", "--json")
    assert [json.loads(line)["key"] for line in answer.output.splitlines()] == ["broken.pdf", "gone.pdf"]


def test_a_list_shows_the_warnings_of_documents_that_became_searchable(archive: Archive) -> None:
    answer = archive.run("list", "--status", "indexed")
    assert "warning: odd bytes" in " ".join(answer.output.split())
    assert "it is broken" in archive.run("list").output


def test_retry_is_accepted_behind_the_events_of_a_bucket_whose_clock_is_ahead(archive: Archive) -> None:
    """And the bucket's next event is accepted behind the retry."""
    answer = archive.run("retry", "bread.md")
    assert (answer.exit_code, "1 queued" in answer.output) == (0, True)
    known = {entry.object_key: entry for entry in archive.entries if entry.key == "bread.md"}
    (entry,) = plan_events(known, archive.queued(), RULE).entries.values()
    assert entry.pending is not None
    assert entry.upload is not None
    assert entry.upload.reread
    later = msgspec.structs.replace(
        entry.upload, etag="f", sequencer="s3:0b", created_at=AHEAD + timedelta(seconds=1), reread=False
    )
    (after,) = plan_events({entry.object_key: entry}, [later], RULE).entries.values()
    assert after.upload == later


def test_all_quarantined_documents_are_retried_and_those_that_are_gone_are_named(archive: Archive) -> None:
    answer = archive.run("retry", "--all-quarantined", "--json")
    assert json.loads(answer.output) == {
        "queued": [{"bucket": url_of(str(archive.shelf)), "key": "broken.pdf", "event": "retry"}],
        "skipped": ["gone.pdf: gone from its bucket"],
    }
    assert [event.key for event in archive.queued()] == ["broken.pdf"]


def test_a_named_document_that_is_gone_is_not_retried_and_nothing_is_sent(archive: Archive) -> None:
    answer = archive.run("retry", "bread.md", "gone.pdf")
    assert answer.exit_code == 1
    assert "gone.pdf" in answer.output
    assert "forget" in answer.output
    assert not (archive.store / "ingest").exists()


def test_forget_removes_through_the_queue_and_says_what_is_gone_already(archive: Archive) -> None:
    said = archive.run("forget", "bread.md").output
    assert (archive.shelf / "bread.md").exists()
    assert "delete" not in said
    assert f"forget {url_of(str(archive.shelf))}/bread.md" in said
    assert "the files and objects themselves stay" in said
    known = {entry.object_key: entry for entry in archive.entries if entry.key == "bread.md"}
    plan = plan_events(known, archive.queued(), RULE)
    assert plan.deleted == 1
    archive.entries = list(plan.entries.values())
    archive.save()
    assert "removed already" in archive.run("forget", "bread.md").output
    assert len(archive.queued()) == 1


def test_what_was_forgotten_is_shown_so_and_comes_back_with_a_retry(archive: Archive) -> None:
    archive.run("forget", "bread.md")
    known = {entry.object_key: entry for entry in archive.entries if entry.key == "bread.md"}
    (forgotten,) = plan_events(known, archive.queued(), RULE).entries.values()
    archive.entries = [forgotten]
    archive.save()
    assert "forgotten" in archive.run("show", "bread.md").output
    assert "1 queued" in archive.run("retry", "bread.md").output
    (back,) = plan_events({forgotten.object_key: forgotten}, archive.queued()[1:], RULE).entries.values()
    assert back.pending is not None


@pytest.mark.parametrize("command", ["show", "retry", "forget"])
def test_a_key_that_nobody_knows_is_refused_with_keys_like_it(archive: Archive, command: str) -> None:
    answer = archive.run(command, "otter.txt")
    assert answer.exit_code == 1
    assert "has no document otter.txt" in answer.output
    assert "guide/otters.txt" in answer.output


def test_a_key_in_two_buckets_is_ambiguous_until_its_bucket_is_named(archive: Archive) -> None:
    archive.told("bread.md", DocumentStatus.INDEXED, bucket="bakery")
    with pytest.raises(InvalidInput, match="several buckets"):
        find_entries(archive.entries, ["bread.md"])
    assert [entry.bucket for entry in find_entries(archive.entries, ["bakery/bread.md"])] == ["bakery"]
    with pytest.raises(NotFound, match="`penstock documents list` shows them all"):
        find_entries(archive.entries, ["zzz"])


def test_retry_wants_names_or_all_and_not_both(archive: Archive) -> None:
    assert archive.run("retry").exit_code == 2
    assert archive.run("retry", "bread.md", "--all-quarantined").exit_code == 2


def test_a_list_that_is_piped_shows_keys_of_any_length_whole(tmp_path: Path) -> None:
    archive, key = Archive(tmp_path), f"{'deep/' * 60}notes.md"
    archive.told(key, DocumentStatus.INDEXED)
    archive.save()
    assert [line.split()[0] for line in archive.run("list").output.splitlines()] == ["document", key]


@pytest.mark.parametrize("command", [["list"], ["list", "--json"], ["show", "a"], ["retry", "a"], ["forget", "a"]])
@pytest.mark.parametrize("store", ["mistyped", "memory://nobody-has-used-this-name"])
def test_a_store_that_is_not_there_is_an_error_and_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], store: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(penstock, ["documents", *command, "--store", store])
    assert answer.exit_code == 1
    assert "there is no store at" in answer.output.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_was_only_notified_is_there_and_has_no_documents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    store = ["--store", str(tmp_path / "store")]
    assert CliRunner().invoke(penstock, ["index", str(tmp_path / "a.txt"), "--queue-only", *store]).exit_code == 0
    answer = CliRunner().invoke(penstock, ["documents", "list", *store])
    assert (answer.exit_code, answer.output) == (0, "Index default has no documents.\n")
