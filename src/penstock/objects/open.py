"""From a URL to a store that is there, is reachable, and enforces conditional writes, or a clear error.

| URL | store | options |
| --- | --- | --- |
| `memory://` | a new store in memory; with a name, the one of that name in this process | |
| `file:///directory` | a local directory, made if it is missing | |
| `s3://bucket/prefix` | Amazon S3 and its look-alikes | `S3Options` |
| `az://container/prefix` | Azure Blob Storage | `AzureOptions` |
| `gs://bucket/prefix` | Google Cloud Storage | `GoogleOptions` |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import InvalidInput, PenstockError, Unsupported
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.objects.bounds import GET_BYTES_MAX
from penstock.objects.directory.folder import Unreadable
from penstock.objects.directory.store import DirectoryStore
from penstock.objects.memory import MemoryStore
from penstock.objects.port import ObjectStore
from penstock.objects.probe import probe_conditional_writes
from penstock.objects.readonly import ReadOnlyStore
from penstock.objects.retry import DEFAULT_RETRY, Repeater, RetryingStore, RetryPolicy
from penstock.objects.url import StoreUrl, parse_url
from penstock.observability import SILENT, Observer

if TYPE_CHECKING:
    from penstock.objects.cloud.store import CloudStore

__all__ = ["StoreSpec", "open_store"]

# A mistyped endpoint is reported before its writer loses patience.
OPEN_SECONDS_MAX: Final = 10.0

# Schemes without a service behind them; the clients of services are loaded for the others.
_LOCAL: Final = ("memory", "file")

# Stores in memory by name, for as long as the process lives: closing and opening again finds them as they were.
_NAMED: Final[dict[str, MemoryStore]] = {}


async def open_store(
    url: str,
    *,
    read_only: bool = False,
    probe: bool = True,
    get_bytes_max: int = GET_BYTES_MAX,
    retry: RetryPolicy = DEFAULT_RETRY,
    clock: Clock = SYSTEM_CLOCK,
    entropy: Entropy = SYSTEM_ENTROPY,
    observer: Observer = SILENT,
    unreadable: Unreadable | None = None,
    **options: Any,
) -> ObjectStore:
    """The store at `url`. `read_only` writes nothing, not even to probe; `probe=False` trusts an earlier opening.

    With `unreadable`, a listing of a directory goes on without folders that this user may not look into, and tells it.
    """
    place = parse_url(url)
    if get_bytes_max < 1:
        raise InvalidInput(f"get_bytes_max = {get_bytes_max}", "it must be above zero", "omit it for 256 MiB")
    _check_options(place, options)
    store: ObjectStore
    if place.scheme == "memory":
        store = _memory(place, clock, get_bytes_max)
    elif place.scheme == "file":
        doors = {"clock": clock, "entropy": entropy, "get_bytes_max": get_bytes_max, "unreadable": unreadable}
        store = await _directory(place, read_only, **doors)
    else:
        store = cloud = _cloud(place, options, clock, get_bytes_max)
        await _check_cloud(cloud, probe and not read_only, retry, clock, entropy)
    if place.scheme not in _LOCAL:
        store = RetryingStore(store, retry, clock=clock, entropy=entropy, observer=observer)
    elif observer is not SILENT:
        # Wrapped to be counted and nothing else: who watches a store does not change what it does.
        store = RetryingStore(store, None, clock=clock, entropy=entropy, observer=observer)
    return ReadOnlyStore(store) if read_only else store


@dataclass(frozen=True)
class StoreSpec:
    """A store described, not opened: it can be pickled, sent to another process and opened there."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    async def open(
        self, *, probe: bool = False, clock: Clock = SYSTEM_CLOCK, observer: Observer = SILENT
    ) -> ObjectStore:
        """Open here. Whoever made the description has probed the store already."""
        return await open_store(self.url, **{"probe": probe, "clock": clock, "observer": observer, **self.options})

    def __reduce__(self) -> tuple[Any, ...]:
        if self.url.startswith("memory:"):
            raise Unsupported(
                f"{self.url} cannot be opened in another process",
                "it is in the memory of this process",
                "use a directory or an object store",
            )
        return StoreSpec, (self.url, dict(self.options))


def _memory(place: StoreUrl, clock: Clock, get_bytes_max: int) -> ObjectStore:
    store = MemoryStore(place.place, clock=clock, get_bytes_max=get_bytes_max)
    return _NAMED.setdefault(place.place, store) if place.place else store


async def _directory(place: StoreUrl, read_only: bool, **doors: Any) -> ObjectStore:
    store = DirectoryStore(_real_path(place.place), **doors)
    try:
        await (store.check_present() if read_only else store.prepare())
    except PenstockError:
        await store.close()
        raise
    return store


def _real_path(path: str) -> str:
    """A link to the directory itself is the caller's choice; links inside it are refused."""
    return str(Path(path).resolve())


def _cloud(place: StoreUrl, options: Mapping[str, Any], clock: Clock, get_bytes_max: int) -> CloudStore:
    from penstock.objects.cloud.services import SERVICES, connect
    from penstock.objects.cloud.store import CloudStore

    url, bucket = str(place), place.place
    remote = connect(url, bucket, SERVICES[place.scheme](**options))
    return CloudStore(url, bucket, remote, prefix=place.prefix, clock=clock, get_bytes_max=get_bytes_max)


async def _check_cloud(store: CloudStore, probe: bool, retry: RetryPolicy, clock: Clock, entropy: Entropy) -> None:
    policy = replace(retry, deadline_seconds=min(retry.deadline_seconds, OPEN_SECONDS_MAX))
    repeater = Repeater(policy, clock=clock, entropy=entropy)
    await repeater.run("open", store.url, store.check_present, is_write=False)
    if probe:
        await probe_conditional_writes(store.probe_target(), clock=clock, entropy=entropy)


def _check_options(place: StoreUrl, options: Mapping[str, Any]) -> None:
    known = [] if place.scheme in _LOCAL else _options_of(place.scheme)
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, 1)
            remedy = f"did you mean {near[0]!r}?" if near else f"{place.scheme}:// takes {', '.join(known) or 'none'}"
            raise InvalidInput(f"option {name!r} of {place} cannot be used", "there is no such option", remedy)


def _options_of(scheme: str) -> list[str]:
    from penstock.objects.cloud.services import SERVICES

    return [one.name for one in fields(SERVICES[scheme])]
