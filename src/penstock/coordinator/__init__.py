"""Order writes, batch them, report durability, publish snapshots: generic over a delta and a flush handler."""

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
