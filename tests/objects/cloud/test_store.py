"""Cloud stores: one request a call, and what a lost answer, a refusal or a lax service is told as."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.objects.bucket_server import BucketServer, Fate, bucket_server

from penstock.errors import (
    AtCapacity,
    Conflict,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    PenstockError,
    PermissionDenied,
    StorageFull,
    Unavailable,
    Unsupported,
)
from penstock.objects.cloud.services import AzureOptions, GoogleOptions, S3Options, connect
from penstock.objects.cloud.store import PART_BYTES, CloudStore
from penstock.testing import ManualClock
from penstock.testing.servers.object_stores import AzureServer, S3Server

Promise = Callable[[CloudStore, BucketServer], Awaitable[None]]


def s3(server: BucketServer, *, prefix: str = "", **options: Any) -> CloudStore:
    remote = connect("s3://bucket", "bucket", S3Options(**server.s3_options | options))
    return CloudStore("s3://bucket", "bucket", remote, prefix=prefix, clock=ManualClock())


def google(server: BucketServer) -> CloudStore:
    remote = connect("gs://bucket", "bucket", GoogleOptions(**server.google_options))
    return CloudStore("gs://bucket", "bucket", remote, clock=ManualClock())


def on_double(promise: Promise, open_: Callable[..., CloudStore] = s3, **settings: Any) -> None:
    options = {
        name: settings.pop(name) for name in list(settings) if name in ("ordered_listing", "request_seconds_max")
    }

    async def run(server: BucketServer) -> None:
        await promise(open_(server, **options), server)

    with bucket_server(**settings) as server:
        asyncio.run(run(server))


# Lost answers -------------------------------------------------------------------------------------

LOST_BEFORE = [Fate.CUT_BEFORE, Fate.ERROR_BEFORE]
LOST_AFTER = [Fate.CUT_AFTER, Fate.ERROR_AFTER, Fate.SILENT_AFTER, Fate.NO_ETAG]


@pytest.mark.cases(quick=1)
@pytest.mark.parametrize("fate", LOST_BEFORE + LOST_AFTER)
def test_a_conditional_write_whose_answer_was_lost_is_of_unknown_outcome_and_sent_once(fate: Fate) -> None:
    """The client's own retries would send it again and report a conflict of the writer with itself."""

    async def promise(store: CloudStore, server: BucketServer) -> None:
        first = await store.put("object", b"first")
        server.fates.extend([fate])
        with pytest.raises(OutcomeUnknown, match="read it again"):
            await store.put_if("object", b"second", version=first.version)
        assert server.count("PUT") == 2
        landed = fate in LOST_AFTER
        assert (await store.get("object")).data == (b"second" if landed else b"first")

    on_double(promise, request_seconds_max=3)


@pytest.mark.cases(quick=1)
@pytest.mark.parametrize("fate", LOST_BEFORE + LOST_AFTER)
def test_a_create_whose_answer_was_lost_is_of_unknown_outcome(fate: Fate) -> None:
    async def promise(store: CloudStore, server: BucketServer) -> None:
        server.fates.extend([fate])
        with pytest.raises(OutcomeUnknown):
            await store.put_if("object", b"body", version=None)
        assert server.count("PUT") == 1
        assert ("object" in server.objects) == (fate in LOST_AFTER)

    on_double(promise, request_seconds_max=3)


def test_a_create_that_meets_an_unknown_place_is_no_conflict() -> None:
    """A wrong path behind a proxy: nobody wrote the object first, and reading it again would never end."""

    async def promise(store: CloudStore, server: BucketServer) -> None:
        server.fates.append(Fate.UNKNOWN_PLACE)
        with pytest.raises(NotFound):
            await store.put_if("new", b"1", version=None)
        at = await store.put("old", b"1")
        server.fates.append(Fate.UNKNOWN_PLACE)
        with pytest.raises(Conflict):
            await store.put_if("old", b"2", version=at.version)

    on_double(promise)


