"""Who embeds, as somebody says it: an endpoint, its key, what its model takes and costs, and how often it may be asked.

A model that Penstock has no profile of must be described; nothing is guessed that could cut a text off. An index
remembers what its model was described with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec

from penstock.documents.embedding import PROFILES, ModelProfile, RateLimit, VectorType
from penstock.errors import InvalidInput

__all__ = ["Description", "Provider"]

Count = Annotated[int, msgspec.Meta(ge=1)]
Price = Annotated[float, msgspec.Meta(ge=0.0)]
Fraction = Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]

# What servers of open models take by default (Text Embeddings Inference): small enough for all the others.
_REQUEST_TOKENS: Final = 16_384
_REQUEST_ITEMS: Final = 32


class Description(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The description of a model; None keeps what is known."""

    dimensions: Count | None = None
    tokens_per_input: Count | None = None
    tokens_per_request: Count | None = None
    items_per_request: Count | None = None
    bytes_per_request: Count | None = None
    usd_per_million_tokens: Price | None = None
    headroom: Fraction | None = None
    vector_weight: Fraction | None = None
    model_dimensions: Count | None = None
    vector_type: VectorType | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in self._said().values())

    def profile(self, model: str, known: ModelProfile | None = None) -> ModelProfile:
        """The profile of a model: what is said, over what is known. `InvalidInput` when that is too little."""
        known = known or PROFILES.get(model)
        said = {name: value for name, value in self._said().items() if value is not None}
        if known is not None:
            return msgspec.structs.replace(known, **said)
        missing = [name for name in ("dimensions", "tokens_per_input") if name not in said]
        if missing:
            raise InvalidInput(
                f"model {model} is not described",
                f"its {' and '.join(missing)} are unknown",
                "give --dimensions and --input-tokens, or a --profile FILE",
            )
        least = {"tokens_per_request": max(_REQUEST_TOKENS, said["tokens_per_input"])}
        return ModelProfile(name=model, **{**least, "items_per_request": _REQUEST_ITEMS, **said})

    def over(self, other: Description) -> Description:
        """This where it says something, else the other."""
        said = {name: value for name, value in self._said().items() if value is not None}
        return msgspec.structs.replace(other, **said)

    def _said(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


@dataclass(frozen=True, slots=True)
class Provider:
    """All options of a provider; missing ones are None or empty."""

    url: str | None = None
    key: str | None = field(default=None, repr=False)
    description: Description = field(default_factory=Description)
    rate: RateLimit = field(default_factory=RateLimit)
    # By address, for the endpoints that the indexes of a store remember.
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
