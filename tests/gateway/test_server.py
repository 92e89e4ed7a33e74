"""The server: real sockets, slow and endless clients."""

import asyncio

import pytest

from penstock.errors import Unavailable
from penstock.gateway import Gateway, GatewayConfig, HttpServer, serving
from penstock.gateway.http.exchange import json_answer
from penstock.gateway.http.routing import Route


async def hello(_exchange):
    return json_answer({"hello": "world"})


APP = [Route("GET", "/hello", None, hello, "Say hello.")]


def talked(send, config=None, seconds=5.0):
    """What the server answers to bytes of a client, until it closes the connection."""

    async def talk():
        settings = config or GatewayConfig(port=0, header_seconds_max=0.2)
        async with serving(HttpServer(Gateway(APP, settings), settings)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            async with asyncio.timeout(seconds):
                for part in send:
                    writer.write(part)
                    await writer.drain()
                answer = await reader.read()
            writer.close()
            return answer

    return asyncio.run(talk())


def test_a_request_is_answered():
    answer = talked([b"GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"])
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b'{"hello":"world"}')
    assert b"server:" not in answer.lower()


@pytest.mark.parametrize("start", [b"", b"G", b"GET /hello HTTP/1.1\r\nHost: loc"])
def test_headers_that_do_not_come_keep_no_connection(start):
    assert talked([start]) == b""


def test_headers_without_end_are_cut_off():
    config = GatewayConfig(port=0, header_bytes_max=2_000)
    lines = [b"GET /hello HTTP/1.1\r\nHost: localhost\r\n", *[b"x: " + b"y" * 500 + b"\r\n"] * 10, b"\r\n"]
    assert not talked(lines, config).startswith(b"HTTP/1.1 200")


def test_garbage_is_answered_400():
    assert talked([b"\x16\x03\x01garbage\r\n\r\n"]).startswith(b"HTTP/1.1 400")


def test_a_port_that_is_taken_is_named():
    async def twice():
        config = GatewayConfig(port=0)
        async with serving(HttpServer(Gateway(APP, config), config)) as server:
            again = GatewayConfig(port=server.port)
            async with serving(HttpServer(Gateway(APP, again), again)):
                raise AssertionError("it listens twice")

    with pytest.raises(Unavailable, match="cannot listen"):
        asyncio.run(twice())
