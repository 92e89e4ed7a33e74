"""Put, get and compare-and-swap rates of every object store, beside the raw client, boto3 and plain files.

All clients of a backend take turns in short slices, several rounds, and the best slice of each counts:
other work on the machine only ever slows one down. Peers that do not sync are named: they promise less.
Run it with `python benchmarks/objects.py`; it takes about a minute.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import obstore
from obstore.store import AzureStore, LocalStore, MemoryStore, S3Store

from _usage import check_words
from penstock.objects import ObjectStore, open_store
from penstock.testing.servers.object_stores import AzureServer, S3Server, ServerMissing, azurite, seaweedfs

SLICE_SECONDS = 0.2
ROUNDS = 5
SMALL, LARGE = os.urandom(4 << 10), os.urandom(1 << 20)
AT_ONCE = 8
# Keys are reused, so that the disk does not fill and reads find what writes left.
KEYS = [f"bench/{number:02}" for number in range(32)]


class Client(Protocol):
    async def put(self, key: str, body: bytes) -> None: ...

    async def get(self, key: str) -> bytes: ...

    async def swap(self, key: str, number: int) -> None:
        """Read, then write on the condition that nothing changed; `NotImplementedError` where there is none."""
        ...


@dataclass(frozen=True)
class Measure:
    name: str
    unit: str
    body: bytes
    verb: str
    at_once: int = 1

    def rate(self, calls: int, seconds: float) -> float:
        return calls / seconds * (len(self.body) / 1e6 if self.unit == "MB/s" else 1)


MEASURES = [
    Measure("put 4 KB", "1/s", SMALL, "put"),
    Measure("get 4 KB", "1/s", SMALL, "get"),
    Measure("compare-and-swap", "1/s", SMALL, "swap"),
    Measure(f"put 4 KB, {AT_ONCE} at once", "1/s", SMALL, "put", AT_ONCE),
    Measure(f"put 1 MB, {AT_ONCE} at once", "MB/s", LARGE, "put", AT_ONCE),
    Measure(f"get 1 MB, {AT_ONCE} at once", "MB/s", LARGE, "get", AT_ONCE),
]


@dataclass
class Ours:
    store: ObjectStore

    async def put(self, key: str, body: bytes) -> None:
        await self.store.put(key, body)

    async def get(self, key: str) -> bytes:
        return (await self.store.get(key)).data

    async def swap(self, key: str, number: int) -> None:
        found = await self.store.get(key)
        await self.store.put_if(key, b"%d" % number, version=found.meta.version)


@dataclass
class Obstore:
    store: Any

    async def put(self, key: str, body: bytes) -> None:
        await obstore.put_async(self.store, key, body)

    async def get(self, key: str) -> bytes:
        return (await (await obstore.get_async(self.store, key)).bytes_async()).to_bytes()

    async def swap(self, key: str, number: int) -> None:
        found = await obstore.get_async(self.store, key)
        await found.bytes_async()
        await obstore.put_async(self.store, key, b"%d" % number, mode={"e_tag": found.meta["e_tag"]})


@dataclass
class Boto3:
    client: Any
    bucket: str

    async def put(self, key: str, body: bytes) -> None:
        await asyncio.to_thread(self.client.put_object, Bucket=self.bucket, Key=key, Body=body)

    async def get(self, key: str) -> bytes:
        return await asyncio.to_thread(lambda: self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    async def swap(self, key: str, number: int) -> None:
        def both() -> None:
            found = self.client.get_object(Bucket=self.bucket, Key=key)
            found["Body"].read()
            self.client.put_object(Bucket=self.bucket, Key=key, Body=b"%d" % number, IfMatch=found["ETag"])

        await asyncio.to_thread(both)


@dataclass
class SyncedFiles:
    """What a careful program does by hand: new file, sync, rename, sync of the folder; no condition."""

    folder: Path
    counter: Any = field(default_factory=itertools.count)

    async def put(self, key: str, body: bytes) -> None:
        await asyncio.to_thread(self._put, key, body)

    async def get(self, key: str) -> bytes:
        return await asyncio.to_thread((self.folder / key).read_bytes)

    async def swap(self, key: str, number: int) -> None:
        raise NotImplementedError

    def _put(self, key: str, body: bytes) -> None:
        target = self.folder / key
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f"temporary-{next(self.counter)}"
        with temporary.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


async def main() -> None:
    place = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        print(f"best of {ROUNDS} rounds; ratio = ours / peer; an unsynced peer may lose writes with the power\n")
        for backend in (memory, directory, s3, azure):
            async with backend(place) as clients:
                if clients:
                    report(backend.__name__, await measured(clients))
    finally:
        shutil.rmtree(place, ignore_errors=True)


# Backends -----------------------------------------------------------------------------------------


@asynccontextmanager
async def memory(_: Path) -> AsyncIterator[dict[str, Client]]:
    yield {"ours": Ours(await open_store("memory://")), "obstore": Obstore(MemoryStore())}


@asynccontextmanager
async def directory(place: Path) -> AsyncIterator[dict[str, Client]]:
    store = await open_store(f"file://{place}/ours")
    yield {
        "ours": Ours(store),
        "files + fsync": SyncedFiles(place / "files"),
        "obstore, unsynced": Obstore(LocalStore(place / "obstore", mkdir=True)),
    }
    await store.close()


@asynccontextmanager
async def s3(place: Path) -> AsyncIterator[dict[str, Client]]:
    async with started(seaweedfs, place / "seaweedfs") as server:
        if isinstance(server, S3Server):
            yield {
                "ours": Ours(await open_store("s3://penstock/ours", **server.options)),
                "obstore": Obstore(S3Store("penstock", prefix="raw", config=server.options, client_options=HTTP)),  # type: ignore[arg-type]
                "boto3": Boto3(boto3_client(server), "penstock"),
            }
        else:
            yield {}


@asynccontextmanager
async def azure(place: Path) -> AsyncIterator[dict[str, Client]]:
    async with started(azurite, place / "azurite") as server:
        if isinstance(server, AzureServer):
            yield {
                "ours": Ours(await open_store("az://penstock/ours", **server.options)),
                "obstore": Obstore(AzureStore("penstock", prefix="raw", config=server.options, client_options=HTTP)),  # type: ignore[arg-type]
            }
        else:
            yield {}


HTTP: Any = {"allow_http": True}


@asynccontextmanager
async def started(server: Callable[[Path], Any], folder: Path) -> AsyncIterator[Any]:
    """The server, or None with the reason printed."""
    async with AsyncExitStack() as stack:
        try:
            running = stack.enter_context(server(folder))
        except ServerMissing as missing:
            print(f"{server.__name__}: absent here: {missing}\n")
            running = None
        yield running


def boto3_client(server: S3Server) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=server.region,
        aws_access_key_id=server.access_key_id,
        aws_secret_access_key=server.secret_access_key,
        config=Config(s3={"addressing_style": "path"}, max_pool_connections=AT_ONCE),
    )


# Measuring ----------------------------------------------------------------------------------------

Rates = dict[str, dict[str, float | None]]


async def measured(clients: dict[str, Client]) -> Rates:
    rates: Rates = {}
    for measure in MEASURES:
        samples: dict[str, list[float]] = {name: [] for name in clients}
        for client in clients.values():
            await asyncio.gather(*(client.put(key, measure.body) for key in KEYS))
        for _, (name, client) in itertools.product(range(ROUNDS), clients.items()):
            try:
                samples[name].append(await one_slice(client, measure))
            except NotImplementedError:
                continue
        rates[f"{measure.name} ({measure.unit})"] = {name: max(found, default=None) for name, found in samples.items()}
    return rates


async def one_slice(client: Client, measure: Measure) -> float:
    began = time.perf_counter()
    end = began + SLICE_SECONDS
    turns = itertools.count()

    async def work(worker: int) -> None:
        keys = itertools.cycle(KEYS[worker :: measure.at_once])
        while time.perf_counter() < end:
            await call(client, measure, KEYS[0] if measure.verb == "swap" else next(keys), next(turns))

    await asyncio.gather(*(work(worker) for worker in range(measure.at_once)))
    return measure.rate(next(turns), time.perf_counter() - began)


def call(client: Client, measure: Measure, key: str, turn: int) -> Awaitable[Any]:
    if measure.verb == "put":
        return client.put(key, measure.body)
    return client.get(key) if measure.verb == "get" else client.swap(key, turn)


def report(backend: str, rates: Rates) -> None:
    peers = [name for name in next(iter(rates.values())) if name != "ours"]
    print(f"{backend:32}{'ours':>10}" + "".join(f"{name:>20}{'ratio':>7}" for name in peers))
    for measure, found in rates.items():
        ours = found["ours"] or 0.0
        cells = "".join(cell(ours, found[name]) for name in peers)
        print(f"  {measure:30}{ours:>10,.0f}{cells}")
    print()


def cell(ours: float, peer: float | None) -> str:
    return f"{'none':>20}{'':>7}" if peer is None else f"{peer:>20,.0f}{ours / peer:>7.2f}"


if __name__ == "__main__":
    check_words(__doc__)
    asyncio.run(main())
