"""What `penstock serve` gives its dashboard: figures and events of this process and of its jobs, and where to look."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.cli.serving.house_view import EventBoard, FigureHistory
from penstock.cli.settings.job_figures import FIGURES_FILE, Readings, read_figures, registry_figures
from penstock.observability import LiveObserver, Observer

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric as MetricFamily

__all__ = ["JointRegistry", "ServeWatch"]

_SERVE: Final = "serve"
_SUFFIXES: Final = ("_total", "_bucket", "_count", "_sum")


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

    @property
    def registry(self) -> JointRegistry | None:
        """For the page of metrics; None when nothing is counted."""
        if not isinstance(self.observer, LiveObserver):
            return None
        return JointRegistry(self.observer.registry, self._of_jobs)

    def _of_jobs(self) -> Mapping[str, Readings]:
        return {job: read_figures(self._folder / f"{job}.json") for job in self._jobs} if self._folder else {}

    def _sources(self) -> Mapping[str, Readings]:
        """Without the buckets of histograms, which nobody reads on a page for people."""
        found = dict(self._of_jobs())
        if isinstance(self.observer, LiveObserver):
            found = {_SERVE: registry_figures(self.observer.registry), **found}
        return {
            process: {series: value for series, value in readings.items() if not series[0].endswith("_bucket")}
            for process, readings in found.items()
        }


@dataclass(frozen=True)
class JointRegistry:
    """What `generate_latest` collects: our own metrics, and those of each job with the label `process`."""

    own: CollectorRegistry
    of_jobs: Callable[[], Mapping[str, Readings]]

    def collect(self) -> Iterator[MetricFamily]:
        families = {family.name: family for family in self.own.collect()}
        for process, readings in self.of_jobs().items():
            for (name, labels), value in readings.items():
                family = families.get(name) or families.get(_family_name(name))
                if family is not None:
                    family.add_sample(name, {**dict(labels), "process": process}, value)
        yield from families.values()


def _family_name(series: str) -> str:
    """The client library's name of a family: without what Prometheus appends to it."""
    return next((series.removesuffix(suffix) for suffix in _SUFFIXES if series.endswith(suffix)), series)
