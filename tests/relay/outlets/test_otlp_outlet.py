"""A real collector on this machine: what it answers decides what becomes of a segment."""

from __future__ import annotations

import asyncio
import gzip
import threading
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest
from tests.relay.edge import filled, opened, rows, torn

from penstock.errors import InvalidInput
from penstock.observability import names
from penstock.quiver import Bundle
from penstock.relay import OtlpOutlet, OtlpOutletConfig, Relay, RelayConfig, otlp_bundle
from penstock.testing import RecordingObserver, SeededEntropy

# An answer whose body never comes.
HANGING = b"<hangs>"
SOON = RelayConfig(retry_seconds_first=0.001, retry_seconds_max=0.002)


class Collector:
    """Answers as it is told, request by request, then with success; remembers what came."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes, dict[str, str]]] = []
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.ending = threading.Event()
        collector, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                with lock:
                    collector.requests.append((self.path, body, {k.lower(): v for k, v in self.headers.items()}))
                    status, headers, answer = collector.answers.pop(0) if collector.answers else (200, {}, b"")
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "content-length" not in headers:
                    self.send_header("content-length", str(len(answer)))
                self.end_headers()
                if answer is HANGING:
                    collector.ending.wait(60)
                else:
                    self.wfile.write(answer)
                self.close_connection = "content-length" in headers

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self.ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.close()


class Sent:
    """What became of the segments of one run."""

    def __init__(self, state: Any, observer: RecordingObserver, pauses: list[float]) -> None:
        self.observer = observer
        self.pauses = pauses
        self.waiting = state.lag("otlp")
        self.dead = sorted(state.subscriptions["otlp"].rejected)


class EagerClock:
    """Remembers pauses instead of making them."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic(self) -> float:
        return sum(self.pauses)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


def run(url: str, segments: list[list[Bundle]], config: OtlpOutletConfig | None = None) -> Sent:
    async def main() -> Sent:
        observer, clock = RecordingObserver(), EagerClock()
        store = await opened(torn())
        await filled(store, segments, "otlp")
        outlet = OtlpOutlet(url, config, clock=clock, observer=observer, headers={"x-key": "1"})
        doors = {"clock": clock, "entropy": SeededEntropy(1), "observer": observer}
        async with asyncio.timeout(60):
            await Relay(store, "otlp", outlet, SOON, **doors).run(until_empty=True)  # type: ignore[arg-type]
        await outlet.close()
        sent = Sent(store.state, observer, clock.pauses)
        await store.close()
        return sent

    return asyncio.run(main())


def test_requests_go_to_the_path_of_their_signal_compressed_and_with_headers(collector: Collector) -> None:
    sent = run(collector.url, [[otlp_bundle("logs", [b"one", b"two"]), otlp_bundle("traces", [b"three"])]])
    assert sorted((path, body) for path, body, _ in collector.requests) == [
        ("/v1/logs", b"one"),
        ("/v1/logs", b"two"),
        ("/v1/traces", b"three"),
    ]
    _, _, headers = collector.requests[0]
    assert headers["content-type"] == "application/x-protobuf"
    assert headers["content-encoding"] == "gzip"
    assert headers["x-key"] == "1"
    assert (sent.waiting, sent.dead) == (0, [])


def test_the_messages_of_opentelemetry_itself_go_through_unchanged_and_its_answers_are_understood(
    collector: Collector,
) -> None:
    """Both sides with the classes that OpenTelemetry publishes: what a receiver parses, and what it answers."""
    logs = pytest.importorskip("opentelemetry.proto.collector.logs.v1.logs_service_pb2")
    metrics = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    lines, points = logs.ExportLogsServiceRequest(), metrics.ExportMetricsServiceRequest()
    for number in range(3):
        record = lines.resource_logs.add().scope_logs.add().log_records.add()
        record.time_unix_nano, record.body.string_value = 1_700_000_000_000_000_000 + number, f"line {number}"
    points.resource_metrics.add().scope_metrics.add().metrics.add().gauge.data_points.add().as_double = 1.5
    partly = metrics.ExportMetricsServiceResponse()
    partly.partial_success.rejected_data_points = 1
    partly.partial_success.error_message = "too old"
    collector.answers += [
        (200, {}, logs.ExportLogsServiceResponse().SerializeToString()),
        (200, {"content-type": "application/x-protobuf"}, partly.SerializeToString()),
    ]
    bundles = [otlp_bundle("logs", [lines.SerializeToString()]), otlp_bundle("metrics", [points.SerializeToString()])]
    sent = run(collector.url, [bundles])
    assert (sent.waiting, sent.dead) == (0, [])
    received = {path: body for path, body, _ in collector.requests}
    assert logs.ExportLogsServiceRequest.FromString(received["/v1/logs"]) == lines
    assert metrics.ExportMetricsServiceRequest.FromString(received["/v1/metrics"]) == points
    assert sent.observer.counted(names.RELAY_OTLP_REJECTED, signal="metrics") == 1