def test_a_bucket_that_went_away_does_not_pass_for_a_missing_object() -> None:
    """A register would take it for a value that nobody has written yet."""

    async def promise(store: CloudStore, server: BucketServer) -> None:
        await store.check_present()
        await store.put("a", b"1")
        server.is_gone = True
        for read in (store.get("a"), store.get_if_changed("a", version="x"), store.get_range("a", 0, 1)):
            with pytest.raises(Unavailable, match="'bucket' is gone"):
                await read

    on_double(promise)


def test_a_page_in_the_place_of_a_listing_does_not_pass_for_an_empty_bucket() -> None:
    """Whoever mirrors the bucket would delete everything."""

    async def promise(store: CloudStore, server: BucketServer) -> None:
        await store.put("a", b"1")
        server.is_page = True
        with pytest.raises(Unavailable, match="something else answers in its place"):
            [page async for page in store.list()]
        with pytest.raises(Unavailable, match="something else answers in its place"):
            await store.check_present()
        server.is_page = False
        assert [page async for page in store.list("other/")] == []

    on_double(promise)


def test_a_service_that_refuses_every_range_is_told_in_our_words() -> None:
    async def promise(store: CloudStore, server: BucketServer) -> None:
        await store.put("a", b"0123456789")
        server.refuses_ranges = True
        with pytest.raises(InvalidInput, match="416"):
            await store.get("a")
        with pytest.raises(Unavailable, match="refuses ranges of its 10 bytes"):
            await store.get_range("a", 2, 4)

    on_double(promise)


@pytest.mark.parametrize("fate", [Fate.SLOW_DOWN, Fate.THROTTLED])
def test_a_write_turned_away_unread_is_unavailable_and_known_not_to_have_landed(fate: Fate) -> None:
    async def promise(store: CloudStore, server: BucketServer) -> None:
        server.fates.extend([fate, fate])
        with pytest.raises(Unavailable):
            await store.put_if("object", b"body", version=None)
        with pytest.raises(Unavailable):
            await store.put("object", b"body")
        assert server.count("PUT") == 2
        assert server.objects == {}

    on_double(promise)


def test_a_write_that_never_reached_a_server_is_unavailable_and_names_the_cause() -> None:
    async def promise(store: CloudStore, server: BucketServer) -> None:
        dead = s3(server, endpoint="http://127.0.0.1:1")
        with pytest.raises(Unavailable, match="Connection refused"):
            await dead.put_if("object", b"body", version=None)

    on_double(promise)


def test_a_full_store_says_so() -> None:
    async def promise(store: CloudStore, server: BucketServer) -> None:
        server.fates.extend([Fate.FULL, Fate.FULL])
        with pytest.raises(StorageFull):
            await store.put("object", b"body")
        with pytest.raises(StorageFull):
            await store.put_if("object", b"body", version=None)

    on_double(promise)


def test_a_cancelled_write_leaves_the_store_usable() -> None:
    async def promise(store: CloudStore, server: BucketServer) -> None:
        server.fates.extend([Fate.SILENT_AFTER])
        write = asyncio.create_task(store.put_if("object", b"body", version=None))
        await asyncio.to_thread(server.landed.wait, 10)
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write
        assert (await store.get("object")).data == b"body"

    on_double(promise)


# Reading ------------------------------------------------------------------------------------------


def test_an_object_too_large_to_get_is_refused_before_its_body_is_read() -> None:
    async def promise(store: CloudStore, server: BucketServer) -> None:
        await store.put("object", b"x" * 1000)
        small = CloudStore(
            "s3://bucket", "bucket", connect("", "bucket", S3Options(**server.s3_options)), get_bytes_max=999
        )
        with pytest.raises(AtCapacity, match="1000 bytes, over get_bytes_max of 999"):
            await small.get("object")

    on_double(promise)


