"""Opening a key-value store by URL: as its single writer, or as one of any number of followers.

| URL | store | options |
| --- | --- | --- |
| `memory://name` | a store of this process, for as long as it lives; without a name, a new one | |
| `file:///directory` | a directory, made if it is missing, and safe against the loss of power | |
| `s3://`, `az://`, `gs://` | a bucket or container | those of `penstock.objects.open_store` |
"""

from __future__ import annotations

from typing import Any, Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import InvalidInput, NotFound
from penstock.keyvalue.access import client_entries
from penstock.keyvalue.config import CACHE_BYTES_MAX, UNFLUSHED_BYTES_MAX
from penstock.keyvalue.location import Location, locate
from penstock.keyvalue.memory import MemoryFollower, MemoryKeyValue, MemoryVolume
from penstock.keyvalue.port import KeyValue, Reader
from penstock.observability import SILENT, Observer

__all__ = ["open_follower", "open_keyvalue"]

# How long a write waits for company before its log object is sent. A directory takes a file in two
# milliseconds; a bucket needs 40 for a PUT, and bills every one.
_FLUSH_INTERVAL_MS: Final = {"memory": 1.0, "file": 5.0, "s3": 100.0, "az": 100.0, "gs": 100.0}
# How often SlateDB sends a failed request again, a second apart, on top of the client's own ten tries.
# A server that restarts is waited for; a disk that is full is reported after four seconds.
_RETRIES_MAX: Final = {"memory": 1, "file": 6, "s3": 20, "az": 20, "gs": 20}
# How long ago a follower may have looked at the store.
_POLL_INTERVAL_MS: Final = 1000.0

# Stores in memory live as long as the process, by the name in their URL.
_VOLUMES: Final[dict[str, MemoryVolume]] = {}


async def open_keyvalue(
    store_url: str,
    path: str,
    *,
    flush_interval_ms: float | None = None,
    unflushed_bytes_max: int = UNFLUSHED_BYTES_MAX,
    cache_bytes_max: int = CACHE_BYTES_MAX,
    retries_max: int | None = None,
    probe: bool = True,
    clock: Clock = SYSTEM_CLOCK,
    observer: Observer = SILENT,
    **options: Any,
) -> KeyValue:
    """Open the store at `path` as its only writer. Creates it if needed, and fences the previous writer.

    A bucket that does not enforce conditional writes, on which the fence rests, is refused; `probe=False` trusts an
    earlier opening.
    """
    location = locate(store_url, path)
    entries = client_entries(location, options)
    interval_ms = _FLUSH_INTERVAL_MS[location.scheme] if flush_interval_ms is None else flush_interval_ms
    retries = _RETRIES_MAX[location.scheme] if retries_max is None else retries_max
    _check_bounds(flush_interval_ms=interval_ms, unflushed_bytes_max=unflushed_bytes_max)
    _check_bounds(cache_bytes_max=cache_bytes_max, retries_max=retries)
    if location.scheme == "memory":
        return MemoryKeyValue(_volume(location), location.path, flush_interval_ms=interval_ms)
    # The binding takes a third of a second to load: only those who need it pay.
    from penstock.keyvalue.bucket import check_bucket
    from penstock.keyvalue.engine import Tuning, open_writer

    if location.scheme != "file":
        await check_bucket(location, options, entries, probe=probe, clock=clock)
    tuning = Tuning(interval_ms, cache_bytes_max, retries, unflushed_bytes_max)
    return await open_writer(location, entries, tuning, clock, observer)


async def open_follower(
    store_url: str,
    path: str,
    *,
    poll_interval_ms: float = _POLL_INTERVAL_MS,
    cache_bytes_max: int = CACHE_BYTES_MAX,
    retries_max: int | None = None,
    clock: Clock = SYSTEM_CLOCK,
    observer: Observer = SILENT,
    **options: Any,
) -> Reader:
    """Open the store at `path` for reading durable data, at most `poll_interval_ms` and one read late.

    It needs no permission to write and leaves the writer alone. A scan that runs for more than five
    minutes may meet files that were collected meanwhile, and fails then.
    """
    location = locate(store_url, path)
    entries = client_entries(location, options)
    retries = _RETRIES_MAX[location.scheme] if retries_max is None else retries_max
    _check_bounds(poll_interval_ms=poll_interval_ms, cache_bytes_max=cache_bytes_max, retries_max=retries)
    if location.scheme == "memory":
        volume = _volume(location)
        if volume.newest_writer(location.path) is None:
            raise NotFound(
                f"there is no key-value store at {location}",
                "it was never opened for writing",
                "open it with open_keyvalue",
            )
        return MemoryFollower(volume, location.path, poll_interval_ms=poll_interval_ms, clock=clock)
    from penstock.keyvalue.engine import Tuning, open_reader

    return await open_reader(location, entries, Tuning(poll_interval_ms, cache_bytes_max, retries), observer)


def _volume(location: Location) -> MemoryVolume:
    # Without a name it is the caller's alone.
    return _VOLUMES.setdefault(location.place, MemoryVolume()) if location.place else MemoryVolume()


def _check_bounds(**bounds: float) -> None:
    for name, value in bounds.items():
        if value <= 0:
            raise InvalidInput(f"{name} is {value}", "it must be more than zero", "omit it to use the default")
