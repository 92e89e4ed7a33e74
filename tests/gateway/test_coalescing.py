"""Requests decoded together: each answered once, for itself, whatever its neighbours hold."""

import asyncio

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from penstock.errors import InvalidInput
from penstock.gateway import GatewayConfig, IngestRoutes, Principal, Scope
from penstock.gateway.ingest.coalescing import Coalescer
from penstock.quiver import Quiver
from penstock.records import Signal
from penstock.telemetry import DecodedRows

TENANT = Principal("acme", frozenset({Scope.WRITE}))


def request(number, points=1):
    message = ExportMetricsServiceRequest()
    gauge = message.resource_metrics.add().scope_metrics.add().metrics.add(name=f"m{number}").gauge
    for point in range(points):
        gauge.data_points.add(time_unix_nano=1_700_000_000_000_000_000 + point, as_double=number)
    return message.SerializeToString()


def stored(bodies, tmp_path, tenants=(TENANT,)):
    """The answers to requests that come at once, the names that were stored, and how many bundles they came in."""

    async def store():
        async with await Quiver.open(str(tmp_path / "edge")) as quiver:
            bundles = []

            class Counting:
                async def ingest(self, bundle, timeout=None):
                    bundles.append(bundle)
                    return await quiver.ingest(bundle, timeout)

            routes = IngestRoutes(Counting(), GatewayConfig())
            calls = [
                routes.store_otlp(Signal.METRICS, body, tenants[number % len(tenants)])
                for number, body in enumerate(bodies)
            ]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            table = await quiver.scan()
            return answers, table.to_pylist() if table is not None else [], bundles

    return asyncio.run(store())


def test_many_at_once_are_few_bundles_and_every_row_is_there_once(tmp_path):
    answers, rows, bundles = stored([request(number) for number in range(100)], tmp_path)
    assert not [one for one in answers if isinstance(one, Exception)]
    assert sorted(row["metric"] for row in rows) == sorted(f"m{number}" for number in range(100))
    assert len(bundles) < 10


def test_a_malformed_one_is_refused_alone(tmp_path):
    bad = [b"\x0a\x03\xff\xff\xff", b"\xff", request(7)[:-1], b"\x0a\x7f"]
    bodies = [request(0), bad[0], request(1), bad[1], request(2), bad[2], bad[3], request(3)]
    answers, rows, _ = stored(bodies, tmp_path)
    refused = [isinstance(answer, InvalidInput) for answer in answers]
    assert refused == [False, True, False, True, False, True, True, False]
    assert sorted(row["metric"] for row in rows) == ["m0", "m1", "m2", "m3"]


def test_tenants_are_never_put_together(tmp_path):
    other = Principal("other", frozenset({Scope.WRITE}))
    _, rows, _ = stored([request(number) for number in range(20)], tmp_path, (TENANT, other))
    for row in rows:
        assert row["tenant"] == ("acme" if int(row["metric"][1:]) % 2 == 0 else "other")


def test_rows_that_are_refused_are_told_to_their_own_sender(tmp_path):
    broken = ExportMetricsServiceRequest()
    broken.resource_metrics.add().scope_metrics.add().metrics.add(name="").gauge.data_points.add(as_double=1.0)
    answers, rows, _ = stored([request(0), request(1), broken.SerializeToString(), request(2)], tmp_path)
    assert [answer.rejected for answer in answers] == [0, 0, 1, 0]
    assert sorted(row["metric"] for row in rows) == ["m0", "m1", "m2"]


def test_rows_that_are_refused_are_told_to_a_sender_that_came_alone_behind_others(tmp_path):
    broken = ExportMetricsServiceRequest()
    for _ in range(50):
        broken.resource_metrics.add().scope_metrics.add().metrics.add(name="").gauge.data_points.add(as_double=1.0)
    # The first is decoded alone, and the other, which is longer, alone after it.
    answers, rows, _ = stored([request(0), broken.SerializeToString()], tmp_path)
    assert [answer.rejected for answer in answers] == [0, 50]
    assert [row["metric"] for row in rows] == ["m0"]


@pytest.mark.parametrize("error", [InvalidInput("x"), RuntimeError("x")])
def test_everybody_is_answered_when_the_store_fails(error):
    async def failing(_bodies):
        raise error

    async def ask():
        coalescer = Coalescer()
        calls = [coalescer.take("k", request(number), failing) for number in range(5)]
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)

    assert [type(answer) for answer in asyncio.run(ask())] == [type(error)] * 5


def test_the_next_group_is_decoded_while_the_one_before_is_synced_if_it_is_large():
    async def ask(size):
        groups, synced = [], asyncio.Event()

        async def take(bodies):
            groups.append(len(bodies))
            await synced.wait()
            return DecodedRows(None)

        coalescer = Coalescer()
        calls = [asyncio.ensure_future(coalescer.take("k", b"x" * size, take))]
        await _turns()
        calls += [asyncio.ensure_future(coalescer.take("k", b"x" * size, take)) for _ in range(5)]
        await _turns()
        ahead = list(groups)
        synced.set()
        await asyncio.gather(*calls)
        return ahead, list(groups)

    assert asyncio.run(ask(10)) == ([1], [1, 5])
    ahead, every = asyncio.run(ask(200 << 10))
    assert ahead[0] == 1
    assert len(ahead) > 1, "large groups wait for the disk"
    assert sum(every) == 6


def test_no_more_groups_are_under_way_than_are_let_ahead():
    under_way, most = 0, 0

    async def take(_bodies):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await _turns()
        under_way -= 1
        return DecodedRows(None)

    async def ask():
        coalescer = Coalescer()
        await asyncio.gather(*[coalescer.take("k", b"x" * (1 << 20), take) for _ in range(40)])
        await _turns()
        return [len(line.waiting) + len(line.groups) + line.waiting_bytes for line in coalescer._lines.values()]

    assert asyncio.run(ask()) == [0]
    assert 1 < most <= 3


async def _turns():
    for _ in range(10):
        await asyncio.sleep(0)
