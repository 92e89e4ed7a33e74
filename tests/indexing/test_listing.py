"""A listing becomes notifications of what has changed, and of nothing else."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import msgspec
import pytest

from penstock.cli.running.spark_session import log_of
from penstock.documents import DeleteNotification, DocumentReport, DocumentStatus, UploadNotification, doc_id_of
from penstock.errors import InvalidInput, NotFound
from penstock.indexing.planning.plan import plan_events
from penstock.indexing.registry.entries import DocumentEntry
from penstock.indexing.sending.listing import Listing, compare, deletion
from penstock.indexing.sending.looking import _listed, list_places
from penstock.indexing.sending.places import Place, place_of, url_of
from penstock.indexing.stages.reading import Reading
from penstock.objects import ObjectMeta, ObjectStore
from penstock.pipelines.indexing.job import CHECKPOINT_PREFIX
from penstock.testing import ManualClock
from penstock.vector import CollectionName

NAME = CollectionName("acme", "handbook", "m")
RULE = "rule/1"
PLACE = Place("docs")


def listed_keys(place: Place, own: str, reading: Reading | None = None) -> list[str]:
    """What a new index would be told of."""
    found = asyncio.run(list_places([place], reading or Reading(), own))
    assert not found.failures
    return [event.key for event in compare(NAME, found.objects, [], RULE, clock=ManualClock()).events]


def meta(key: str, version: str = "e1") -> ObjectMeta:
    return ObjectMeta(key, 7, version, 0)


def entry(key: str, etag: str = "e1", *, done: bool = True, **changes: object) -> DocumentEntry:
    """An object that the bucket itself has told of, an hour ago by its own clock."""
    event = UploadNotification(
        tenant_id="acme",
        index_id="handbook",
        model="m",
        bucket="docs",
        key=key,
        etag=etag,
        size_bytes=7,
        version_id="v9",
        content_type="text/plain",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        sequencer="s3:05",
    )
    (planned,) = plan_events({}, [event], RULE).entries.values()
    if done:
        planned = msgspec.structs.replace(planned, pending=None, current=doc_id_of(event), fingerprint=RULE)
    return msgspec.structs.replace(planned, **changes)


def compared(metas: list[ObjectMeta], known: list[DocumentEntry], rule: str = RULE, place: Place = PLACE) -> Listing:
    return compare(NAME, {place: metas}, known, rule, clock=ManualClock(1_800_000_000_000))


def test_what_is_new_is_uploaded_and_what_is_as_it_was_is_not() -> None:
    listing = compared([meta("a"), meta("b")], [entry("a")])
    assert [event.key for event in listing.events] == ["b"]
    assert listing.unchanged == 1


def test_what_has_changed_is_uploaded_and_accepted_after_the_events_of_the_bucket() -> None:
    known = entry("a")
    listing = compared([meta("a", "e2")], [known])
    (planned,) = plan_events({known.object_key: known}, listing.events, RULE).entries.values()
    assert planned.pending is not None
    assert planned.pending.upload.etag == "e2"


def test_another_chunking_uploads_again_with_what_the_bucket_had_told() -> None:
    (event,) = compared([meta("a")], [entry("a")], rule="rule/2").events
    assert isinstance(event, UploadNotification)
    assert (event.version_id, event.content_type) == ("v9", "text/plain")
    assert doc_id_of(event) == entry("a").current


def test_what_is_gone_is_deleted_once_and_only_inside_the_place() -> None:
    known = [entry("x/a"), entry("y/b"), entry("xy")]
    listing = compared([], known, place=Place("docs", prefix="x"))
    assert [(type(event), event.key) for event in listing.events] == [(DeleteNotification, "x/a")]
    (gone,) = plan_events({known[0].object_key: known[0]}, listing.events, RULE).entries.values()
    assert compared([], [gone]).events == []


def test_what_is_under_way_or_set_aside_is_not_sent_again() -> None:
    poison = entry("b")
    report = DocumentReport(doc_id=str(poison.current), status=DocumentStatus.QUARANTINED, reason="broken")
    set_aside = msgspec.structs.replace(poison, current=None, report=report)
    listing = compared([meta("a"), meta("b")], [entry("a", done=False), set_aside])
    assert (listing.events, listing.under_way, listing.set_aside) == ([], 1, 1)
    assert len(compared([meta("b", "e2")], [set_aside]).events) == 1


def test_a_place_is_named_as_its_events_name_it(tmp_path: Path) -> None:
    assert place_of("s3://docs/hand/book") == Place("docs", prefix="hand/book")
    assert place_of("gs://docs") == Place("gs://docs")
    assert place_of("az://docs/x") == Place("az://docs", prefix="x")
    assert place_of(str(tmp_path), {"docs": url_of(str(tmp_path))}) == Place("docs")
    odd = tmp_path / "100% #1"
    odd.mkdir()
    assert Reading().spec_of(place_of(str(odd)).bucket).url == url_of(str(odd))


def test_a_folder_is_listed_without_hidden_files_and_without_the_store_in_it(tmp_path: Path) -> None:
    for path in ("a.md", "sub/b.md", ".git/config", "sub/.hidden", "store/ingest/manifest"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("text")

    def listed(path: Path) -> list[str]:
        return listed_keys(place_of(str(path)), url_of(str(tmp_path / "store")))

    assert listed(tmp_path) == ["a.md", "sub/b.md"]
    assert listed(tmp_path / "a.md") == ["a.md"]
    with pytest.raises(InvalidInput, match="the store of the index itself"):
        listed(tmp_path / "store")
    with pytest.raises(NotFound):
        listed(tmp_path / "nowhere")


def test_a_store_that_is_reached_by_a_link_is_left_out_and_refused_like_any_other(tmp_path: Path) -> None:
    documents, elsewhere = tmp_path / "documents", tmp_path / "elsewhere"
    documents.mkdir()
    elsewhere.symlink_to(documents)
    for path in ("a.md", "store/ingest/manifest"):
        (documents / path).parent.mkdir(parents=True, exist_ok=True)
        (documents / path).write_text("text")

    def listed(place: Path, store: Path) -> list[str]:
        return listed_keys(place_of(str(place)), url_of(str(store)))

    assert listed(documents, elsewhere / "store") == ["a.md"]
    assert listed(elsewhere, documents / "store") == ["a.md"]
    # A bucket that is named by a link.
    named = Reading(buckets={"docs": url_of(str(elsewhere))})
    assert listed_keys(Place("docs"), url_of(str(documents / "store")), named) == ["a.md"]
    with pytest.raises(InvalidInput, match="the store of the index itself"):
        listed(documents / "store", elsewhere / "store")


def test_a_folder_or_file_inside_the_store_is_refused_by_whatever_way_it_is_named(tmp_path: Path) -> None:
    """What a run writes there would be found by the next look, and so on for ever."""
    store, link = tmp_path / "store", tmp_path / "link"
    (store / "vectors" / "wal").mkdir(parents=True)
    (store / "vectors" / "wal" / "1.sst").write_text("text")
    link.symlink_to(store / "vectors")
    for inside in (store / "vectors", store / "vectors" / "wal", store / "vectors" / "wal" / "1.sst", link):
        with pytest.raises(InvalidInput, match="inside the store of the index"):
            listed_keys(place_of(str(inside)), url_of(str(store)))
    beside = tmp_path / "store-of-others"
    beside.mkdir()
    (beside / "a.md").write_text("text")
    assert listed_keys(place_of(str(beside)), url_of(str(store))) == ["a.md"]
    bucket = Reading(buckets={"docs": url_of(str(tmp_path))})
    for prefix in ("store", "store/vectors", "store/vectors/wal/1.sst"):
        with pytest.raises(InvalidInput, match="the store of the index"):
            listed_keys(Place("docs", prefix=prefix), url_of(str(store)), bucket)


@pytest.mark.parametrize("store", ["s3://bucket/store", "file:///somewhere/else"])
def test_what_a_run_writes_beside_its_store_is_in_no_listing_of_the_folder_it_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    """It grows with every micro-batch: a follower that listed it would feed itself."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "a.md").write_text("text")
    log = log_of("s3://bucket/store")
    log.write_text("words of Spark's")
    with tempfile.TemporaryDirectory(prefix=CHECKPOINT_PREFIX) as checkpoint:
        (Path(checkpoint) / "offsets").write_text("1")
        assert listed_keys(place_of(str(tmp_path)), store) == ["a.md"]


