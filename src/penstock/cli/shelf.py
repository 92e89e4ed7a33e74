"""What `penstock index` is about: the places a person named, the index that is made of them, and the job for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.cli.entries import read_entries
from penstock.cli.left_out import LeftOut, files_left_out
from penstock.cli.listing import Listing, compare
from penstock.cli.looking import list_places
from penstock.cli.places import Place, are_exhaustive, place_of, with_account
from penstock.cli.providers import Provider
from penstock.cli.running import JobPlan
from penstock.cli.targets import Target, embedding_for, find_target
from penstock.cli.unreadable import UnreadableFolders
from penstock.documents import ChunkingConfig, Notification, UploadNotification
from penstock.documents.contracts import Chunking
from penstock.errors import InvalidInput
from penstock.objects.url import parse_url
from penstock.pipelines.reading import Reading
from penstock.pipelines.reindexing import Wish, cut_wished

__all__ = ["Order", "Shelf"]


@dataclass(frozen=True)
class Order:
    """What a person has asked for that holds whatever the index is made with."""

    places: Sequence[str]
    url: str
    tenant: str
    index: str
    buckets: Mapping[str, str]
    master: str
    allowed: Sequence[str] = ()
    azure_account: str | None = None

    def again(self, before: Shelf) -> Shelf:
        """As a rebuild has left it. A key goes nowhere but to the address it was given for."""
        target = asyncio.run(find_target(self.url, self.tenant, self.index, None))
        asked = before.plan.embedding.endpoint_of(before.target.name.model)
        key = asked.api_key if asked and asked.url == target.endpoint else None
        embedding = before.plan.embedding
        provider = Provider(key=key, rate=embedding.rate, keys=embedding.keys)
        return self.laid_out(Wish(), provider, before.places)

    def as_left(self, before: Shelf) -> Shelf:
        """The same as long as the index is made with what it was; while a rebuild was awaited that may have changed."""
        made, now = before.target.settings, asyncio.run(find_target(self.url, self.tenant, self.index, None)).settings
        return before if now is None or (made and made.builds == now.builds) else self.again(before)

    def laid_out(self, wish: Wish, provider: Provider, places: Sequence[Place] | None = None) -> Shelf:
        """With the index as it is now. `places` that were found before need not be there any more."""
        target = asyncio.run(find_target(self.url, self.tenant, self.index, wish.model))
        target.check_model()
        chunking = _chunking(target, wish)
        embedding = embedding_for(target, provider)
        fingerprint = embedding.chunking_of(target.name.model, chunking).fingerprint
        # For this index alone: the job may meet the first event of somebody else's.
        cuts = {(self.tenant, self.index): chunking}
        if places is None:
            places = [place_of(place, self.buckets, self.azure_account) for place in self.places]
        plan = JobPlan(self.url, self.master, embedding, self._reading(places), cuts)
        return Shelf(places, target, chunking, fingerprint, plan)

    def _reading(self, places: Sequence[Place]) -> Reading:
        """Of what was named here, and of nothing else that events name."""
        named = [place.url for place in places if place.bucket not in self.buckets]
        allowed = [with_account(url, self.azure_account) for url in self.allowed]
        return Reading(buckets=self.buckets, places=(*named, *allowed), places_only=are_exhaustive(allowed))


@dataclass(frozen=True)
class Shelf:
    """Places, the index that is made of them, and the job that makes it."""

    places: Sequence[Place]
    target: Target
    chunking: ChunkingConfig
    fingerprint: str
    plan: JobPlan

    @property
    def url(self) -> str:
        return self.plan.url

    async def look(self, *, first: bool = False) -> Listing:
        # Before the listing: an object that is made and indexed in between would else be known, and missing from it.
        known = await read_entries(self.url, self.target.name) if self.places else []
        unreadable, url_of = UnreadableFolders(), self.plan.reading.url_of
        found = await list_places(self.places, self.plan.reading, self.url, unreadable)
        listing = compare(self.target.name, found.objects, known, self.fingerprint, named=first, url_of=url_of)
        listing.failures = found.failures
        listing.events = unreadable.without_deletions(listing.events, url_of)
        if self.target.settings is None:
            # Whichever job meets the first of them makes the index.
            listing.events = [_wishing(event, self.chunking) for event in listing.events]
        return listing

    def left_out(self) -> list[LeftOut]:
        """What lies in the folders among the places and cannot be indexed."""
        own = _folder(self.url)
        folders = [_folder(self.plan.reading.spec_of(place.bucket).url) for place in self.places if place.key is None]
        return [each for folder in folders if folder for each in files_left_out(folder, own)]


def _wishing(event: Notification, chunking: ChunkingConfig) -> Notification:
    if not isinstance(event, UploadNotification):
        return event
    wanted = Chunking(
        target_tokens=chunking.target_tokens, max_tokens=chunking.max_tokens, overlap_tokens=chunking.overlap_tokens
    )
    return msgspec.structs.replace(event, chunking=wanted)


def _chunking(target: Target, wish: Wish) -> ChunkingConfig:
    """That of the index; for a new one, what is wished for."""
    cut = cut_wished(target.cut(), wish)
    if target.settings is not None and cut != target.cut():
        raise InvalidInput(
            f"index {target.name.index} is cut in another way",
            f"it has {target.cut().target_tokens} tokens a chunk and {target.cut().overlap_tokens} of overlap",
            "`penstock reindex` changes it",
        )
    return cut.chunking(ChunkingConfig())


def _folder(url: str) -> Path | None:
    """The directory of a store that is one."""
    place = parse_url(url)
    return Path(place.place).resolve() if place.scheme == "file" else None
