"""What embedding models accept and cost: the table that sizes chunks and batches.

Limits are the providers' published ones; `headroom` keeps requests below them, because a provider counts tokens with a
tokenizer of its own. A model that is not listed needs a profile of its own: guessing its limits would mean texts that
are cut off without a word, which is never allowed. Dimensions are the models' defaults. Prices are dollars a million
tokens as of November 2026, and go out of date: override them with `msgspec.structs.replace`. Vertex bills characters,
four of which are taken for a token; Cohere no longer lists a price for its third version, and its last one stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec

from penstock.documents.batcher_state import BatcherLimits
from penstock.documents.chunker import ChunkingConfig
from penstock.errors import InvalidInput

__all__ = [
    "EMBEDDED_MODEL",
    "FIRST_EMBEDDED_MODEL",
    "MINILM_MODEL",
    "PROFILES",
    "ModelProfile",
    "VectorType",
    "bare_name",
    "profile_of",
]

EMBEDDED_MODEL: Final = "penstock-static-256-v2"
# Of releases before; indexes that are made with it keep it.
FIRST_EMBEDDED_MODEL: Final = "penstock-static-256"
# A transformer in this process, with the extra `minilm`.
MINILM_MODEL: Final = "all-MiniLM-L6-v2"
# No published limit: a bound of our own, so that no request grows without one.
_UNPUBLISHED_TOKENS: Final = 100_000
# A dollar a token; more is a slip.
PRICE_MAX: Final = 1e6
_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})
VectorType: TypeAlias = Literal["float", "int8"]


class ModelProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One model: tokens a request, inputs a request, tokens an input, and its price."""

    name: str
    tokens_per_request: int
    items_per_request: int
    tokens_per_input: int
    dimensions: int
    usd_per_million_tokens: float = 0.0
    headroom: float = 0.9
    # OpenAI also refuses requests over this many bytes / 4, whatever their tokens.
    bytes_per_request: int | None = None
    # How much its vectors count beside the words of a text in a search by both, from 0 to 1. A weak model with an equal
    # say makes answers worse than words alone.
    vector_weight: float = 0.5
    # What the model answers, where only the first `dimensions` numbers of each vector are kept; None keeps all.
    model_dimensions: int | None = None
    # How the endpoint is to write numbers: `int8` asks it for bytes (`output_dtype`), which are shorter on the way.
    vector_type: VectorType = "float"

    def __post_init__(self) -> None:
        # Also no number, which no comparison holds for: a cost that is none could not be read back.
        if not 0 <= self.usd_per_million_tokens <= PRICE_MAX:
            raise InvalidInput(
                f"the profile of {self.name} cannot be used",
                f"a price of {self.usd_per_million_tokens:g} dollars per million tokens is not possible",
                f"give a price from 0 to {PRICE_MAX:g}",
            )
        if self.model_dimensions is not None and self.model_dimensions < self.dimensions:
            raise InvalidInput(
                f"the profile of {self.name} cannot be used",
                f"vectors of {self.model_dimensions} numbers cannot be cut to {self.dimensions}",
                "give dimensions that are fewer than model_dimensions",
            )

    def cost_usd(self, tokens: int) -> float:
        return tokens * self.usd_per_million_tokens / 1_000_000

    def batcher_limits(self, wanted: Mapping[str, int] = _NOTHING, *, chunk_tokens_max: int = 1) -> BatcherLimits:
        """A batcher that never makes a request this model refuses.

        `wanted` are fields of `BatcherLimits`; they lower what the model takes, and never below one chunk.
        """
        tokens, one = int(self.tokens_per_request * self.headroom), int(self.tokens_per_input * self.headroom)
        most = min(tokens, max(chunk_tokens_max, wanted.get("max_tokens_per_batch", tokens)))
        items = wanted.get("max_items_per_batch", BatcherLimits().max_items_per_batch)
        bounds = {
            **wanted,
            "max_tokens_per_batch": most,
            "max_items_per_batch": min(items, self.items_per_request),
            "max_tokens_per_input": min(most, one, max(chunk_tokens_max, wanted.get("max_tokens_per_input", one))),
        }
        return BatcherLimits(**bounds)

    def chunking(self, wanted: ChunkingConfig | None = None) -> ChunkingConfig:
        """`wanted`, made smaller in proportion when the model takes less at once."""
        wanted = wanted or ChunkingConfig()
        limit = min(int(self.tokens_per_input * self.headroom), int(self.tokens_per_request * self.headroom))
        if wanted.max_tokens <= limit:
            return wanted
        scale = limit / wanted.max_tokens
        return ChunkingConfig(
            target_tokens=int(wanted.target_tokens * scale),
            max_tokens=limit,
            overlap_tokens=int(wanted.overlap_tokens * scale),
            counter=wanted.counter,
            cell_bytes=wanted.cell_bytes,
        )