def test_compression_can_be_turned_off(collector: Collector) -> None:
    run(collector.url, [[otlp_bundle("metrics", [b"one"])]], OtlpOutletConfig(gzip=False))
    assert "content-encoding" not in collector.requests[0][2]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_retryable_answer_is_tried_again_until_it_is_taken(collector: Collector, status: int) -> None:
    collector.answers = [(status, {}, b"")] * 3
    sent = run(collector.url, [[otlp_bundle("logs", [b"one"])]])
    assert [body for _, body, _ in collector.requests] == [b"one"] * 4
    assert (sent.waiting, sent.dead) == (0, [])
    assert sent.observer.counted(names.RELAY_OTLP_REQUESTS, answer="retryable") == 3


def test_the_pause_that_a_collector_asks_for_is_made_up_to_the_bound(collector: Collector) -> None:
    collector.answers = [(429, {"retry-after": "7"}, b""), (503, {"retry-after": "99999"}, b"")]
    sent = run(collector.url, [[otlp_bundle("logs", [b"one"])]], OtlpOutletConfig(retry_after_seconds_max=20.0))
    assert 7.0 in sent.pauses
    assert 20.0 in sent.pauses


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 408, 413, 500, 501])
def test_any_other_answer_is_permanent_and_makes_a_dead_letter(collector: Collector, status: int) -> None:
    collector.answers = [(status, {}, b"no such thing")]
    sent = run(collector.url, [[otlp_bundle("logs", [b"one", b"two"])], [otlp_bundle("logs", [b"three"])]])
    assert sent.dead == [1]
    # The others are sent all the same, once.
    assert sorted(body for _, body, _ in collector.requests) == [b"one", b"three", b"two"]


def test_requests_that_were_taken_are_not_sent_again_with_one_that_was_not(collector: Collector) -> None:
    collector.answers = [(200, {}, b""), (503, {}, b""), (200, {}, b"")]
    run(collector.url, [[otlp_bundle("logs", [b"one", b"two", b"three"])]], OtlpOutletConfig(concurrency=1))
    assert [body for _, body, _ in collector.requests] == [b"one", b"two", b"two", b"three"]


def test_a_partial_success_is_counted_and_not_sent_again(collector: Collector) -> None:
    message = b"\x08\x03\x12\x03bad"
    collector.answers = [(200, {}, b"\x0a" + bytes([len(message)]) + message)]
    sent = run(collector.url, [[otlp_bundle("logs", [b"one"])]])
    assert len(collector.requests) == 1
    assert sent.observer.counted(names.RELAY_OTLP_REJECTED, signal="logs") == 3
    (event,) = sent.observer.events(names.RELAY_OTLP_PARTIAL)
    assert event["message"] == "bad"


def test_a_segment_of_anything_else_is_refused_by_name(collector: Collector) -> None:
    sent = run(collector.url, [[rows(1)], [otlp_bundle("logs", [b"one"])]])
    assert sent.dead == [1]
    assert [body for _, body, _ in collector.requests] == [b"one"]


def test_other_slots_can_be_left_alone(collector: Collector) -> None:
    both = Bundle({"rows": pa.record_batch({"n": [1]}), **otlp_bundle("logs", [b"one"]).slots})
    sent = run(collector.url, [[both]], OtlpOutletConfig(skip_other_slots=True))
    assert sent.dead == []
    assert [body for _, body, _ in collector.requests] == [b"one"]


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"request": ["text"]}),
        pa.record_batch({"body": [b"x"]}),
        pa.record_batch({"request": pa.array([None], pa.binary())}),
        pa.record_batch({"request": [b"x" * 101]}),
        pa.record_batch([pa.array([b"x"]), pa.array([b"y"])], names=["request", "request"]),
    ],
    ids=["text", "no column", "null", "too long", "two columns"],
)
def test_a_slot_without_usable_requests_is_refused(collector: Collector, batch: pa.RecordBatch) -> None:
    sent = run(collector.url, [[Bundle({"otlp_logs": batch})]], OtlpOutletConfig(request_bytes_max=100))
    assert sent.dead == [1]
    assert collector.requests == []


