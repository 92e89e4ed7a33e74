"""Opening: what the URL names is there, or the error says what is wrong with it."""

from __future__ import annotations

import asyncio
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.objects.bucket_server import bucket_server

from penstock.errors import (
    InvalidInput,
    NotFound,
    PenstockError,
    PermissionDenied,
    Unavailable,
    Unsupported,
)
from penstock.objects import MemoryStore, ObjectStore, RetryPolicy, StoreSpec, open_store
from penstock.observability import names
from penstock.testing import RecordingObserver
from penstock.testing.servers.object_stores import AzureServer, S3Server

HASTY = RetryPolicy(deadline_seconds=2)


def opened(url: str, **options: Any) -> ObjectStore:
    async def run() -> ObjectStore:
        store = await open_store(url, **options)
        await store.close()
        return store

    return asyncio.run(run())


def refused(kind: type[PenstockError], url: str, **options: Any) -> str:
    with pytest.raises(kind) as refusal:
        opened(url, **options)
    return str(refusal.value)


# Memory -------------------------------------------------------------------------------------------


def test_a_memory_store_with_a_name_is_one_for_the_process_and_without_one_is_new() -> None:
    assert opened("memory://shared") is opened("memory://shared")
    assert opened("memory://shared") is not opened("memory://other")
    assert opened("memory://") is not opened("memory://")


# Directories --------------------------------------------------------------------------------------


def test_a_directory_is_made_unless_it_is_only_read(tmp_path: Path) -> None:
    assert "no such directory" in refused(NotFound, f"file://{tmp_path}/new", read_only=True)
    assert not (tmp_path / "new").exists()
    opened(f"file://{tmp_path}/new/deeper")
    assert (tmp_path / "new/deeper").is_dir()
    opened(f"file://{tmp_path}/new/deeper", read_only=True)


def test_a_directory_with_spaces_and_letters_of_any_kind_is_found(tmp_path: Path) -> None:
    opened(f"file://{tmp_path}/with%20space/日本")
    assert (tmp_path / "with space/日本").is_dir()
    assert opened(f"file://{tmp_path}/with space/").url == f"file://{tmp_path}/with space"


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_is_no_store(tmp_path: Path, read_only: bool) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in ("file", "file/below"):
        assert f"{tmp_path}/file is a file" in refused(InvalidInput, f"file://{tmp_path}/{path}", read_only=read_only)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o555)
    refused(PermissionDenied, f"file://{tmp_path}/locked/store")


