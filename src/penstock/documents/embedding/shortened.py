"""Shorter vectors of a model that was trained for it (Matryoshka): the first numbers of each, brought back to length one.

The cut happens here and not at the endpoint, so that it is the same for every provider: some take a wish for fewer
dimensions, most ignore it. A model that was not trained for it loses more; `docs/rooms/documents.md` has figures.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.documents.embedding.profiles import ModelProfile
from penstock.documents.embedding.provider import Answer, EmbeddingProvider, Vectors, unit_rows
from penstock.errors import Corrupt

__all__ = ["ShortenedProvider", "shortened"]


class ShortenedProvider:
    """A provider whose vectors are cut to what the profile says."""

    def __init__(self, provider: EmbeddingProvider, profile: ModelProfile) -> None:
        self._provider, self._profile = provider, profile

    @property
    def profile(self) -> ModelProfile:
        return self._profile

    async def embed(self, texts: Sequence[str], *, idempotency_key: str) -> Answer:
        answer = await self._provider.embed(texts, idempotency_key=idempotency_key)
        if not isinstance(answer, Vectors):
            return answer
        return Vectors(shortened(answer.rows, self._profile), answer.tokens)

    async def close(self) -> None:
        await self._provider.close()


def shortened(rows: npt.NDArray[np.float32], profile: ModelProfile) -> npt.NDArray[np.float32]:
    """The first numbers of each row, of length one; a row of zeros stays one."""
    if rows.ndim == 2 and len(rows) and rows.shape[1] != profile.model_dimensions:
        raise Corrupt(
            f"model {profile.name} answered vectors of {rows.shape[1]} numbers",
            f"its profile says {profile.model_dimensions} before they are cut to {profile.dimensions}",
            "correct model_dimensions in its profile",
        )
    return unit_rows(rows[:, : profile.dimensions])