def test_a_range_that_arrives_shorter_than_announced_is_not_passed_on() -> None:
    async def promise(store: CloudStore, server: BucketServer) -> None:
        await store.put("object", b"0123456789")
        with pytest.raises(Unavailable, match="sent 4 of 5 bytes"):
            await store.get_range("object", 0, 5)
        with pytest.raises(Unavailable, match="sent 1 of 2 bytes"):
            await store.get_ranges("object", [(8, 12)])

    on_double(promise, range_bytes_withheld=1)


def test_near_ranges_share_a_request_and_far_ones_do_not() -> None:
    async def promise(store: CloudStore, server: BucketServer) -> None:
        body = bytes(range(256)) * 20_000
        await store.put("object", body)
        ranges = [(0, 10), (100, 110), (4_000_000, 4_000_010)]
        assert await store.get_ranges("object", ranges) == [body[start:end] for start, end in ranges]
        assert server.count("GET") == 2

    on_double(promise)


def test_ranges_without_a_version_are_read_anew_when_the_object_changes_between_requests() -> None:
    async def promise(store: CloudStore, server: BucketServer) -> None:
        size = 3_000_000
        await store.put("object", b"a" * size)
        fetch = store._fetch
        calls = 0

        async def fetch_and_replace(key: str, request: tuple[int, int], version: str | None) -> Any:
            nonlocal calls
            calls += 1
            answer = await fetch(key, request, version)
            if calls == 1:
                await store.put("object", b"b" * size)
            return answer

        store._fetch = fetch_and_replace  # type: ignore[method-assign]
        assert await store.get_ranges("object", [(0, 1), (size - 1, size)]) == [b"b", b"b"]

    on_double(promise)


# Listing ------------------------------------------------------------------------------------------


def test_an_ordered_listing_starts_at_the_prefix_stops_behind_it_and_pages_through() -> None:
    async def promise(store: CloudStore, server: BucketServer) -> None:
        for key in ("base/a", "base/b/0", "base/b/1", "base/b/2", "base/b0", "base/c", "outside"):
            server.objects[key] = (b"body", 1)
        inside = s3(server, prefix="base", ordered_listing=True)
        found = [[meta.key for meta in page] async for page in inside.list("b", page_size=3)]
        assert found == [["b/0", "b/1", "b/2"], ["b0"]]
        assert [meta.key async for page in inside.list("b/", offset="b/0") for meta in page] == ["b/1", "b/2"]
        first, *_ = (path for _, path in server.requests if "list-type" in path)
        assert "start-after=base/a~" in first

    on_double(promise, page_size=2)


def test_a_listing_out_of_byte_order_is_sorted_or_if_trusted_refused_by_name() -> None:
    async def promise(store: CloudStore, server: BucketServer) -> None:
        server.objects = dict.fromkeys(("a/b", "a-b"), (b"body", 1))
        assert [meta.key async for page in store.list() for meta in page] == ["a-b", "a/b"]
        assert [meta.key async for page in store.list(offset="a-b") for meta in page] == ["a/b"]
        with pytest.raises(Unsupported, match="ordered_listing=False"):
            [meta async for page in s3(server, ordered_listing=True).list() for meta in page]

    on_double(promise, lists_by_folder=True)


def test_what_a_console_leaves_behind_is_not_listed() -> None:
    """Folder markers, and names that no key of ours can have."""

    async def promise(store: CloudStore, server: BucketServer) -> None:
        for key in ("a-b", "a/", "a/b", ".penstock/probe/x", "z"):
            server.objects[key] = (b"" if key.endswith("/") else b"body", 1)
        for ordered in (True, False):
            listing = s3(server, ordered_listing=ordered)
            found = [meta.key async for page in listing.list() for meta in page if meta.size]
            assert found == ["a-b", "a/b", "z"]

    on_double(promise)


@pytest.mark.parametrize("key", ["a//b", "a/../b"])
def test_a_name_that_the_client_cannot_list_is_told_at_once_and_by_its_name(key: str) -> None:
    async def promise(store: CloudStore, server: BucketServer) -> None:
        server.objects = dict.fromkeys(("good", key), (b"body", 1))
        with pytest.raises(Unsupported, match=key) as told:
            [meta async for page in store.list() for meta in page]
        assert "rename" in told.value.remedy
        assert sum("list-type" in path for _, path in server.requests) == 1

    on_double(promise)


