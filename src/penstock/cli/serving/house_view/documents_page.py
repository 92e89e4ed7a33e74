"""The documents of a tenant: by state, with their errors, and queued to be read again or forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from penstock.cli.inspection.document_status import row_of, status_of, warning_of
from penstock.cli.serving.house_view.looking import KeptLooks
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import InvalidInput, NotFound
from penstock.gateway import DocumentChange, DocumentServices, Fact, Section, TableView, Viewer
from penstock.indexing import DocumentEntry, Reading, forget_events, heads_of, list_entries, subject_of, upload_of
from penstock.vector import CollectionName

__all__ = ["DocumentsView", "IndexEntries"]

# Of one index, and of all that are shown at once: a tenant may have hundreds of indexes.
_ROWS_MAX: Final = 200
_PAGE_ROWS_MAX: Final = 400
_INDEXES_MAX: Final = 50
_KEYS_MAX: Final = 1_000
QUARANTINED: Final = "quarantined"


@dataclass(frozen=True, slots=True)
class IndexEntries:
    """What is known of the documents of one index."""

    name: CollectionName
    entries: Sequence[DocumentEntry]

    def counted(self) -> Counter[str]:
        return Counter(map(status_of, self.entries))


@dataclass(frozen=True)
class DocumentsView:
    """`reading` says how a document's bucket is asked whether it is still there."""

    services: DocumentServices
    reading: Reading
    clock: Clock = SYSTEM_CLOCK
    looks: KeptLooks = field(default_factory=KeptLooks)

    async def indexes(self, tenant: str) -> list[IndexEntries]:
        """The indexes of a tenant; none before a job has run."""

        async def listed() -> list[IndexEntries]:
            found = []
            try:
                reader = await self.services.index.reader()
                for name in await reader.collections():
                    subject = subject_of(name)
                    if subject is not None and subject.tenant == tenant:
                        registry = await reader.collection(name.tenant, name.index, name.model)
                        found.append(IndexEntries(subject, await list_entries(registry)))
            except NotFound:
                return found
            return found

        indexes: list[IndexEntries] = await self.looks.get(tenant, listed)
        return indexes

    async def sections(self, viewer: Viewer, choice: Mapping[str, str]) -> list[Section]:
        indexes = await self.indexes(viewer.tenant)
        if not indexes:
            empty = "No documents are indexed yet. Upload one with PUT /v1/documents/{index}/{key}."
            return [Section("Documents", table=TableView((), (), empty=empty))]
        named = choice.get("index", "")
        chosen = [one for one in indexes if not named or one.name.index == named]
        shown = chosen[:_INDEXES_MAX]
        rows_max = max(1, min(_ROWS_MAX, _PAGE_ROWS_MAX // max(1, len(shown))))
        found = [_index_section(one, choice, viewer, rows_max) for one in shown]
        return [_index_links(indexes, named, len(shown)), *found] if len(indexes) > 1 else found

    async def change(self, change: DocumentChange, index: str, keys: Sequence[str], viewer: Viewer) -> int:
        """Put the notifications on the queue, behind everything that the index has heard of the documents."""
        if len(keys) > _KEYS_MAX:
            raise InvalidInput(f"{len(keys):,} documents at once", f"at most {_KEYS_MAX:,} can be changed at once")
        self.looks.forget()
        indexes = [one for one in await self.indexes(viewer.tenant) if one.name.index == index]
        wanted = set(keys)
        queued = 0
        for one in indexes:
            chosen = [entry for entry in one.entries if entry.object_key in wanted]
            queued += await self._queue(change, one.name, chosen)
        if not queued:
            raise NotFound("none of these documents can be changed", "they no longer exist", "load the page again")
        return queued

    async def _queue(self, change: DocumentChange, name: CollectionName, entries: Sequence[DocumentEntry]) -> int:
        now_ms = self.clock.now_ms()
        if change is DocumentChange.FORGET:
            events, _ = forget_events(name, entries, now_ms)
            await self.services.queue(events, source="dashboard")
            return len(events)
        heads = await heads_of(entries, self.reading)
        uploads = [
            upload_of(name, entry.bucket, head, now_ms, state=entry.state, told=entry.upload, reread=True)
            for entry in entries
            if (head := heads.get(entry.object_key)) is not None
        ]
        await self.services.queue(uploads, source="dashboard")
        return len(uploads)


def _index_links(indexes: Sequence[IndexEntries], named: str, shown: int) -> Section:
    """To the indexes one by one, and whether some are left out."""
    names = sorted({one.name.index for one in indexes})
    links = [(f"all {len(names):,}", "", not named), *((name, _query(name, ""), name == named) for name in names)]
    problem = f"There is no index {named[:80]!r}." if named and not shown else ""
    is_cut = not named and shown < len(indexes)
    note = f"Below are {shown} of {len(indexes):,}: choose one to see its documents." if is_cut else ""
    return Section("Indexes", error=problem, note=note, links=links)


def _index_section(index: IndexEntries, choice: Mapping[str, str], viewer: Viewer, rows_max: int) -> Section:
    counted, chosen, named = index.counted(), choice.get("status", ""), choice.get("index", "")
    shown = [entry for entry in index.entries if not chosen or status_of(entry) == chosen]
    rows = []
    for entry in shown[:rows_max]:
        row = row_of(entry)
        reason = row["reason"] or warning_of(row)
        rows.append((entry.key, row["status"], f"{row['chunks']:,}", f"{row['tokens']:,}", reason))
    links = [(f"all {len(index.entries):,}", _query(named, ""), not chosen)]
    links += [
        (f"{status} {count:,}", _query(named, status), status == chosen) for status, count in sorted(counted.items())
    ]
    table = TableView(
        ("key", "status", "chunks", "tokens", "reason"),
        rows,
        frozenset({2, 3}),
        f"No documents are {chosen}." if chosen else "This index has no documents.",
        [entry.object_key for entry in shown[:rows_max]] if viewer.may_write else (),
    )
    note = f"The first {rows_max} of {len(shown):,}." if len(shown) > rows_max else ""
    facts = [Fact("model", index.name.model)]
    return Section(f"Index {index.name.index}", facts, table, note=note, links=links, index=index.name.index)


def _query(index: str, status: str) -> str:
    """The choice of an index and a status, as a URL has it; what is empty is not chosen."""
    return urlencode({name: value for name, value in (("index", index), ("status", status)) if value})
