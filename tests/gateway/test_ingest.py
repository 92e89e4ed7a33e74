"""Telemetry over HTTP and gRPC: real senders' requests, acknowledged once a real store has synced them."""

import asyncio
import gzip
import json
import socket
import subprocess
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace

import cramjam
import grpc
import httpx
import pyarrow as pa
import pytest
import zstandard
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from penstock.errors import AtCapacity, DeadlineExceeded, StorageFull, Unavailable
from penstock.gateway import Gateway, GatewayConfig, Guard, IngestRoutes, Scope, TenantLimits, TokenBook
from penstock.gateway.access.limits import TooMany
from penstock.gateway.ingest.otlp_grpc import GrpcServer, MessageTurns, _exchange
from penstock.quiver import Quiver, QuiverConfig, RetentionConfig, SegmentConfig, WalConfig
from penstock.records import Signal
from penstock.telemetry.remote_write.messages import write_request_v1, write_request_v2

PROTOBUF = {"content-type": "application/x-protobuf"}


def metrics(points=2):
    request = ExportMetricsServiceRequest()
    gauge = request.resource_metrics.add().scope_metrics.add().metrics.add(name="temperature").gauge
    for number in range(points):
        gauge.data_points.add(time_unix_nano=1_700_000_000_000_000_000 + number, as_double=number)
    return request


def logs():
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=5).body.string_value = "hello"
    return request


def remote_write():
    request = write_request_v1()()
    series = request.timeseries.add()
    for name, value in (("__name__", "up"), ("job", "a")):
        series.labels.add(name=name, value=value)
    series.samples.add(timestamp=1_700_000_000_000, value=1.0)
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


@asynccontextmanager
async def gateway(path, sink=None, config=None, book=None):
    config = config or GatewayConfig()
    async with await Quiver.open(str(path)) as store:
        routes = IngestRoutes(sink or store, config)
        app = Gateway(routes.endpoints(), config, lambda: book)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            yield client, store, routes


def posted(tmp_path, path, body, headers=None, sink=None):
    """The answer, and the rows of the store."""

    async def post():
        async with gateway(tmp_path / "edge", sink) as (client, store, _):
            answer = await client.post(path, content=body, headers=headers or PROTOBUF)
            table = await store.scan() if store.open_bytes else None
            return answer, table

    return asyncio.run(post())


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("identity", bytes), ("gzip", gzip.compress), ("zstd", zstandard.compress)],
)
def test_otlp_metrics_in_protobuf_are_stored_for_their_tenant(tmp_path, encoding, pack):
    answer, table = posted(
        tmp_path, "/v1/metrics", pack(metrics().SerializeToString()), {**PROTOBUF, "content-encoding": encoding}
    )
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, b"", "application/x-protobuf")
    assert table.select(["tenant", "metric", "value"]).to_pylist() == [
        {"tenant": "default", "metric": "temperature", "value": float(number)} for number in range(2)
    ]


def test_otlp_logs_in_json_are_answered_in_json(tmp_path):
    body = {
        "resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": "5", "body": {"stringValue": "hello"}}]}]}]
    }
    answer, table = posted(tmp_path, "/v1/logs", json.dumps(body).encode(), {"content-type": "application/json"})
    assert answer.json() == {}
    assert table.column("body").to_pylist() == ["hello"]


def test_a_malformed_request_is_a_400_with_a_status_and_stores_nothing(tmp_path):
    async def post():
        async with gateway(tmp_path / "edge") as (client, store, _):
            answers = [
                await client.post("/v1/traces", content=b"\xff\xff", headers=PROTOBUF),
                await client.post("/v1/traces", content=b"{", headers={"content-type": "application/json"}),
                await client.post("/v1/traces", content=b"x", headers={**PROTOBUF, "content-encoding": "gzip"}),
                await client.post("/v1/traces", content=b"", headers={"content-type": "text/plain"}),
            ]
            return answers, store.open_bytes

    answers, stored = asyncio.run(post())
    assert [answer.status_code for answer in answers] == [400, 400, 400, 415]
    assert answers[0].content.startswith(b"\x08\x03\x12")
    assert answers[1].json()["code"] == 3
    assert stored == 0


