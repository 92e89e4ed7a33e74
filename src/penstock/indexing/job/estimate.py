"""What indexing some documents would come to, before anything is sent: they are read and cut here, and not embedded.

An upper bound: passages that an index has already are not embedded again, and an estimate does not look for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from penstock.documents import Chunk, ChunkingConfig, Progress, UploadNotification
from penstock.documents.embedding import ModelProfile
from penstock.indexing.stages.reading import Reading, read_documents
from penstock.indexing.stages.readings import ReadOutcome, ReadRequest

__all__ = ["CostEstimate", "estimate_cost"]

# Documents that are asked for together.
_DOCUMENTS_AT_ONCE: Final = 64
_ALL_CELLS: Final = 1 << 40
_PER_MILLION: Final = 1e6


@dataclass(slots=True)
class CostEstimate:
    """Documents that can be read, their chunks and tokens, and the price of embedding them all."""

    documents: int = 0
    chunks: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    # (key, reason) of those that cannot be read.
    unreadable: list[tuple[str, str]] = field(default_factory=list)


def estimate_cost(
    reading: Reading,
    uploads: Iterable[UploadNotification],
    chunking: ChunkingConfig,
    profile: ModelProfile,
    *,
    stopped: Callable[[], bool] = lambda: False,
) -> CostEstimate:
    """Read and chunk all documents in this process; returns early, with what it has, once `stopped`."""
    found = CostEstimate()
    waiting = iter(uploads)
    while (some := list(islice(waiting, _DOCUMENTS_AT_ONCE))) and not stopped():
        asked = [(place, _request(upload, chunking)) for place, upload in enumerate(some)]
        for place, piece in read_documents(reading, asked):
            if isinstance(piece, Chunk):
                found.chunks += 1
                found.tokens += piece.tokens
            elif piece.outcome is ReadOutcome.END:
                found.documents += 1
            else:
                found.unreadable.append((some[place].key, piece.detail[0] if piece.detail else piece.outcome.value))
    found.cost_usd = found.tokens * profile.usd_per_million_tokens / _PER_MILLION
    return found


def _request(upload: UploadNotification, chunking: ChunkingConfig) -> ReadRequest:
    """The whole document, with all the time that one may take: nobody waits for it."""
    return ReadRequest(
        upload=upload, progress=Progress(), first_cell=0, cells=_ALL_CELLS, chunking=chunking, apart=True
    )
