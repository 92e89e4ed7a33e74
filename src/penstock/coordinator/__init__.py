"""Order writes, batch them, report durability, publish snapshots: generic over a delta and a flush handler.

Names are imported when they are first asked for: a reader knows the bounds of writes and loads nothing that makes them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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

# The module of each name.
_HOMES: Final = {
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
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """The modules behind the list are imported when a name of theirs is first asked for."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