def written(answer):
    """The counts that an answer tells, by kind; None for those it does not."""
    kinds = ("samples", "histograms", "exemplars")
    return [answer.headers.get(f"x-prometheus-remote-write-{kind}-written") for kind in kinds]


def test_the_first_version_of_remote_write_is_answered_without_the_counts_of_the_second(tmp_path):
    answer, table = posted(tmp_path, "/api/v1/write", remote_write(), {**PROTOBUF, "content-encoding": "snappy"})
    assert (answer.status_code, written(answer)) == (204, [None] * 3)
    assert table.column("metric").to_pylist() == ["up"]


def test_requests_of_the_first_version_that_come_together_are_stored_together(tmp_path):
    bundles = []

    async def post():
        async with gateway(tmp_path / "edge") as (client, store, routes):
            ingest = store.ingest

            async def noted(bundle, timeout=None):
                bundles.append(sum(batch.num_rows for batch in bundle.slots.values()))
                return await ingest(bundle, timeout)

            routes._sink = type("Noted", (), {"ingest": staticmethod(noted)})
            headers = {**PROTOBUF, "content-encoding": "snappy"}
            bodies = [remote_write()] * 20 + [b"\xff"]
            answers = await asyncio.gather(
                *[client.post("/api/v1/write", content=body, headers=headers) for body in bodies]
            )
            return [answer.status_code for answer in answers]

    assert asyncio.run(post()) == [204] * 20 + [400]
    assert sum(bundles) == 20
    assert len(bundles) < 20


def second_version(**series):
    """A request of the second version, packed, and its headers."""
    request = write_request_v2()()
    request.symbols.extend(["", "__name__", "up", "job", "a", "trace_id", "b"])
    one = request.timeseries.add(labels_refs=series.pop("labels_refs", [1, 2]))
    for name, entries in series.items():
        for entry in entries:
            getattr(one, name).add(**entry)
    kind = {"content-type": "application/x-protobuf;proto=io.prometheus.write.v2.Request", "content-encoding": "snappy"}
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString())), kind


NOW_MS = 1_700_000_000_000
BUCKETS = {"offset": 1, "length": 2}


@pytest.mark.parametrize(
    ("series", "counts"),
    [
        ({"samples": [{"timestamp": NOW_MS, "value": 1.0}]}, ["1", "0", "0"]),
        # Labels in any order, and times too.
        (
            {
                "labels_refs": [3, 4, 1, 2],
                "samples": [{"timestamp": NOW_MS, "value": 1.0}, {"timestamp": NOW_MS - 1, "value": 2.0}],
            },
            ["2", "0", "0"],
        ),
        (
            {
                "samples": [{"timestamp": NOW_MS, "value": 1.0}],
                "exemplars": [{"labels_refs": [5, 6], "value": 1.0, "timestamp": NOW_MS}],
            },
            ["1", "0", "1"],
        ),
        (
            {
                "histograms": [
                    {
                        "timestamp": NOW_MS,
                        "count_int": 3,
                        "sum": 1.0,
                        "positive_deltas": [1, 1],
                        "positive_spans": [BUCKETS],
                    }
                ]
            },
            ["0", "1", "0"],
        ),
        # With bounds of its own.
        (
            {
                "histograms": [
                    {
                        "timestamp": NOW_MS,
                        "schema": -53,
                        "count_int": 3,
                        "custom_values": [1.0, 2.0, 3.0],
                        "positive_deltas": [1, 1],
                        "positive_spans": [BUCKETS],
                    }
                ]
            },
            ["0", "1", "0"],
        ),
    ],
    ids=["sample", "unordered", "exemplar", "histogram", "custom bounds"],
)
def test_the_second_version_is_answered_with_what_was_written(tmp_path, series, counts):
    answer, table = posted(tmp_path, "/api/v1/write", *second_version(**series))
    assert (answer.status_code, written(answer)) == (204, counts), answer.text
    assert set(table.column("metric").to_pylist()) == {"up"}


