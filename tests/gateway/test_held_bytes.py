"""Bytes under way: bodies, what they unpack to and answers have one bound together, and every tenant a share of it."""

import asyncio
import gzip
import json
from typing import Any

import pytest

from penstock.errors import Unavailable
from penstock.gateway import Gateway, GatewayConfig, Guard, Scope, TenantLimits, TokenBook
from penstock.gateway.access.held_bytes import HeldBytes
from penstock.gateway.access.limits import TooMany
from penstock.gateway.http.exchange import HttpAnswer, json_answer
from penstock.gateway.http.inputs import whole_body
from penstock.gateway.http.routing import Route

KIB = 1024


def parts_to_come() -> asyncio.Queue[dict[str, Any]]:
    return asyncio.Queue()


def test_a_tenant_has_its_share_and_all_together_have_the_whole():
    held = HeldBytes(100, 60)
    with held.lease("a") as first, held.lease("a") as second, held.lease("b") as third, held.lease("b") as fourth:
        first.take(50)
        with pytest.raises(TooMany, match="tenant a"):
            second.take(11)
        second.take(10)
        third.take(40)
        with pytest.raises(Unavailable, match="the gateway holds"):
            fourth.take(1)
        assert held.size == 100
    assert held.size == 0
    assert held._tenants == {}


def test_whoever_holds_bytes_alone_goes_on_beyond_a_bound_that_is_too_small_for_it():
    held = HeldBytes(100, 60)
    with held.lease("a") as alone, held.lease("a") as other:
        alone.take(150)
        alone.take(50)
        with pytest.raises(TooMany):
            other.take(1)
        alone.give_back()
        other.take(60)


def post(app, token, parts, headers=()):
    """Send a body in parts that the caller lets through one by one; the status and headers of the answer."""
    found: dict[str, Any] = {}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/in",
        "raw_path": b"/in",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode()), *headers],
        "client": ("127.0.0.1", 1),
    }

    async def receive():
        return await parts.get()

    async def send(message):
        if message["type"] == "http.response.start":
            found.update(status=message["status"], headers=dict(message["headers"]))

    async def ask():
        await app(scope, receive, send)
        return found

    return asyncio.ensure_future(ask())


def part(size, more=True):
    return {"type": "http.request", "body": bytes(size), "more_body": more}


def bounded(**limits):
    """An application that reads bodies whole, its guard, and a token of each of three tenants."""
    config = GatewayConfig(
        tokens="x",
        concurrent_requests=10_000,
        concurrent_bytes=1_000 * KIB,
        tenant=TenantLimits(
            concurrent_requests=10_000,
            request_burst=10_000,
            requests_per_second=1e6,
            bytes_per_second=1e12,
            concurrent_bytes=limits.pop("share", 400 * KIB),
        ),
        **limits,
    )
    book, tokens = TokenBook.new(), {}
    for tenant in ("a", "b", "c"):
        book, tokens[tenant] = book.issue(tenant, [Scope.WRITE], 0)
    guard = Guard(config, lambda: book)

    async def taking(exchange):
        return json_answer({"bytes": len(await whole_body(exchange, config))})

    return Gateway([Route("POST", "/in", Scope.WRITE, taking, "Take.")], config, guard=guard), guard, tokens


def test_two_thousand_slow_uploads_hold_no_more_than_the_bound_and_some_of_them_end_well():
    """Each sends eight parts of 8 KiB, one after the other over all of them: 125 MiB where 1 MiB may be held."""
    app, guard, tokens = bounded()

    async def offer():
        queues = [parts_to_come() for _ in range(2_000)]
        asked = [post(app, tokens["abc"[number % 3]], queue) for number, queue in enumerate(queues)]
        most = 0
        for turn in range(8):
            for queue in queues:
                queue.put_nowait(part(8 * KIB, more=turn < 7))
            for _ in range(20):
                await asyncio.sleep(0)
                most = max(most, guard.held.size)
        return most, await asyncio.gather(*asked)

    most, answers = asyncio.run(offer())
    assert 900 * KIB < most <= 1_000 * KIB
    statuses = [answer["status"] for answer in answers]
    assert set(statuses) == {200, 429, 503}
    assert all(int(one["headers"][b"retry-after"]) > 0 for one in answers if one["status"] != 200)
    assert guard.held.size == 0


