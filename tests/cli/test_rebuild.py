"""The steps of a rebuild, with a double of the job: what is asked for, when the new model takes over, what is emptied."""

from __future__ import annotations

import asyncio
import io
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from rich.console import Console

from penstock.buffer.inspection import read_batches, read_manifest
from penstock.cli.jobs.rebuild import Rebuild
from penstock.cli.running.job import JobPlan
from penstock.cli.running.stop import Stop
from penstock.cli.terminal.progress import ProgressView
from penstock.documents import ChunkingConfig, DocumentReport, DocumentStatus, Notification, decode_notification
from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.errors import InvalidInput
from penstock.indexing.job.summary import IndexingSummary
from penstock.indexing.planning.plan import plan_events
from penstock.indexing.registry.entries import DocumentEntry
from penstock.indexing.registry.reindexing import Wish, changed
from penstock.indexing.registry.settings import Build, Cut, IndexSettings
from penstock.indexing.sending.listing import upload_of
from penstock.indexing.sending.places import url_of
from penstock.indexing.sending.queue import send
from penstock.indexing.stages.embedding import Embedding, Endpoint
from penstock.objects import open_store
from penstock.vector import CollectionName

OTHER_MODEL = "BAAI/bge-small-en-v1.5"
EMBEDDING = Embedding(endpoints={OTHER_MODEL: Endpoint("http://127.0.0.1:9/v1")})
PLAIN = IndexSettings(tenant="t", index="i", current=Build(model=EMBEDDED_MODEL, cut=Cut.of(ChunkingConfig())))
OLD, NEW = CollectionName("t", "i", EMBEDDED_MODEL), CollectionName("t", "i", OTHER_MODEL)


