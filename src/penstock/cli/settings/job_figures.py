"""How a supervised job tells its supervisor what it counts: a small file, replaced every few seconds.

A job has no port of its own: its supervisor shows the figures of all jobs on one page, for people and for Prometheus.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from penstock.undecodable import UNDECODABLE

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["FIGURES_FILE", "Readings", "figures_written", "read_figures", "registry_figures"]

# The variable that names the file to a job.
FIGURES_FILE: Final = "PENSTOCK_FIGURES_FILE"
_SECONDS: Final = 2.0
_LEFT_OUT: Final = "_created"

# Values by the name of a series and its labels, in order.
Readings: TypeAlias = dict[tuple[str, tuple[tuple[str, str], ...]], float]
_Stored: TypeAlias = list[tuple[str, list[tuple[str, str]], float]]
_DECODER: Final = msgspec.json.Decoder(_Stored)


def registry_figures(registry: CollectorRegistry) -> Readings:
    """What a process has counted so far; gauges that nobody has set are left out."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if not sample.name.endswith(_LEFT_OUT) and not isnan(sample.value)
    }


def read_figures(file: Path) -> Readings:
    """What a job last wrote; nothing when it has not yet, or when the file is not one."""
    try:
        stored = _DECODER.decode(file.read_bytes())
    except (*UNDECODABLE, OSError):
        return {}
    return {(name, tuple(labels)): value for name, labels, value in stored}


@contextmanager
def figures_written(registry: CollectorRegistry, file: Path, seconds: float = _SECONDS) -> Iterator[None]:
    """Write the figures during the block, and once more at its end."""
    over = threading.Event()

    def write() -> None:
        while not over.wait(seconds):
            _write(registry_figures(registry), file)

    thread = threading.Thread(target=write, name="figures", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _write(registry_figures(registry), file)


def _write(figures: Readings, file: Path) -> None:
    """In one step: a reader finds the old file or the new one. Without room for it, the old one stays."""
    stored: Iterable[tuple[str, tuple[tuple[str, str], ...], float]] = (
        (name, labels, value) for (name, labels), value in figures.items()
    )
    half = file.with_suffix(".new")
    try:
        half.write_bytes(msgspec.json.encode(list(stored)))
        half.replace(file)
    except OSError:
        return
