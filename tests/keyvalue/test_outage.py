"""A server that goes away: short absences are ridden out, long ones end in an error that claims no more than it knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock.errors import OutcomeUnknown, Unavailable
from penstock.keyvalue import WriteBatch, open_follower, open_keyvalue
from penstock.testing.servers.object_stores import S3Server

pytestmark = pytest.mark.integration


class Line:
    """A line to a server that can be cut and mended: connections end, and new ones are closed at once."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._cut = False
        self._writers: set[asyncio.StreamWriter] = set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(OSError):
            if not self._cut:
                far_reader, far_writer = await asyncio.open_connection(*self._target)
                self._writers.add(far_writer)
                await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
        writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self) -> None:
        self._cut = True
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self._cut = False


@asynccontextmanager
async def line_to(server: S3Server) -> AsyncIterator[tuple[Line, dict[str, Any]]]:
    address = urlsplit(server.endpoint)
    line = Line(str(address.hostname), int(address.port or 0))
    listener = await asyncio.start_server(line.carry, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield line, {**server.options, "endpoint": f"http://127.0.0.1:{port}"}
    finally:
        line.cut()
        listener.close()


def test_a_write_made_while_the_server_is_away_is_durable_once_it_is_back(s3_server: S3Server) -> None:
    async def scenario() -> None:
        async with line_to(s3_server) as (line, options):
            store = await open_keyvalue("s3://penstock/outage", "short", flush_interval_ms=2, **options)
            line.cut()
            wait = asyncio.ensure_future((await store.write(WriteBatch().put(b"key", b"value"))).durable())
            done, _ = await asyncio.wait([wait], timeout=0.5)
            assert not done
            line.mend()
            async with asyncio.timeout(30):
                await wait
            follower = await open_follower("s3://penstock/outage", "short", **s3_server.options)
            assert await follower.get(b"key") == b"value"
            await follower.close()
            await store.close()

    asyncio.run(scenario())


def test_a_server_that_stays_away_leaves_the_outcome_unknown_and_reopening_tells(s3_server: S3Server) -> None:
    async def scenario() -> None:
        async with line_to(s3_server) as (line, options):
            store = await open_keyvalue("s3://penstock/outage", "long", flush_interval_ms=2, retries_max=1, **options)
            await (await store.write(WriteBatch().put(b"before", b"value"))).durable()
            line.cut()
            handle = await store.write(WriteBatch().put(b"during", b"value"))
            async with asyncio.timeout(60):
                with pytest.raises(OutcomeUnknown, match="s3://penstock/outage/long"):
                    await handle.durable()
            with pytest.raises(Unavailable):
                await store.get(b"before")
            line.mend()
            reopened = await open_keyvalue("s3://penstock/outage", "long", **options)
            assert await reopened.get(b"before") == b"value"
            await reopened.close()
            # The dead writer ends too; that its last write is lost, it has said already.
            await asyncio.gather(store.close(), return_exceptions=True)

    asyncio.run(scenario())
