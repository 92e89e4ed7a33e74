"""Embedding: providers, model profiles, and the dispatch that paces, repeats, splits, caches and counts."""

from penstock.documents.embedding.cache import EmbeddingCache, MemoryCache, NoCache
from penstock.documents.embedding.dispatch import Dispatcher, DispatchPolicy, Embedded, FailedChunk
from penstock.documents.embedding.local import EMBEDDED_MODELS, LOCAL_MODELS, check_local, local_provider
from penstock.documents.embedding.pace import Allowance, Pace, RateLimit
from penstock.documents.embedding.profiles import EMBEDDED_MODEL, MINILM_MODEL, PROFILES, ModelProfile, profile_of
from penstock.documents.embedding.provider import EmbeddingProvider, Later, Refused, Vectors
from penstock.documents.embedding.remote import REQUEST_SECONDS_MAX, OpenAiProvider
from penstock.documents.embedding.reranker import RemoteReranker, Reranker, Scores
from penstock.documents.embedding.shortened import ShortenedProvider
from penstock.documents.embedding.static import StaticProvider

__all__ = [
    "EMBEDDED_MODEL",
    "EMBEDDED_MODELS",
    "LOCAL_MODELS",
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
    "Vectors",
    "check_local",
    "local_provider",
    "profile_of",
]
