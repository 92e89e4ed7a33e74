"""Order writes, batch them, report durability, publish snapshots: generic over a delta and a flush handler.

Names are imported on first use: a reader knows the limits of writes without loading the writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.coordinator.config import CoordinatorConfig
    from penstock.coordinator.coordinator import Coordinator, WriteHandle
    from penstock.coordinator.machine import State
    from penstock.coordinator.protocols import Delta, Epochs, Flushed, FlushHandler
    from penstock.coordinator.snapshots import Published, SnapshotSubscription, View
    from penstock.coordinator.watermarks import Mark, Watermarks

__all__ = [
    "Coordinator",
    "CoordinatorConfig",
    "Delta",
    "Epochs",
    "FlushHandler",
    "Flushed",
    "Mark",
    "Published",
    "SnapshotSubscription",
    "State",
    "View",
    "Watermarks",
    "WriteHandle",
]

__getattr__ = lazy_names(
    __name__,
    {
        "config": ("CoordinatorConfig",),
        "coordinator": (
            "Coordinator",
            "WriteHandle",
        ),
        "machine": ("State",),
        "protocols": (
            "Delta",
            "Epochs",
            "Flushed",
            "FlushHandler",
        ),
        "snapshots": (
            "Published",
            "SnapshotSubscription",
            "View",
        ),
        "watermarks": (
            "Mark",
            "Watermarks",
        ),
    },
)
