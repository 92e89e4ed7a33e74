"""Rates and totals of several processes, one of which may be started again."""

from typing import Any

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from penstock.cli.serving.house_view import FigureHistory
from penstock.cli.serving.watch import JointRegistry
from penstock.cli.settings.job_figures import figures_written, read_figures, registry_figures
from penstock.observability import LiveObserver, names
from penstock.testing import ManualClock


class Counting:
    """Two processes with counters, and a history of both."""

    def __init__(self):
        self.clock = ManualClock()
        self.now: dict[str, dict[Any, Any]] = {"serve": {}, "index": {}}
        self.history = FigureHistory(lambda: {name: dict(values) for name, values in self.now.items()}, self.clock)

    def after(self, seconds, **rows):
        self.clock.advance(seconds)
        for process, value in rows.items():
            self.now[process][names.GATEWAY_ROWS.name, (("signal", "logs"),)] = value
        self.history.sample()


def test_rates_are_those_of_all_processes_together():
    counting = Counting()
    counting.after(0, serve=0.0, index=100.0)
    counting.after(10, serve=50.0, index=150.0)
    assert counting.history.rate(names.GATEWAY_ROWS) == 10.0
    assert counting.history.rate(names.GATEWAY_ROWS, "index") == 5.0
    assert counting.history.total(names.GATEWAY_ROWS, signal="logs") == 200.0
    assert counting.history.total(names.GATEWAY_ROWS, signal="metrics") == 0.0
    assert counting.history.by_label(names.GATEWAY_ROWS, "signal", "serve") == {"logs": 50.0}


def test_a_process_that_was_started_again_takes_nothing_from_the_rate():
    counting = Counting()
    counting.after(0, serve=1_000.0)
    counting.after(10, serve=40.0)
    assert counting.history.rate(names.GATEWAY_ROWS) == 4.0


def test_before_there_are_two_looks_nothing_has_a_rate():
    counting = Counting()
    assert counting.history.rate(names.GATEWAY_ROWS) == 0.0
    assert counting.history.curve(names.GATEWAY_ROWS) == []
    counting.after(0, serve=7.0)
    assert counting.history.rate(names.GATEWAY_ROWS) == 0.0


def test_a_rate_forgets_what_is_older_than_half_a_minute():
    counting = Counting()
    counting.after(0, serve=0.0)
    counting.after(100, serve=1_000_000.0)
    counting.after(20, serve=1_000_020.0)
    assert counting.history.rate(names.GATEWAY_ROWS) == 1.0


def test_the_curve_has_a_rate_for_every_two_looks():
    counting = Counting()
    for seconds, value in ((0, 0.0), (2, 4.0), (2, 4.0), (2, 10.0)):
        counting.after(seconds, serve=value)
    assert counting.history.curve(names.GATEWAY_ROWS) == [2.0, 0.0, 3.0]


def test_what_a_job_counts_reaches_its_supervisor_through_a_file(tmp_path):
    observer = LiveObserver()
    observer.declare([names.GATEWAY_ROWS, names.INDEXING_LAG_SECONDS, names.GATEWAY_REQUEST_SECONDS])
    file = tmp_path / "index.json"
    with figures_written(observer.registry, file):
        observer.count(names.GATEWAY_ROWS, 3, signal="logs")
        observer.observe(names.GATEWAY_REQUEST_SECONDS, 0.5, route="/")
    found = read_figures(file)
    assert found == registry_figures(observer.registry)
    assert found["penstock_gateway_rows_total", (("signal", "logs"),)] == 3.0
    assert found["penstock_gateway_request_seconds_sum", (("route", "/"),)] == 0.5
    assert not [name for name, _ in found if name.endswith("_created")]
    # A gauge that nobody has set has no figure.
    assert not [name for name, _ in found if name == names.INDEXING_LAG_SECONDS.name]


def test_one_page_for_prometheus_has_the_metrics_of_all_jobs_by_process():
    own, job = LiveObserver(), LiveObserver()
    for observer in (own, job):
        observer.declare([names.GATEWAY_ROWS, names.INDEXING_LAG_SECONDS, names.GATEWAY_REQUEST_SECONDS])
    own.count(names.GATEWAY_ROWS, 1, signal="logs")
    job.count(names.GATEWAY_ROWS, 2, signal="logs")
    job.gauge(names.INDEXING_LAG_SECONDS, 7)
    job.observe(names.GATEWAY_REQUEST_SECONDS, 0.5, route="/")
    joint = JointRegistry(own.registry, lambda: {"index": registry_figures(job.registry)})
    text = generate_latest(joint).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert text.count("# TYPE penstock_gateway_rows_total counter") == 1
    rows = {sample.labels.get("process"): sample.value for sample in families["penstock_gateway_rows"].samples}
    assert rows == {None: 1.0, "index": 2.0}
    assert 'penstock_indexing_lag_seconds{process="index"} 7.0' in text
    assert 'penstock_gateway_request_seconds_bucket{le="0.5",process="index",route="/"} 1.0' in text


def test_a_file_that_is_missing_or_damaged_has_no_figures(tmp_path):
    assert read_figures(tmp_path / "none.json") == {}
    for text in ("", "{", "[1]", '[["a", [], "x"]]', "\x00"):
        (tmp_path / "damaged.json").write_text(text)
        assert read_figures(tmp_path / "damaged.json") == {}
