"""A bucket that cannot hold a fence gets no writer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.objects.bucket_server import BucketServer, bucket_server

from penstock.errors import NotFound, PermissionDenied, Unsupported
from penstock.keyvalue import KeyValue, WriteBatch, open_follower, open_keyvalue
from penstock.testing.servers.object_stores import S3Server


async def _opened(server: BucketServer, path: str = "store", **more: Any) -> KeyValue:
    return await open_keyvalue("s3://bucket/prefix", path, **server.s3_options, **more)


def test_a_server_that_ignores_conditional_writes_is_refused_before_anything_is_written() -> None:
    with bucket_server(is_lenient=True) as server:
        with pytest.raises(Unsupported, match=r"s3://bucket/prefix/store.*conditional writes are not enforced"):
            asyncio.run(_opened(server))
        assert server.objects == {}, "the probe cleans up behind itself"


@pytest.mark.slow
def test_on_a_server_that_enforces_them_a_second_writer_fences_the_first() -> None:
    """The trust that `probe=False` gives is the caller's: this is what it is about."""

    async def run(server: BucketServer) -> None:
        first = await _opened(server)
        await (await first.write(WriteBatch().put(b"key", b"value"))).durable()
        second = await _opened(server, probe=False)
        assert await second.get(b"key") == b"value"
        await second.close()
        follower = await open_follower("s3://bucket/prefix", "store", **server.s3_options)
        assert await follower.get(b"key") == b"value"
        await follower.close()
        assert not [key for key in server.objects if ".penstock" in key]

    with bucket_server() as server:
        asyncio.run(run(server))


@pytest.mark.slow
def test_an_opening_probes_once() -> None:
    async def run(server: BucketServer) -> None:
        store = await _opened(server)
        probes = [path for method, path in server.requests if method == "PUT" and "/.penstock/probe/" in path]
        assert len(probes) == 4
        await store.close()
        server.requests.clear()
        await (await _opened(server, probe=False)).close()
        assert not [path for _, path in server.requests if ".penstock" in path]

    with bucket_server() as server:
        asyncio.run(run(server))


@pytest.mark.integration
def test_a_real_bucket_that_is_missing_or_refuses_is_named(s3_server: S3Server) -> None:
    async def run() -> None:
        with pytest.raises(NotFound, match="s3://missing"):
            await open_keyvalue("s3://missing", "store", **s3_server.options)
        wrong = {**s3_server.options, "secret_access_key": "wrong"}
        with pytest.raises(PermissionDenied):
            await open_keyvalue("s3://penstock", "store", **wrong)

    asyncio.run(run())