@pytest.mark.parametrize(
    "series",
    [
        {"labels_refs": [3, 4], "samples": [{"timestamp": NOW_MS, "value": 1.0}]},
        {"labels_refs": [], "samples": [{"timestamp": NOW_MS, "value": 1.0}]},
        {"labels_refs": [1, 0], "samples": [{"timestamp": NOW_MS, "value": 1.0}]},
        {"labels_refs": [1, 2, 1, 4], "samples": [{"timestamp": NOW_MS, "value": 1.0}]},
        {"labels_refs": [1, 2, 3, 99], "samples": [{"timestamp": NOW_MS, "value": 1.0}]},
        {"labels_refs": [1], "samples": [{"timestamp": NOW_MS, "value": 1.0}]},
        {"histograms": [{"timestamp": NOW_MS, "count_float": 1.5}]},
        {"histograms": [{"timestamp": NOW_MS, "count_int": 1, "positive_deltas": [1], "positive_spans": [BUCKETS]}]},
        {
            "histograms": [
                {"timestamp": NOW_MS, "count_int": 99, "positive_deltas": [1, 1], "positive_spans": [BUCKETS]}
            ]
        },
    ],
    ids=["no name", "no labels", "empty name", "twice", "no such symbol", "half", "fractions", "spans", "bad count"],
)
def test_a_request_of_the_second_version_that_breaks_a_rule_is_a_400_and_nothing_was_written(tmp_path, series):
    answer, _ = posted(tmp_path, "/api/v1/write", *second_version(**series))
    assert answer.status_code == 400, answer.text
    assert all(count in (None, "0") for count in written(answer))
    assert answer.json()["what"]


@pytest.mark.parametrize("labels", [[3, 4], [1, 2, 1, 4], [1, 2, 3, 99], [1, 2, 3]])
def test_of_a_request_with_one_bad_series_the_others_are_written_and_counted(tmp_path, labels):
    """The protocol: 400, as for anything refused, and the counts say what was written."""
    body, headers = second_version(samples=[{"timestamp": NOW_MS, "value": 1.0}, {"timestamp": 1, "value": 1.0}])
    request = write_request_v2()()
    request.ParseFromString(bytes(cramjam.snappy.decompress_raw(body)))
    request.timeseries.add(labels_refs=labels).samples.add(timestamp=NOW_MS, value=7.0)
    answer, table = posted(
        tmp_path, "/api/v1/write", bytes(cramjam.snappy.compress_raw(request.SerializeToString())), headers
    )
    assert (answer.status_code, written(answer)) == (400, ["2", "0", "0"]), answer.text
    assert "1 samples were refused, 2 rows were stored" in answer.json()["what"]
    assert table.column("value").to_pylist() == [1.0, 1.0]


def test_of_a_request_of_the_first_version_with_one_bad_series_the_others_are_written(tmp_path):
    request = write_request_v1()()
    request.ParseFromString(bytes(cramjam.snappy.decompress_raw(remote_write())))
    request.timeseries.add().samples.add(timestamp=NOW_MS, value=7.0)
    body = bytes(cramjam.snappy.compress_raw(request.SerializeToString()))
    answer, table = posted(tmp_path, "/api/v1/write", body, {**PROTOBUF, "content-encoding": "snappy"})
    assert (answer.status_code, written(answer)) == (400, [None] * 3)
    assert "has no name" in answer.json()["why"]
    assert table.column("metric").to_pylist() == ["up"]


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "application/json"},
        {"content-type": "application/x-protobuf;proto=some.other.Message"},
        {**PROTOBUF, "content-encoding": "gzip"},
    ],
)
def test_what_remote_write_does_not_speak_is_a_415(tmp_path, headers):
    answer, _ = posted(tmp_path, "/api/v1/write", remote_write(), headers)
    assert answer.status_code == 415


