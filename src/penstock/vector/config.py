"""The bounds of a vector store, each with the reason for its default. A contradiction is refused at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.coordinator import CoordinatorConfig
from penstock.errors import InvalidInput

__all__ = ["VectorConfig"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class VectorConfig:
    """How much memory to use, how lists are kept in shape, and how a search is made."""

    # Decoded blocks kept for the next search. Beyond it the least recently used ones are read again.
    cache_bytes: int = 512 * _MIB

    # Rows a posting list is meant to hold: short enough to skip most rows, long enough to be a block on disk.
    list_rows: int = 128

    # Centroids stay in memory: this bounds them. Beyond it lists grow instead of splitting.
    lists_max: int = 65_536

    # Of all rows in lists, the share that may be dead before lists are rewritten without them.
    dead_share_max: float = 0.2

    # What one step of upkeep may read and write again to keep lists and blocks in shape: a write waits for one at most.
    upkeep_bytes: int = 32 * _MIB

    # Upkeep begins when nothing was written for so long. Infinity leaves it to `tend`, `compact`, and to flushes
    # when it can wait no longer.
    upkeep_pause_seconds: float = 0.25

    # Asked for when a search names neither probes nor a recall.
    recall_target: float = 0.95

    # Exact distances from the stored vectors for the candidates of a scan. Without, distances are those of the
    # two-byte codes: about three digits, and no stored vector is read.
    rerank: bool = True

    # Threads of the native kernels, in searches and in flushes; zero leaves the choice to the OpenMP runtime.
    threads: int = 0

    # Collections whose directories and centroids stay in memory between uses.
    collections_open: int = 256

    # A follower looks for a newer state when the one it has is older than this. Half of it is the pause between two
    # looks, a few small requests each.
    staleness_seconds: float = 0.5

    # When writes are flushed and how much of them is held.
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
