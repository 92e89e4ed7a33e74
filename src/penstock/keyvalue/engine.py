"""SlateDB built from our settings: its object store, its cache, its bounds, and who collects its garbage."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slatedb import uniffi

from penstock.clock import Clock
from penstock.errors import Closed, Corrupt, Fenced, Unavailable
from penstock.keyvalue import shim
from penstock.keyvalue.damage import naming
from penstock.keyvalue.durable_directory import DurableDirectory, check_readable
from penstock.keyvalue.faults import is_no_store, translating
from penstock.keyvalue.location import Location
from penstock.keyvalue.log_check import check_log, check_recovered
from penstock.keyvalue.log_record import LogKeeper, LogRecord, log_files, read_record
from penstock.keyvalue.slate import SlateFollower, SlateKeyValue, check_home
from penstock.observability import Observer, names

__all__ = ["Tuning", "check_reachable", "open_reader", "open_writer", "tell"]

_STORE_TYPES: Final = {
    "file": uniffi.ObjectStoreType.LOCAL,
    "s3": uniffi.ObjectStoreType.S3,
    "az": uniffi.ObjectStoreType.AZURE,
    "gs": uniffi.ObjectStoreType.GCS,
}
# A table in memory becomes a sorted file at this size; a tight bound on memory makes smaller ones.
_TABLE_BYTES_MAX: Final = 64 << 20
# At such a bound tables are also written and merged one after the other: four merges at once, each of four parts that read
# four blocks ahead of each of their files, hold more than the tables themselves.
_TIGHT_BYTES_MAX: Final = 64 << 20
_FEW_AT_ONCE: Final[dict[str, object]] = {
    "l0_flush_parallelism": 1,
    "compactor_options.max_concurrent_compactions": 1,
    "compactor_options.worker.max_concurrent_compactions": 1,
    "compactor_options.worker.max_subcompactions": 1,
    "compactor_options.worker.max_fetch_tasks": 1,
    # What a merge reads at once of each of its files, of which there may be dozens, and a file that it writes: up to
    # eight parts of that are in memory on their way to the store.
    "compactor_options.worker.bytes_to_fetch": 512 << 10,
    "compactor_options.worker.max_sst_size": 32 << 20,
}
_CACHE_SHARDS: Final = 8
_CACHE_ID: Final = 0
# A directory may get a log file every few milliseconds. Those no manifest needs go after a minute instead
# of five, so that their number stays in the tens of thousands; a follower reads a new one within its poll.
_DIRECTORY_LOG_COLLECTION: Final = {"interval": "60s", "min_age": "60s", "dry_run": False}
# A look into a directory costs nothing, and a writer that fills the first level waits for it: at five
# seconds, the default meant for buckets that bill every look, a busy writer stalls for as long.
_DIRECTORY_COMPACTION_POLL: Final = "500ms"
# Only followers that pin a checkpoint use it; ours follow the newest manifest and write nothing.
_CHECKPOINT_LIFETIME_MS: Final = 600_000
_FOLLOWER_MEMTABLE_BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Tuning:
    """The bounds of a writer or a follower; `open.py` says what each is for."""

    interval_ms: float
    cache_bytes_max: int
    retries_max: int
    unflushed_bytes_max: int = 0


# One look and one repeat: three tenths of a second when the answer is no, five seconds when there is none.
_GLANCE: Final = Tuning(interval_ms=60_000, cache_bytes_max=1 << 20, retries_max=1)


async def open_writer(
    location: Location, entries: dict[str, str], tuning: Tuning, clock: Clock, observer: Observer
) -> SlateKeyValue:
    """Open for writing, taking the fence; `check_bucket` has looked whether a bucket can hold one."""
    check_home()
    tell(shim.install(), observer)
    directory = None
    if location.scheme == "file":
        directory = await asyncio.to_thread(DurableDirectory, location.folder)
        if not directory.ordered:
            observer.event(names.KEYVALUE_UNORDERED, store=str(location))
            await _collect_garbage(location, entries, directory)
        await _check_log(location, entries)
    async with _naming_damage(location):
        builder = uniffi.DbBuilder(location.path, _object_store(location, entries))
        builder.with_settings(_settings(tuning, directory))
        builder.with_db_cache(_cache(tuning.cache_bytes_max), _CACHE_ID)
        raw = await builder.build()
    kept = None
    if directory is not None:
        await _check_recovered(raw, location)
        kept = await asyncio.to_thread(LogKeeper, location.folder, clock)
    return SlateKeyValue(raw, str(location), directory=directory, kept=kept, clock=clock, observer=observer)


async def open_reader(location: Location, entries: dict[str, str], tuning: Tuning, observer: Observer) -> SlateFollower:
    """Open for reading only, in this or any other process."""
    check_home()
    tell(shim.install(), observer)
    if location.scheme == "file":
        await asyncio.to_thread(check_readable, Path(location.place))
        await _check_log(location, entries)
    else:
        await check_reachable(location, entries)
    async with _naming_damage(location):
        raw = await _reader(location, entries, tuning, skip_log=False)
    return SlateFollower(raw, str(location), _folder(location))


async def _check_log(location: Location, entries: dict[str, str]) -> None:
    """Raise `Corrupt` where the log of a directory lacks what its record says."""
    record = await asyncio.to_thread(read_record, location.folder)
    if record is not None:
        files = await asyncio.to_thread(log_files, location.folder)
        await check_log(location.folder, files, record, _SlateLog(location, entries))


async def _check_recovered(raw: uniffi.Db, location: Location) -> None:
    record = await asyncio.to_thread(read_record, location.folder)
    try:
        check_recovered(location.folder, raw.status().durable_seq, record or LogRecord(0))
    except Corrupt:
        with suppress(Fenced, Closed), translating(str(location)):
            await raw.shutdown()
        raise


class _SlateLog:
    """The log as SlateDB reads it."""

    def __init__(self, location: Location, entries: dict[str, str]) -> None:
        self._location = location
        self._store = _object_store(location, entries)
        self._reader: uniffi.SlateDbWalReader | None = None

    async def kept(self) -> uniffi.VersionedManifest | None:
        try:
            return await uniffi.AdminBuilder(self._location.path, self._store).build().read_manifest(None)
        except (uniffi.Error, uniffi.InternalError):
            # Opening will say what is wrong with it.
            return None

    async def sequences(self, number: int) -> tuple[int, int] | None:
        try:
            self._reader = self._reader or uniffi.SlateDbWalReader(self._location.path, self._store)
            found = await (await self._reader.iterator(number)).next()
        except (uniffi.Error, uniffi.InternalError):
            # Damaged, which opening will say, or collected meanwhile.
            return None
        rows = [row.seq for row in found.rows] if found else []
        return (min(rows), max(rows)) if rows else None


@asynccontextmanager
async def _naming_damage(location: Location) -> AsyncIterator[None]:
    try:
        with translating(str(location)):
            yield
    except Corrupt as error:
        raise await naming(error, f"the key-value store {location} cannot be opened", _folder(location)) from error


def _folder(location: Location) -> Path | None:
    return location.folder if location.scheme == "file" else None


async def check_reachable(location: Location, entries: dict[str, str]) -> None:
    """Look at the store once, so that a wrong bucket, key or endpoint is told before patience begins."""
    check_home()
    with translating(str(location)):
        try:
            raw = await _reader(location, entries, _GLANCE, skip_log=True)
        except uniffi.Error.Data as error:
            if not is_no_store(error):
                raise
        else:
            await raw.shutdown()


async def _collect_garbage(location: Location, entries: dict[str, str], directory: DurableDirectory) -> None:
    """Remove what no manifest needs, at the one moment when the manifest is known to be on the disk.

    Without order, the removal of a log file may reach the disk before the manifest that made it needless.
    """
    try:
        await asyncio.to_thread(directory.sync)
    except OSError as error:
        raise Unavailable(f"the directory of {location} cannot be synced", error.strerror or "") from error
    with translating(str(location)):
        try:
            await uniffi.AdminBuilder(location.path, _object_store(location, entries)).build().run_gc_once(None)
        except uniffi.Error.Data as error:
            if not is_no_store(error):
                raise


async def _reader(location: Location, entries: dict[str, str], tuning: Tuning, *, skip_log: bool) -> uniffi.DbReader:
    builder = uniffi.DbReaderBuilder(location.path, _object_store(location, entries))
    builder.with_options(
        uniffi.ReaderOptions(
            manifest_poll_interval_ms=max(1, round(tuning.interval_ms)),
            checkpoint_lifetime_ms=_CHECKPOINT_LIFETIME_MS,
            max_memtable_bytes=_FOLLOWER_MEMTABLE_BYTES_MAX,
            skip_wal_replay=skip_log,
            object_store_max_retries=tuning.retries_max,
        )
    )
    builder.with_reader_mode(uniffi.ReaderMode.FOLLOW_LATEST())
    builder.with_db_cache(_cache(tuning.cache_bytes_max), _CACHE_ID)
    return await builder.build()


def _object_store(location: Location, entries: dict[str, str]) -> uniffi.ObjectStore:
    # The environment of the process is read by the client itself; our entries come on top.
    builder = uniffi.ObjectStoreBuilder.from_env(_STORE_TYPES[location.scheme])
    for name, value in entries.items():
        builder.with_config(name, value)
    return builder.build()


def _settings(tuning: Tuning, directory: DurableDirectory | None) -> uniffi.Settings:
    values: dict[str, object] = {
        "flush_interval": f"{max(1, round(tuning.interval_ms))}ms",
        "l0_sst_size_bytes": min(_TABLE_BYTES_MAX, tuning.unflushed_bytes_max // 4),
        "max_unflushed_bytes": tuning.unflushed_bytes_max,
        "object_store_max_retries": tuning.retries_max,
    }
    if tuning.unflushed_bytes_max <= _TIGHT_BYTES_MAX:
        values |= _FEW_AT_ONCE
    if directory is not None:
        values["compactor_options.poll_interval"] = _DIRECTORY_COMPACTION_POLL
        values["compactor_options.worker.compactions_poll_interval"] = _DIRECTORY_COMPACTION_POLL
        if directory.ordered:
            values["garbage_collector_options.wal_options"] = _DIRECTORY_LOG_COLLECTION
        else:
            values["garbage_collector_options"] = None
    settings = uniffi.Settings.default()
    for name, value in values.items():
        settings.set(name, json.dumps(value))
    return settings


def _cache(bytes_max: int) -> uniffi.DbCache:
    return uniffi.DbCache.new_foyer_cache(uniffi.FoyerCacheOptions(max_capacity=bytes_max, shards=_CACHE_SHARDS))


def tell(verdict: shim.Shim, observer: Observer) -> None:
    """Log that the binding copies slowly here, if it does."""
    if not verdict.installed:
        observer.event(names.KEYVALUE_SHIM_OFF, reason=verdict.reason)
