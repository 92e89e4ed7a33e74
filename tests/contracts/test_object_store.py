"""One contract for every object store: what a caller may rely on, whatever lies underneath."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.campaigns import examples

from penstock.clock import SYSTEM_CLOCK
from penstock.errors import AtCapacity, Conflict, InvalidInput, NotFound
from penstock.ids import ulid
from penstock.objects import ObjectMeta, ObjectStore, open_store

Promise = Callable[[ObjectStore], Awaitable[None]]
OnStore = Callable[..., None]

BACKENDS = ["memory", "directory", "seaweedfs", "azurite"]


@pytest.fixture(params=[*BACKENDS[:2], *(pytest.param(name, marks=pytest.mark.integration) for name in BACKENDS[2:])])
def on_store(request: pytest.FixtureRequest, tmp_path: Path) -> OnStore:
    """Runs a promise on a fresh store of one backend."""
    backend: str = request.param

    def address() -> tuple[str, dict[str, Any]]:
        name = ulid(SYSTEM_CLOCK.now_ms())
        if backend == "memory":
            return "memory://", {}
        if backend == "directory":
            return f"file://{tmp_path}/{name}", {}
        if backend == "seaweedfs":
            return f"s3://penstock/contract/{name}", request.getfixturevalue("s3_server").options
        return f"az://penstock/contract/{name}", request.getfixturevalue("azure_server").options

    def run(promise: Promise, **options: Any) -> None:
        async def opened() -> None:
            url, access = address()
            store = await open_store(url, probe=False, **access, **options)
            try:
                await promise(store)
            finally:
                await store.close()

        asyncio.run(opened())

    run.backend = backend  # type: ignore[attr-defined]
    return run


async def listed(store: ObjectStore, prefix: str = "", **options: Any) -> list[str]:
    return [meta.key async for page in store.list(prefix, **options) for meta in page]


async def filled(store: ObjectStore, keys: list[str]) -> None:
    await asyncio.gather(*(store.put(key, key.encode()) for key in keys))


# Reading and writing ------------------------------------------------------------------------------


def test_an_object_is_read_back_as_it_was_written(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        written = await store.put("folder/object", b"body")
        found = await store.get("folder/object")
        assert found.data == b"body"
        assert (found.meta.key, found.meta.size, found.meta.version) == ("folder/object", 4, written.version)
        # A service may round to the second, and its clock is not ours.
        assert abs(found.meta.modified_ms - SYSTEM_CLOCK.now_ms()) < 60_000

    on_store(promise)


@pytest.mark.parametrize("body", [b"", b"\0" * 10, bytes(range(256)), bytearray(b"array"), memoryview(b"a view")[2:]])
def test_any_bytes_can_be_a_body(on_store: OnStore, body: bytes) -> None:
    async def promise(store: ObjectStore) -> None:
        assert (await store.put("object", body)).size == len(body)
        assert (await store.get("object")).data == bytes(body)
        assert type((await store.get("object")).data) is bytes

    on_store(promise)


def test_a_put_replaces_what_was_there_and_changes_the_version(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        first = await store.put("object", b"first")
        second = await store.put("object", b"second")
        assert first.version != second.version
        assert (await store.get("object")).data == b"second"

    on_store(promise)


def test_writing_the_same_bytes_again_changes_the_version_except_on_s3(on_store: OnStore) -> None:
    """On S3 a version is a hash of the content: an object under compare-and-swap must change with every write."""

    async def promise(store: ObjectStore) -> None:
        versions = {(await store.put("object", b"same")).version for _ in range(5)}
        assert len(versions) == (1 if store.url.startswith("s3:") else 5)

    on_store(promise)


def test_a_durable_read_tells_what_get_tells_and_its_version_is_good_for_an_update(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await store.put("object", b"body")
        found = await store.get_durable("object")
        assert found == await store.get("object")
        await store.put_if("object", b"newer", version=found.meta.version)
        with pytest.raises(NotFound):
            await store.get_durable("missing")

    on_store(promise)


def test_head_tells_what_get_tells(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await store.put("object", b"body")
        assert await store.head("object") == (await store.get("object")).meta

    on_store(promise)


def test_a_listing_tells_what_head_tells(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await store.put("object", b"body")
        head = await store.head("object")
        (found,) = [meta async for page in store.list() for meta in page]
        assert (found.key, found.size, found.version) == (head.key, head.size, head.version)

    on_store(promise)


def test_what_is_not_there_is_not_found(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await store.put("folder/object", b"")
        for absent in ("nothing", "folder", "folder/object/below", "folder/objec"):
            for read in (store.get(absent), store.head(absent), store.get_range(absent, 0, 1)):
                with pytest.raises(NotFound, match=absent):
                    await read

    on_store(promise)


def test_a_body_of_many_megabytes_arrives_whole(on_store: OnStore) -> None:
    """Over the size at which a put is sent in parts."""

    async def promise(store: ObjectStore) -> None:
        body = bytes(range(256)) * (160 * 1024)
        assert (await store.put("large", body)).size == len(body) == 40 * 1024 * 1024
        assert (await store.get("large")).data == body
        assert await store.get_range("large", len(body) - 300, len(body)) == body[-300:]

    on_store(promise)


def test_an_object_too_large_to_get_is_refused_and_can_be_read_in_ranges(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await store.put("object", b"0123456789")
        with pytest.raises(AtCapacity, match="get_range"):
            await store.get("object")
        assert await store.get_range("object", 0, 5) + await store.get_range("object", 5, 99) == b"0123456789"

    on_store(promise, get_bytes_max=9)


def test_an_object_that_has_not_changed_is_not_read_again(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        first = await store.put("object", b"one")
        assert await store.get_if_changed("object", version=first.version) is None
        second = await store.put("object", b"another")
        found = await store.get_if_changed("object", version=first.version)
        assert found is not None
        assert (found.data, found.meta.version) == (b"another", second.version)
        assert await store.get_if_changed("object", version=found.meta.version) is None

    on_store(promise)


@pytest.mark.parametrize("version", ["", "*", "no such version", "\n"])
def test_a_version_that_no_object_has_is_one_that_has_changed(on_store: OnStore, version: str) -> None:
    async def promise(store: ObjectStore) -> None:
        await store.put("object", b"body")
        found = await store.get_if_changed("object", version=version)
        assert found is not None
        assert found.data == b"body"

    on_store(promise)


def test_what_is_gone_is_not_found_whatever_its_version_was(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        meta = await store.put("object", b"body")
        await store.delete("object")
        with pytest.raises(NotFound, match="object"):
            await store.get_if_changed("object", version=meta.version)

    on_store(promise)


# Conditional writes -------------------------------------------------------------------------------


def test_a_create_happens_once(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        created = await store.put_if("object", b"first", version=None)
        with pytest.raises(Conflict, match="already exists"):
            await store.put_if("object", b"second", version=None)
        found = await store.get("object")
        assert (found.data, found.meta.version) == (b"first", created.version)

    on_store(promise)


def test_an_update_happens_only_at_the_version_it_names(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        first = await store.put("object", b"first")
        second = await store.put_if("object", b"second", version=first.version)
        with pytest.raises(Conflict, match="no longer at version"):
            await store.put_if("object", b"late", version=first.version)
        found = await store.get("object")
        assert (found.data, found.meta.version) == (b"second", second.version)

    on_store(promise)


@pytest.mark.parametrize("version", ["", "*", '"*"', "0", "never-a-version", " ", "\n", "é"])
def test_a_version_that_no_object_has_never_matches(on_store: OnStore, version: str) -> None:
    """An empty or starred condition, sent as it is, would match anything."""

    async def promise(store: ObjectStore) -> None:
        await store.put("object", b"kept")
        with pytest.raises(Conflict):
            await store.put_if("object", b"lost", version=version)
        with pytest.raises(Conflict):
            await store.put_if("absent", b"lost", version=version)
        assert (await store.get("object")).data == b"kept"
        assert await listed(store) == ["object"]

    on_store(promise)


def test_an_update_of_what_was_deleted_is_a_conflict(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        written = await store.put("object", b"body")
        await store.delete("object")
        with pytest.raises(Conflict):
            await store.put_if("object", b"late", version=written.version)
        assert await listed(store) == []

    on_store(promise)


def test_the_version_of_a_listing_or_a_read_is_good_for_an_update(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await store.put("object", b"put")
        (meta,) = [meta async for page in store.list() for meta in page]
        await store.put_if("object", b"listed", version=meta.version)
        await store.put_if("object", b"headed", version=(await store.head("object")).version)
        await store.put_if("object", b"read", version=(await store.get("object")).meta.version)
        assert (await store.get("object")).data == b"read"

    on_store(promise)


def test_eight_writers_increment_a_counter_without_losing_one(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await store.put_if("counter", b"0", version=None)

        async def increment() -> None:
            while True:
                found = await store.get("counter")
                try:
                    await store.put_if("counter", b"%d" % (int(found.data) + 1), version=found.meta.version)
                except Conflict:
                    continue
                return

        async def writer() -> None:
            for _ in range(10):
                await increment()

        await asyncio.gather(*(writer() for _ in range(8)))
        assert (await store.get("counter")).data == b"80"

    on_store(promise)


def test_of_many_creates_at_once_exactly_one_succeeds(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        answers = await asyncio.gather(
            *(store.put_if("object", b"%d" % number, version=None) for number in range(16)), return_exceptions=True
        )
        (winner,) = [number for number, answer in enumerate(answers) if isinstance(answer, ObjectMeta)]
        assert all(isinstance(answer, ObjectMeta | Conflict) for answer in answers)
        assert (await store.get("object")).data == b"%d" % winner

    on_store(promise)


def test_a_reader_during_writes_sees_whole_bodies_only(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        bodies = [bytes([number]) * 100_000 for number in range(4)]
        await store.put("object", bodies[0])
        done = asyncio.Event()

        async def write() -> None:
            for number in range(20):
                await store.put("object", bodies[number % 4])
            done.set()

        async def read() -> None:
            while not done.is_set():
                assert (await store.get("object")).data in bodies
                first, last = await store.get_ranges("object", [(0, 10), (99_990, 100_000)])
                assert first == last

        await asyncio.gather(write(), read(), read())

    on_store(promise)


# Ranges -------------------------------------------------------------------------------------------


def test_ranges_are_cut_at_the_end_and_kept_in_the_order_asked(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await store.put("object", b"0123456789")
        ranges = [(8, 99), (0, 3), (2, 4), (5, 5), (10, 10), (10, 20), (0, 10)]
        expected = [b"89", b"012", b"23", b"", b"", b"", b"0123456789"]
        assert await store.get_ranges("object", ranges) == expected
        assert [await store.get_range("object", *one) for one in ranges] == expected
        assert await store.get_ranges("object", []) == []

    on_store(promise)


def test_ranges_of_an_empty_object_are_empty(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await store.put("object", b"")
        assert await store.get_ranges("object", [(0, 0), (0, 5)]) == [b"", b""]

    on_store(promise)


@pytest.mark.parametrize(("start", "end"), [(11, 12), (11, 11), (-1, 5), (5, 4)])
def test_a_range_no_object_could_serve_is_refused(on_store: OnStore, start: int, end: int) -> None:
    async def promise(store: ObjectStore) -> None:
        await store.put("object", b"0123456789")
        with pytest.raises(InvalidInput, match="range"):
            await store.get_range("object", start, end)
        with pytest.raises(InvalidInput, match="range"):
            await store.get_ranges("object", [(0, 1), (start, end)])

    on_store(promise)


def test_a_range_at_a_version_that_is_gone_is_a_conflict(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        first = await store.put("object", b"0123456789")
        assert await store.get_range("object", 1, 3, version=first.version) == b"12"
        await store.put("object", b"9876543210")
        for ranges in ([(1, 3)], [(1, 1)], [(0, 1), (9, 10)], [(10, 11)]):
            with pytest.raises(Conflict):
                await store.get_ranges("object", ranges, version=first.version)
        await store.delete("object")
        with pytest.raises(NotFound):
            await store.get_range("object", 1, 3, version=first.version)

    on_store(promise)


def test_ranges_far_apart_are_of_one_version(on_store: OnStore) -> None:
    """They need several requests; the object is replaced meanwhile."""

    async def promise(store: ObjectStore) -> None:
        bodies = [bytes([number]) * (6 * 1024 * 1024) for number in range(2)]
        await store.put("object", bodies[0])

        async def write() -> None:
            for number in range(6):
                await store.put("object", bodies[number % 2])

        async def read() -> None:
            for _ in range(6):
                pieces = await store.get_ranges(
                    "object", [(at * 2 * 1024 * 1024, at * 2 * 1024 * 1024 + 9) for at in range(3)]
                )
                assert pieces[0] == pieces[1] == pieces[2]

        await asyncio.gather(write(), read())

    on_store(promise)


# Listing ------------------------------------------------------------------------------------------

# Where orders differ: by folder, by UTF-16, by escaped text, by case.
CLASHING = [
    *("a-b", "a.b", "a/a", "a/b", "a/b-c", "a/b.c/d", "a!/x", "a0", "ab", "A/b", "B"),
    *("é", "z", "~", "\uffee/x", "\U00010000/x", "日本/語", "per%20cent", "sp ace", "plus+", "q?x", "ha#sh", "st*r"),
    *("col:on", "[b]{c}|<>^`\"'&=@,;$", "a b/c d", ".hidden", "...", "a..b"),
]


def test_a_listing_is_in_byte_order_of_the_whole_keys(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await filled(store, CLASHING)
        assert await listed(store) == sorted(CLASHING, key=str.encode)
        for key in CLASHING:
            assert (await store.get(key)).data == key.encode()

    on_store(promise)


def test_a_prefix_is_plain_text(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await filled(store, CLASHING)
        for prefix in ("a", "a/", "a/b", "a/b-", "a/b.c/", "a/b.c/d", "", "nothing", "é", "\U00010000", "~", "sp "):
            expected = sorted(key for key in CLASHING if key.startswith(prefix))
            assert await listed(store, prefix) == expected, prefix

    on_store(promise)


def test_a_listing_starts_after_any_offset(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await filled(store, CLASHING)
        for offset in [*CLASHING, "a", "a/", "a//", "a/c", "zz", "\U0010ffff"]:
            expected = sorted(key for key in CLASHING if key > offset)
            assert await listed(store, offset=offset) == expected, offset
        assert await listed(store, "a/", offset="a/a") == ["a/b", "a/b-c", "a/b.c/d"]
        assert await listed(store, "a/", offset="b") == []

    on_store(promise)


@pytest.mark.parametrize("page_size", [1, 3, 7, 100])
def test_pages_are_full_but_the_last(on_store: OnStore, page_size: int) -> None:
    async def promise(store: ObjectStore) -> None:
        await filled(store, [f"folder/{number:02}" for number in range(21)])
        pages = [len(page) async for page in store.list("folder/", page_size=page_size)]
        assert sum(pages) == 21
        assert all(size == page_size for size in pages[:-1])
        assert 0 < pages[-1] <= page_size

    on_store(promise)


@pytest.mark.slow
def test_more_objects_than_a_service_gives_in_one_answer_are_all_listed(on_store: OnStore) -> None:
    # S3 and our own walks give a thousand at once. Azure gives five thousand: more take its emulator minutes to store.
    count = 110 if on_store.backend == "azurite" else 1100  # type: ignore[attr-defined]

    async def promise(store: ObjectStore) -> None:
        keys = [f"many/{number:04}" for number in range(count)]
        for start in range(0, len(keys), 100):
            await filled(store, keys[start : start + 100])
        assert await listed(store, "many/") == keys
        assert await listed(store, "many/", offset=keys[-101]) == keys[-100:]
        await store.delete_many(keys)
        assert await listed(store) == []

    on_store(promise)


@pytest.mark.parametrize("prefix", ["../", "a/../", "a//", "/", ".penstock/", "./", "a\\b"])
def test_a_prefix_no_key_can_have_finds_nothing(on_store: OnStore, prefix: str) -> None:
    async def promise(store: ObjectStore) -> None:
        await filled(store, ["a/b", "b"])
        assert await listed(store, prefix) == []

    on_store(promise)


def test_a_listing_may_be_left_early_and_a_page_holds_at_least_one(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await filled(store, ["a", "b", "c"])
        async with first_page(store) as page:
            assert [meta.key for meta in page] == ["a"]
        with pytest.raises(InvalidInput, match="page_size"):
            await listed(store, page_size=0)

    @asynccontextmanager
    async def first_page(store: ObjectStore) -> AsyncIterator[list[ObjectMeta]]:
        async with aclosing(store.list(page_size=1)) as pages:  # type: ignore[type-var]
            yield await anext(pages)

    on_store(promise)


# Deleting -----------------------------------------------------------------------------------------


def test_a_deleted_object_is_gone_and_can_be_created_again(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        first = await store.put("folder/object", b"first")
        await store.delete("folder/object")
        with pytest.raises(NotFound):
            await store.get("folder/object")
        second = await store.put_if("folder/object", b"second", version=None)
        assert second.version != first.version

    on_store(promise)


def test_deleting_what_is_not_there_is_success(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await store.put("folder/object", b"")
        for absent in ("nothing", "folder", "folder/object/below"):
            await store.delete(absent)
            await store.delete(absent)
        await store.delete_many([])
        assert await listed(store) == ["folder/object"]

    on_store(promise)


def test_one_key_alone_given_to_delete_many_deletes_nothing(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await filled(store, ["a", "b", "ab"])
        with pytest.raises(InvalidInput, match="put the key into a list"):
            await store.delete_many("ab")
        assert await listed(store) == ["a", "ab", "b"]

    on_store(promise)


def test_many_are_deleted_though_some_are_missing_or_named_twice(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await filled(store, ["a", "b/c", "b/d", "kept"])
        await store.delete_many(iter(["missing", "a", "b/c", "a", "b/d", "b/missing"]))
        assert await listed(store) == ["kept"]

    on_store(promise)


# Keys ---------------------------------------------------------------------------------------------

BAD_KEYS = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    "..",
    "../a",
    "a/../b",
    "a/..",
    ".",
    "a/./b",
    "a\0b",
    "a\nb",
    "a\x7f",
    "a\uffff",
    "\ud800",
]


@pytest.mark.parametrize("key", [*BAD_KEYS, "x" * 1025, "é" * 513, "a\\b", "..\\a", ".penstock", ".penstock/locks/00"])
def test_a_key_that_some_backend_would_misread_is_refused_by_every_verb(on_store: OnStore, key: str) -> None:
    async def promise(store: ObjectStore) -> None:
        await store.put("kept", b"kept")
        for call in (
            store.get(key),
            store.get_if_changed(key, version="1"),
            store.get_range(key, 0, 1),
            store.head(key),
            store.put(key, b""),
            store.put_if(key, b"", version=None),
            store.delete(key),
            store.delete_many(["kept", key]),
        ):
            with pytest.raises(InvalidInput, match="key"):
                await call
        assert await listed(store) == ["kept"]

    on_store(promise)


ODD_KEYS = [
    "a b",
    " a",
    "a ",
    "a+b",
    "a%20b",
    "50%",
    "a%2Fb",
    "dot.",
    "dots...",
    "...",
    "folder./object",
    "folder /object",
    "what?x=1",
    "no#1",
    "*~|^`{}[]",
    "<a>&amp;\"'",
    "a:b",
    "\u00e9",
    "e\u0301",
    "\u0085",
    "\u2028",
    "\ufffd",
    "\U0001f600",
]


def test_a_key_keeps_its_spelling(on_store: OnStore) -> None:
    """What HTTP, XML, URLs and normal forms of Unicode could bend stays as it is, in every verb."""

    async def promise(store: ObjectStore) -> None:
        for key in ODD_KEYS:
            created = await store.put_if(key, key.encode(), version=None)
            assert await store.get_range(key, 0, 99, version=created.version) == key.encode()
            assert (await store.head(key)).key == key
        assert await listed(store) == sorted(ODD_KEYS)
        for key in ODD_KEYS:
            assert key in await listed(store, key)
            assert [one async for page in store.list(offset=key) for one in page if one.key <= key] == []
        await store.delete_many(ODD_KEYS)
        assert await listed(store) == []

    on_store(promise)


def test_a_long_key_is_fine_when_its_segments_are_short(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        key = "/".join(["s" * 99] * 9)
        await store.put(key, b"body")
        assert await listed(store) == [key]

    on_store(promise)


def test_close_can_be_called_twice(on_store: OnStore) -> None:
    async def promise(store: ObjectStore) -> None:
        await store.put("object", b"")
        await store.close()

    on_store(promise)


# Against a model ----------------------------------------------------------------------------------

SEGMENT = st.sampled_from(["a", "b", "a-", "a.", "é", "\uffee", "\U00010000"])
KEY = st.lists(SEGMENT, min_size=1, max_size=3).map("/".join)
STEP = st.tuples(st.sampled_from(["put", "create", "update", "stale", "delete"]), KEY, st.binary(max_size=20))


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS[:2])
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=15), prefix=st.one_of(st.just(""), KEY), offset=st.one_of(st.just(""), KEY))
def test_any_history_of_verbs_agrees_with_a_dictionary(
    backend: str, tmp_path: Path, steps: list[tuple[str, str, bytes]], prefix: str, offset: str
) -> None:
    """Keys that are folders of other keys are left out: a directory refuses them, by contract."""

    async def run() -> None:
        url = "memory://" if backend == "memory" else f"file://{tmp_path}/{ulid(SYSTEM_CLOCK.now_ms())}"
        store = await open_store(url)
        model: dict[str, bytes] = {}
        versions: dict[str, list[str]] = {}
        folders: set[str] = set()
        for verb, key, body in steps:
            if key in folders or any(above(key) & model.keys()):
                continue
            seen = versions.setdefault(key, [])
            try:
                if verb == "delete":
                    await store.delete(key)
                    model.pop(key, None)
                    continue
                if verb == "put":
                    meta = await store.put(key, body)
                elif verb == "create":
                    meta = await store.put_if(key, body, version=None)
                else:
                    meta = await store.put_if(key, body, version=seen[-1 if verb == "update" else 0] if seen else "-")
            except Conflict:
                assert verb != "put"
                assert verb != "create" or key in model
                assert verb != "update" or key not in model
                continue
            assert meta.version not in seen
            assert verb != "create" or key not in model
            assert verb != "stale" or len(seen) == 1
            model[key] = body
            seen.append(meta.version)
            folders |= above(key)
        expected = sorted(key for key in model if key.startswith(prefix) and key > offset)
        assert await listed(store, prefix, offset=offset, page_size=2) == expected
        assert {key: (await store.get(key)).data for key in model} == model
        await store.close()

    asyncio.run(run())


def above(key: str) -> set[str]:
    parts = key.split("/")
    return {"/".join(parts[:end]) for end in range(1, len(parts))}
