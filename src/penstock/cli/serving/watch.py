"""What `penstock serve` gives its dashboard: figures and events of this process and of its jobs, and where to look."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from penstock.cli.serving.house_view import EventBoard, FigureHistory
from penstock.cli.settings.job_figures import FIGURES_FILE, Readings, read_figures, registry_figures
from penstock.observability import LiveObserver, Observer

__all__ = ["ServeWatch"]


@dataclass
class ServeWatch:
    """Opened for the time that the jobs run."""

    observer: Observer
    board: EventBoard = field(default_factory=EventBoard)
    _folder: Path | None = None
    _jobs: list[str] = field(default_factory=list)

    def open(self, stack: AsyncExitStack) -> None:
        """Make the folder that jobs leave their figures in."""
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-figures-")))

    def environment(self, job: str) -> dict[str, str]:
        """Variables with which a job tells us what it counts."""
        if self._folder is None:
            return {}
        self._jobs.append(job)
        return {FIGURES_FILE: str(self._folder / f"{job}.json")}

    def figures(self) -> FigureHistory:
        return FigureHistory(self._sources)

    def _sources(self) -> Mapping[str, Readings]:
        found: dict[str, Readings] = {}
        if isinstance(self.observer, LiveObserver):
            found["serve"] = registry_figures(self.observer.registry)
        if self._folder is not None:
            found |= {job: read_figures(self._folder / f"{job}.json") for job in self._jobs}
        return found
