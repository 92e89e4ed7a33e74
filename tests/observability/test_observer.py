"""What is counted is what Prometheus, traces and logs show; what is off costs nothing and shows nothing."""

import json
import subprocess
import sys
import threading

import pytest
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest

from penstock.observability import SILENT, Event, Kind, LiveObserver, Metric, Span, names

REQUESTS = Metric("test_requests_total", Kind.COUNTER, "Requests.", ("verb",))
DEPTH = Metric("test_depth", Kind.GAUGE, "Depth.")
SECONDS = Metric("test_seconds", Kind.HISTOGRAM, "Seconds.", (), (0.1, 1.0))


def test_the_live_observer_shows_every_kind_of_metric_to_prometheus() -> None:
    observer = LiveObserver()
    observer.count(REQUESTS, 2, verb="put")
    observer.count(REQUESTS, verb="put")
    observer.gauge(DEPTH, 7)
    observer.observe(SECONDS, 0.5)
    page = generate_latest(observer.registry).decode()
    assert 'test_requests_total{verb="put"} 3.0' in page
    assert "test_depth 7.0" in page
    assert 'test_seconds_bucket{le="1.0"} 1.0' in page


def test_a_metric_that_is_declared_is_shown_and_a_gauge_is_no_number_until_it_is_set() -> None:
    observer = LiveObserver()
    observer.declare([REQUESTS, DEPTH, SECONDS])
    page = generate_latest(observer.registry).decode()
    assert "# TYPE test_requests_total counter" in page
    assert "test_depth NaN" in page
    assert "test_seconds_count 0.0" in page
    observer.gauge(DEPTH, 0)
    assert "test_depth 0.0" in generate_latest(observer.registry).decode()


def test_threads_that_count_first_at_the_same_time_share_one_counter() -> None:
    observer = LiveObserver()
    gate = threading.Barrier(8)

    def work() -> None:
        gate.wait()
        for _ in range(100):
            observer.count(REQUESTS, verb="get")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 'test_requests_total{verb="get"} 800.0' in generate_latest(observer.registry).decode()


def test_observers_on_one_registry_count_together() -> None:
    """A producer and a consumer may each be given one: the registry takes a name once, and must not fail the second."""
    first = LiveObserver()
    second = LiveObserver(first.registry)
    first.count(REQUESTS, verb="get")
    second.count(REQUESTS, verb="get")
    assert 'test_requests_total{verb="get"} 2.0' in generate_latest(first.registry).decode()
    LiveObserver().count(REQUESTS, verb="get")
    assert 'test_requests_total{verb="get"} 2.0' in generate_latest(first.registry).decode()


def test_a_span_is_exported_with_its_attributes_and_its_error() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    observer = LiveObserver(tracer=trace.get_tracer("test", tracer_provider=provider))
    with pytest.raises(ValueError, match="broken"), observer.span(Span("test.work", "Work."), key="a"):
        raise ValueError("broken")
    (span,) = exporter.get_finished_spans()
    assert (span.name, dict(span.attributes or {})) == ("test.work", {"key": "a"})
    assert span.status.status_code is trace.StatusCode.ERROR


def test_an_event_is_one_structured_line_at_its_level() -> None:
    with structlog.testing.capture_logs() as lines:
        LiveObserver().event(Event("test.happened", "warning", "It happened."), key="a", size=3)
    assert lines == [{"event": "test.happened", "log_level": "warning", "key": "a", "size": 3}]
    json.dumps(lines)


def test_the_silent_observer_takes_everything_and_emits_nothing() -> None:
    with structlog.testing.capture_logs() as lines, SILENT.span(Span("s", "S.")):
        SILENT.count(REQUESTS, verb="put")
        SILENT.gauge(DEPTH, 1)
        SILENT.observe(SECONDS, 1)
        SILENT.event(Event("e", "info", "E."))
    assert lines == []


@pytest.mark.processes
def test_a_process_that_listens_to_nothing_loads_none_of_the_libraries() -> None:
    """Spark starts many short processes that only move data."""
    program = "import sys, penstock.objects; print([name for name in sys.argv[1:] if name in sys.modules])"
    libraries = ["structlog", "prometheus_client", "opentelemetry"]
    answer = subprocess.run([sys.executable, "-c", program, *libraries], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_every_name_in_the_table_says_what_it_means_and_can_be_emitted() -> None:
    observer = LiveObserver()
    for metric in names.METRICS.values():
        assert metric.help.endswith("."), metric.name
        labels = dict.fromkeys(metric.labels, "x")
        emit = {Kind.COUNTER: observer.count, Kind.GAUGE: observer.gauge, Kind.HISTOGRAM: observer.observe}
        emit[metric.kind](metric, 1, **labels)  # type: ignore[operator]
    page = generate_latest(observer.registry).decode()
    assert all(name in page for name in names.METRICS)
