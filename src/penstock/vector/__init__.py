"""Similarity and full-text search over block-valued indexes: one writer, many followers, answers of one moment."""

from penstock.vector.attributes import AttributeType
from penstock.vector.collection import Changes, Collection, CollectionReader
from penstock.vector.config import VectorConfig
from penstock.vector.filter import And, Attribute, Filter, In, Not, Or, Range, attribute
from penstock.vector.follower import VectorReader
from penstock.vector.fusion import Fusion
from penstock.vector.keys import CollectionName
from penstock.vector.metric import Metric
from penstock.vector.repair import RepairReport
from penstock.vector.search import ALL_LISTS, partial_blocks
from penstock.vector.stats import CollectionStats
from penstock.vector.store import VectorStore
from penstock.vector.terms import TextAnalysis
from penstock.vector.verify import VerifyReport

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
    "Filter",
    "Fusion",
    "In",
    "Metric",
    "Not",
    "Or",
    "Range",
    "RepairReport",
    "TextAnalysis",
    "VectorConfig",
    "VectorReader",
    "VectorStore",
    "VerifyReport",
    "attribute",
    "partial_blocks",
]
