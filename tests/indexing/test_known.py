"""A file is one document, from whichever folder it is looked at and by whatever name its bucket goes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.documents import DeleteNotification, Notification, UploadNotification
from penstock.indexing.planning.plan import plan_events
from penstock.indexing.registry.entries import DocumentEntry
from penstock.indexing.sending.listing import Listing, compare, deletion
from penstock.indexing.sending.looking import list_places
from penstock.indexing.sending.places import place_of, url_of
from penstock.indexing.stages.reading import Reading
from penstock.testing import ManualClock
from penstock.vector import CollectionName

NAME = CollectionName("acme", "handbook", "m")
RULE = "rule/1"


class Library:
    """Real folders, and an index that takes at once what a look sends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: dict[str, DocumentEntry] = {}
        self.clock = ManualClock(1_800_000_000_000)

    def write(self, path: str, text: str = "text") -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def look(self, *places: str, **buckets: str) -> Listing:
        named = [place_of(str(self.folder / place), buckets) for place in places]
        reading = Reading(buckets=buckets)
        found = asyncio.run(list_places(named, reading, "file:///elsewhere/store"))
        listing = compare(NAME, found.objects, self.entries.values(), RULE, url_of=reading.url_of, clock=self.clock)
        self.take(listing.events)
        return listing

    def take(self, events: Sequence[Notification]) -> None:
        self.entries |= plan_events(self.entries, events, RULE).entries
        for key, entry in self.entries.items():
            if entry.pending:
                done = msgspec.structs.replace(
                    entry, pending=None, current=entry.pending.doc_id, fingerprint=entry.pending.fingerprint
                )
                self.entries[key] = done

    def documents(self) -> list[str]:
        """What is searchable, by bucket below the folder and key."""
        alive = [entry for entry in self.entries.values() if entry.current]
        root = url_of(str(self.folder))
        return sorted(f"{entry.bucket.removeprefix(root)}:{entry.key}" for entry in alive)


def told(listing: Listing) -> list[tuple[str, str]]:
    kinds = {UploadNotification: "upload", DeleteNotification: "delete"}
    return sorted((kinds[type(event)], event.key) for event in listing.events)


def test_a_file_below_two_roots_is_one_document_whichever_was_indexed_first(tmp_path: Path) -> None:
    for first, second, kept in [
        ("docs", "docs/sub", ["/docs:a.md", "/docs:sub/b.md"]),
        ("docs/sub", "docs", ["/docs/sub:b.md", "/docs:a.md"]),
        ("docs/sub/b.md", "docs", ["/docs/sub:b.md", "/docs:a.md"]),
    ]:
        library = Library(tmp_path / first.replace("/", "-"))
        library.write("docs/a.md")
        library.write("docs/sub/b.md")
        library.look(first)
        library.look(second)
        assert library.documents() == kept
        again = library.look("docs", "docs/sub", "docs/sub/b.md")
        assert (again.events, again.unchanged) == ([], 2)
        library.write("docs/sub/b.md", "changed")
        assert [kind for kind, _ in told(library.look(second))] == ["upload"]
        (library.folder / "docs/sub/b.md").unlink()
        assert [kind for kind, _ in told(library.look("docs"))] == ["delete"]
        assert library.documents() == ["/docs:a.md"]


def test_places_that_lie_in_one_another_tell_of_each_file_once(tmp_path: Path) -> None:
    library = Library(tmp_path)
    library.write("docs/sub/b.md")
    assert told(library.look("docs", "docs/sub", "docs/sub/b.md")) == [("upload", "sub/b.md")]
    (tmp_path / "docs/sub/b.md").unlink()
    assert told(library.look("docs", "docs/sub")) == [("delete", "sub/b.md")]


def test_a_file_that_is_two_documents_already_becomes_one(tmp_path: Path) -> None:
    library = Library(tmp_path)
    library.write("docs/sub/b.md")
    library.look("docs/sub")
    twin = Library(tmp_path)
    twin.look("docs")
    library.entries |= twin.entries
    assert library.documents() == ["/docs/sub:b.md", "/docs:sub/b.md"]
    library.look("docs")
    assert library.documents() == ["/docs:sub/b.md"]
    assert library.look("docs/sub").unchanged == 1


def test_a_folder_that_has_a_name_is_the_same_one_with_and_without_it(tmp_path: Path) -> None:
    library = Library(tmp_path)
    library.write("docs/a.md")
    (tmp_path / "link").symlink_to(tmp_path / "docs")
    library.look("docs")
    assert library.look("docs", shelf=url_of(str(tmp_path / "docs"))).unchanged == 1
    assert library.look("docs", shelf=url_of(str(tmp_path / "link"))).unchanged == 1


def test_what_was_forgotten_below_one_root_does_not_come_back_below_another(tmp_path: Path) -> None:
    library = Library(tmp_path)
    library.write("docs/sub/b.md")
    library.look("docs")
    (entry,) = library.entries.values()
    assert entry.upload is not None
    library.take([deletion(NAME, entry, library.clock.now_ms(), forgotten=entry.upload.etag)])
    again = library.look("docs/sub")
    assert (again.events, again.forgotten) == ([], 1)
    assert told(library.look("docs/sub/b.md")) == [("upload", "sub/b.md")]
    assert library.documents() == ["/docs:sub/b.md"]


def test_a_sibling_whose_name_begins_alike_is_elsewhere(tmp_path: Path) -> None:
    library = Library(tmp_path)
    for path in ("docs/a.md", "docs-old/a.md", "docs.txt"):
        library.write(path)
    library.look("docs", "docs-old", "docs.txt")
    for path in ("docs/a.md", "docs-old/a.md", "docs.txt"):
        (tmp_path / path).unlink()
    assert told(library.look("docs")) == [("delete", "a.md")]
    assert library.documents() == ["/docs-old:a.md", ":docs.txt"]
