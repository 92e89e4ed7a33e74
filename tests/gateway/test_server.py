"""The server: real sockets, slow and endless clients."""

import asyncio
import socket
import ssl
import warnings

import httpx
import pytest

from penstock.clock import SYSTEM_CLOCK
from penstock.errors import InvalidInput, Unavailable
from penstock.gateway import Gateway, GatewayConfig, GrpcServer, HttpServer, serving
from penstock.gateway.http.bodies import read_body
from penstock.gateway.http.exchange import HttpAnswer, json_answer
from penstock.gateway.http.listening import listening_sockets
from penstock.gateway.http.routing import Route


async def hello(_exchange):
    return json_answer({"hello": "world"})


APP = [Route("GET", "/hello", None, hello, "Say hello.")]


def talked(send, config=None, seconds=30.0, app=APP, half_closes=False):
    """What the server answers to bytes of a client, until it closes the connection."""

    async def talk():
        settings = config or GatewayConfig(port=0, header_seconds_max=0.2)
        async with serving(HttpServer(Gateway(app, settings), settings)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            async with asyncio.timeout(seconds):
                for part in send:
                    writer.write(part)
                    await writer.drain()
                if half_closes:
                    writer.write_eof()
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


@pytest.mark.parametrize(
    "request_text",
    [
        b"GET /hello\r\n\r\n",
        b"POST /hello HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /hello HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_a_body_whose_end_a_proxy_could_see_elsewhere_is_refused(request_text):
    assert talked([request_text]).startswith(b"HTTP/1.1 400")


def test_version_1_0_is_answered_and_its_connection_closed():
    assert talked([b"GET /hello HTTP/1.0\r\nHost: localhost\r\n\r\n"]).endswith(b'{"hello":"world"}')


def test_a_port_that_is_taken_is_named_and_nothing_else_is_printed(capfd):
    async def twice():
        config = GatewayConfig(port=0)
        async with serving(HttpServer(Gateway(APP, config), config)) as server:
            again = GatewayConfig(port=server.port)
            async with serving(HttpServer(Gateway(APP, again), again)):
                raise AssertionError("it listens twice")

    with pytest.raises(Unavailable, match="cannot listen") as refused:
        asyncio.run(twice())
    assert refused.value.why == "another process listens on this port"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("host", "why"),
    [("203.0.113.1", "no such address"), ("2001:db8::1", "no such address"), ("no.invalid", "resolved")],
)
def test_why_an_address_cannot_be_had_is_told(host, why):
    config = GatewayConfig(host=host, port=4318, tokens="tokens.json")

    async def listens():
        async with serving(HttpServer(Gateway(APP, config), config)):
            raise AssertionError("it listens")

    with pytest.raises(Unavailable) as refused:
        asyncio.run(listens())
    assert why in refused.value.why
    assert ("[2001:db8::1]:4318" if ":" in host else f"{host}:4318") in refused.value.what


def test_every_address_of_a_name_has_the_port_that_the_system_chose(monkeypatch):
    """Those that this machine does not have, such as `::1` of a hosts file, are passed over."""

    async def both(*_args, **_options):
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("203.0.113.1", 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", 0)),
        ]

    async def ports():
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
        found = await listening_sockets("localhost", 0)
        try:
            return [one.getsockname() for one in found]
        finally:
            for one in found:
                one.close()

    (first, port), (second, other) = asyncio.run(ports())
    assert (first, second) == ("127.0.0.1", "127.0.0.2")
    assert port == other != 0


async def echoed(exchange):
    body = await read_body(exchange.receive, exchange.announced_bytes, 1_000, 0.2)
    return json_answer({"bytes": len(body)})


async def large(_exchange):
    return HttpAnswer(bytes(64 << 20), content_type="application/octet-stream")


POST = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"


@pytest.mark.cases(quick=1)
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        # Too slow: 3 of 10 bytes, and then nothing.
        ([POST + b"Content-Length: 10\r\n\r\nabc"], b"408"),
        ([POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"], b"408"),
        # Refused by what it announces, before a byte of it is read.
        ([POST + b"Content-Length: 100000\r\n\r\n"], b"413"),
        ([POST + b"Transfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 2000 + b"\r\n0\r\n\r\n"], b"413"),
        ([POST + b"Content-Length: nine\r\n\r\n"], b"400"),
        ([POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc"], b"400"),
        ([POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"], b"400"),
        ([POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n"], b"400"),
        ([POST + b"Content-Length: 3\r\n\r\nabc"], b"200"),
    ],
)
def test_bodies_that_are_slow_oversized_or_contradict_themselves_are_refused(sent, status):
    routes = [Route("POST", "/echo", None, echoed, "Echo.")]
    # A parser that gives up in the middle of a body closes the connection after 400.
    assert talked(sent, GatewayConfig(port=0), app=routes).startswith(b"HTTP/1.1 " + status)


CHUNKED = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"


def refused(sent, app=APP):
    """Whether it is answered 400, or not even that: whoever goes on sending may find the connection reset."""
    config = GatewayConfig(port=0, header_seconds_max=5.0, body_seconds_max=5.0)
    try:
        return talked(sent, config, app=app).startswith(b"HTTP/1.1 400")
    except ConnectionError:
        return True


@pytest.mark.parametrize("size", [100_000, 200_000])
@pytest.mark.parametrize(
    "framing",
    [
        pytest.param(lambda pad: b"1;e=" + pad + b"\r\nx\r\n0\r\n\r\n", id="an extension"),
        pytest.param(
            lambda pad: (b"1;e=" + pad[:999] + b"\r\nx\r\n") * (len(pad) // 999) + b"0\r\n\r\n", id="extensions"
        ),
        pytest.param(lambda pad: b"1\r\nx\r\n0;e=" + pad + b"\r\n\r\n", id="an extension of the last chunk"),
        pytest.param(lambda pad: b"1;e=" + pad, id="an extension without end"),
        pytest.param(lambda pad: b"1\r\nx\r\n0\r\nt: " + pad + b"\r\n\r\n", id="a trailer"),
        pytest.param(lambda pad: b"1\r\nx\r\n0\r\nt: " + pad, id="a trailer without end"),
    ],
)
def test_what_surrounds_the_chunks_of_a_body_is_bounded(framing, size):
    app = [Route("POST", "/echo", None, summed, "Sum.")]
    assert refused([CHUNKED + framing(b"y" * size)], app)


async def summed(exchange):
    body = await read_body(exchange.receive, exchange.announced_bytes, 16 << 20, 20)
    return json_answer({"bytes": len(body)})


@pytest.mark.parametrize(("size", "count"), [(1, 50_000), (100, 3_000), (40_000, 100)])
def test_a_body_of_many_chunks_is_read_however_small_they_are(size, count):
    chunk = b"%x;a=b\r\n" % size + b"y" * size + b"\r\n"
    app = [Route("POST", "/echo", None, summed, "Sum.")]
    answer = talked([CHUNKED, chunk * count, b"0\r\nt: u\r\n\r\n"], GatewayConfig(port=0), app=app)
    assert answer.endswith(b'{"bytes":%d}' % (size * count))


@pytest.mark.parametrize("start", [b"GET /hello", b"GET /hello HTTP/1.1\r\nx", b"GET /hello HTTP/1.1\r\nx: "])
def test_a_line_of_the_headers_without_end_is_not_gathered(start):
    assert refused([start, *[b"y" * 50_000] * 4])


async def shown(exchange):
    await read_body(exchange.receive, exchange.announced_bytes, 1_000, 5)
    return json_answer(exchange.headers)


def test_what_follows_a_body_is_never_taken_for_a_header():
    """A proxy that checks or sets a header before us does not look for it behind the body."""
    trailers = b"0\r\nX-Forwarded-For: 10.0.0.1\r\nAuthorization: Bearer x\r\nHost: other\r\n\r\n"
    sent = POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n" + trailers
    answer = talked([sent], GatewayConfig(port=0), app=[Route("POST", "/echo", None, shown, "Show.")])
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"host":"localhost"' in answer
    assert b"bearer" not in answer.lower()
    assert b"x-forwarded-for" not in answer


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        [b"Content-Length: 3\r\n\r\nabc"],
        [b"Content-Length: 3\r\n\r\n", b"abc"],
        [b"Content-Length: 3\r\n\r\na", b"b", b"c"],
        [b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"],
    ],
)
def test_an_offer_to_speak_another_protocol_is_passed_over_and_the_body_is_read(parts):
    """Clients may offer HTTP/2 with a request that they send in the clear, whatever its body."""
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE
    routes = [Route("POST", "/echo", None, echoed, "Echo.")]
    again = POST + b"Content-Length: 4\r\n\r\nabcd"
    answer = talked([head, *parts, again], GatewayConfig(port=0), 5.0, routes)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert b'{"bytes":3}' in answer
    assert answer.endswith(b'{"bytes":4}')


@pytest.mark.parametrize("method", [b"GET", b"CONNECT"])
def test_many_offers_to_speak_another_protocol_sent_ahead_are_bounded(method):
    one = method + b" /hello HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + b"\r\n"
    answer = talked([one * 1_000], GatewayConfig(port=0, header_seconds_max=0.5), 5.0)
    assert b"HTTP/1.1 400" in answer
    assert answer.count(b"HTTP/1.1 200") < 1_000


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://localhost/hello", b"200"),
        (b"HTTP://LOCALHOST/hello", b"200"),
        (b"http://other.example/hello", b"400"),
        (b"http://localhost:1/hello", b"400"),
        (b"http://other@localhost/hello", b"400"),
        (b"http://localhost@other/hello", b"400"),
    ],
)
def test_a_target_that_names_another_host_than_its_header_is_refused(target, status):
    """Whoever stands before us may have believed the other one."""
    sent = b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert talked([sent], GatewayConfig(port=0)).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    "sent", [b"", b"GET /he", b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc"]
)
def test_a_client_that_closes_its_half_is_let_go(sent):
    assert b"200" not in talked([sent], GatewayConfig(port=0, header_seconds_max=0.5), app=APP, half_closes=True)


def test_a_client_that_has_said_all_and_closes_its_half_hears_its_answer():
    """It was told nothing of what was stored, though it listened."""

    async def slow(exchange):
        body = await read_body(exchange.receive, exchange.announced_bytes, 1_000, 5)
        await SYSTEM_CLOCK.sleep(0.2)
        return json_answer({"bytes": len(body)})

    sent = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"
    routes = [Route("POST", "/echo", None, slow, "Echo.")]
    answer = talked([sent], GatewayConfig(port=0), 20.0, app=routes, half_closes=True)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer
    assert answer.endswith(b'{"bytes":3}')


HELLO = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"


def answered_then(first, until, rest, app=APP):
    """What comes, until the server closes, of a client that sends the rest once the first is answered."""

    async def talk():
        config = GatewayConfig(port=0, header_seconds_max=0.2)
        async with serving(HttpServer(Gateway(app, config), config)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            async with asyncio.timeout(30):
                writer.write(first)
                answer = await reader.readuntil(until)
                writer.write(rest)
                answer += await reader.read()
            writer.close()
            return answer

    return asyncio.run(talk())


def test_empty_lines_between_requests_keep_no_connection():
    assert answered_then(HELLO, b'{"hello":"world"}', b"\r\n").count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("rest", [b"x", b"x" * 99_990])
def test_a_body_that_was_refused_keeps_no_connection_whether_it_goes_on_or_ends(rest):
    routes = [Route("POST", "/echo", None, echoed, "Echo.")]
    began = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n" + b"x" * 10
    assert answered_then(began, b"}", rest, routes).startswith(b"HTTP/1.1 413")


def test_requests_sent_far_ahead_of_their_answers_are_not_gathered():
    answer = talked([HELLO * 1_000], GatewayConfig(port=0))
    assert b"HTTP/1.1 400" in answer
    assert answer.count(b"HTTP/1.1 200") < 1_000


def test_a_few_requests_sent_ahead_are_answered_in_their_order():
    last = HELLO.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert talked([HELLO * 10 + last], GatewayConfig(port=0)).count(b'{"hello":"world"}') == 11


def test_one_connection_too_many_is_told_to_come_back():
    async def connect():
        config = GatewayConfig(port=0, connections_max=2)
        async with serving(HttpServer(Gateway(APP, config), config)) as server:
            kept = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
            for reader, writer in kept:
                writer.write(HELLO)
                await reader.readuntil(b'{"hello":"world"}')
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            refused = await reader.read()
            for _, other in [*kept, (reader, writer)]:
                other.close()
            return refused

    refused = asyncio.run(connect())
    assert refused.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 5" in refused


def test_a_client_that_does_not_read_its_answer_is_let_go():
    async def talk():
        config = GatewayConfig(port=0, send_seconds_max=0.2)
        routes = [Route("GET", "/large", None, large, "Send much.")]
        async with serving(HttpServer(Gateway(routes, config), config)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            # Nobody reads here: the connection is dropped, and what is left of the answer with it.
            async with asyncio.timeout(30):
                while server._server.server_state.connections:  # noqa: ASYNC110 - nothing tells when a client is let go
                    await asyncio.sleep(0.01)
            writer.transport.abort()
            del reader

    asyncio.run(talk())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of this machine, signed by itself: its file, and that of its key."""
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "cert.pem", folder / "key.pem"


def test_tls_is_spoken_from_version_1_2_on_and_plain_http_is_not(certificate):
    cert, key = certificate

    async def talk():
        config = GatewayConfig(port=0, certificate=str(cert), certificate_key=str(key))
        trusting = ssl.create_default_context(cafile=str(cert))
        old = ssl.create_default_context(cafile=str(cert))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        async with serving(HttpServer(Gateway(APP, config), config)) as server:
            async with httpx.AsyncClient(verify=trusting, trust_env=False) as client:
                answer = await client.get(f"https://127.0.0.1:{server.port}/hello")
                with pytest.raises(httpx.HTTPError):
                    await client.get(f"http://127.0.0.1:{server.port}/hello")
            async with httpx.AsyncClient(verify=old, trust_env=False) as client:
                with pytest.raises(httpx.ConnectError):
                    await client.get(f"https://127.0.0.1:{server.port}/hello")
            return answer

    assert asyncio.run(talk()).json() == {"hello": "world"}


def test_a_certificate_that_cannot_be_used_is_refused_at_start(certificate, tmp_path):
    cert, key = certificate
    (tmp_path / "not.pem").write_text("no certificate")
    for pair in ((tmp_path / "not.pem", key), (cert, tmp_path / "not.pem"), (tmp_path / "none.pem", key)):
        config = GatewayConfig(port=0, certificate=str(pair[0]), certificate_key=str(pair[1]))
        with pytest.raises(InvalidInput, match="certificate cannot be used"):
            HttpServer(Gateway(APP, config), config)


def test_grpc_refuses_such_a_certificate_as_http_does(certificate, tmp_path, capfd):
    cert, _ = certificate
    config = GatewayConfig(certificate=str(cert), certificate_key=str(tmp_path / "none.pem"))
    with pytest.raises(InvalidInput, match="certificate cannot be used"):
        asyncio.run(GrpcServer(None, None, config).start(0))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 0, -1])
@pytest.mark.parametrize("name", ["idle_seconds_max", "header_seconds_max", "query_seconds_max"])
def test_a_bound_that_bounds_nothing_is_refused(name, value):
    with pytest.raises(InvalidInput, match=name):
        GatewayConfig(**{name: value})
