"""Models that run in this process, by their names: they need no endpoint and no key."""

from __future__ import annotations

from typing import Final

from penstock.documents.embedding.profiles import EMBEDDED_MODEL, FIRST_EMBEDDED_MODEL, MINILM_MODEL, ModelProfile
from penstock.documents.embedding.provider import EmbeddingProvider
from penstock.documents.embedding.static import StaticProvider
from penstock.errors import InvalidInput, Unsupported

__all__ = ["EMBEDDED_MODELS", "LOCAL_MODELS", "check_local", "local_provider"]

# Those that ship with this package.
EMBEDDED_MODELS: Final = frozenset((EMBEDDED_MODEL, FIRST_EMBEDDED_MODEL))
LOCAL_MODELS: Final = EMBEDDED_MODELS | {MINILM_MODEL}


def local_provider(model: str) -> EmbeddingProvider:
    """The provider of a local model; `Unsupported` names what is not installed."""
    if model == MINILM_MODEL:
        # Its runtime takes as long to import as a search takes.
        from penstock.documents.embedding.minilm.provider import MiniLmProvider

        return MiniLmProvider()
    if model not in LOCAL_MODELS:
        raise InvalidInput(f"model {model!r} does not run here", "it has no endpoint", "give its URL")
    return StaticProvider(model)


def check_local(model: str, profile: ModelProfile | None = None) -> None:
    """Raise `Unsupported` before any work when a model's optional parts are not installed, or its profile asks too much."""
    if profile is not None and profile.vector_type != "float":
        raise Unsupported(
            f"model {model} cannot answer {profile.vector_type}",
            "it runs in this process, and bytes are asked of endpoints",
            "leave vector_type out of its profile, or give --embedding-url",
        )
    if model == MINILM_MODEL:
        from penstock.documents.embedding.minilm.encoder import check_installed

        check_installed()
