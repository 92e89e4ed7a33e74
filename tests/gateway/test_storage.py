"""Storage of a tenant: measured, counted in between, and refused beyond its quota."""

import asyncio

import httpx
import pytest

from penstock.errors import Unavailable
from penstock.gateway import Gateway, GatewayConfig, Guard, Scope, StorageQuota
from penstock.gateway.access.limits import TooMany
from penstock.gateway.http.exchange import json_answer
from penstock.gateway.http.inputs import whole_body
from penstock.gateway.http.routing import Route
from penstock.testing import ManualClock


def quota(bytes_max, kept):
    async def measure():
        if isinstance(kept, Exception):
            raise kept
        return dict(kept)

    return StorageQuota(bytes_max, measure, ManualClock())


def test_what_is_accepted_counts_until_it_is_measured():
    kept = {"a": 40}
    storage = quota(100, kept)
    asyncio.run(storage.measure())
    storage.check("a", 30)
    storage.check("a", 30)
    with pytest.raises(TooMany, match="no storage left") as refused:
        storage.check("a", 1)
    assert refused.value.retry_after_seconds > 0
    storage.check("b", 100)
    # It was compressed on its way to the store.
    kept["a"] = 50
    asyncio.run(storage.measure())
    storage.check("a", 50)


def test_what_comes_while_it_is_measured_is_not_forgotten():
    async def session():
        begun, going = asyncio.Event(), asyncio.Event()

        async def measure():
            begun.set()
            await going.wait()
            return {}

        storage = StorageQuota(100, measure, ManualClock())
        measuring = asyncio.ensure_future(storage.measure())
        await begun.wait()
        storage.check("a", 90)
        going.set()
        await measuring
        with pytest.raises(TooMany):
            storage.check("a", 20)

    asyncio.run(session())


def test_a_store_that_does_not_answer_leaves_what_is_known():
    async def session():
        storage = quota(100, Unavailable("the store does not answer"))
        storage.check("a", 90)
        measuring = asyncio.ensure_future(storage.keep_measuring())
        await asyncio.sleep(0)
        measuring.cancel()
        with pytest.raises(TooMany):
            storage.check("a", 20)

    asyncio.run(session())


@pytest.mark.parametrize("announced", [True, False])
def test_a_tenant_without_room_is_told_when_to_come_back_and_may_still_read_and_remove(announced):
    config = GatewayConfig()

    async def taking(exchange):
        return json_answer({"bytes": len(await whole_body(exchange, config))})

    async def session():
        routes = [
            Route("POST", "/in", Scope.WRITE, taking, "Take.", stores=True),
            Route("DELETE", "/in", Scope.WRITE, taking, "Remove."),
        ]
        app = Gateway(routes, config, guard=Guard(config, lambda: None, storage=quota(100, {})))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:

            async def chunks():
                yield b"x" * 60

            answers = [await client.post("/in", content=b"x" * 60 if announced else chunks()) for _ in range(3)]
            return answers, await client.request("DELETE", "/in")

    answers, removed = asyncio.run(session())
    # Bytes that were not announced count as they come.
    assert [answer.status_code for answer in answers] == [200, 429, 429]
    assert int(answers[2].headers["retry-after"]) > 0
    assert removed.status_code == 200


def test_what_was_announced_and_refused_takes_no_storage():
    config = GatewayConfig()

    async def refusing(exchange):
        raise Unavailable("the edge is full")

    async def session():
        app = Gateway(
            [Route("POST", "/in", Scope.WRITE, refusing, "Take.", stores=True)],
            config,
            guard=Guard(config, lambda: None, storage=quota(100, {})),
        )
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return [(await client.post("/in", content=b"x" * 60)).status_code for _ in range(3)]

    assert asyncio.run(session()) == [503, 503, 503]