def test_files_that_are_named_one_by_one_are_looked_at_together_each_in_its_place(tmp_path: Path) -> None:
    for number in range(300):
        path = tmp_path / str(number % 3) / f"{number}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text("text")
    places = [place_of(str(path)) for path in sorted(tmp_path.rglob("*.md"))]
    found = asyncio.run(list_places([*places, places[0]], Reading(), url_of(str(tmp_path / "store")))).objects
    assert set(found) == set(places)
    assert all([meta.key for meta in metas] == [place.key] for place, metas in found.items())


@pytest.mark.slow
def test_the_cost_of_a_look_grows_with_the_files_and_with_the_entries_and_not_with_both() -> None:
    """In processor time, and generously: with both it would be fifty times as much."""

    def seconds(count: int) -> float:
        known = [entry(str(number)) for number in range(count)]
        found = {Place("docs", str(number)): [meta(str(number))] for number in range(count)}
        began = time.process_time()
        assert compare(NAME, found, known, RULE, clock=ManualClock()).unchanged == count
        return time.process_time() - began

    seconds(100)
    # The best of three: on a busy machine one of them may take many times as long.
    assert min(seconds(4000) for _ in range(3)) < 15 * min(seconds(800) for _ in range(3))


def looked(known: list[DocumentEntry], *places: Place, **buckets: str) -> list[tuple[str, str]]:
    """What a look at places in real folders sends, as kinds of event and keys."""
    found = asyncio.run(list_places(places, Reading(buckets=buckets), "file:///elsewhere/store"))
    assert not found.failures
    listing = compare(NAME, found.objects, known, RULE, clock=ManualClock(1_800_000_000_000))
    return [("upload" if isinstance(event, UploadNotification) else "delete", event.key) for event in listing.events]


