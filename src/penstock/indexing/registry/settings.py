"""What an index is made with, kept beside its vectors: its model, its chunking, and what it is being rebuilt with.

An index is made by its first event. From then on its settings decide: which collection answers (so that a rebuilt one
takes over in a single write), how texts are cut, and which collections an event is for. While a new model is being
built, events go to the old and the new collection; an event that names a model which was replaced is for the one that
replaced it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import msgspec
import pyarrow as pa

from penstock.documents import ChunkingConfig
from penstock.documents.embedding import ModelProfile
from penstock.errors import Corrupt, NotFound
from penstock.indexing.registry.entries import record_rows, records_of
from penstock.undecodable import UNDECODABLE
from penstock.vector import CollectionName, CollectionReader, VectorReader

__all__ = ["SETTINGS", "Build", "Cut", "IndexSettings", "list_settings", "read_settings", "remembered", "settings_rows"]

SETTINGS: Final = CollectionName("penstock", "indexes", "settings")


class Cut(msgspec.Struct, frozen=True):
    """How texts are cut into chunks; how a file is cut into cells is the job's own affair."""

    target_tokens: int
    max_tokens: int
    overlap_tokens: int
    counter: str

    @classmethod
    def of(cls, chunking: ChunkingConfig) -> Cut:
        return cls(chunking.target_tokens, chunking.max_tokens, chunking.overlap_tokens, chunking.counter)

    def chunking(self, like: ChunkingConfig) -> ChunkingConfig:
        return replace(
            like,
            target_tokens=self.target_tokens,
            max_tokens=self.max_tokens,
            overlap_tokens=self.overlap_tokens,
            counter=self.counter,
        )


class Build(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model with its chunking and its endpoint; the built-in model has none.

    The profile is of a model that was described by whoever made the index.
    """

    model: str
    cut: Cut
    endpoint: str | None = None
    profile: ModelProfile | None = None


class IndexSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One index of one tenant."""

    tenant: str
    index: str
    current: Build
    # What takes over once every document is in it.
    building: Build | None = None
    # Models that were current before.
    replaced: tuple[str, ...] = ()
    # Models whose collections nobody asks any more, and that are still to be emptied.
    emptying: tuple[str, ...] = ()

    @property
    def name(self) -> CollectionName:
        """The collection that answers."""
        return CollectionName(self.tenant, self.index, self.current.model)

    @property
    def building_name(self) -> CollectionName | None:
        return CollectionName(self.tenant, self.index, self.building.model) if self.building else None

    @property
    def builds(self) -> tuple[Build, ...]:
        return (self.current, self.building) if self.building else (self.current,)

    def models_for(self, model: str) -> tuple[str, ...]:
        """The models whose collections an event is for that names `model`."""
        wanted = self.current.model if model in self.replaced else model
        if wanted == self.current.model:
            return tuple(build.model for build in self.builds)
        return (wanted,)

    def cut_of(self, model: str) -> Cut:
        return next((build.cut for build in self.builds if build.model == model), self.current.cut)

    def flipped(self, *, keep: bool = False) -> IndexSettings:
        """What was being built answers from now on; with `keep`, what answered before stays where it is."""
        assert self.building is not None
        before = [model for model in (*self.replaced, self.current.model) if model != self.building.model]
        return msgspec.structs.replace(
            self,
            current=self.building,
            building=None,
            replaced=tuple(dict.fromkeys(before)),
            emptying=self.emptying if keep else (*self.emptying, self.current.model),
        )

    def given_up(self) -> IndexSettings:
        """Without what was being built."""
        if self.building is None:
            return self
        return msgspec.structs.replace(self, building=None, emptying=(*self.emptying, self.building.model))


# Made here and not at first use: msgspec crashes when two threads describe one type to it at the same time.
_DECODER: Final = msgspec.json.Decoder(IndexSettings)


def remembered(endpoint: str) -> str | None:
    """An address as it may be stored: one that carries a password is not."""
    return None if "@" in endpoint else endpoint


def settings_rows(*indexes: IndexSettings) -> pa.Table:
    """The rows to upsert into `SETTINGS`."""
    names = [_row_id(settings.tenant, settings.index) for settings in indexes]
    return record_rows(names, [msgspec.json.encode(settings) for settings in indexes])


async def list_settings(collection: CollectionReader) -> dict[tuple[str, str], IndexSettings]:
    """The settings of all indexes, by tenant and index."""
    pages = [page async for page in collection.scan(columns=["attributes"])]
    found = [_decoded(record) for page in pages for record in records_of(page)]
    return {(settings.tenant, settings.index): settings for settings in found}


async def read_settings(reader: VectorReader, tenant: str, index: str) -> IndexSettings | None:
    """The settings of one index, or None when it has none yet."""
    try:
        collection = await reader.collection(SETTINGS.tenant, SETTINGS.index, SETTINGS.model)
        rows: Iterable[str] = records_of(await collection.get([_row_id(tenant, index)], ["attributes"]))
    except NotFound:
        return None
    return next(map(_decoded, rows), None)


def _row_id(tenant: str, index: str) -> str:
    return hashlib.sha256(json.dumps([tenant, index]).encode()).hexdigest()


def _decoded(record: str) -> IndexSettings:
    try:
        return _DECODER.decode(record)
    except UNDECODABLE as error:
        raise Corrupt("the settings of an index cannot be read", str(error)) from error
