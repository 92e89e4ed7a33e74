"""Which collection a command is about: the one that answers for an index, or one whose model a person named."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from penstock.documents import ChunkingConfig
from penstock.documents.embedding import EMBEDDED_MODEL, PROFILES, ModelProfile, check_address, check_local
from penstock.errors import InvalidInput, NotFound
from penstock.indexing.registry.entries import check_names
from penstock.indexing.registry.settings import Cut, IndexSettings, read_settings, remembered
from penstock.indexing.search.doors import PLAIN_DOORS, StoreDoors
from penstock.indexing.search.providers import Description, Provider
from penstock.indexing.stages.embedding import Embedding, Endpoint, OwnModel
from penstock.vector import CollectionName, VectorReader

__all__ = ["Target", "check_endpoint", "embedding_for", "find_target", "target_in"]


@dataclass(frozen=True, slots=True)
class Target:
    """A collection, and the settings of its index; None before its first event."""

    name: CollectionName
    settings: IndexSettings | None = None

    @property
    def endpoint(self) -> str | None:
        """Where its model is asked, as far as the index remembers."""
        builds = self.settings.builds if self.settings else ()
        return next((build.endpoint for build in builds if build.model == self.name.model), None)

    @property
    def profile(self) -> ModelProfile | None:
        """What the index remembers of its model, where that was described."""
        builds = self.settings.builds if self.settings else ()
        return next((build.profile for build in builds if build.model == self.name.model), None)

    def described(self, description: Description) -> ModelProfile | None:
        """What a person says of the model. An index that is made keeps to what it was made with."""
        if not description:
            return self.profile
        said = description.profile(self.name.model, self.profile)
        made = self.profile or PROFILES.get(self.name.model)
        if self.settings is not None and made and _lasting(made) != _lasting(said):
            raise InvalidInput(
                f"index {self.name.index} was created with another profile of {self.name.model}",
                f"vectors of {made.dimensions} numbers, {made.tokens_per_input} tokens a text",
                "omit the options: the index remembers them; `penstock reindex` changes the model",
            )
        return said

    def cut(self, wanted: ChunkingConfig) -> Cut:
        """As the index is made; a new one as is `wanted`."""
        return self.settings.cut_of(self.name.model) if self.settings else Cut.of(wanted)

    def check_model(self) -> None:
        """Refuse to write with a model that the index is not made with."""
        if self.settings is not None and self.name.model not in [build.model for build in self.settings.builds]:
            raise InvalidInput(
                f"index {self.name.index} was not created with model {self.name.model}",
                f"it was created with {self.settings.current.model}",
                f"`penstock reindex --model {self.name.model}` changes it",
            )


def _lasting(profile: ModelProfile) -> ModelProfile:
    """What an index cannot change without being made anew: neither the price nor the weight in searches."""
    return msgspec.structs.replace(profile, usd_per_million_tokens=0.0, vector_weight=0.0)


async def find_target(url: str, tenant: str, index: str, model: str | None, doors: StoreDoors = PLAIN_DOORS) -> Target:
    """The collection at a store that may not be there yet."""
    try:
        async with await doors.reader(url) as reader:
            return await target_in(reader, tenant, index, model)
    except NotFound:
        return Target(_named(tenant, index, model or EMBEDDED_MODEL))


async def target_in(reader: VectorReader, tenant: str, index: str, model: str | None) -> Target:
    settings = await read_settings(reader, tenant, index)
    current = settings.current.model if settings else EMBEDDED_MODEL
    return Target(_named(tenant, index, model or current), settings)


def _named(tenant: str, index: str, model: str) -> CollectionName:
    name = CollectionName(tenant, index, model)
    check_names(name)
    return name


def embedding_for(target: Target, provider: Provider) -> Embedding:
    """Who embeds for a collection: the endpoint that is given, else the one that the index remembers."""
    name, asked = target.name, provider.url or target.endpoint
    profile = target.described(provider.description)
    if asked is not None:
        check_endpoint(asked)
    else:
        check_local(name.model, profile)
    # For this index alone: another one may ask a model of the same name elsewhere.
    own = OwnModel(None if asked is None else Endpoint(asked, provider.key), profile)
    return Embedding(own={(name.tenant, name.index, name.model): own}, rate=provider.rate, keys=provider.keys)


def check_endpoint(url: str) -> None:
    """Refuse an address that cannot be asked, or that must not be stored."""
    if remembered(url) is None:
        raise InvalidInput("the embedding endpoint cannot be used", "its address contains a password", "give it as key")
    if not url.startswith(("http://", "https://")):
        raise InvalidInput(
            f"the embedding endpoint {url} cannot be used", "it is not an HTTP address", "write https://host/v1"
        )
    check_address(f"the embedding endpoint {url} cannot be used", url)
