"""The settings of an indexing job, whichever engine runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.buffer import ConsumerConfig
from penstock.documents import ChunkingConfig
from penstock.errors import InvalidInput
from penstock.indexing.job.budget import EmbeddingBudget
from penstock.indexing.planning.plan import RoundLimits
from penstock.indexing.registry.entries import VECTOR_PATH
from penstock.indexing.stages.embedding import Embedding
from penstock.indexing.stages.reading import Reading
from penstock.keyvalue import KeyValueConfig
from penstock.objects import StoreSpec
from penstock.vector import VectorConfig

__all__ = ["IndexingConfig", "IntakeLimits"]


@dataclass(frozen=True, slots=True)
class IntakeLimits:
    """Limits of one micro-batch."""

    # Maximum batch objects of notifications in one micro-batch.
    batches_per_trigger: int = 100
    # Maximum bytes of batch objects in one micro-batch, as stored. A micro-batch takes at least one.
    bytes_per_trigger: int = 16 << 20

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} = {getattr(self, name)!r}", "it must be at least 1")


_INTAKE: Final = IntakeLimits()
# A job reads little of what it wrote: less than a searcher keeps is enough, and its memory stays for its rounds.
JOB_CACHE_BYTES: Final = 32 << 20
JOB_BLOCK_CACHE_BYTES_MAX: Final = 16 << 20
# Two of its largest writes: tables of 16 MB are sorted and written, each held twice meanwhile.
JOB_UNFLUSHED_BYTES_MAX: Final = 64 << 20
# A step of upkeep takes some six times what it reads.
JOB_UPKEEP_BYTES: Final = 8 << 20
_VECTOR: Final = VectorConfig(cache_bytes=JOB_CACHE_BYTES, upkeep_bytes=JOB_UPKEEP_BYTES)
_KEYVALUE: Final = KeyValueConfig(
    cache_bytes_max=JOB_BLOCK_CACHE_BYTES_MAX, unflushed_bytes_max=JOB_UNFLUSHED_BYTES_MAX
)


@dataclass(frozen=True)
class IndexingConfig:
    """One job: a store with the queue and the vectors, and how documents are read and embedded."""

    url: str
    # Of the Spark engine. None is a new one for every job, which its end removes: how far the queue was taken is in
    # the store.
    checkpoint: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    # How new indexes are cut, and into which cells all files are; an index that is made keeps to its own.
    chunking: ChunkingConfig = field(default_factory=ChunkingConfig)
    # The same for some new indexes, by tenant and index.
    chunking_by_index: Mapping[tuple[str, str], ChunkingConfig] = field(default_factory=dict)
    embedding: Embedding = field(default_factory=Embedding)
    reading: Reading = field(default_factory=Reading)
    rounds: RoundLimits = field(default_factory=RoundLimits)
    batches_per_trigger: int = _INTAKE.batches_per_trigger
    # Of batch objects as they are stored; a micro-batch takes one at least.
    bytes_per_trigger: int = _INTAKE.bytes_per_trigger
    vector_path: str = VECTOR_PATH
    # Fields of `BatcherLimits` that are wanted otherwise than the models' profiles say: they only lower those.
    batcher: Mapping[str, int] = field(default_factory=dict)
    # What a run may spend on embedding.
    budget: EmbeddingBudget = field(default_factory=EmbeddingBudget)
    # How the queue is read and acknowledged.
    consumer: ConsumerConfig = field(default_factory=ConsumerConfig)
    # The store of the vectors, and what lies under it.
    vector: VectorConfig = _VECTOR
    keyvalue: KeyValueConfig = _KEYVALUE

    @property
    def spec(self) -> StoreSpec:
        return StoreSpec(self.url, dict(self.options))