def test_a_tenant_that_fills_its_share_takes_nothing_from_another():
    app, guard, tokens = bounded()

    async def offer():
        slow, more, other = parts_to_come(), parts_to_come(), parts_to_come()
        first = post(app, tokens["a"], slow)
        slow.put_nowait(part(390 * KIB))
        while guard.held.size < 390 * KIB:  # noqa: ASYNC110 - nothing tells when a part was read
            await asyncio.sleep(0)
        more.put_nowait(part(20 * KIB, more=False))
        other.put_nowait(part(20 * KIB, more=False))
        refused, taken = await post(app, tokens["a"], more), await post(app, tokens["b"], other)
        slow.put_nowait(part(1, more=False))
        return refused["status"], taken["status"], (await first)["status"]

    assert asyncio.run(offer()) == (429, 200, 200)


def test_what_a_body_unpacks_to_is_held_as_well():
    app, guard, tokens = bounded()
    bomb = gzip.compress(bytes(300 * KIB))

    async def offer():
        slow, packed = parts_to_come(), parts_to_come()
        first = post(app, tokens["a"], slow)
        slow.put_nowait(part(200 * KIB))
        while not guard.held.size:  # noqa: ASYNC110 - nothing tells when a part was read
            await asyncio.sleep(0)
        packed.put_nowait({"type": "http.request", "body": bomb})
        refused = await post(app, tokens["a"], packed, [(b"content-encoding", b"gzip")])
        slow.put_nowait(part(1, more=False))
        await first
        packed.put_nowait({"type": "http.request", "body": bomb})
        return refused["status"], (await post(app, tokens["a"], packed, [(b"content-encoding", b"gzip")]))["status"]

    assert asyncio.run(offer()) == (429, 200)


def test_an_answer_is_held_and_counted_as_under_way_until_its_client_has_read_it():
    config = GatewayConfig(
        concurrent_bytes=100 * KIB, tenant=TenantLimits(concurrent_requests=2, concurrent_bytes=100 * KIB)
    )
    guard = Guard(config, lambda: None)

    async def large(_exchange):
        return HttpAnswer(bytes(60 * KIB))

    async def small(_exchange):
        return HttpAnswer(b"{}")

    routes = [Route("GET", "/large", Scope.READ, large, "Much."), Route("GET", "/small", Scope.READ, small, "Little.")]
    app = Gateway(routes, config, guard=guard)

    async def get(path, reads):
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
        }
        found = []

        async def send(message):
            found.append(message)
            if message["type"] == "http.response.body":
                await reads.wait()

        await app(scope, None, send)
        body = found[1]["body"]
        return found[0]["status"], json.loads(body)["what"] if found[0]["status"] == 429 else len(body)

    async def offer():
        reads, at_once = asyncio.Event(), asyncio.Event()
        at_once.set()
        first = asyncio.ensure_future(get("/large", reads))
        while guard.held.size < 60 * KIB:  # noqa: ASYNC110 - nothing tells when an answer is being sent
            await asyncio.sleep(0)
        refused = await get("/large", at_once)
        second = asyncio.ensure_future(get("/small", reads))
        await asyncio.sleep(0)
        crowded = await get("/small", at_once)
        reads.set()
        return refused, crowded, await first, await second

    refused, crowded, first, second = asyncio.run(offer())
    assert refused[0] == 429
    assert "bytes under way" in refused[1]
    assert crowded[0] == 429
    assert "requests under way" in crowded[1]
    assert (first, second) == ((200, 60 * KIB), (200, 2))
    assert guard.held.size == 0
