"""all-MiniLM-L6-v2 behind the port that every model has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.documents.embedding.minilm.encoder import shared_encoder
from penstock.documents.embedding.profiles import MINILM_MODEL, ModelProfile, profile_of
from penstock.documents.embedding.provider import Answer, Vectors

__all__ = ["MiniLmProvider"]


class MiniLmProvider:
    """Embeds in this process; all providers of a process share one session."""

    def __init__(self) -> None:
        self._encoder = shared_encoder()

    @property
    def profile(self) -> ModelProfile:
        return profile_of(MINILM_MODEL)

    async def embed(self, texts: Sequence[str], *, idempotency_key: str) -> Answer:
        # In a thread: a server that embeds a question answers others meanwhile.
        return await asyncio.to_thread(self.embed_now, texts)

    def embed_now(self, texts: Sequence[str]) -> Vectors:
        """The same without a loop."""
        return Vectors(*self._encoder.encode(texts))

    async def close(self) -> None:
        """The session stays for the next provider."""
