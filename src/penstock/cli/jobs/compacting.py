"""Runs a compactor for a command: the store, the catalog, an engine for merges, and an end in good order."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from penstock.catalog import Catalog, CatalogConfig
from penstock.cli.running.stop import Stop
from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.store_access import store_options
from penstock.cli.settings.telemetry_place import catalog_place
from penstock.lake import CompactionConfig, CompactionSummary, Compactor, LocalMerging, MergePlace, Merging, Upkept
from penstock.objects import StoreSpec, open_store
from penstock.observability import Observer

__all__ = ["Compacting"]


@dataclass(frozen=True)
class Compacting:
    """What a command is given."""

    store: str
    prefix: str | None
    settings: Settings
    observer: Observer
    engine: str
    master: str

    def run(self, *, follow: bool, upkeep: bool) -> dict[str, Any]:
        """What was done, as fields."""
        config = self.settings.of(CompactionConfig)
        url, prefix = catalog_place(self.store, self.prefix)
        place = MergePlace(StoreSpec(url, store_options(self.settings, url)), prefix)
        with Stop() as stop, ExitStack() as stack:
            merging: Merging
            if self.engine == "spark":
                from penstock.cli.running.spark_session import opened_session
                from penstock.pipelines import SparkMerging

                merging = SparkMerging(stack.enter_context(opened_session(self.master, url, stop)).session, place)
            else:
                merging = LocalMerging(place, config.tasks_at_once)
            done, upkept = asyncio.run(self._work(place, merging, config, stop, follow=follow, upkeep=upkeep))
        told: dict[str, Any] = asdict(done)
        if upkept is not None:
            gone = upkept.vacuumed
            deleted = len(gone.files) + len(gone.segments) + len(gone.orphans)
            told["upkeep"] = {"expired_files": upkept.expired_files, "deleted": deleted}
        return told

    async def _work(
        self, place: MergePlace, merging: Merging, config: CompactionConfig, stop: Stop, *, follow: bool, upkeep: bool
    ) -> tuple[CompactionSummary, Upkept | None]:
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()

        def end() -> None:
            loop.call_soon_threadsafe(asked.set)

        stop.calls(end)
        url = place.spec.url
        opened = await open_store(url, observer=self.observer, **store_options(self.settings, url))
        try:
            catalog_config = self.settings.of(CatalogConfig)
            async with await Catalog.open(opened, place.prefix, catalog_config, observer=self.observer) as catalog:
                compactor = Compactor(catalog, merging, config, observer=self.observer)
                if follow:
                    return await compactor.follow(asked), None
                done = await compactor.run_available(asked.is_set)
                return done, await compactor.upkeep() if upkeep and not asked.is_set() else None
        finally:
            stop.calls(lambda: None)
            await opened.close()
