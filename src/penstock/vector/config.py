"""The bounds of a vector store, each with the reason for its default. A contradiction is refused at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.coordinator import CoordinatorConfig
from penstock.errors import InvalidInput

__all__ = ["VectorConfig"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class VectorConfig:
    """Memory, upkeep and search of a vector store."""

    # Memory for decoded blocks, in bytes.
    cache_bytes: int = 512 * _MIB

    # Target rows of a posting list: few enough to skip most rows, enough to fill a block on disk.
    list_rows: int = 128

    # Maximum posting lists, whose centroids stay in memory. Beyond it lists grow instead of splitting.
    lists_max: int = 65_536

    # Fraction of dead rows from which lists are rewritten without them.
    dead_share_max: float = 0.2

    # Maximum bytes that one step of upkeep rewrites. A write waits for at most one step.
    upkeep_bytes: int = 32 * _MIB

    # Time without writes after which upkeep starts, in seconds. Infinity leaves it to `tend`, `compact`, and to
    # flushes when it cannot wait any longer.
    upkeep_pause_seconds: float = 0.25

    # Recall of a search that gives neither probes nor a recall.
    recall_target: float = 0.95

    # Whether to compute exact distances of the candidates from the stored vectors. Without it, distances come
    # from the two-byte codes, with about three digits.
    rerank: bool = True

    # Threads of searches and flushes; 0 leaves the choice to OpenMP.
    threads: int = 0

    # Collections whose directories and centroids stay in memory.
    collections_open: int = 256

    # Age from which a follower checks for a newer state, in seconds. It checks twice in that time, with a few
    # small requests each.
    staleness_seconds: float = 0.5

    # When writes are flushed and how much is buffered.
    coordinator: CoordinatorConfig = field(default_factory=CoordinatorConfig)

    def __post_init__(self) -> None:
        self._check(
            0 < self.recall_target <= 1, "recall_target", "it is a fraction of the true neighbours, over 0 to 1"
        )
        self._check(0 < self.dead_share_max < 1, "dead_share_max", "it is a share of all rows, between 0 and 1")
        self._check(self.list_rows >= 2, "list_rows", "a list that is split in two needs at least two rows")
        self._check(self.threads >= 0, "threads", "it is a number of threads, or zero")
        self._check(self.staleness_seconds >= 0, "staleness_seconds", "it must be a number of seconds, 0 or larger")
        self._check(self.upkeep_pause_seconds > 0, "upkeep_pause_seconds", "it is a duration, or infinity")
        for name in ("cache_bytes", "lists_max", "upkeep_bytes", "collections_open"):
            self._check(getattr(self, name) > 0, name, "it must be more than zero")

    def _check(self, holds: bool, name: str, why: str) -> None:
        if not holds:
            raise InvalidInput(f"{name} = {getattr(self, name)!r}", why)