# Options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "option", "remedy"),
    [
        ("memory://", "endpoint", "memory:// takes none"),
        ("file:///tmp", "region", "file:// takes none"),
        ("s3://bucket", "endpiont", "did you mean 'endpoint'"),
        ("az://container", "account_nam", "did you mean 'account_name'"),
        ("gs://bucket", "path_style", "gs:// takes endpoint"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_known(url: str, option: str, remedy: str) -> None:
    text = refused(InvalidInput, url, **{option: "x"})
    assert f"option {option!r}" in text
    assert remedy in text


@pytest.mark.parametrize(
    ("url", "options", "why"),
    [
        ("s3://bucket", {"endpoint": "localhost:9000"}, "must start with http"),
        ("s3://bucket", {"endpoint": "http://"}, "name a host"),
        ("s3://bucket", {"endpoint": 9000}, "must start with http"),
        ("s3://bucket", {"request_seconds_max": 1e30}, "too large"),
        ("s3://bucket", {"access_key_id": "only half"}, "SecretAccessKey"),
        ("az://container", {"account_name": "a", "account_key": "not base64!"}, "Invalid Access Key"),
        ("gs://bucket", {"service_account": "/no/such/file"}, "/no/such/file"),
        ("memory://", {"get_bytes_max": 0}, "get_bytes_max"),
    ],
)
def test_an_option_that_cannot_work_is_refused_before_anything_is_sent(
    url: str, options: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    assert why in refused(InvalidInput, url, **options)


def test_plain_http_must_be_asked_for() -> None:
    with bucket_server() as server:
        assert "allow_http" in refused(InvalidInput, "s3://bucket", **server.s3_options, allow_http=False)
        opened("s3://bucket", **server.s3_options)


@pytest.mark.slow
def test_a_service_that_is_not_there_is_unavailable_and_named() -> None:
    options = {"endpoint": "http://127.0.0.1:1", "region": "r", "access_key_id": "i", "secret_access_key": "k"}
    text = refused(Unavailable, "s3://bucket/prefix", **options, retry=HASTY)
    assert "s3://bucket/prefix" in text
    assert "Connection refused" in text


def test_credentials_come_from_the_usual_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with bucket_server() as server:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "key",
            "AWS_REGION": "r",
            "AWS_ENDPOINT_URL": server.endpoint,
        }.items():
            monkeypatch.setenv(name, value)
        opened("s3://bucket")
        assert server.count("PUT") == 4


def test_a_look_alike_found_through_the_environment_is_not_trusted_to_list_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def listed() -> list[str]:
        store = await open_store("s3://bucket", probe=False)
        return [meta.key async for page in store.list(offset="a-b") for meta in page]

    with bucket_server(lists_by_folder=True) as server:
        server.objects = dict.fromkeys(("a-b", "a/b"), (b"", 1))
        access = ("id", "key", "r", server.endpoint)
        settings = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION", "ENDPOINT_URL")
        for name, value in zip(settings, access, strict=True):
            monkeypatch.setenv(f"AWS_{name}", value)
        assert asyncio.run(listed()) == ["a/b"]


# Real servers -------------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize("read_only", [False, True])
def test_a_missing_bucket_is_named(s3_server: S3Server, azure_server: AzureServer, read_only: bool) -> None:
    for url, options in (("s3://missing/p", s3_server.options), ("az://missing/p", azure_server.options)):
        assert "no bucket or container 'missing'" in refused(NotFound, url, read_only=read_only, **options)


@pytest.mark.integration
@pytest.mark.parametrize("read_only", [False, True])
def test_wrong_credentials_are_refused(s3_server: S3Server, azure_server: AzureServer, read_only: bool) -> None:
    s3 = s3_server.options | {"secret_access_key": "wrong"}
    azure = azure_server.options | {"account_key": "d3Jvbmc="}
    for url, options in (("s3://penstock", s3), ("az://penstock", azure)):
        text = refused(PermissionDenied, url, read_only=read_only, **options)
        assert "check the credentials" in text
        assert "wrong" not in text


@pytest.mark.integration
def test_real_servers_pass_the_probe_and_list_nothing_of_it(s3_server: S3Server, azure_server: AzureServer) -> None:
    async def promise(url: str, options: dict[str, Any]) -> None:
        store = await open_store(url, **options)
        assert [page async for page in store.list()] == []
        await store.close()

    asyncio.run(promise("s3://penstock/opened", s3_server.options))
    asyncio.run(promise("az://penstock/opened", azure_server.options))


# Watching -----------------------------------------------------------------------------------------


def test_a_local_store_is_observed_when_an_observer_is_given(tmp_path: Path) -> None:
    async def promise() -> None:
        for url in ("memory://", f"file://{tmp_path}"):
            observer = RecordingObserver()
            store = await open_store(url, observer=observer)
            await store.put("object", b"body")
            await store.close()
            assert observer.counted(names.OBJECTS_REQUESTS, verb="put", outcome="ok") == 1

    asyncio.run(promise())


def test_an_observer_changes_nothing_of_what_a_local_store_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault reaches the caller at once and as it is, watched or not."""
    calls = []

    async def failing(_: MemoryStore, key: str) -> None:
        calls.append(key)
        raise Unavailable("the disk does not answer")

    monkeypatch.setattr(MemoryStore, "get", failing)

    async def promise() -> None:
        observer = RecordingObserver()
        store = await open_store("memory://", observer=observer)
        with pytest.raises(Unavailable, match=r"^the disk does not answer$"):
            await store.get("object")
        assert observer.counted(names.OBJECTS_REQUESTS, verb="get", outcome="Unavailable") == 1
        assert observer.counted(names.OBJECTS_RETRIES) == 0

    asyncio.run(promise())
    assert calls == ["object"]


# Descriptions -------------------------------------------------------------------------------------


def test_a_description_travels_to_another_process_and_opens_there(tmp_path: Path) -> None:
    async def promise() -> None:
        spec = StoreSpec(f"file://{tmp_path}", {"get_bytes_max": 5})
        here = await spec.open()
        await here.put("object", b"body")
        there = await pickle.loads(pickle.dumps(spec)).open()
        assert (await there.get("object")).data == b"body"
        await here.close()
        await there.close()

    asyncio.run(promise())


def test_a_description_hides_its_options_and_probes_only_when_asked() -> None:
    async def promise(options: dict[str, Any]) -> None:
        spec = StoreSpec("s3://bucket", options)
        assert "key" not in repr(spec)
        assert pickle.loads(pickle.dumps(spec)) == spec
        await spec.open()

    with bucket_server() as server:
        asyncio.run(promise(server.s3_options))
        assert server.count("PUT") == 0


def test_a_description_may_carry_any_option_of_opening() -> None:
    with bucket_server() as server:
        asyncio.run(StoreSpec("s3://bucket", {**server.s3_options, "probe": True}).open())
        assert server.count("PUT") > 0


def test_a_store_in_memory_cannot_travel() -> None:
    async def promise() -> None:
        spec = StoreSpec("memory://stays")
        assert isinstance(await spec.open(), MemoryStore)
        with pytest.raises(Unsupported, match="memory of this process"):
            pickle.dumps(spec)

    asyncio.run(promise())
