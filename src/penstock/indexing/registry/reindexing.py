"""What a change of an index's model or chunking asks for, and what is left to do of it. Pure.

Another chunking makes every document anew in the same collection: each new version is written hidden and takes over
when it is whole. Another model builds a second collection from the documents of the first, which answers until all of
them are in the second; then the settings of the index name the second. What is left to do is always told from what is
stored, never remembered: a run that was killed is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from penstock.documents import ChunkingConfig, DocumentStatus
from penstock.documents.embedding import PROFILES, ModelProfile
from penstock.errors import Conflict, InvalidInput
from penstock.indexing.registry.entries import DocumentEntry
from penstock.indexing.registry.settings import Build, Cut, IndexSettings

__all__ = ["Remainder", "Wish", "changed", "cut_wished", "rebuilding", "recutting"]


@dataclass(frozen=True, slots=True)
class Wish:
    """The requested settings of an index; None keeps the current one."""

    model: str | None = None
    endpoint: str | None = None
    target_tokens: int | None = None
    max_tokens: int | None = None
    overlap_tokens: int | None = None
    # Of the model; None where it is known, or stays as it is.
    profile: ModelProfile | None = None


@dataclass(slots=True)
class Remainder:
    """What is left to do before a rebuilt index may take over."""

    # Documents that are to be read for it.
    wanted: list[DocumentEntry] = field(default_factory=list)
    # Of the new collection: documents that the old one no longer has.
    surplus: list[DocumentEntry] = field(default_factory=list)
    # Of the old collection: taken out by a person, which the new one does not know.
    forgotten: list[DocumentEntry] = field(default_factory=list)
    # Searchable in the old collection, and not to be had for the new one.
    lost: list[DocumentEntry] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return not (self.wanted or self.surplus or self.forgotten or self.lost)


def changed(settings: IndexSettings, wish: Wish) -> IndexSettings:
    """The settings that a wish asks for. `Conflict` while another one is being fulfilled."""
    if settings.building is not None:
        return _continued(settings, wish)
    before = settings.current
    model = wish.model or before.model
    endpoint = wish.endpoint or (before.endpoint if model == before.model else None)
    profile = wish.profile or (before.profile if model == before.model else None)
    build = Build(model=model, cut=cut_wished(before.cut, wish), endpoint=endpoint, profile=profile)
    if model == before.model:
        _check_dimensions(settings, profile)
        return msgspec.structs.replace(settings, current=build)
    return msgspec.structs.replace(settings, building=build)


def cut_wished(cut: Cut, wish: Wish) -> Cut:
    """A chunking with the requested sizes; a larger target raises the maximum too."""
    target = wish.target_tokens or cut.target_tokens
    in_proportion = cut.max_tokens if target == cut.target_tokens else target * cut.max_tokens // cut.target_tokens
    overlap = cut.overlap_tokens if wish.overlap_tokens is None else wish.overlap_tokens
    maximum = wish.max_tokens or max(in_proportion, target + overlap)
    made = msgspec.structs.replace(cut, target_tokens=target, max_tokens=maximum, overlap_tokens=overlap)
    made.chunking(ChunkingConfig())  # refuses what is not possible
    return made


def rebuilding(old: Mapping[str, DocumentEntry], new: Mapping[str, DocumentEntry], fingerprint: str) -> Remainder:
    """What remains of building one collection from another, once nothing is pending. Entries are by objectKey."""
    remainder = Remainder()
    for key, entry in old.items():
        if not entry.state.tombstone and not _is_built(entry, new.get(key), fingerprint):
            tried = _was_tried(entry, new.get(key))
            (remainder.lost if tried else remainder.wanted).append(entry)
        if entry.forgotten and not (key in new and new[key].forgotten == entry.forgotten):
            remainder.forgotten.append(entry)
    remainder.surplus = [
        entry
        for key, entry in new.items()
        if not entry.state.tombstone and (key not in old or (old[key].state.tombstone and not old[key].forgotten))
    ]
    return remainder


def recutting(entries: Iterable[DocumentEntry], fingerprint: str) -> list[DocumentEntry]:
    """The documents whose searchable version has another chunking and is not being rebuilt."""
    return [entry for entry in entries if entry.current and not entry.pending and entry.fingerprint != fingerprint]


def _continued(settings: IndexSettings, wish: Wish) -> IndexSettings:
    building = settings.building
    assert building is not None
    same = (
        wish.model in (None, building.model)
        and wish.endpoint in (None, building.endpoint)
        and wish.profile in (None, building.profile)
        and cut_wished(building.cut, wish) == building.cut
    )
    if same:
        return settings
    raise Conflict(
        f"index {settings.index} is being rebuilt with model {building.model}",
        "one change is made at a time",
        "finish it with `penstock reindex`, or end it with `penstock reindex --cancel`",
    )


def _check_dimensions(settings: IndexSettings, profile: ModelProfile | None) -> None:
    """Vectors of two lengths cannot be compared, and one collection holds those of one model."""
    before = settings.current.profile or PROFILES.get(settings.current.model)
    if profile and before and profile.dimensions != before.dimensions:
        raise InvalidInput(
            f"model {profile.name} has {before.dimensions} dimensions in index {settings.index}",
            f"they cannot become {profile.dimensions} under the same name",
            "give the new dimensions their own name with --model",
        )


def _is_built(old: DocumentEntry, new: DocumentEntry | None, fingerprint: str) -> bool:
    if new is None:
        return False
    if old.current is None:
        # It cannot be searched in the old one either.
        return True
    return new.current == old.current and new.fingerprint == fingerprint


def _was_tried(old: DocumentEntry, new: DocumentEntry | None) -> bool:
    """Whether the new collection has given this very version up."""
    if new is None or new.report is None:
        return False
    return new.report.status is DocumentStatus.QUARANTINED and new.report.doc_id == old.current
