"""Similarity and full-text search over block-valued indexes: one writer, many followers, answers of one moment.

Names are imported on first use: a search loads nothing that writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.vector.attributes import AttributeType, Scalar
    from penstock.vector.collection import Changes, Collection, CollectionReader
    from penstock.vector.config import VectorConfig
    from penstock.vector.filter import And, Attribute, Filter, In, IsNull, Not, Or, Range, attribute
    from penstock.vector.follower import VectorReader
    from penstock.vector.format.analysis import TextAnalysis
    from penstock.vector.format.folding import fold_word
    from penstock.vector.format.keys import CollectionName
    from penstock.vector.format.metric import DistanceMetric
    from penstock.vector.language_codes import content_words, guess_language
    from penstock.vector.read.facets import FacetCounts, facet_of
    from penstock.vector.read.stats import CollectionStats
    from penstock.vector.search.fusion import Fusion
    from penstock.vector.search.search import ALL_LISTS, partial_blocks
    from penstock.vector.store import VectorStore
    from penstock.vector.upkeep.repair import RepairReport
    from penstock.vector.upkeep.verify import VerifyReport, unreadable

__all__ = [
    "ALL_LISTS",
    "And",
    "Attribute",
    "AttributeType",
    "Changes",
    "Collection",
    "CollectionName",
    "CollectionReader",
    "CollectionStats",
    "DistanceMetric",
    "FacetCounts",
    "Filter",
    "Fusion",
    "In",
    "IsNull",
    "Not",
    "Or",
    "Range",
    "RepairReport",
    "Scalar",
    "TextAnalysis",
    "VectorConfig",
    "VectorReader",
    "VectorStore",
    "VerifyReport",
    "attribute",
    "content_words",
    "facet_of",
    "fold_word",
    "guess_language",
    "partial_blocks",
    "unreadable",
]

__getattr__ = lazy_names(
    __name__,
    {
        "attributes": (
            "AttributeType",
            "Scalar",
        ),
        "collection": (
            "Changes",
            "Collection",
            "CollectionReader",
        ),
        "config": ("VectorConfig",),
        "filter": (
            "And",
            "Attribute",
            "Filter",
            "In",
            "IsNull",
            "Not",
            "Or",
            "Range",
            "attribute",
        ),
        "follower": ("VectorReader",),
        "format.analysis": ("TextAnalysis",),
        "format.folding": ("fold_word",),
        "format.keys": ("CollectionName",),
        "format.metric": ("DistanceMetric",),
        "language_codes": (
            "content_words",
            "guess_language",
        ),
        "read.facets": (
            "FacetCounts",
            "facet_of",
        ),
        "read.stats": ("CollectionStats",),
        "search.fusion": ("Fusion",),
        "search.search": (
            "ALL_LISTS",
            "partial_blocks",
        ),
        "store": ("VectorStore",),
        "upkeep.repair": ("RepairReport",),
        "upkeep.verify": (
            "VerifyReport",
            "unreadable",
        ),
    },
)
