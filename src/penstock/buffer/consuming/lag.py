"""How far a consumer is behind. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.buffer.format.manifest import Descriptor, Manifest
from penstock.buffer.location import batch_time_ms

__all__ = ["Lag", "lag_of"]


@dataclass(frozen=True, slots=True)
class Lag:
    """Batches queued and not acknowledged, and the age of the oldest input among them; both 0 when idle."""

    batches: int
    seconds: float


def lag_of(manifest: Manifest, done_through: int | None, now_ms: int) -> Lag:
    """The lag after this sequence. A producer's clock that runs ahead counts as no lag."""
    waiting = manifest.after(done_through, 1)
    if not waiting:
        return Lag(0, 0.0)
    since = _ingested_ms(waiting[0])
    seconds = 0.0 if since is None else max(0.0, (now_ms - since) / 1000)
    return Lag(manifest.count_after(done_through), seconds)


def _ingested_ms(descriptor: Descriptor) -> int | None:
    """When its first input came in; by its name when its producer gave no metadata."""
    if descriptor.metadata:
        return descriptor.metadata[0].ingestion_time_ms
    return batch_time_ms(descriptor.location)
