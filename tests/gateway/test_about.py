"""Whether it lives and is ready, and its metrics, for those who may see them."""

import asyncio

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from penstock.errors import Unavailable
from penstock.gateway import AboutRoutes, Gateway, GatewayConfig, Scope, TenantLimits, TokenBook
from penstock.testing import ManualClock


async def _works():
    return None


async def _unavailable():
    raise Unavailable("bucket s3://secret does not answer")


async def _broken():
    raise OSError("password of the store")


async def _hangs():
    await asyncio.Event().wait()


def asked(path, probes=None, registry=None, token=None, book=None):
    async def ask():
        routes = AboutRoutes("1", probes, registry).endpoints([])
        app = Gateway(routes, GatewayConfig(tokens="x" if book else None), lambda: book)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            headers = {"authorization": f"Bearer {token}"} if token else {}
            return await client.get(path, headers=headers)

    return asyncio.run(ask())


def test_it_is_ready_while_every_part_works():
    answer = asked("/readyz", {"store": _works, "uploads": _works})
    assert (answer.status_code, answer.json()["parts"]) == (200, {"store": "ok", "uploads": "ok"})
    assert asked("/readyz").status_code == 200


@pytest.mark.parametrize("probe", [_unavailable, _broken, _hangs])
def test_a_part_that_fails_or_hangs_is_named_and_nothing_else_is_told(probe, monkeypatch):
    monkeypatch.setattr("penstock.gateway.about._PROBE_SECONDS_MAX", 0.01)
    answer = asked("/readyz", {"store": probe, "uploads": _works})
    assert (answer.status_code, answer.json()["parts"]) == (503, {"store": "not ready", "uploads": "ok"})
    assert "secret" not in answer.text
    assert "password" not in answer.text


def test_it_lives_though_no_part_works():
    assert asked("/healthz", {"store": _unavailable}).json()["status"] == "ok"


def test_nobody_can_use_up_the_answers_that_a_supervisor_waits_for():
    """Probes carry no token and name an address: counted, whoever floods them would have the process taken away."""
    looks = []

    async def looked():
        looks.append(1)

    async def ask():
        limits = TenantLimits(requests_per_second=1e-9, request_burst=1, concurrent_requests=1)
        config = GatewayConfig(tenant=limits, hosts=("penstock.example",))
        app = Gateway(AboutRoutes("1", {"store": looked}).endpoints([]), config)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://10.0.0.7:4318") as client:
            paths = ["/healthz", "/readyz"] * 20
            return [answer.status_code for answer in await asyncio.gather(*[client.get(path) for path in paths])]

    assert asyncio.run(ask()) == [200] * 40
    assert len(looks) == 1


def test_readiness_is_looked_at_again_after_a_second():
    clock, looks = ManualClock(), []

    async def looked():
        looks.append(1)

    async def ask():
        app = Gateway(AboutRoutes("1", {"store": looked}, clock=clock).endpoints([]), GatewayConfig())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            for _ in range(3):
                assert (await client.get("/readyz")).status_code == 200
                clock.advance(0.6)

    asyncio.run(ask())
    assert len(looks) == 2


def test_metrics_are_for_administrators():
    registry, book, tokens = CollectorRegistry(), TokenBook.new(), {}
    Counter("seen", "Things seen.", registry=registry).inc()
    for scope in Scope:
        book, tokens[scope] = book.issue("acme", [scope], 0)
    assert asked("/metrics", registry=registry, book=book).status_code == 401
    for scope in (Scope.READ, Scope.WRITE):
        assert asked("/metrics", registry=registry, book=book, token=tokens[scope]).status_code == 403
    answer = asked("/metrics", registry=registry, book=book, token=tokens[Scope.ADMIN])
    assert "seen_total 1.0" in answer.text
    # Where they have a listener of their own, this one has none.
    assert asked("/metrics", book=book, token=tokens[Scope.ADMIN]).status_code == 404
