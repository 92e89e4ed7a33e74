"""One run of `penstock reindex`: from the settings that an index has to those that are wanted, while it answers.

A new model takes over in one write, when every document that can be searched now can be searched with it; then the old
collection is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from rich.console import Console

from penstock.cli.jobs.handover import announced, await_rebuild
from penstock.cli.running.job import JobPlan, StageEngine, opened_job
from penstock.cli.running.stop import Stop
from penstock.cli.settings.wiring import UNWIRED, Wiring
from penstock.cli.terminal.progress import ProgressView, summary_fields, summary_lines
from penstock.clock import SYSTEM_CLOCK
from penstock.documents import ChunkingConfig, Notification
from penstock.documents.embedding import ModelProfile
from penstock.errors import Closed, Conflict, InvalidInput, NotFound
from penstock.indexing import (
    Build,
    DocumentEntry,
    Embedding,
    EmbeddingBudget,
    Endpoint,
    IndexingJob,
    IndexSettings,
    OwnModel,
    Provider,
    Reading,
    Remainder,
    Wish,
    changed,
    check_endpoint,
    deletion,
    find_target,
    heads_of,
    rebuilding,
    recutting,
    send,
    upload_of,
)
from penstock.vector import CollectionName

__all__ = ["Rebuild", "RebuildOrder", "rebuild_index"]

# Documents that changed under a run are asked for again, so often.
_PASSES_MAX: Final = 4
_NAMED_MAX: Final = 5


@dataclass(frozen=True)
class RebuildOrder:
    """What a person wants changed, in which index, and what is to become of documents on the way."""

    url: str
    tenant: str
    index: str
    wish: Wish
    provider: Provider
    # Of the endpoint that the index is made with now.
    old_key: str | None
    keep: bool = False
    leave_behind: bool = False
    cancel: bool = False
    engine: StageEngine = StageEngine.SPARK
    wiring: Wiring = UNWIRED
    budget: EmbeddingBudget | None = None


def rebuild_index(
    order: RebuildOrder, reading: Reading, master: str, console: Console, stop: Stop
) -> dict[str, Any] | None:
    """Wait for other rebuilds, and do this one; what was done, as fields. None if nothing was begun."""
    wiring = order.wiring
    await_rebuild(order.url, stop, console, wiring.service_options(order.url))
    settings = asyncio.run(find_target(order.url, order.tenant, order.index, None, wiring)).settings
    if settings is None:
        why = f"tenant {order.tenant} has none"
        raise NotFound(f"there is no index {order.index}", why, "create it with `penstock index`")
    wish = replace(order.wish, profile=_profile(settings, order.wish.model, order.provider))
    aim = settings.given_up() if order.cancel else changed(settings, wish)
    embedding = wiring.embedding(_embedding(aim, order.provider, order.old_key))
    chunking = wiring.settings.of(ChunkingConfig)
    for build in aim.builds:
        embedding.chunking_of(build.model, build.cut.chunking(chunking), (aim.tenant, aim.index))
    plan = JobPlan(
        order.url,
        master,
        embedding,
        reading,
        chunking=chunking,
        engine=order.engine,
        wiring=wiring,
        budget=order.budget,
    )
    rebuild = Rebuild(plan, settings, aim, console, keep=order.keep, leave_behind=order.leave_behind)
    return None if stop.requested else _rebuilt(rebuild, stop)


def _rebuilt(rebuild: Rebuild, stop: Stop) -> dict[str, Any] | None:
    """As the store's writer: a job that follows makes way, and comes back at the end. None if nothing was begun."""
    plan, shown = rebuild.plan, ProgressView(rebuild.console, 0)
    try:
        options = plan.wiring.service_options(plan.url)
        with announced(plan.url, options), shown as view, opened_job(plan, view, stop) as job:
            return rebuild.run(job, view, stop)
    except Closed:
        if not stop.requested:
            raise
        return None


