"""Embedding: providers, model profiles, and the dispatch that paces, repeats, splits, caches and counts."""

from penstock.documents.embedding.cache import EmbeddingCache, MemoryCache
from penstock.documents.embedding.dispatch import DeadLetter, Dispatcher, DispatchPolicy, Embedded
from penstock.documents.embedding.pace import Pace, RateLimit
from penstock.documents.embedding.profiles import EMBEDDED_MODEL, PROFILES, ModelProfile, profile_of
from penstock.documents.embedding.provider import EmbeddingProvider
from penstock.documents.embedding.remote import OpenAiProvider
from penstock.documents.embedding.static import StaticProvider

__all__ = [
    "EMBEDDED_MODEL",
    "PROFILES",
    "DeadLetter",
    "DispatchPolicy",
    "Dispatcher",
    "Embedded",
    "EmbeddingCache",
    "EmbeddingProvider",
    "MemoryCache",
    "ModelProfile",
    "OpenAiProvider",
    "Pace",
    "RateLimit",
    "StaticProvider",
    "profile_of",
]
