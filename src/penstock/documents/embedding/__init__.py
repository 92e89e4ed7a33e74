"""Embedding: providers, model profiles, and the dispatch that paces, repeats, splits, caches and counts."""

from penstock.documents.embedding.cache import EmbeddingCache, MemoryCache, NoCache
from penstock.documents.embedding.dispatch import Dispatcher, DispatchPolicy, Embedded, FailedChunk
from penstock.documents.embedding.pace import Allowance, Pace, RateLimit
from penstock.documents.embedding.profiles import EMBEDDED_MODEL, PROFILES, ModelProfile, profile_of
from penstock.documents.embedding.provider import EmbeddingProvider, Later, Vectors
from penstock.documents.embedding.remote import REQUEST_SECONDS_MAX, OpenAiProvider
from penstock.documents.embedding.static import StaticProvider

__all__ = [
    "EMBEDDED_MODEL",
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
    "StaticProvider",
    "Vectors",
    "profile_of",
]