@dataclass(frozen=True)
class Rebuild:
    """From the settings that are to the settings that are wanted."""

    plan: JobPlan
    before: IndexSettings
    aim: IndexSettings
    console: Console
    keep: bool
    leave_behind: bool

    def run(self, job: IndexingJob, view: ProgressView, stop: Stop) -> dict[str, Any]:
        if job.writer.settings[self.aim.tenant, self.aim.index] != self.before:
            raise Conflict(
                f"index {self.aim.index} has changed", "another command changed it meanwhile", "run it again"
            )
        if self.aim != self.before:
            job.writer.write_settings(self.aim)
        try:
            self._work(job, view)
        except Exception:
            if not stop.requested:
                raise
        for line in summary_lines(job.summary, view.elapsed):
            self.console.print(line, markup=False)
        return {"model": job.writer.settings[self.aim.tenant, self.aim.index].current.model} | summary_fields(
            job.summary, view.elapsed
        )

    def _work(self, job: IndexingJob, view: ProgressView) -> None:
        view.working("reindexing")
        if self.before.building is not None and self.aim.building is None:
            given_up, stays = self.before.building.model, self.aim.current.model
            self.console.print(f"{given_up} is cancelled; {self.aim.index} keeps {stays}")
            self._empty(job)
            return
        # Left by a run that was killed after the new model had taken over.
        self._empty(job)
        if self.aim.building is not None:
            self._rebuild(job, self.aim.building)
        else:
            self._recut(job)

    def _empty(self, job: IndexingJob) -> None:
        settings = job.writer.settings[self.aim.tenant, self.aim.index]
        for model in settings.emptying:
            job.writer.remove_collection(CollectionName(settings.tenant, settings.index, model))
            self.console.print(f"removed the collection of {model}")
        if settings.emptying:
            job.writer.write_settings(msgspec.structs.replace(settings, emptying=()))

    # Another model ---------------------------------------------------------------------------------------

    def _rebuild(self, job: IndexingJob, building: Build) -> None:
        self.console.print(
            f"building {self.aim.index} with {building.model}; {self.aim.current.model} answers meanwhile"
        )
        remainder = self._built(job, building)
        if remainder.lost and not self.leave_behind:
            raise _incomplete(self.aim.index, remainder.lost)
        settings = job.writer.settings[self.aim.tenant, self.aim.index]
        job.writer.write_settings(settings.flipped(keep=self.keep))
        self.console.print(f"{self.aim.index} now answers with {building.model}")
        self._empty(job)

    def _built(self, job: IndexingJob, building: Build) -> Remainder:
        """Read what is missing until nothing is; what is left then is not to be had."""
        name = self.aim.building_name
        assert name is not None
        gone: set[str] = set()
        for passed in range(_PASSES_MAX + 1):
            job.run_available()
            old, new = job.writer.all_entries(self.aim.name), job.writer.all_entries(name)
            remainder = rebuilding(old, new, self._fingerprint(building))
            wanted = [entry for entry in remainder.wanted if entry.object_key not in gone]
            if passed == _PASSES_MAX or not (wanted or remainder.surplus or remainder.forgotten):
                break
            gone |= self._send(wanted, new, name)
            now_ms = SYSTEM_CLOCK.now_ms()
            self._queue([deletion(name, entry, now_ms) for entry in remainder.surplus])
            known = [(new.get(entry.object_key, entry), entry.forgotten) for entry in remainder.forgotten]
            self._queue([deletion(name, entry, now_ms, forgotten=etag) for entry, etag in known])
        remainder.lost += [entry for entry in remainder.wanted if entry.current]
        return remainder

    def _queue(self, events: Sequence[Notification]) -> None:
        send(self.plan.url, events, self.plan.wiring)

    def _send(
        self, wanted: Sequence[DocumentEntry], new: Mapping[str, DocumentEntry], name: CollectionName
    ) -> set[str]:
        """Ask for documents; those that are gone from their buckets are returned."""
        heads = asyncio.run(heads_of(wanted, self.plan.reading))
        now_ms = SYSTEM_CLOCK.now_ms()
        events: list[Notification] = []
        for entry in wanted:
            meta = heads.get(entry.object_key)
            if meta is None:
                continue
            if entry.upload is not None and entry.upload.etag == meta.version:
                known = new.get(entry.object_key)
                state = known.state if known else None
                events.append(upload_of(name, entry.bucket, meta, now_ms, state=state, told=entry.upload))
            else:
                # What has changed since it was indexed is news for both collections.
                events.append(upload_of(self.aim.name, entry.bucket, meta, now_ms, state=entry.state))
        self._queue(events)
        return {entry.object_key for entry in wanted if entry.object_key not in heads}

    # Another chunking ------------------------------------------------------------------------------------

    def _recut(self, job: IndexingJob) -> None:
        job.run_available()
        build = self.aim.current
        left = recutting(job.writer.all_entries(self.aim.name).values(), self._fingerprint(build))
        if not left:
            self.console.print(f"{self.aim.index} already uses {build.model} and these chunk sizes")
            return
        heads = asyncio.run(heads_of(left, self.plan.reading))
        now_ms = SYSTEM_CLOCK.now_ms()
        found = [entry for entry in left if entry.object_key in heads]
        events = [
            upload_of(
                self.aim.name, entry.bucket, heads[entry.object_key], now_ms, state=entry.state, told=entry.upload
            )
            for entry in found
        ]
        self._queue(events)
        job.run_available()
        if len(found) < len(left):
            lost = [entry for entry in left if entry.object_key not in heads]
            self.console.print(f"left as they were, because they are gone from their buckets: {_named(lost)}")

    @property
    def _index(self) -> tuple[str, str]:
        return self.aim.tenant, self.aim.index

    def _fingerprint(self, build: Build) -> str:
        chunking = build.cut.chunking(self.plan.chunking)
        return self.plan.embedding.chunking_of(build.model, chunking, self._index).fingerprint


def _profile(settings: IndexSettings, model: str | None, provider: Provider) -> ModelProfile | None:
    """What is said of the model that is wanted; None when nothing is."""
    if provider.url:
        check_endpoint(provider.url)
    if not provider.description:
        return None
    wanted = settings.builds[-1]
    if model in (None, wanted.model):
        return provider.description.profile(wanted.model, wanted.profile)
    assert model is not None
    return provider.description.profile(model)


def _embedding(aim: IndexSettings, provider: Provider, old_key: str | None) -> Embedding:
    """For both models while both are needed; each key goes to its own endpoint."""
    last = aim.builds[-1]
    keys = {build.model: provider.key if build == last else old_key for build in aim.builds}
    own = {
        (aim.tenant, aim.index, build.model): OwnModel(
            Endpoint(build.endpoint, keys[build.model]) if build.endpoint else None, build.profile
        )
        for build in aim.builds
    }
    return Embedding(own=own, rate=provider.rate, keys=provider.keys)


def _incomplete(index: str, lost: Sequence[DocumentEntry]) -> InvalidInput:
    return InvalidInput(
        f"index {index} stays as it is: {len(lost):,} of its documents cannot be read again",
        _named(lost),
        "`penstock documents forget` them, or drop them with --leave-behind",
    )


def _named(entries: Iterable[DocumentEntry]) -> str:
    keys = [entry.key for entry in entries]
    more = f" and {len(keys) - _NAMED_MAX:,} more" if len(keys) > _NAMED_MAX else ""
    return ", ".join(keys[:_NAMED_MAX]) + more
