"""The settings of `penstock serve`, and the places that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.cli.settings.telemetry_place import telemetry_url
from penstock.errors import InvalidInput
from penstock.indexing import url_of
from penstock.objects import StoreUrl, parse_url

__all__ = ["CATALOG_PATH", "JOBS", "ROLES", "SERIES_PATH", "ServeConfig"]

ROLES: Final = ("gateway", "jobs", "query")
JOBS: Final = ("index", "telemetry", "compact")
# Where the telemetry job keeps what it makes, below its store.
SERIES_PATH: Final = "series"
CATALOG_PATH: Final = "lake"


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What `penstock serve` runs, and where its data is."""

    # Directory or URL of the store.
    store: str = "penstock-data"
    # Directory of the store at the edge. None puts it next to a directory store.
    edge: str | None = None
    # YAML file with the settings of the store at the edge.
    edge_config: str | None = None
    # Parts that run here: gateway, jobs, query.
    roles: tuple[str, ...] = ROLES
    # Jobs that run here: index, telemetry, compact.
    jobs: tuple[str, ...] = JOBS
    # What runs the jobs: `spark`, or `local` for one process per job.
    engine: str = "spark"
    # Spark master of the jobs.
    master: str = "local[*]"

    def __post_init__(self) -> None:
        unknown = [role for role in self.roles if role not in ROLES]
        if unknown or not self.roles:
            raise InvalidInput(f"roles = {list(self.roles)}", "there is no such choice", f"use {', '.join(ROLES)}")
        if any(job not in JOBS for job in self.jobs):
            raise InvalidInput(f"jobs = {list(self.jobs)}", "there is no such choice", f"use {', '.join(JOBS)}")
        if self.engine not in ("spark", "local"):
            raise InvalidInput(f"engine = {self.engine!r}", "there is no such choice", "use spark or local")

    @property
    def url(self) -> str:
        return url_of(self.store)

    @property
    def uploads_url(self) -> str:
        """Beside the store, never inside it."""
        url = parse_url(self.url)
        if url.prefix:
            return str(StoreUrl(url.scheme, url.place, f"{url.prefix}-uploads"))
        if url.scheme == "file":
            return str(StoreUrl("file", f"{url.place}-uploads"))
        return str(StoreUrl(url.scheme, url.place, "penstock-uploads"))

    @property
    def telemetry_url(self) -> str:
        """The queue, the data files and the series of telemetry: a part of the store."""
        return telemetry_url(self.store)

    @property
    def edge_path(self) -> str:
        if self.edge is not None:
            return str(Path(self.edge).absolute())
        url = parse_url(self.url)
        return f"{url.place}-edge" if url.scheme == "file" else str(Path("penstock-edge").absolute())