# Google -------------------------------------------------------------------------------------------


def test_google_keeps_versions_as_generations() -> None:
    async def promise(store: CloudStore, server: BucketServer) -> None:
        created = await store.put_if("object", b"0123456789", version=None)
        assert created.version == "1001"
        with pytest.raises(Conflict):
            await store.put_if("object", b"again", version=None)
        assert await store.get_range("object", 2, 4, version=created.version) == b"23"
        updated = await store.put_if("object", b"0123456789", version=created.version)
        assert updated.version == "1002"
        with pytest.raises(Conflict):
            await store.put_if("object", b"late", version=created.version)
        with pytest.raises(Conflict):
            await store.get_range("object", 2, 4, version=created.version)
        await store.delete_many(["object", "missing"])
        await store.delete("object")
        with pytest.raises(NotFound):
            await store.get_range("object", 2, 4, version=updated.version)

    on_double(promise, google)


# Refusals of real servers -------------------------------------------------------------------------


def calls(store: CloudStore) -> list[Awaitable[object]]:
    async def listing() -> list[object]:
        return [page async for page in store.list()]

    return [
        store.check_present(),
        store.get("object"),
        store.put("object", b""),
        store.put_if("object", b"", version=None),
        store.put_if("object", b"", version="0"),
        store.delete("object"),
        store.delete_many(["a", "b"]),
        listing(),
    ]


async def all_raise(store: CloudStore, kind: type[PenstockError], text: str) -> None:
    for call in calls(store):
        with pytest.raises(kind, match=text):
            await call


@pytest.mark.integration
def test_s3_refuses_wrong_credentials_by_every_verb(s3_server: S3Server) -> None:
    wrong = S3Options(**s3_server.options | {"secret_access_key": "wrong"})
    unknown = S3Options(**s3_server.options | {"access_key_id": "nobody"})

    async def promise() -> None:
        for options in (wrong, unknown):
            store = CloudStore("s3://penstock", "penstock", connect("", "penstock", options))
            await all_raise(store, PermissionDenied, "credentials")

    asyncio.run(promise())


@pytest.mark.integration
def test_azure_refuses_wrong_credentials_by_every_verb(azure_server: AzureServer) -> None:
    options = AzureOptions(**azure_server.options | {"account_key": "d3Jvbmc="})

    async def promise() -> None:
        store = CloudStore("az://penstock", "penstock", connect("", "penstock", options))
        await all_raise(store, PermissionDenied, "credentials")

    asyncio.run(promise())


@pytest.mark.integration
def test_azure_names_a_missing_container_by_every_verb(azure_server: AzureServer) -> None:
    async def promise() -> None:
        remote = connect("", "missing", AzureOptions(**azure_server.options))
        await all_raise(CloudStore("az://missing", "missing", remote), NotFound, "'missing'")

    asyncio.run(promise())


@pytest.mark.integration
def test_s3_names_a_missing_bucket(s3_server: S3Server) -> None:
    """Deleting is left out: SeaweedFS calls it a success where there is no bucket."""

    async def promise() -> None:
        store = CloudStore("s3://missing", "missing", connect("", "missing", S3Options(**s3_server.options)))
        for call in (store.check_present(), store.put("object", b""), store.put_if("object", b"", version=None)):
            with pytest.raises(NotFound, match="no bucket or container 'missing'"):
                await call

    asyncio.run(promise())


@pytest.mark.parametrize("key", ["k" * 1020])
def test_a_key_too_long_behind_the_prefix_is_refused(key: str) -> None:
    async def promise(store: CloudStore, server: BucketServer) -> None:
        with pytest.raises(InvalidInput, match="too long"):
            await s3(server, prefix="prefix").put(key, b"")
        await store.put(key, b"")

    on_double(promise)


# Names --------------------------------------------------------------------------------------------

