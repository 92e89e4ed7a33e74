"""Serves an application over HTTP with uvicorn: TLS, bounded headers, and a time for everything.

uvicorn bounds idle connections; what it leaves open is closed here: a client that sends its headers slowly, or without
end, or hides bytes in extensions of chunks, or goes on with a body that was refused, or sends many requests ahead of their answers, or does not read its answer,
keeps no connection. Connections have a number, too. What follows a body is no header, and an offer to speak another
protocol is passed over.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from math import ceil
from typing import Any, ClassVar, Final

import uvicorn
from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.gateway.config import GatewayConfig
from penstock.gateway.http.listening import listening_sockets, written_address

__all__ = ["HttpServer", "serving"]

# For requests under way when the server stops.
_GRACE_SECONDS: Final = 10
_STARTED_LOOK_SECONDS: Final = 0.01
# Requests of one connection that wait for the answer to the one before them. Each is held with all of its headers.
_PIPELINED_MAX: Final = 16
# Headers and chunks are parsed in pieces of this size: what is in the piece in which the headers end is not counted.
_PIECE_BYTES: Final = 16 * 1024
# The line before a chunk and the end of the line behind it: a length of 16 digits and a short extension.
_CHUNK_LINE_BYTES: Final = 32
_NO_ROOM: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)


class _BoundedHttp(HttpToolsProtocol):
    """HTTP/1.1 whose headers have a size and a time, and whose answers are read."""

    seconds_max: ClassVar[float]
    bytes_max: ClassVar[int]
    send_seconds_max: ClassVar[float]
    connections_max: ClassVar[int]

    _waiting: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None
    _unsent = 0
    _header_bytes = 0
    _has_headers = False
    # Of the message that is being read: what came since its headers began, or ended, and is not its body.
    _framing_bytes = 0
    _is_chunked = False
    _data = b""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.connections_max:
            transport.write(_NO_ROOM)
            transport.close()
            return
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_sending()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        start = 0
        while start < len(data) and not self.transport.is_closing():
            # A body of known length is nothing but a body.
            whole = self._has_headers and not self._is_chunked
            piece = data[start:] if whole else data[start : start + _PIECE_BYTES]
            start += len(piece)
            self._feed(piece)
        # Bytes that begin no request (an empty line, the rest of a body that was refused) have stopped uvicorn's timer.
        cycle: RequestResponseCycle | None = self.cycle
        if cycle and cycle.response_complete and self._waiting is None and not self.transport.is_closing():
            self._await_headers()

    def _feed(self, data: bytes) -> None:
        """Parse a piece. The parser gathers a line without end, and passes over extensions: both are counted here."""
        self._data = data
        self._framing_bytes += len(data)
        super().data_received(data)
        # Less than nothing where a body came in one piece with its headers.
        self._framing_bytes = max(self._framing_bytes, 0)
        if self._framing_bytes > self.bytes_max and not self.transport.is_closing():
            self.send_400_response("The headers, chunk extensions or trailers are too large.")

    def eof_received(self) -> bool | None:  # type: ignore[override]  # asyncio asks whether to stay open
        """A client that has said all may still listen: its last request is answered, and then the connection ends."""
        cycle: RequestResponseCycle | None = self.cycle
        # TLS knows no half of a connection.
        if self.scheme == "https" or cycle is None or cycle.more_body or cycle.response_complete:
            return None
        cycle.keep_alive = False
        return True

    def _should_upgrade(self) -> bool:
        return self._get_upgrade() is not None

    def handle_websocket_upgrade(self) -> None:
        """Read the request again without its offer to speak another protocol: with it, the parser reads no body."""
        offered = sys.exc_info()[1]
        assert isinstance(offered, HttpParserUpgrade), "the parser tells where it stopped"
        rest = self._data[offered.args[0] :]
        head = b"%s %s HTTP/1.1\r\n" % (self.parser.get_method(), self.url)
        lines = [b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = HttpRequestParser(self)
        self.data_received(b"".join([head, *lines, b"\r\n", rest]))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_progress()

    def resume_writing(self) -> None:
        self._stop_sending()
        super().resume_writing()

    def _await_progress(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._sending = self.loop.call_later(self.send_seconds_max, self._look_for_progress)

    def _look_for_progress(self) -> None:
        """A slow reader is a reader; one that has read nothing is none."""
        if self.transport.get_write_buffer_size() >= self._unsent:
            self.transport.abort()
        else:
            self._await_progress()

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def on_message_begin(self) -> None:
        self._header_bytes = self._framing_bytes = 0
        self._has_headers = self._is_chunked = False
        self._await_headers()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # With the four bytes between and behind them: many empty headers are large too.
        self._count(len(name) + len(value) + 4)
        # What follows a body would be taken for a header of the request, though nobody before us looked at it.
        if not self._has_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._has_headers = True
        self._framing_bytes = 0
        self._stop_waiting()
        self._check_framing()
        self._check_target()
        super().on_headers_complete()
        if len(self.pipeline) > _PIPELINED_MAX:
            raise ValueError("too many requests were sent ahead of their answers")

    def _check_framing(self) -> None:
        """Refuse a body that we and a proxy before us could see end at different places."""
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise ValueError("the version of HTTP is not spoken here")
        codings = [value.strip().lower() for name, value in self.headers if name == b"transfer-encoding"]
        # Version 1.0 has no chunks, and nobody here unpacks another coding.
        if codings and (version == "1.0" or codings != [b"chunked"]):
            raise ValueError("the transfer coding is not spoken here")
        self._is_chunked = bool(codings)

    def on_body(self, body: bytes) -> None:
        self._framing_bytes -= len(body)
        super().on_body(body)

    def on_chunk_header(self) -> None:
        self._framing_bytes -= _CHUNK_LINE_BYTES

    def on_message_complete(self) -> None:
        self._framing_bytes = 0
        self._has_headers = False
        super().on_message_complete()

    def _check_target(self) -> None:
        """A target that is a whole URL names the host that its header names; nobody is connected to another server."""
        if self.parser.get_method() == b"CONNECT":
            raise ValueError("the gateway is not a proxy")
        scheme, separator, rest = self.url.partition(b"://")
        if separator and b"/" not in scheme:
            hosts = [value for name, value in self.headers if name == b"host"]
            if [re.split(rb"[/?#]", rest, maxsplit=1)[0].lower()] != [host.lower() for host in hosts]:
                raise ValueError("the target names another host than the header")

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self.bytes_max:
            # The parser tells its caller, which answers 400 and closes.
            raise ValueError("the headers are too large")

    def _await_headers(self) -> None:
        self._stop_waiting()
        self._waiting = self.loop.call_later(self.seconds_max, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        # A request that is being answered has come to the end of its headers.
        if not self.transport.is_closing():
            self.transport.close()


class _Quiet(uvicorn.Server):
    """Leaves signals to the command that runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """One listener. `port` is the one it has: where 0 was asked for, the system chose."""

    def __init__(self, app: Any, config: GatewayConfig, *, host: str | None = None, port: int | None = None) -> None:
        config.check_certificate()
        bounds = {
            "seconds_max": config.header_seconds_max,
            "bytes_max": config.header_bytes_max,
            "send_seconds_max": config.send_seconds_max,
            "connections_max": config.connections_max,
        }
        settings = uvicorn.Config(
            app,
            host=host or config.host,
            port=config.port if port is None else port,
            http=type("BoundedHttp", (_BoundedHttp,), bounds),
            ws="none",
            lifespan="off",
            log_config=None,
            # Else whoever sends garbage writes a line of the log with each of it.
            log_level="error",
            access_log=False,
            server_header=False,
            date_header=True,
            # The guard reads what proxies claim.
            proxy_headers=False,
            timeout_keep_alive=ceil(config.idle_seconds_max),
            timeout_graceful_shutdown=_GRACE_SECONDS,
            ssl_certfile=config.certificate,
            ssl_keyfile=config.certificate_key,
        )
        self._server = _Quiet(settings)
        self._host, self._port = settings.host, settings.port
        settings.load()

    @property
    def port(self) -> int:
        return int(self._server.servers[0].sockets[0].getsockname()[1])

    @property
    def address(self) -> str:
        """Host and port, as a URL has them."""
        return written_address(self._host, self.port)

    async def run(self) -> None:
        """Serve until `stop`; `Unavailable` when the address cannot be had."""
        await self._server.serve(await listening_sockets(self._host, self._port))

    async def started(self, clock: Clock = SYSTEM_CLOCK) -> None:
        while not self._server.started:
            await clock.sleep(_STARTED_LOOK_SECONDS)

    def stop(self) -> None:
        """Take no more requests; those under way are answered."""
        self._server.should_exit = True


@asynccontextmanager
async def serving(server: HttpServer) -> AsyncIterator[HttpServer]:
    """The server, answering, for the length of a block."""
    running = asyncio.ensure_future(server.run())
    ready = asyncio.ensure_future(server.started())
    try:
        await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        yield server
    finally:
        ready.cancel()
        server.stop()
        if not running.done():
            await running
