"""Opening by URL: what each scheme gives, and how bad input is refused before anything is made."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Corrupt, InvalidInput, NotFound
from penstock.keyvalue import MemoryKeyValue, WriteBatch, open_follower, open_keyvalue
from penstock.keyvalue.engine import tell
from penstock.keyvalue.shim import Shim
from penstock.observability import names
from penstock.testing import RecordingObserver


def test_a_named_memory_store_is_found_again_in_the_same_process() -> None:
    async def scenario() -> None:
        first = await open_keyvalue("memory://test-open", "store")
        await (await first.write(WriteBatch().put(b"key", b"value"))).durable()
        follower = await open_follower("memory://test-open", "store")
        assert await follower.get(b"key") == b"value"
        second = await open_keyvalue("memory://test-open", "store")
        assert await second.get(b"key") == b"value"

    asyncio.run(scenario())


def test_a_nameless_memory_store_is_the_callers_alone() -> None:
    async def scenario() -> None:
        first = await open_keyvalue("memory://", "store")
        await (await first.write(WriteBatch().put(b"key", b"value"))).durable()
        second = await open_keyvalue("memory://", "store")
        assert isinstance(second, MemoryKeyValue)
        assert await second.get(b"key") is None
        with pytest.raises(NotFound, match="memory:///store"):
            await open_follower("memory://", "store")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "bounds",
    [
        {"flush_interval_ms": 0},
        {"flush_interval_ms": -1},
        {"unflushed_bytes_max": 0},
        {"cache_bytes_max": 0},
        {"retries_max": 0},
    ],
)
def test_a_bound_that_bounds_nothing_is_refused_by_name(tmp_path: Path, bounds: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(bounds))):
        asyncio.run(open_keyvalue(tmp_path.as_uri(), "store", **bounds))
    assert list(tmp_path.iterdir()) == []


def test_bad_input_makes_no_directory(tmp_path: Path) -> None:
    for url, path, options in [
        ((tmp_path / "new").as_uri(), "../store", {}),
        ((tmp_path / "new").as_uri(), "store", {"endpoint": "http://x"}),
    ]:
        with pytest.raises(InvalidInput):
            asyncio.run(open_keyvalue(url, path, **options))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_follower_of_a_store_nobody_wrote_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=f"{tmp_path}/store"):
        asyncio.run(open_follower(tmp_path.as_uri(), "store"))
    with pytest.raises(InvalidInput, match="poll_interval_ms"):
        asyncio.run(open_follower(tmp_path.as_uri(), "store", poll_interval_ms=0))


def test_a_store_whose_manifest_is_damaged_is_called_corrupt(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await open_keyvalue(tmp_path.as_uri(), "store")
        await store.close()
        newest = max((tmp_path / "store" / "manifest").iterdir())
        for damaged in (b"", newest.read_bytes()[:20]):
            newest.write_bytes(damaged)
            with pytest.raises(Corrupt, match=f"{tmp_path}/store"):
                await open_keyvalue(tmp_path.as_uri(), "store")

    asyncio.run(scenario())


def test_an_unordered_directory_is_told(tmp_path: Path) -> None:
    """The event appears exactly where the file system cannot write synchronously by directory."""

    async def scenario() -> None:
        observer = RecordingObserver()
        store = await open_keyvalue(tmp_path.as_uri(), "store", observer=observer)
        await store.close()
        told = bool(observer.events(names.KEYVALUE_UNORDERED))
        assert told is not store._directory.ordered  # type: ignore[attr-defined]

    asyncio.run(scenario())


def test_a_binding_the_shim_does_not_know_is_told() -> None:
    observer = RecordingObserver()
    tell(Shim(installed=True), observer)
    tell(Shim(installed=False, reason="the binding is 9.9"), observer)
    assert observer.events(names.KEYVALUE_SHIM_OFF) == [{"reason": "the binding is 9.9"}]