class PlanningJob:
    """A job that plans as the real one does, reads nothing, and sets `poison` aside; it is its own writer."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.settings: dict[tuple[str, str], IndexSettings] = {("t", "i"): PLAIN}
        self.registries: defaultdict[CollectionName, dict[str, DocumentEntry]] = defaultdict(dict)
        self.poison: set[tuple[str, str]] = set()
        self.summary = IndexingSummary()
        self.writer = self
        self._done = -1

    def run_available(self) -> IndexingSummary:
        for event in asyncio.run(self._queued()):
            for model in self.settings["t", "i"].models_for(event.model):
                self._take(msgspec.structs.replace(event, model=model))
        return self.summary

    def write_settings(self, settings: IndexSettings) -> IndexSettings:
        self.settings[settings.tenant, settings.index] = settings
        return settings

    def all_entries(self, name: CollectionName) -> Mapping[str, DocumentEntry]:
        return dict(self.registries[name])

    def remove_collection(self, name: CollectionName) -> None:
        self.registries[name].clear()

    def searchable(self, name: CollectionName) -> set[str]:
        return {entry.key for entry in self.registries[name].values() if entry.current}

    def _take(self, event: Notification) -> None:
        name = CollectionName(event.tenant_id, event.index_id, event.model)
        settings = self.settings["t", "i"]
        chunking = settings.cut_of(event.model).chunking(ChunkingConfig())
        rule = EMBEDDING.chunking_of(event.model, chunking).fingerprint
        for key, entry in plan_events(self.registries[name], [event], rule).entries.items():
            self.registries[name][key] = self._ended(entry, rule)

    def _ended(self, entry: DocumentEntry, rule: str) -> DocumentEntry:
        pending = entry.pending
        if pending is None:
            return entry
        if (pending.upload.model, entry.key) in self.poison:
            report = DocumentReport(doc_id=pending.doc_id, status=DocumentStatus.QUARANTINED)
            return msgspec.structs.replace(entry, pending=None, report=report)
        return msgspec.structs.replace(entry, pending=None, current=pending.doc_id, fingerprint=rule)

    async def _queued(self) -> list[Notification]:
        store = await open_store(self.url, read_only=True)
        manifest = await read_manifest(store, "ingest/manifest")
        found = [reading.batch async for reading in read_batches(store, manifest.after(self._done, len(manifest)))]
        batches = [batch for batch in found if batch is not None]
        await store.close()
        self._done = max([self._done, *(batch.sequence for batch in batches)])
        return [decode_notification(bytes(record)) for batch in batches for record in batch.records]


class Library:
    """Three documents that are searchable with the first model."""

    def __init__(self, folder: Path) -> None:
        self.shelf = folder / "shelf"
        self.shelf.mkdir()
        self.url = url_of(str(folder / "store"))
        self.job = PlanningJob(self.url)
        for key in ("a.txt", "b.txt", "c.txt"):
            (self.shelf / key).write_text(key)
            self.tell(key)
        self.job.run_available()

    def tell(self, key: str) -> None:
        async def head() -> Any:
            store = await open_store(url_of(str(self.shelf)), read_only=True)
            try:
                return await store.head(key)
            finally:
                await store.close()

        send(self.url, [upload_of(OLD, url_of(str(self.shelf)), asyncio.run(head()), 1_800_000_000_000)])

    def reindex(self, aim: IndexSettings, *, keep: bool = False, leave_behind: bool = False) -> str:
        """What the command says."""
        said = io.StringIO()
        console = Console(file=said, width=200)
        plan = JobPlan(self.url, embedding=EMBEDDING)
        rebuild = Rebuild(plan, self.job.settings["t", "i"], aim, console, keep=keep, leave_behind=leave_behind)
        rebuild.run(cast("Any", self.job), ProgressView(console, 0), Stop())
        return said.getvalue()

    @property
    def settings(self) -> IndexSettings:
        return self.job.settings["t", "i"]


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path)


ANOTHER_MODEL = changed(PLAIN, Wish(model=OTHER_MODEL, endpoint="http://127.0.0.1:9/v1"))


def test_the_new_model_takes_over_when_it_has_every_document_and_the_old_one_is_emptied(library: Library) -> None:
    library.reindex(ANOTHER_MODEL)
    assert library.settings.current.model == OTHER_MODEL
    assert library.job.searchable(NEW) == {"a.txt", "b.txt", "c.txt"}
    assert library.job.searchable(OLD) == set()
    assert library.settings.emptying == ()


def test_what_changed_in_its_bucket_and_was_not_told_is_news_for_both(library: Library) -> None:
    (library.shelf / "a.txt").write_text("another text")
    library.reindex(ANOTHER_MODEL, keep=True)
    assert library.settings.current.model == OTHER_MODEL
    (old,) = [entry.current for entry in library.job.registries[OLD].values() if entry.key == "a.txt"]
    (new,) = [entry.current for entry in library.job.registries[NEW].values() if entry.key == "a.txt"]
    assert old == new


def test_a_kept_collection_is_brought_up_to_date_when_its_model_returns(library: Library) -> None:
    library.reindex(ANOTHER_MODEL, keep=True)
    assert library.job.searchable(OLD) == {"a.txt", "b.txt", "c.txt"}
    (library.shelf / "d.txt").write_text("new")
    library.tell("d.txt")
    library.job.run_available()
    assert library.job.searchable(NEW) == {"a.txt", "b.txt", "c.txt", "d.txt"}
    library.reindex(changed(library.settings, Wish(model=EMBEDDED_MODEL)))
    assert library.settings.current.model == EMBEDDED_MODEL
    assert library.job.searchable(OLD) == {"a.txt", "b.txt", "c.txt", "d.txt"}


@pytest.mark.parametrize("how", ["gone", "poison"])
def test_a_document_that_cannot_be_had_holds_the_change_up_until_a_person_lets_it_go(
    library: Library, how: str
) -> None:
    if how == "gone":
        (library.shelf / "b.txt").unlink()
    else:
        library.job.poison.add((OTHER_MODEL, "b.txt"))
    with pytest.raises(InvalidInput, match=r"stays as it is.*b\.txt") as refused:
        library.reindex(ANOTHER_MODEL)
    assert "--leave-behind" in refused.value.remedy
    assert library.settings.current.model == EMBEDDED_MODEL
    assert library.job.searchable(OLD) == {"a.txt", "b.txt", "c.txt"}
    library.reindex(library.settings, leave_behind=True)
    assert library.settings.current.model == OTHER_MODEL
    assert library.job.searchable(NEW) == {"a.txt", "c.txt"}


def test_what_is_given_up_is_emptied_and_the_index_answers_as_before(library: Library) -> None:
    library.job.poison.add((OTHER_MODEL, "b.txt"))
    with pytest.raises(InvalidInput):
        library.reindex(ANOTHER_MODEL)
    said = library.reindex(library.settings.given_up())
    assert "is cancelled" in said
    assert library.settings == PLAIN
    assert library.job.searchable(NEW) == set()


def test_a_run_after_a_kill_empties_what_the_killed_one_left(library: Library) -> None:
    library.reindex(ANOTHER_MODEL, keep=True)
    killed = msgspec.structs.replace(library.settings, emptying=(EMBEDDED_MODEL,))
    library.job.write_settings(killed)
    library.reindex(killed)
    assert library.job.searchable(OLD) == set()
    assert library.settings.emptying == ()


def test_other_chunks_are_made_of_what_is_there_and_the_rest_stays_searchable(library: Library) -> None:
    before = {entry.key: entry.fingerprint for entry in library.job.registries[OLD].values()}
    (library.shelf / "b.txt").unlink()
    said = library.reindex(changed(PLAIN, Wish(target_tokens=400)))
    assert "left as they were" in said
    after = {entry.key: entry.fingerprint for entry in library.job.registries[OLD].values()}
    assert [key for key in before if before[key] == after[key]] == ["b.txt"]
    assert library.job.searchable(OLD) == {"a.txt", "b.txt", "c.txt"}