# Words that the client's errors are read by, as the names of objects.
HOSTILE_KEYS = [
    "a/StartTooLarge.txt",
    "x/NoSuchBucket",
    "x/ContainerNotFound",
    "x/The specified container does not exist",
    "v1/metadata/identity/oauth2",
    "169.254.169.254/latest/meta-data",
    "x/<Code>NoSuchBucket</Code>",
    "x/BadScheme BareRedirect SlowDown",
    "x/InternalError",
    "x/status code: 507, kind: Connect",
]


async def _keeps_its_words(store: CloudStore, key: str) -> None:
    with pytest.raises(NotFound, match="no object"):
        await store.get(key)
    with pytest.raises(NotFound, match="no object"):
        await store.get_range(key, 0, 1)
    with pytest.raises(NotFound, match="no object"):
        await store.head(key)
    with pytest.raises(Conflict):
        await store.put_if(key, b"x", version="0123456789abcdef0123456789abcdef")
    created = await store.put_if(key, b"created", version=None)
    with pytest.raises(Conflict):
        await store.put_if(key, b"again", version=None)
    await store.put_if(key, b"updated", version=created.version)
    with pytest.raises(Conflict):
        await store.put_if(key, b"late", version=created.version)
    with pytest.raises(InvalidInput):
        await store.get_range(key, 100, 101)
    assert (await store.get(key)).data == b"updated"
    await store.delete(key)
    await store.delete(key)


@pytest.mark.cases(quick=1)
@pytest.mark.parametrize("key", HOSTILE_KEYS)
def test_an_objects_name_never_decides_what_an_error_means(key: str) -> None:
    async def promise(store: CloudStore, server: BucketServer) -> None:
        await _keeps_its_words(store, key)
        server.fates.append(Fate.ERROR_BEFORE)
        with pytest.raises(OutcomeUnknown):
            await store.put(key, b"x")
        server.fates.append(Fate.CUT_BEFORE)
        with pytest.raises(OutcomeUnknown):
            await store.put(key, b"x")
        server.is_away = True
        with pytest.raises(Unavailable):
            await store.get(key)
        server.is_away = False
        server.denied.add(key)
        with pytest.raises(PermissionDenied):
            await store.get(key)

    on_double(promise)


@pytest.mark.parametrize("key", HOSTILE_KEYS)
def test_a_server_that_is_down_is_unavailable_whatever_is_asked_for(key: str) -> None:
    with bucket_server() as server:
        store = s3(server)
    for call in (store.get(key), store.head(key), store.put(key, b"x"), store.put_if(key, b"x", version=None)):
        with pytest.raises(Unavailable):
            asyncio.run(_awaited(call))


async def _awaited(call: Awaitable[object]) -> object:
    return await call


@pytest.mark.integration
def test_an_objects_name_never_decides_what_an_error_of_a_real_server_means(s3_server: S3Server) -> None:
    remote = connect("s3://penstock", "penstock", S3Options(**s3_server.options))
    store = CloudStore("s3://penstock", "penstock", remote, prefix="names")

    async def run() -> None:
        for key in HOSTILE_KEYS:
            await _keeps_its_words(store, key)
        # Sent in parts: the service's last answer quotes the name.
        large = bytes(PART_BYTES + 1)
        written = await store.put("InternalError/SlowDown", large)
        assert (written.size, written.version) == (len(large), (await store.head("InternalError/SlowDown")).version)
        await store.delete_many(["InternalError/SlowDown", "x/SlowDown"])
        with pytest.raises(NotFound):
            await store.head("InternalError/SlowDown")

    asyncio.run(run())


@pytest.mark.integration
def test_an_objects_name_never_decides_what_an_error_of_azurite_means(azure_server: AzureServer) -> None:
    remote = connect("az://penstock", "penstock", AzureOptions(**azure_server.options))
    store = CloudStore("az://penstock", "penstock", remote, prefix="names")

    async def run() -> None:
        for key in HOSTILE_KEYS:
            await _keeps_its_words(store, key)

    asyncio.run(run())
