"""What is said of documents beside their content, brought to their rows: by the round that writes them, or later alone.

A side-car file has an entry of its own, with its own order of events; what it says lies there. Rows of a document get
what its notification and its side-car say when they are written. When only that changes, the attributes of its rows are
written anew, with the entry that says so and in the same write: nothing is read, cut or embedded again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.documents import Metadata, is_sidecar, object_key_of, sidecar_key, sidecar_subject
from penstock.indexing.job.writer import IndexWriter
from penstock.indexing.planning.backlog import Share
from penstock.indexing.planning.plan import EventPlan
from penstock.indexing.registry.entries import DocumentEntry
from penstock.indexing.rounds.own_metadata import MetadataUpdate, OwnAttributes, RowMetadata, metadata_updates
from penstock.indexing.rounds.rounds import Result
from penstock.indexing.stages.readings import DocumentReading
from penstock.vector import CollectionName

__all__ = ["MetadataTelling", "RoundMetadata"]


@dataclass(slots=True)
class RoundMetadata:
    """What holds of the documents of a round."""

    # By objectKey.
    rows: dict[CollectionName, dict[str, RowMetadata]] = field(default_factory=dict)
    # By the objectKeys of side-car files: what they say now, and what they said before.
    sidecars: dict[CollectionName, dict[str, tuple[Metadata, Metadata]]] = field(default_factory=dict)
    own: dict[CollectionName, OwnAttributes] = field(default_factory=dict)

    def warnings(self, share: Share) -> tuple[str, ...]:
        found = self.rows.get(share.name, {}).get(share.entry.object_key)
        return found.warnings if found else ()


class MetadataTelling:
    """Asks the store what is said; called by the one thread that works."""

    def __init__(self, writer: IndexWriter) -> None:
        self._writer = writer

    def planned(
        self, name: CollectionName, known: Mapping[str, DocumentEntry], plan: EventPlan
    ) -> list[MetadataUpdate]:
        """What a plan changes for rows that are there."""
        entries = {**known, **plan.entries}
        subjects = [entries[key] for key in plan.retold if key in entries]
        stored = self._writer.sidecars(name, [(each.bucket, each.key) for each in subjects])
        own = self._own(name)
        found: list[MetadataUpdate] = []
        for subject in subjects:
            key = _sidecar_of(name, subject)
            said = entries[key].metadata if key in entries else stored.get(key)
            found += metadata_updates(subject, said, plan.retold[subject.object_key], own)
        return found

    def read(self, shares: Sequence[Share], readings: Sequence[DocumentReading]) -> RoundMetadata:
        """What is said of the documents of a round, by what it has read of side-cars and by what is stored."""
        said = RoundMetadata()
        for share, reading in zip(shares, readings, strict=True):
            if reading.metadata is not None:
                now = msgspec.json.decode(reading.metadata, type=dict[str, Any])
                before = share.entry.metadata or {}
                said.sidecars.setdefault(share.name, {})[share.entry.object_key] = now, before
        for name in dict.fromkeys(share.name for share in shares):
            mine = [share for share in shares if share.name == name and not is_sidecar(share.entry.key)]
            self._read_collection(name, mine, said)
        return said

    def _read_collection(self, name: CollectionName, shares: Sequence[Share], said: RoundMetadata) -> None:
        stored = self._writer.sidecars(name, [(share.entry.bucket, share.entry.key) for share in shares])
        fresh = {key: now for key, (now, _) in said.sidecars.get(name, {}).items()}
        sidecars = {**stored, **fresh}
        if not sidecars and not any(share.pending.upload.metadata for share in shares):
            return
        own = said.own[name] = self._own(name)
        said.rows[name] = {
            share.entry.object_key: own.of(share.pending.upload.metadata, sidecars.get(_sidecar_of(name, share.entry)))
            for share in shares
        }

    def changed(
        self, said: RoundMetadata, results: Mapping[CollectionName, Sequence[Result]]
    ) -> dict[CollectionName, list[MetadataUpdate]]:
        """What the side-cars of a round change for the rows of their documents, those of this round included."""
        return {name: self._changed(name, said, results.get(name, ())) for name in said.sidecars}

    def _changed(self, name: CollectionName, said: RoundMetadata, results: Sequence[Result]) -> list[MetadataUpdate]:
        told = {
            object_key_of(name.tenant, result.entry.bucket, sidecar_subject(result.entry.key)): said.sidecars[name][key]
            for result in results
            if (key := result.entry.object_key) in said.sidecars[name]
        }
        subjects = self._writer.entries_by_key(name, told)
        subjects |= {result.entry.object_key: result.entry for result in results if result.entry.object_key in told}
        own = said.own.get(name) or self._own(name)
        found: list[MetadataUpdate] = []
        for key, subject in subjects.items():
            now, before = told[key]
            found += metadata_updates(subject, now, set(before), own)
        return found

    def _own(self, name: CollectionName) -> OwnAttributes:
        return OwnAttributes(self._writer.attribute_types(name))


def _sidecar_of(name: CollectionName, entry: DocumentEntry) -> str:
    """The objectKey of the side-car that a document may have."""
    return object_key_of(name.tenant, entry.bucket, sidecar_key(entry.key))
