"""Randomness from a seed: the same seed gives the same tokens, jitter and choices, in every process.

It stands wherever a `penstock.ids.Entropy` is taken. Parts of one simulation take forks of one entropy,
so that an extra draw in one of them does not shift the draws of all the others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["SeededEntropy"]

T = TypeVar("T")


class SeededEntropy:
    """An `Entropy` that replays, with a few more draws for tests and faults."""

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        # Seeding from text goes through SHA-512 and not through hash(), which differs from process to process.
        self._random = random.Random(str(seed))

    def token(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self._random.random()

    def chance(self, probability: float) -> bool:
        """True as often as `probability` says. Draws even when the answer is certain, so that plans compare."""
        return self._random.random() < probability

    def below(self, limit: int) -> int:
        """A whole number of `[0, limit)`."""
        return self._random.randrange(limit)

    def choice(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def fork(self, name: str) -> SeededEntropy:
        """A stream of its own, decided by this one's seed and `name` alone, whatever was drawn before."""
        return SeededEntropy(f"{self.seed}/{name}")
