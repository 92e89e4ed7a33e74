"""Which batches the next round takes, and who of the two stores still lacks them. Pure.

Each store keeps the sequence up to which it has everything, in the same write as the data. After a crash they may
differ; then rounds end where the one that is ahead ended, and only the other is written, until they agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.buffer import Descriptor
from penstock.landing.config import LandingLimits

__all__ = ["Landed", "Round", "bytes_for", "next_round", "shared_out"]


@dataclass(frozen=True, slots=True)
class Landed:
    """Sequences up to which each store has everything, -1 for nothing yet.

    `files_begun` is ahead of `files` when a process died between two shards of the catalog.
    """

    files: int = -1
    files_begun: int = -1
    samples: int = -1

    @property
    def both(self) -> int:
        return min(self.files, self.samples)

    def boundary(self) -> int | None:
        """Where the next round has to end, so that no store is given what it has; None once both agree."""
        ahead = [place for place in (self.files, self.files_begun, self.samples) if place > self.both]
        return min(ahead, default=None)


@dataclass(frozen=True, slots=True)
class Round:
    """Batches in the order of their sequences, and what is still to be written of them."""

    descriptors: tuple[Descriptor, ...]
    writes_files: bool
    writes_samples: bool

    @property
    def first(self) -> int:
        return self.descriptors[0].sequence

    @property
    def last(self) -> int:
        return self.descriptors[-1].sequence


def next_round(
    waiting: Sequence[Descriptor], sizes: Sequence[int], landed: Landed, limits: LandingLimits
) -> Round | None:
    """The oldest batches that fit, one at least; None when nothing waits."""
    boundary = landed.boundary()
    taken: list[Descriptor] = []
    room = limits.bytes_per_round
    for descriptor, size in zip(waiting, sizes, strict=True):
        is_over = boundary is not None and descriptor.sequence > boundary
        if is_over or len(taken) >= limits.batches_per_round or (taken and size > room):
            break
        taken.append(descriptor)
        room -= size
    if not taken:
        return None
    last = taken[-1].sequence
    return Round(tuple(taken), last > landed.files, last > landed.samples)


def bytes_for(limits: LandingLimits, size: int, rows: int) -> int:
    """How many bytes the next round may take, after one of `size` bytes that brought so many rows."""
    if rows <= limits.rows_per_round:
        return limits.bytes_per_round
    return max(1, min(limits.bytes_per_round, size * limits.rows_per_round // rows))


def shared_out(sizes: Sequence[int], bytes_per_task: int) -> list[range]:
    """Neighbouring batches for one task each: few of them in one, so that a quiet queue makes few files."""
    tasks: list[range] = []
    start, size = 0, 0
    for place, one in enumerate(sizes):
        size += one
        if size >= bytes_per_task:
            tasks.append(range(start, place + 1))
            start, size = place + 1, 0
    return [*tasks, range(start, len(sizes))] if start < len(sizes) else tasks
