"""The port to embedding models, and what a model can answer.

An answer is one of three: vectors; "later", for a limit or a fault that passes; "refused", for a content that no repeat
will make acceptable. Which of them to repeat, split or set aside is decided in one place, `penstock.documents.embedding
.dispatch`, and not by providers. What no repeat and no split can heal (a wrong key, an unknown model) is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.documents.embedding.profiles import ModelProfile
from penstock.errors import Corrupt

__all__ = [
    "MAGNITUDE_MAX",
    "Answer",
    "EmbeddingProvider",
    "Later",
    "Refused",
    "Vectors",
    "checked",
    "is_comparable",
    "unit_rows",
]

# What a store compares at most. Its own bound, said again: a worker that does not import it starts twice as fast.
MAGNITUDE_MAX: Final = 1e15


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """One row a text, in the order of the texts; `tokens` is what the provider counted, or None."""

    rows: npt.NDArray[np.float32]
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Later:
    """Ask again, after `after_seconds` when the provider said so."""

    reason: str
    after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Something in these texts is not accepted."""

    reason: str


Answer: TypeAlias = Vectors | Later | Refused


class EmbeddingProvider(Protocol):
    @property
    def profile(self) -> ModelProfile: ...

    async def embed(self, texts: Sequence[str], *, idempotency_key: str) -> Answer:
        """Vectors for `texts`. The same key always comes with the same texts."""
        ...

    async def close(self) -> None: ...


def checked(vectors: Vectors, count: int, model: str) -> Vectors:
    """`vectors`, once they are as many as the texts and numbers throughout."""
    if vectors.rows.ndim != 2 or len(vectors.rows) != count:
        raise Corrupt(f"model {model} answered {vectors.rows.shape} for {count} texts", "a row is missing or too many")
    if not np.isfinite(vectors.rows).all():
        raise Corrupt(f"model {model} answered invalid numbers", "a vector holds NaN or infinity")
    return vectors


def is_comparable(rows: npt.NDArray[np.float32]) -> bool:
    """Whether any of these vectors has a direction, and numbers that a store compares."""
    largest = np.abs(rows).max(axis=1, initial=0)
    return bool(((largest > 0) & (largest <= MAGNITUDE_MAX)).any())


def unit_rows(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Rows brought to length one; a row of zeros stays one."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    found: npt.NDArray[np.float32] = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return found