def test_an_object_that_was_indexed_by_its_url_is_removed_once_it_is_gone(tmp_path: Path) -> None:
    docs = url_of(str(tmp_path))
    (tmp_path / "hand").mkdir()
    place = place_of("s3://docs/hand/book.md")
    assert looked([entry("hand/book.md"), entry("hand/book.md.old")], place, docs=docs) == [("delete", "hand/book.md")]
    # A folder of the same name is as much of the place, and both can be there on a bucket.
    (tmp_path / "hand" / "book.md").write_text("text")
    assert looked([], place, docs=docs) == [("upload", "hand/book.md")]


def test_a_hidden_object_that_an_event_brought_in_is_kept_until_it_is_gone(tmp_path: Path) -> None:
    docs = url_of(str(tmp_path))
    (tmp_path / ".well-known").mkdir()
    (tmp_path / ".well-known" / "a.md").write_text("text")
    (tmp_path / ".well-known" / "b.md").write_text("nobody has told of it")
    known = entry(".well-known/a.md")
    assert looked([known], Place("docs"), docs=docs) == [("upload", ".well-known/a.md")]
    current = compared([meta(".well-known/a.md")], [known])
    assert (current.events, current.unchanged) == ([], 1)
    (gone,) = plan_events({known.object_key: known}, compared([], [known]).events, RULE).entries.values()
    assert gone.state.tombstone
    assert looked([gone], Place("docs"), docs=docs) == []
    # Whoever names it means it.
    assert looked([], place_of(str(tmp_path / ".well-known" / "b.md"))) == [("upload", "b.md")]
    assert looked([], place_of("s3://docs/.well-known"), docs=docs) == [
        ("upload", ".well-known/a.md"),
        ("upload", ".well-known/b.md"),
    ]


