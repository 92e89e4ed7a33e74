"""Embedding: providers, model profiles, and the dispatch that paces, repeats, splits, caches and counts.

Names are imported on first use: a built-in model sends no requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.documents.embedding.cache import EmbeddingCache, MemoryCache, NoCache
    from penstock.documents.embedding.dispatch import Dispatcher, DispatchPolicy, Embedded, FailedChunk
    from penstock.documents.embedding.http_answers import check_address
    from penstock.documents.embedding.local import EMBEDDED_MODELS, LOCAL_MODELS, check_local, local_provider
    from penstock.documents.embedding.pace import Allowance, Pace, RateLimit
    from penstock.documents.embedding.profiles import (
        EMBEDDED_MODEL,
        MINILM_MODEL,
        PROFILES,
        ModelProfile,
        VectorType,
        profile_of,
    )
    from penstock.documents.embedding.provider import MAGNITUDE_MAX, EmbeddingProvider, Later, Refused, Vectors
    from penstock.documents.embedding.remote import REQUEST_SECONDS_MAX, OpenAiProvider
    from penstock.documents.embedding.reranker import RemoteReranker, Reranker, Scores
    from penstock.documents.embedding.shortened import ShortenedProvider
    from penstock.documents.embedding.static import StaticProvider

__all__ = [
    "EMBEDDED_MODEL",
    "EMBEDDED_MODELS",
    "LOCAL_MODELS",
    "MAGNITUDE_MAX",
    "MINILM_MODEL",
    "PROFILES",
    "REQUEST_SECONDS_MAX",
    "Allowance",
    "DispatchPolicy",
    "Dispatcher",
    "Embedded",
    "EmbeddingCache",
    "EmbeddingProvider",
    "FailedChunk",
    "Later",
    "MemoryCache",
    "ModelProfile",
    "NoCache",
    "OpenAiProvider",
    "Pace",
    "RateLimit",
    "Refused",
    "RemoteReranker",
    "Reranker",
    "Scores",
    "ShortenedProvider",
    "StaticProvider",
    "VectorType",
    "Vectors",
    "check_address",
    "check_local",
    "local_provider",
    "profile_of",
]

__getattr__ = lazy_names(
    __name__,
    {
        "cache": (
            "EmbeddingCache",
            "MemoryCache",
            "NoCache",
        ),
        "dispatch": (
            "Dispatcher",
            "DispatchPolicy",
            "Embedded",
            "FailedChunk",
        ),
        "http_answers": ("check_address",),
        "local": (
            "EMBEDDED_MODELS",
            "LOCAL_MODELS",
            "check_local",
            "local_provider",
        ),
        "pace": (
            "Allowance",
            "Pace",
            "RateLimit",
        ),
        "profiles": (
            "EMBEDDED_MODEL",
            "MINILM_MODEL",
            "PROFILES",
            "ModelProfile",
            "VectorType",
            "profile_of",
        ),
        "provider": (
            "MAGNITUDE_MAX",
            "EmbeddingProvider",
            "Later",
            "Refused",
            "Vectors",
        ),
        "remote": (
            "REQUEST_SECONDS_MAX",
            "OpenAiProvider",
        ),
        "reranker": (
            "RemoteReranker",
            "Reranker",
            "Scores",
        ),
        "shortened": ("ShortenedProvider",),
        "static": ("StaticProvider",),
    },
)
