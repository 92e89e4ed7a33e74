"""Takes off the queue what the store has: a job that keeps no checkpoint acknowledges by the position in the store.

Spark acknowledges a micro-batch when it builds the next one, and the last of a run never. Without a checkpoint from the
run before, that last one would be read again by every run, and be shown as waiting.
"""

from __future__ import annotations

from typing import Final

from penstock.buffer import ConsumerConfig, SyncConsumer, queued_now
from penstock.loops import LoopThread
from penstock.objects import StoreSpec
from penstock.observability import SILENT, Observer

__all__ = ["acknowledge"]

# Entries asked for at once.
_ENTRIES_MAX: Final = 1000


def acknowledge(
    spec: StoreSpec, position: int, config: ConsumerConfig | None = None, *, observer: Observer = SILENT
) -> int:
    """Acknowledge all batches through `position`, whose events are durable elsewhere; how many. Takes the queue's fence."""
    thread = LoopThread("penstock-acknowledging")
    try:
        config = config or ConsumerConfig()
        if not thread.run(_has_through(spec, position, config.manifest_path)):
            return 0
    finally:
        thread.close()
    taken: list[int] = []
    with SyncConsumer(spec, config, observer=observer) as consumer:
        while found := [entry.sequence for entry in consumer.next_descriptors(_ENTRIES_MAX)]:
            taken += [sequence for sequence in found if sequence <= position]
            if found[-1] > position:
                break
        if taken:
            consumer.ack_through(taken[-1])
    return len(taken)


async def _has_through(spec: StoreSpec, position: int, manifest_path: str) -> bool:
    """Whether there is such a batch, looked at without the fence."""
    store = await spec.open()
    try:
        return any(entry.sequence <= position for entry in await queued_now(store, manifest_path))
    finally:
        await store.close()