def test_a_collector_that_is_not_there_yet_is_waited_for() -> None:
    gone = Collector()
    url = gone.url
    gone.close()

    async def main() -> int:
        store = await opened(torn())
        await filled(store, [[otlp_bundle("logs", [b"one"])]], "otlp")
        outlet = OtlpOutlet(url, OtlpOutletConfig(timeout_seconds=0.5))
        clock = EagerClock()
        relay = Relay(store, "otlp", outlet, SOON, clock=clock, entropy=SeededEntropy(1))  # type: ignore[arg-type]
        running = asyncio.create_task(relay.run())
        async with asyncio.timeout(60):
            while len(clock.pauses) < 5:  # noqa: ASYNC110  another task fills it
                await asyncio.sleep(0.01)
        relay.stop()
        await running
        waiting = store.state.lag("otlp")
        await outlet.close()
        await store.close()
        return waiting

    assert asyncio.run(main()) == 1


def test_an_answer_without_end_is_cut_off(collector: Collector) -> None:
    collector.answers = [(400, {}, b"x" * 1_000_000)]
    sent = run(collector.url, [[otlp_bundle("logs", [b"one"])]])
    assert sent.dead == [1]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        pytest.param({"content-encoding": "gzip"}, b"no gzip at all", id="a body that is not what its header says"),
        pytest.param({"content-length": "500"}, b"cut", id="a body that ends early"),
    ],
)
def test_a_success_counts_whatever_becomes_of_its_body(
    collector: Collector, headers: dict[str, str], body: bytes
) -> None:
    collector.answers = [(200, headers, body)] * 3
    sent = run(collector.url, [[otlp_bundle("logs", [b"one"])]])
    assert (sent.waiting, sent.dead, len(collector.requests)) == (0, [], 1)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_an_answer_that_unpacks_to_gigabytes_takes_no_memory(collector: Collector, layers: int) -> None:
    body, encoding = bytes(64 << 20), ", ".join(["gzip"] * layers)
    for _ in range(layers):
        body = gzip.compress(body)
    collector.answers = [(400, {"content-encoding": encoding}, body)]
    tracemalloc.start()
    sent = run(collector.url, [[otlp_bundle("logs", [b"one"])]])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sent.dead == [1]
    assert peak < 8 << 20


def test_a_partial_success_is_understood_in_gzip(collector: Collector) -> None:
    collector.answers = [(200, {"content-encoding": "gzip"}, gzip.compress(b"\x0a\x02\x08\x03"))]
    sent = run(collector.url, [[otlp_bundle("logs", [b"one"])]])
    assert sent.observer.counted(names.RELAY_OTLP_REJECTED, signal="logs") == 3


def test_a_success_whose_body_never_comes_is_sent_once(collector: Collector) -> None:
    collector.answers = [(200, {"content-length": "500", "connection": "keep-alive"}, HANGING)] * 3
    sent = run(collector.url, [[otlp_bundle("logs", [b"one"])]], OtlpOutletConfig(timeout_seconds=0.5))
    assert (sent.waiting, sent.dead, len(collector.requests)) == (0, [], 1)


@pytest.mark.parametrize("url", ["localhost:4317", "http://", "http://[::1", "http://host/\0", "ftp://host"])
def test_what_is_no_address_of_the_web_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="not the address of a collector"):
        OtlpOutlet(url)


@pytest.mark.parametrize("headers", [{"x": "ü"}, {"x": "a\nb"}, {"x y": "1"}, {"": "1"}])
def test_a_header_that_cannot_be_sent_is_refused_and_its_value_not_shown(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="cannot be sent") as refused:
        OtlpOutlet("http://127.0.0.1:4318", headers=headers)
    assert not any(len(value) > 1 and value in str(refused.value) for value in headers.values())


def test_a_password_in_the_address_is_sent_and_never_shown(collector: Collector) -> None:
    collector.answers = [(400, {}, b"no")]
    address = collector.url.replace("http://", "http://me:secret@")

    async def main() -> str:
        store = await opened(torn())
        await filled(store, [[otlp_bundle("logs", [b"x"])]], "otlp")
        outlet = OtlpOutlet(address)
        await Relay(store, "otlp", outlet, SOON).run(until_empty=True)
        await outlet.close()
        return store.state.subscriptions["otlp"].rejected[1]

    reason = asyncio.run(main())
    assert "answered 400" in reason
    assert "secret" not in reason
    assert collector.requests[0][2]["authorization"].startswith("Basic ")


def test_there_is_no_bundle_of_an_unknown_signal() -> None:
    with pytest.raises(InvalidInput, match="profiles"):
        otlp_bundle("profiles", [b""])
