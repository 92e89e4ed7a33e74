"""S3, Azure Blob Storage and Google Cloud Storage behind the port, through obstore.

Every call is sent once: repeating is the business of `retry.py`, which never repeats a conditional
write. An answer that was lost after a write was sent is `OutcomeUnknown`. On S3 a version is a hash of
the content, so writing the same bytes again gives the same version: an object under compare-and-swap
must carry something that changes with every write.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import obstore
from obstore import exceptions

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Conflict, InvalidInput, NotFound, PenstockError, Unavailable
from penstock.objects.bounds import (
    GET_BYTES_MAX,
    RACES_MAX,
    check_body,
    check_listing,
    check_size,
    check_start,
    check_version,
    conflict,
    missing,
    storm,
)
from penstock.objects.cloud.answer import CloudAnswer
from penstock.objects.cloud.explanations import explain
from penstock.objects.cloud.ordered_listing import CloudListing, remote_meta
from penstock.objects.cloud.ranges import Range, coalesced, cut
from penstock.objects.cloud.said import said_of
from penstock.objects.cloud.services import Remote, is_own_address
from penstock.objects.port import (
    KEY_BYTES_MAX,
    RESERVED_FOLDER,
    Body,
    Object,
    ObjectMeta,
    check_key,
    check_keys,
    check_range,
)

if TYPE_CHECKING:
    from obstore import GetOptions

__all__ = ["CloudStore"]

T = TypeVar("T")
# Named here because the verb `list` shadows the type inside the class.
_Bodies: TypeAlias = list[bytes]
_Fetched: TypeAlias = list[tuple[ObjectMeta, memoryview]]

# Above it an unconditional put is sent in parts, side by side; S3 takes no part under 5 MiB.
PART_BYTES: Final = 32 * 1024 * 1024
PARTS_AT_ONCE: Final = 4
REQUESTS_AT_ONCE: Final = 8
# The most keys S3 deletes in one request; the client splits further where a service takes fewer.
DELETE_KEYS_MAX: Final = 1000

_CLIENT_ERRORS: Final = (exceptions.BaseError, OSError)


class CloudStore:
    """The port over one bucket or container, and one prefix in it."""

    def __init__(
        self,
        url: str,
        bucket: str,
        remote: Remote,
        *,
        prefix: str = "",
        clock: Clock = SYSTEM_CLOCK,
        get_bytes_max: int = GET_BYTES_MAX,
    ) -> None:
        self.url = url
        self._bucket = bucket
        self._remote = remote
        self._is_ordered = remote.is_ordered
        self._base = f"{prefix}/" if prefix else ""
        self._clock = clock
        self._get_bytes_max = get_bytes_max
        # Whether the bucket was there once: from then on its absence says nothing of what it holds.
        self._was_there = False

    async def check_present(self) -> None:
        """Ask for an object that is never there: the refusal shows the bucket, the credentials and the address."""
        try:
            await obstore.get_async(self._remote.store, f"{self._base}{RESERVED_FOLDER}/none")
        except _CLIENT_ERRORS as error:
            answer = CloudAnswer.of(error)
            if self._is_ordered is None:
                self._is_ordered = is_own_address(answer.host)
            # S3 denies what it would not find to those who may not list: a later call will tell.
            if answer.code != "AccessDenied" and (answer.status != 404 or answer.is_missing_bucket):
                raise self._explained(answer, f"{self.url} cannot be opened") from error
        else:
            raise Unavailable(
                f"{self.url} cannot be used",
                "something else answers in its place: it returned an object that does not exist",
                "check the endpoint, and whether a proxy requires a login",
            )
        self._was_there = True

    def probe_target(self) -> CloudStore:
        """The same bucket, below the folder that no listing shows."""
        prefix = f"{self._base}{RESERVED_FOLDER}/probe"
        return CloudStore(self.url, self._bucket, self._remote, prefix=prefix, clock=self._clock)

    async def get(self, key: str) -> Object:
        return await self._whole(key, await self._read(key, obstore.get_async(self._remote.store, self._path(key))))

    async def get_if_changed(self, key: str, *, version: str) -> Object | None:
        options = self._remote.versions.unless(version) if _is_condition(version) else {}
        call = obstore.get_async(self._remote.store, self._path(key), options=options)
        try:
            result = await self._read(key, call)
        except Conflict:
            # The only condition that was sent: it is still at this version.
            return None
        # A service that ignores the condition, or has none, answers with the meta before the body, which is not taken.
        is_same = remote_meta(key, result.meta, self._remote).version == version
        return None if is_same else await self._whole(key, result)

    async def get_durable(self, key: str) -> Object:
        return await self.get(key)

    async def get_range(self, key: str, start: int, end: int, *, version: str | None = None) -> bytes:
        return (await self.get_ranges(key, [(start, end)], version=version))[0]

    async def get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> list[bytes]:
        for start, end in ranges:
            check_range(key, start, end)
        for _ in range(RACES_MAX):
            try:
                return await self._get_ranges(key, ranges, version)
            except Conflict:
                if version is not None:
                    raise
        raise storm(self.url, key)

    async def head(self, key: str) -> ObjectMeta:
        # Unlike the client's own `head`, this one tells what the writer said of the object.
        call = obstore.get_async(self._remote.store, self._path(key), options={"head": True})
        found = await self._read(key, call)
        return remote_meta(key, found.meta, self._remote, said_of(found.attributes))

    async def put(self, key: str, data: Body) -> ObjectMeta:
        body = check_body(key, data)
        write = obstore.put_async(
            self._remote.store,
            self._path(key),
            body,
            use_multipart=len(body) > PART_BYTES,
            chunk_size=PART_BYTES,
            max_concurrency=PARTS_AT_ONCE,
        )
        try:
            return self._written(key, body, await self._write(f"put of {key!r}", write))
        except _CarriedOut:
            return await self.head(key)

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        body = check_body(key, data)
        path = self._path(key)
        self._check_condition(key, version)
        mode: Any = "create" if version is None else self._remote.versions.for_update(version)
        write = obstore.put_async(self._remote.store, path, body, mode=mode, use_multipart=False)
        refusal = conflict(self.url, key, version)
        call = self._write(f"put_if of {key!r}", write, refusal, is_update=version is not None)
        return self._written(key, body, await call)

    async def list(
        self, prefix: str = "", *, offset: str = "", page_size: int = 1000
    ) -> AsyncIterator[list[ObjectMeta]]:
        check_listing(prefix, offset, page_size)
        listing = CloudListing(self.url, self._remote, self._base, prefix, offset)
        is_empty = True
        try:
            async for page in listing.pages(page_size, is_ordered=bool(self._is_ordered)):
                is_empty = False
                yield page
        except _CLIENT_ERRORS as error:
            raise self._explained(CloudAnswer.of(error), f"listing {prefix!r} in {self.url} failed") from error
        if is_empty:
            # The client reads any page that is no listing as an empty one, and whoever mirrors a bucket would delete all.
            await self.check_present()

    async def delete(self, key: str) -> None:
        await self.delete_many([key])

    async def delete_many(self, keys: Iterable[str]) -> None:
        paths = iter(dict.fromkeys([self._path(key) for key in check_keys(keys)]))
        while chunk := [*islice(paths, DELETE_KEYS_MAX)]:
            try:
                await self._delete(chunk)
            except FileNotFoundError:
                # Some services refuse the whole lot for one that is gone: then one at a time.
                await _each(self._delete_one, chunk)

    async def close(self) -> None:
        """Nothing to do: the client closes idle connections by itself."""

    def _path(self, key: str) -> str:
        path = self._base + check_key(key)
        if len(path.encode()) > KEY_BYTES_MAX:
            raise InvalidInput(f"object key {key[:80]!r} cannot be used", f"behind {self._base!r} it is too long")
        return path

    async def _whole(self, key: str, result: obstore.GetResult) -> Object:
        meta = remote_meta(key, result.meta, self._remote, said_of(result.attributes))
        check_size(self.url, meta, self._get_bytes_max)
        return Object(meta, (await self._body(key, result, meta.size)).to_bytes())

    async def _body(self, key: str, result: obstore.GetResult, size: int) -> obstore.Bytes:
        """All of the bytes that the answer announced: the client passes on fewer where a server's headers disagree."""
        body = await self._read(key, result.bytes_async())
        if len(body) != size:
            what = f"reading {key!r} in {self.url} failed"
            raise Unavailable(what, f"the service sent {len(body)} of {size} bytes", "try again later")
        return body

    def _check_condition(self, key: str, version: str | None) -> None:
        """What is no condition is not sent; no object has such a version."""
        if version is not None and not _is_condition(version):
            raise conflict(self.url, key, version)

    def _written(self, key: str, body: Body, result: obstore.PutResult) -> ObjectMeta:
        return ObjectMeta(key, len(body), self._remote.versions.of(result), self._clock.now_ms())

    def _explained(self, answer: CloudAnswer, what: str, *, is_write: bool = False) -> PenstockError:
        return explain(answer, what, self._bucket, is_write=is_write)

    async def _write(
        self, what: str, call: Awaitable[T], refusal: Conflict | None = None, *, is_update: bool = False
    ) -> T:
        """`refusal` is raised when the condition did not hold. Only an update can find that its object is gone."""
        try:
            return await call
        except _CLIENT_ERRORS as error:
            answer = CloudAnswer.of(error)
            if answer.is_carried_out:
                raise _CarriedOut from error
            if refusal and answer.is_conflict and (is_update or answer.status != 404):
                raise refusal from error
            raise self._explained(answer, f"{what} in {self.url} failed", is_write=True) from error

    async def _read(self, key: str, call: Awaitable[T], version: str | None = None, *, is_range: bool = False) -> T:
        try:
            return await call
        except _CLIENT_ERRORS as error:
            answer, what = CloudAnswer.of(error), f"reading {key!r} in {self.url} failed"
            if is_range and answer.is_past_end:
                raise _PastEnd from error
            if answer.status == 404 and not answer.is_missing_bucket:
                raise missing(self.url, key) from error
            if answer.is_conflict:
                raise conflict(self.url, key, version) from error
            if answer.is_missing_bucket and self._was_there:
                # `NotFound` would say that this object was never written.
                why = f"the bucket or container {self._bucket!r} is gone"
                raise Unavailable(what, why, "restore it, or check the endpoint") from error
            raise self._explained(answer, what) from error

    async def _get_ranges(self, key: str, ranges: Sequence[Range], version: str | None) -> _Bodies:
        """All ranges of one version: the first answer decides which, if the caller does not."""
        requests = coalesced(ranges)
        fetched: _Fetched = []
        try:
            fetched += [await self._fetch(key, request, version) for request in requests[:1]]
            meta = fetched[0][0] if fetched else await self.head(key)
        except _PastEnd:
            # Perhaps the ranges are merely empty at the end: only the size can tell.
            meta = await self.head(key)
        if version is not None:
            check_version(self.url, key, meta.version, version)
        for start, _ in ranges:
            check_start(key, start, meta.size)
        requests = [one for one in requests if one[0] < meta.size]
        try:
            fetched += await _each(lambda one: self._fetch(key, one, meta.version), requests[len(fetched) :])
        except _PastEnd as error:
            why = f"the service refuses ranges of its {meta.size} bytes"
            raise Unavailable(f"reading {key!r} in {self.url} failed", why, "try again later") from error
        return cut(ranges, requests, [body for _, body in fetched])

    async def _fetch(self, key: str, request: Range, version: str | None) -> tuple[ObjectMeta, memoryview]:
        path = self._path(key)
        options: GetOptions = {"range": request}
        if version is not None:
            self._check_condition(key, version)
            options |= self._remote.versions.for_read(version)
        try:
            call = obstore.get_async(self._remote.store, path, options=options)
            result = await self._read(key, call, version, is_range=True)
        except (Conflict, NotFound) as error:
            if version is None:
                raise
            # Changed, or gone? The services differ in how they tell, so ask: `NotFound` comes from here.
            await self.head(key)
            raise conflict(self.url, key, version) from error
        meta = remote_meta(key, result.meta, self._remote)
        body = await self._body(key, result, min(request[1], meta.size) - request[0])
        return meta, memoryview(body)

    async def _delete_one(self, path: str) -> None:
        try:
            await self._delete([path])
        except FileNotFoundError:
            return

    async def _delete(self, paths: Sequence[str]) -> None:
        try:
            await obstore.delete_async(self._remote.store, paths)
        except _CLIENT_ERRORS as error:
            answer = CloudAnswer.of(error)
            if answer.is_carried_out:
                return
            if isinstance(error, FileNotFoundError) and not answer.is_missing_bucket:
                raise
            what = f"delete of {len(paths)} objects in {self.url} failed"
            raise self._explained(answer, what, is_write=True) from error


def _is_condition(version: str) -> bool:
    """An empty or starred one would match anything."""
    return version.isascii() and version.isprintable() and bool(version.strip('" ,*'))


class _CarriedOut(Exception):
    """A write that was done, whose answer the client took for an error."""


class _PastEnd(Exception):
    """A range starts at or past the end of the object."""


async def _each(call: Callable[[Any], Awaitable[T]], inputs: Sequence[Any]) -> list[T]:
    """Some calls side by side, their results in order; the first failure ends the rest."""
    turns = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def one(each: Any) -> T:
        async with turns:
            return await call(each)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(each)) for each in inputs]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
