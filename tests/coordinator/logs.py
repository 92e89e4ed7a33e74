"""A delta that knows its writes, and machines over it."""

from __future__ import annotations

from typing import Any

from penstock.coordinator import CoordinatorConfig
from penstock.coordinator.machine import Machine


class Log:
    """A delta that remembers which writes were merged into it, in order."""

    def __init__(self, *epochs: int, size_bytes: int = 1) -> None:
        self.epochs = list(epochs)
        self.size_bytes = size_bytes

    def merge(self, later: Log) -> None:
        self.epochs += later.epochs


def machine_with(writes: int = 0, **settings: Any) -> Machine[Log, int]:
    machine: Machine[Log, int] = Machine(CoordinatorConfig(**settings), Log)
    for _ in range(writes):
        machine.offer(Log(machine.applied + 1), 1)
    return machine