def test_a_file_that_is_removed_is_told_and_the_others_are_looked_at(tmp_path: Path) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text("text")
    places = [place_of(str(tmp_path / name), {"docs": url_of(str(tmp_path))}) for name in ("a.md", "b.md")]
    (tmp_path / "a.md").unlink()
    assert looked([entry("a.md")], *places, docs=url_of(str(tmp_path))) == [("delete", "a.md"), ("upload", "b.md")]


class ListingWithoutVersions:
    """As Google's: what a listing tells has no version. One object goes between the listing and the look at it."""

    def __init__(self, keys: list[str], gone: str) -> None:
        self.keys, self.gone = keys, gone
        self.asking = self.most_at_once = 0

    async def list(self, prefix: str) -> AsyncIterator[list[ObjectMeta]]:
        yield [meta(key, "") for key in self.keys if key.startswith(prefix)]

    async def head(self, key: str) -> ObjectMeta:
        self.asking += 1
        self.most_at_once = max(self.most_at_once, self.asking)
        await asyncio.sleep(0)
        self.asking -= 1
        if key == self.gone:
            raise NotFound(f"{key} is not there")
        return meta(key, f"version of {key}")


def test_versions_that_a_listing_does_not_tell_are_asked_for_side_by_side_and_what_goes_meanwhile_is_gone() -> None:
    store = ListingWithoutVersions([f"{number:02}.md" for number in range(99)], gone="17.md")
    found = asyncio.run(_listed(cast("ObjectStore", store), Place("gs://docs"), "gs://docs", "gs://store"))
    assert [each.key for each in found] == [key for key in store.keys if key != "17.md"]
    assert {each.version for each in found} == {f"version of {each.key}" for each in found}
    assert 1 < store.most_at_once <= 32


def test_a_folder_that_cannot_be_listed_is_told_and_neither_emptied_nor_in_the_way_of_others(tmp_path: Path) -> None:
    """It may be a disk that is not there at the moment."""
    for name in ("near", "far"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text("text")
    places = [place_of(str(tmp_path / name)) for name in ("far", "near")]
    (tmp_path / "far" / "a.md").unlink()
    (tmp_path / "far").rmdir()
    found = asyncio.run(list_places(places, Reading(), "file:///elsewhere/store"))
    assert list(found.objects) == [places[1]]
    assert [type(error) for error in found.failures] == [NotFound]


def forgotten(known: DocumentEntry) -> DocumentEntry:
    """What the index knows of an object once a person has had enough of it."""
    assert known.upload is not None
    event = deletion(NAME, known, 1_700_000_000_000, forgotten=known.upload.etag)
    (entry,) = plan_events({known.object_key: known}, [event], RULE).entries.values()
    return entry


def test_what_was_forgotten_stays_so_until_it_changes_or_is_named() -> None:
    known = forgotten(entry("a"))
    listing = compared([meta("a")], [known])
    assert (listing.events, listing.forgotten) == ([], 1)
    for found, place in (
        (meta("a", "e2"), PLACE),
        (meta("a"), Place("docs", "a")),
        (meta("a"), Place("docs", prefix="a")),
    ):
        (event,) = compared([found], [known], place=place).events
        (planned,) = plan_events({known.object_key: known}, [event], RULE).entries.values()
        assert planned.pending is not None
        assert planned.forgotten is None


def test_a_file_that_is_followed_by_its_name_is_not_named_again_by_every_look() -> None:
    found = {Place("docs", "a"): [meta("a")]}
    later = compare(NAME, found, [forgotten(entry("a"))], RULE, named=False, clock=ManualClock(1_800_000_000_000))
    assert (later.events, later.forgotten) == ([], 1)


def test_what_was_forgotten_and_then_changed_is_removed_like_any_other_when_it_is_gone() -> None:
    known = forgotten(entry("a"))
    assert compared([], [known]).events == []
    (event,) = compared([meta("a", "e2")], [known]).events
    (changed,) = plan_events({known.object_key: known}, [event], RULE).entries.values()
    assert [type(event) for event in compared([], [changed]).events] == [DeleteNotification]
