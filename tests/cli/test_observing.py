"""A command that runs for long shows its metrics, writes its log and sends its traces, when asked to and not else."""

from __future__ import annotations

import http.server
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from penstock.buffer import SyncProducer
from penstock.cli import penstock
from penstock.cli.settings.observing import ObservingConfig, Watching, parse_address
from penstock.errors import InvalidInput, Unavailable
from penstock.observability import SILENT, names

PENSTOCK = [sys.executable, "-m", "penstock.cli"]
OPERATING = (Path(__file__).parent.parent.parent / "docs" / "operating.md").read_text()


def free_port() -> int:
    """A port for a process that is told its own. It lies below those that systems hand out: nobody gets it meanwhile."""
    for port in random.sample(range(15_000, 30_000), 100):
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("a hundred ports are taken")


def page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


@contextmanager
def collector() -> Iterator[tuple[int, list[bytes]]]:
    """A server that takes spans, on this machine."""
    bodies: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port, bodies
        server.shutdown()
        thread.join()


def test_nothing_is_observed_unless_somebody_asks() -> None:
    assert not Watching(environment={"OTEL_SERVICE_NAME": "x"}).wanted
    with Watching().opened() as observer:
        assert observer is SILENT


def test_every_metric_of_the_table_is_on_the_page_from_the_start() -> None:
    port = free_port()
    with Watching(ObservingConfig(metrics=str(port))).opened():
        shown = page(port)
    for name in names.METRICS:
        assert f"# HELP {name.removesuffix('_total')}" in shown, name


def test_the_page_is_gone_when_the_work_is_done() -> None:
    port = free_port()
    for _ in range(2):
        with Watching(ObservingConfig(metrics=f"127.0.0.1:{port}")).opened():
            assert page(port)
    with pytest.raises(OSError):
        page(port)


def test_an_address_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=str(port)), Watching(ObservingConfig(metrics=f":{port}")).opened():
            pass


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9464", ("127.0.0.1", 9464)),
        (":9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        ("[::1]:9464", ("::1", 9464)),
        ("host:0", ("host", 0)),
    ],
)
def test_an_address_is_a_port_with_or_without_a_host(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "::1:9464", "9464:", "70000", "-1", "٣"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_address(text)


@pytest.mark.parametrize("settings", [{"metrics": "x"}, {"log_format": "xml"}, {"log_level": "loud"}])
def test_settings_that_mean_nothing_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        ObservingConfig(**settings)


def test_a_command_logs_json_and_sends_its_spans_to_the_collector(tmp_path: Path) -> None:
    """The real command, with a collector on this machine: an event of S3, which names no trace, begins one."""
    record = {
        "eventName": "ObjectCreated:Put",
        "eventTime": "2026-01-01T00:00:00Z",
        "responseElements": {"x-amz-request-id": "request-7"},
        "s3": {"bucket": {"name": "docs"}, "object": {"key": "a.txt", "size": 3}},
    }
    with collector() as (port, bodies):
        answer = subprocess.run(
            [*PENSTOCK, "notify", "-", "--source", "s3", "--store", "store", "--log-format", "json", "--json"],
            input=json.dumps({"Records": [record]}),
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"},
        )
    assert answer.returncode == 0, answer.stderr
    (queued,) = json.loads(answer.stdout)["queued"]
    assert queued["sourceId"] == "request-7"
    (line,) = [json.loads(line) for line in answer.stderr.splitlines() if "indexing.notified" in line]
    assert (line["level"], line["events"]) == ("info", 1)
    spans = [span for body in bodies for span in json.loads(body)["resourceSpans"][0]["scopeSpans"][0]["spans"]]
    assert {"indexing.receive", "indexing.notify", "buffer.enqueue"} <= {span["name"] for span in spans}
    assert queued["traceparent"].split("-")[1] == line["traceId"]
    assert line["traceId"] in {span["traceId"] for span in spans if span["name"] == "indexing.notify"}


def test_a_collector_that_is_away_costs_spans_and_nothing_else(tmp_path: Path) -> None:
    with SyncProducer(f"file://{tmp_path}/store") as producer:
        producer.produce([b"record"]).durable()
    answer = subprocess.run(
        [*PENSTOCK, "buffer", "verify", "store"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"},
    )
    assert answer.returncode == 0, answer.stderr
    assert "0 problems" in answer.stdout


def test_a_command_that_nobody_watches_imports_none_of_the_libraries(tmp_path: Path) -> None:
    program = (
        "import sys; from click.testing import CliRunner; from penstock.cli.main import penstock;"
        "CliRunner().invoke(penstock, ['buffer', 'verify', '--help']);"
        "print([n for n in ('structlog', 'prometheus_client', 'opentelemetry') if n in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def _commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path}{name} ")
        elif not command.hidden:
            yield path + name, command


# Those that follow, serve, or read or write all of a store.
LONG = {
    "buffer collect",
    "buffer replay",
    "buffer tail",
    "buffer verify",
    "catalog vacuum",
    "compact",
    "index",
    "ingest",
    "mcp",
    "notify",
    "reindex",
    "relay run",
    "serve",
    "telemetry run",
    "timeseries compact",
    "timeseries consume",
    "timeseries export",
    "timeseries import",
    "timeseries repair",
    "timeseries verify",
    "vector compact",
    "vector consume",
    "vector repair",
    "vector verify",
}


def test_every_command_that_may_run_for_long_can_be_watched() -> None:
    wanted = {"--metrics", "--log-format", "--log-level", "--config"}
    options = {
        name: {option for each in command.params for option in each.opts} for name, command in _commands(penstock)
    }
    assert {name for name, found in options.items() if "--metrics" in found} == LONG
    assert {name for name in LONG if not wanted <= options[name]} == set()
    listed = re.search(r"^Commands that may run for long \((.*)\) take$", OPERATING, re.MULTILINE)
    assert listed
    assert set(re.findall(r"`([^`]+)`", listed.group(1))) == LONG
    followed = {name for name, found in options.items() if "--follow" in found}
    assert followed <= LONG, "a command that follows runs until somebody ends it"
