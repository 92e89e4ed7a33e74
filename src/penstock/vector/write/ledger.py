"""Which rows live and which die when operations are applied in their order. Pure; whole arrays at a time.

Rows of a flush have provisional ids that follow those of the store. An identity points at its row; writing,
deleting and flipping move the pointer, and whatever a pointer leaves behind is dead. A row that is written
and dies in the same flush is never stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from penstock.vector.arrays import Bools, Column, Ids, Indices
from penstock.vector.format.document_log import DocumentMark
from penstock.vector.format.identity import ABSENT, DictionaryBlock, Identities
from penstock.vector.format.idset import IdSet
from penstock.vector.operations import Delete, Discard, Flip, Operation, Remove, Update, UpdateDocument, Upsert, Version

__all__ = ["AttributeUpdate", "Ledger", "Members", "StoredDocument"]


@dataclass(frozen=True, slots=True)
class Members:
    """Rows of a version: ids, and the places of their identities, once visible and while hidden."""

    ids: Ids
    visible: Indices
    versioned: Indices


@dataclass(slots=True)
class StoredDocument:
    """What is known of a document: its current version and the rows of each."""

    current: str | None = None
    versions: dict[str, list[Members]] = field(default_factory=dict)


class AttributeUpdate(NamedTuple):
    """Rows that get other values of attributes, and for each its place among the values; all 0 where they share one."""

    ids: Ids
    places: Indices
    columns: Mapping[str, Column]


class Ledger:
    """Applies operations to pointers. `pointers[i]` is the row that identity i stands for, or ABSENT."""

    def __init__(
        self,
        identities: Identities,
        pointers: Ids,
        deleted: IdSet,
        hidden: IdSet,
        next_id: int,
        documents: Mapping[str, StoredDocument],
        rows: int,
    ) -> None:
        self.identities = identities
        self.pointers = np.where(deleted.contains(pointers), ABSENT, pointers)
        self.next_id = next_id
        self.dead = deleted.copy(next_id + rows)
        self.hidden = hidden.copy(next_id + rows)
        self.marks: list[tuple[Version, DocumentMark]] = []
        self.memberships: list[tuple[Version, Ids]] = []
        self.updates: list[AttributeUpdate] = []
        self._deleted = deleted
        self._hidden = hidden
        self._before = self.pointers.copy()
        self._documents = dict(documents)
        self._rows = rows
        self._taken = 0

    # applying -------------------------------------------------------------------------------------

    def apply(self, operation: Operation, visible: Indices, versioned: Indices) -> None:
        """Apply one operation, whose identities lie at these places."""
        match operation:
            case Upsert(versions=()):
                self._point(visible, self._take(len(visible)))
            case Upsert(versions=versions):
                first = 0
                for version, rows in versions:
                    self._write_version(version, visible[first : first + rows], versioned[first : first + rows])
                    first += rows
            case Delete(chosen=chosen):
                places = visible if chosen is None else visible[self.pointers[visible] == chosen]
                self._point(places, np.full(len(places), ABSENT, np.int64))
            case Update(columns=columns):
                ids = self.pointers[visible]
                there = np.flatnonzero(ids != ABSENT)
                self.updates.append(AttributeUpdate(ids[there], there, columns))
            case UpdateDocument(name, version, columns):
                self._update_document(name, version, columns)
            case Flip(version):
                self._flip(version)
            case Discard(version):
                self._discard(version)
            case Remove(document):
                self._remove(document)

    def _take(self, count: int) -> Ids:
        first = self.next_id + self._taken
        self._taken += count
        return np.arange(first, first + count, dtype=np.int64)

    def _point(self, places: Indices, ids: Ids) -> None:
        """Let identities stand for other rows; those they stood for die."""
        before = self.pointers[places]
        self.dead.add(before[(before != ABSENT) & (before != ids)])
        self.pointers[places] = ids

    def _write_version(self, version: Version, visible: Indices, versioned: Indices) -> None:
        document = self._document(version.document)
        ids = self._take(len(visible))
        self.memberships.append((version, ids))
        document.versions.setdefault(version.version, []).append(Members(ids, visible, versioned))
        if document.current == version.version:
            # A replay of rows that are current already: they take the place of their earlier selves.
            self._point(visible, ids)
            return
        self._point(versioned, ids)
        self.hidden.add(ids)

    def _flip(self, version: Version) -> None:
        document = self._document(version.document)
        if document.current == version.version:
            return
        if document.current is not None:
            self._kill(document.versions.pop(document.current, []))
        for members in document.versions.get(version.version, []):
            alive = ~self.dead.contains(members.ids)
            self.hidden.discard(members.ids[alive])
            self.pointers[members.versioned[alive]] = ABSENT
            self._point(members.visible[alive], members.ids[alive])
        document.current = version.version
        self.marks.append((version, DocumentMark.CURRENT))

    def _discard(self, version: Version) -> None:
        document = self._document(version.document)
        if document.current != version.version:
            self._kill(document.versions.pop(version.version, []))

    def _remove(self, name: str) -> None:
        document = self._document(name)
        for members in document.versions.values():
            self._kill(members)
        document.versions.clear()
        if document.current is not None:
            document.current = None
            self.marks.append((Version(name, "-"), DocumentMark.REMOVED))

    def _update_document(self, name: str, version: str | None, columns: Mapping[str, Column]) -> None:
        document = self._document(name)
        for members in document.versions.get(version or document.current or "", []):
            self.updates.append(AttributeUpdate(members.ids, np.zeros(len(members.ids), np.int64), columns))

    def _kill(self, parts: Iterable[Members]) -> None:
        for members in parts:
            alive = ~self.dead.contains(members.ids)
            self.dead.add(members.ids[alive])
            for places in (members.visible, members.versioned):
                pointing = alive & (self.pointers[places] == members.ids)
                self.pointers[places[pointing]] = ABSENT

    def _document(self, name: str) -> StoredDocument:
        return self._documents.setdefault(name, StoredDocument())

    # the outcome, once everything is applied --------------------------------------------------------

    @cached_property
    def born(self) -> Bools:
        """Which of the rows of this flush live."""
        return ~self.dead.contains(np.arange(self.next_id, self.next_id + self._rows, dtype=np.int64))

    @cached_property
    def killed(self) -> Ids:
        """Stored rows that died."""
        return self.dead.minus(self._deleted, self.next_id)

    @cached_property
    def revealed(self) -> Ids:
        """Stored rows that were hidden and are visible now."""
        shown = self._hidden.minus(self.hidden, self.next_id)
        return shown[~self.dead.contains(shown)]

    def dictionary(self) -> DictionaryBlock:
        """The pointers that changed. One that was taken from a row that lives is taken out for good."""
        if not len(self.pointers):
            return DictionaryBlock(self.identities, self.pointers)
        lost = (self.pointers == ABSENT) & (self._before != ABSENT) & ~self.dead.contains(self._before)
        moved = (self.pointers != ABSENT) & (self.pointers != self._before)
        changed = np.flatnonzero(lost | moved)
        return DictionaryBlock.of(self.identities.take(changed), self.pointers[changed])

    def settled_hidden(self) -> IdSet:
        """Hidden rows that live."""
        self.hidden.bits &= ~self.dead.bits
        return self.hidden


def touched_documents(operations: Sequence[Operation]) -> tuple[set[str], set[str]]:
    """Documents whose current version matters, and those of them whose stored rows do."""
    known: set[str] = set()
    moved: set[str] = set()
    for operation in operations:
        match operation:
            case Upsert(versions=versions):
                known.update(version.document for version, _ in versions)
            case Flip(version) | Discard(version):
                moved.add(version.document)
            case Remove(document) | UpdateDocument(document):
                moved.add(document)
    return known | moved, moved