def test_an_arrow_stream_and_lines_of_json_fill_tables_of_their_own(tmp_path):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("a", pa.int64())])) as writer:
        writer.write_batch(pa.record_batch({"a": [1, 2]}))
    answer, table = posted(tmp_path, "/v1/arrow/mine", sink.getvalue().to_pybytes(), {"content-type": "x/y"})
    assert answer.json() == {"rows": 2}
    assert table.to_pylist() == [{"tenant": "default", "a": 1}, {"tenant": "default", "a": 2}]
    answer, table = posted(tmp_path / "b", "/v1/rows/yours", b'{"b": "x"}\n', {"content-type": "application/x-ndjson"})
    assert table.to_pylist() == [{"tenant": "default", "b": "x"}]


@pytest.mark.parametrize("table", ["penstock_own", "a-b", "1a", "a%2Fb", "..", "a" * 64])
def test_a_table_that_could_mean_something_else_is_refused(tmp_path, table):
    answer, _ = posted(tmp_path, f"/v1/rows/{table}", b'{"b": 1}')
    assert answer.status_code in (400, 404)


class FailingSink:
    def __init__(self, error):
        self.error = error

    async def ingest(self, bundle, timeout=None):
        raise self.error


@pytest.mark.parametrize("error", [DeadlineExceeded("full"), AtCapacity("full"), StorageFull("full")])
@pytest.mark.parametrize("path", ["/v1/metrics", "/api/v1/write"])
def test_an_edge_that_is_full_is_told_so_that_every_sender_tries_again(tmp_path, error, path):
    body = metrics().SerializeToString() if path == "/v1/metrics" else remote_write()
    headers = {**PROTOBUF, "content-encoding": "identity" if path == "/v1/metrics" else "snappy"}
    answer, _ = posted(tmp_path, path, body, headers, FailingSink(error))
    assert answer.status_code in (429, 503)
    assert int(answer.headers["retry-after"]) > 0


def test_a_bomb_is_refused_for_its_size(tmp_path):
    answer, _ = posted(
        tmp_path, "/v1/logs", zstandard.compress(bytes(200 << 20)), {**PROTOBUF, "content-encoding": "zstd"}
    )
    assert answer.status_code in (400, 413)


@pytest.mark.parametrize(
    "lines",
    [
        "\n".join(json.dumps({f"k{number}": 1}) for number in range(3_000)),
        json.dumps({f"k{number}": 1 for number in range(3_000)}),
        json.dumps({"deep": {f"k{number}": 1 for number in range(3_000)}}),
        "\n".join(json.dumps({"a": {"b": {f"k{number}": [{"c": 1}]}}}) for number in range(3_000)),
        "\n".join(json.dumps({f"k{number % 1_500}": 1}) for number in range(20_000)),
    ],
    ids=["a column a line", "wide", "wide within", "deep within", "mostly nothing"],
)
def test_lines_that_would_become_a_table_of_mostly_nothing_are_refused(tmp_path, lines):
    """A few hundred kilobytes asked for gigabytes: every row has every column."""
    answer, table = posted(tmp_path, "/v1/rows/mine", lines.encode(), {"content-type": "application/x-ndjson"})
    assert (answer.status_code, table) == (400, None)
    assert "columns" in answer.json()["what"]