def _openai(name: str, dimensions: int, price: float) -> ModelProfile:
    return ModelProfile(
        name=name,
        tokens_per_request=300_000,
        items_per_request=2048,
        tokens_per_input=8192,
        dimensions=dimensions,
        usd_per_million_tokens=price,
        bytes_per_request=1_200_000,
    )


def _model(
    name: str, tokens_per_request: int, items: int, tokens_per_input: int, dimensions: int, price: float = 0.0
) -> ModelProfile:
    return ModelProfile(
        name=name,
        tokens_per_request=tokens_per_request,
        items_per_request=items,
        tokens_per_input=tokens_per_input,
        dimensions=dimensions,
        usd_per_million_tokens=price,
    )


PROFILES: Final = {
    profile.name: profile
    for profile in (
        # Any length is taken: the embedded model averages, and cuts nothing off.
        msgspec.structs.replace(_model(EMBEDDED_MODEL, 1_000_000, 256, 1_000_000, 256), vector_weight=0.35),
        msgspec.structs.replace(_model(FIRST_EMBEDDED_MODEL, 1_000_000, 256, 1_000_000, 256), vector_weight=0.05),
        # It reads long texts window by window.
        msgspec.structs.replace(_model(MINILM_MODEL, 100_000, 64, 100_000, 384), vector_weight=0.5),
        _openai("text-embedding-3-small", 1536, 0.02),
        _openai("text-embedding-3-large", 3072, 0.13),
        _model("embed-english-v3.0", _UNPUBLISHED_TOKENS, 96, 512, 1024, 0.10),
        _model("embed-multilingual-v3.0", _UNPUBLISHED_TOKENS, 96, 512, 1024, 0.10),
        _model("embed-v4.0", 128_000, 96, 128_000, 1536, 0.12),
        _model("voyage-3.5", 320_000, 128, 32_000, 1024, 0.06),
        _model("voyage-3.5-lite", 1_000_000, 128, 32_000, 1024, 0.02),
        _model("text-embedding-005", 20_000, 250, 2048, 768, 0.10),
        _model("gemini-embedding-001", 20_000, 1, 2048, 3072, 0.15),
        _model("amazon.titan-embed-text-v2:0", 8192, 1, 8192, 1024, 0.02),
        _model("mistral-embed", 16_384, 512, 8192, 1024, 0.10),
        _model("BAAI/bge-small-en-v1.5", 16_384, 32, 512, 384),
    )
}


def bare_name(model: str) -> str:
    """A model's name as its endpoint knows it: `provider:model` without the provider, where the model is one of ours.

    A colon alone says nothing: versions and tags have one too (`amazon.titan-embed-text-v2:0`, `nomic-embed-text:v1.5`).
    """
    rest = model.partition(":")[2]
    return rest if model not in PROFILES and rest in PROFILES else model


def profile_of(model: str) -> ModelProfile:
    """The profile of a model, by its name or by `provider:model`."""
    found = PROFILES.get(bare_name(model))
    if found is None:
        raise InvalidInput(
            f"no profile of model {model!r}",
            "its limits are not known, and texts would be cut off silently",
            "give a ModelProfile with its limits",
        )
    return found
