"""What `penstock index` is about: the places a person named, the index that is made of them, and the job for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.cli.running.job import JobPlan, StageEngine
from penstock.cli.settings.wiring import UNWIRED, Wiring
from penstock.documents import Chunking, ChunkingConfig, Notification, UploadNotification
from penstock.errors import InvalidInput
from penstock.indexing import (
    EmbeddingBudget,
    LeftOut,
    Listing,
    Place,
    Provider,
    Reading,
    Target,
    UnreadableFolders,
    Wish,
    are_exhaustive,
    compare,
    cut_wished,
    embedding_for,
    files_left_out,
    find_target,
    list_places,
    place_of,
    read_entries,
    with_account,
)
from penstock.objects import parse_url

__all__ = ["IndexPlace", "Order"]


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
    engine: StageEngine = StageEngine.SPARK
    wiring: Wiring = UNWIRED
    budget: EmbeddingBudget | None = None

    def again(self, before: IndexPlace) -> IndexPlace:
        """As a rebuild has left it. A key goes nowhere but to the address it was given for."""
        target = self._target(None)
        asked = before.plan.embedding.endpoint_of(before.target.name.model, (self.tenant, self.index))
        key = asked.api_key if asked and asked.url == target.endpoint else None
        embedding = before.plan.embedding
        provider = Provider(key=key, rate=embedding.rate, keys=embedding.keys)
        return self.laid_out(Wish(), provider, before.places)

    def as_left(self, before: IndexPlace) -> IndexPlace:
        """The same as long as the index is made with what it was; while a rebuild was awaited that may have changed."""
        made, now = before.target.settings, self._target(None).settings
        return before if now is None or (made and made.builds == now.builds) else self.again(before)

    def laid_out(self, wish: Wish, provider: Provider, places: Sequence[Place] | None = None) -> IndexPlace:
        """With the index as it is now. `places` that were found before need not be there any more."""
        target = self._target(wish.model)
        target.check_model()
        wanted = self.wiring.settings.of(ChunkingConfig)
        chunking = _chunking(target, wish, wanted)
        embedding = self.wiring.embedding(embedding_for(target, provider))
        fingerprint = embedding.chunking_of(target.name.model, chunking, (self.tenant, self.index)).fingerprint
        # For this index alone: the job may meet the first event of somebody else's.
        cuts = {(self.tenant, self.index): chunking}
        if places is None:
            places = [place_of(place, self.buckets, self.azure_account) for place in self.places]
        reading, engine = self._reading(places), self.engine
        plan = JobPlan(self.url, self.master, embedding, reading, cuts, wanted, engine, self.wiring, self.budget)
        return IndexPlace(places, target, chunking, fingerprint, plan)

    def _reading(self, places: Sequence[Place]) -> Reading:
        """Of what was named here, and of nothing else that events name."""
        named = [place.url for place in places if place.bucket not in self.buckets]
        allowed = [with_account(url, self.azure_account) for url in self.allowed]
        only = are_exhaustive(allowed)
        return self.wiring.reading(buckets=self.buckets, places=(*named, *allowed), places_only=only)

    def _target(self, model: str | None) -> Target:
        return asyncio.run(find_target(self.url, self.tenant, self.index, model, self.wiring))


@dataclass(frozen=True)
class IndexPlace:
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
        known = await read_entries(self.url, self.target.name, self.plan.wiring) if self.places else []
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


def _chunking(target: Target, wish: Wish, wanted: ChunkingConfig) -> ChunkingConfig:
    """That of the index; for a new one, what is wished for, and else what is `wanted` of every new one."""
    made = target.cut(wanted)
    cut = cut_wished(made, wish)
    if target.settings is not None and cut != made:
        raise InvalidInput(
            f"index {target.name.index} has another chunk size",
            f"its chunks have {made.target_tokens} tokens, and {made.overlap_tokens} of overlap",
            "`penstock reindex` changes it",
        )
    return cut.chunking(wanted)


def _folder(url: str) -> Path | None:
    """The directory of a store that is one."""
    place = parse_url(url)
    return Path(place.place).resolve() if place.scheme == "file" else None