def test_a_disk_that_is_full_at_the_edge_is_told_and_what_was_acknowledged_is_kept(small_disk):
    """A real file system of two megabytes: 503 with Retry-After, and the same rows after a restart."""
    config = QuiverConfig(
        segment=SegmentConfig(target_size=64 << 10, max_open_duration=60.0),
        wal=WalConfig(max_size=1 << 20, rotation_size=128 << 10, spare_files=1),
        retention=RetentionConfig(size_cap=1 << 30),
        ack_log_file_size=16 << 10,
    )
    lines = "\n".join(json.dumps({"n": number, "text": "x" * 200}) for number in range(200)).encode()
    headers = {"content-type": "application/x-ndjson"}

    async def fill():
        store = await Quiver.open(f"{small_disk}/edge", config)
        # Somebody waits for the rows, so that none may go.
        await store.register("relay")
        app = Gateway(IngestRoutes(store, GatewayConfig(ingest_seconds_max=0.2)).endpoints())
        taken, answer = 0, httpx.Response(200)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            for _ in range(500):
                answer = await client.post("/v1/rows/mine", content=lines, headers=headers)
                if not answer.is_success:
                    break
                taken += 200
        with suppress(StorageFull):
            await store.close()
        return taken, answer

    async def kept():
        store = await Quiver.open(f"{small_disk}/edge", config)
        rows = (await store.scan()).num_rows
        with suppress(StorageFull):
            await store.close()
        return rows

    taken, answer = asyncio.run(fill())
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) > 0
    assert taken > 0
    assert asyncio.run(kept()) == taken


@pytest.fixture
def small_disk(tmp_path):
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {made.stderr.strip()}")
    yield mount
    # Lazily: what a failed store has mapped is let go of when it is collected.
    subprocess.run(["umount", "--lazy", str(mount)], check=True)


# gRPC ----------------------------------------------------------------------------------------------------


def called(tmp_path, calls, book=None):
    """What real gRPC clients are answered: bytes, or the code of the error."""

    async def call():
        config = GatewayConfig(tokens="x" if book else None)
        async with gateway(tmp_path / "edge", config=config, book=book) as (_, store, routes):
            server = GrpcServer(routes, Guard(config, lambda: book), config)
            await server.start(0)
            answers = []
            try:
                async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                    for method, body, metadata in calls:
                        try:
                            answers.append(await channel.unary_unary(method)(body, metadata=metadata))
                        except grpc.aio.AioRpcError as error:
                            answers.append(error.code())
            finally:
                await server.stop()
            return answers, await store.scan() if store.open_bytes else None

    return asyncio.run(call())


METRICS = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


def test_otlp_over_grpc_is_stored_too(tmp_path):
    answers, table = called(tmp_path, [(LOGS, logs().SerializeToString(), None)])
    assert ExportLogsServiceResponse.FromString(answers[0]) == ExportLogsServiceResponse()
    assert table.column("body").to_pylist() == ["hello"]


def test_grpc_refuses_what_http_refuses(tmp_path):
    calls = [(METRICS, b"\xff\xff", None), ("/some.Other/Method", b"", None)]
    answers, _ = called(tmp_path, calls)
    assert answers == [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED]


def test_grpc_needs_a_token_where_http_does(tmp_path):
    book, token = TokenBook.new().issue("acme", [Scope.WRITE], 0)
    body = metrics(1).SerializeToString()
    answers, table = called(
        tmp_path, [(METRICS, body, None), (METRICS, body, (("authorization", f"Bearer {token}"),))], book
    )
    assert answers[0] is grpc.StatusCode.UNAUTHENTICATED
    assert ExportMetricsServiceResponse.FromString(answers[1]) == ExportMetricsServiceResponse()
    assert table.column("tenant").to_pylist() == ["acme"]


def streamed(tmp_path, config, call, book=None):
    """What `call` finds of a gRPC server that it is given a channel to."""

    async def session():
        async with gateway(tmp_path / "edge", config=config, book=book) as (_, _store, routes):
            server = GrpcServer(routes, Guard(config, lambda: book), config)
            await server.start(0)
            try:
                async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                    return await call(channel)
            finally:
                await server.stop()

    return asyncio.run(session())


async def code_of(call):
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_grpc_asks_for_a_token_before_it_reads_a_message(tmp_path):
    book, _ = TokenBook.new().issue("acme", [Scope.WRITE], 0)

    async def call(channel):
        # Nothing is ever sent: who is not known is not waited for.
        return await code_of(channel.stream_unary(METRICS)())

    config = GatewayConfig(tokens="x", body_seconds_max=3600)
    assert streamed(tmp_path, config, call, book) is grpc.StatusCode.UNAUTHENTICATED


def test_a_grpc_message_that_does_not_come_ends_its_call_and_gives_way_to_others(tmp_path):
    """One message is read at once here, and the others wait for their turn."""
    body = metrics(1).SerializeToString()
    config = GatewayConfig(body_seconds_max=0.3, concurrent_bytes=1 << 20, body_bytes_max=1 << 20)

    async def call(channel):
        silent = asyncio.ensure_future(code_of(channel.stream_unary(METRICS)()))
        await asyncio.sleep(0)
        return await code_of(channel.unary_unary(METRICS)(body)), await silent

    taken, slow = streamed(tmp_path, config, call)
    assert taken is grpc.StatusCode.OK
    assert slow is grpc.StatusCode.DEADLINE_EXCEEDED


def test_turns_to_read_are_a_tenants_and_everybodys_and_not_waited_for_for_ever():
    config = GatewayConfig(
        body_bytes_max=1,
        concurrent_bytes=2,
        tenant=TenantLimits(concurrent_bytes=1),
        ingest_seconds_max=0.01,
    )

    async def take():
        turns = MessageTurns(config)
        async with turns.turn("a"):
            with pytest.raises(TooMany, match="tenant a"):
                async with turns.turn("a"):
                    pass
            async with turns.turn("b"):
                with pytest.raises(Unavailable):
                    async with turns.turn("c"):
                        pass
        async with turns.turn("c"):
            pass

    asyncio.run(take())


def test_grpc_messages_are_bounded_also_when_they_are_packed(tmp_path):
    config = GatewayConfig(body_bytes_max=1 << 20)

    async def call(channel):
        sent = [
            channel.unary_unary(METRICS)(bytes(size), compression=packing)
            for size in (2 << 20, 64 << 20)
            for packing in (grpc.Compression.NoCompression, grpc.Compression.Gzip)
        ]
        return [await code_of(one) for one in sent]

    assert streamed(tmp_path, config, call) == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 4


def test_a_port_that_is_taken_is_named_and_grpc_prints_nothing(tmp_path, capfd):
    async def call():
        config = GatewayConfig()
        async with gateway(tmp_path / "edge", config=config) as (_, _store, routes):
            with socket.create_server(("127.0.0.1", 0)) as other:
                await GrpcServer(routes, Guard(config, lambda: None), config).start(other.getsockname()[1])

    with pytest.raises(Unavailable, match="cannot listen") as refused:
        asyncio.run(call())
    assert refused.value.why == "another process listens on this port"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("peer", "address"),
    [("ipv4:192.0.2.7:1234", "192.0.2.7"), ("ipv6:%5B2001:db8::7%5D:1234", "2001:db8::7"), ("unix:", "")],
)
def test_whoever_calls_grpc_has_an_address_as_over_http(peer, address):
    context = SimpleNamespace(peer=lambda: peer, invocation_metadata=tuple)
    assert _exchange(Signal.LOGS, None, context).client == address


def test_grpc_has_no_other_services(tmp_path):
    async def call(channel):
        return [
            await code_of(channel.unary_unary(name)(b""))
            for name in (
                "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                "/grpc.health.v1.Health/Check",
                "/opentelemetry.proto.collector.metrics.v1.MetricsService/export",
                "/",
            )
        ]

    assert set(streamed(tmp_path, GatewayConfig(), call)) == {grpc.StatusCode.UNIMPLEMENTED}
