"""What telemetry does on its way is on the page of metrics: gateway, edge, relay, the job, its stores, compaction."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from tests.cli.watched import run, shared_observer

from penstock.cli.commands.stores.relay import relay
from penstock.cli.commands.stores.timeseries import timeseries
from penstock.cli.commands.telemetry.compact import compact
from penstock.cli.commands.telemetry.ingest import ingest
from penstock.cli.commands.telemetry.telemetry import telemetry
from penstock.cli.serving.edge import opened_edge
from penstock.cli.settings.configuration import load_settings
from penstock.gateway import Gateway, GatewayConfig, IngestRoutes
from penstock.observability import LiveObserver

# What moves without faults, retention and merges, of every room that telemetry passes through.
MOVED = (
    "penstock_blocks_cache_reads_total",
    "penstock_buffer_acks_total",
    "penstock_buffer_upload_bytes_total",
    "penstock_catalog_commit_seconds_count",
    "penstock_catalog_head_bytes",
    "penstock_catalog_inline_files",
    "penstock_coordinator_flushes_total",
    "penstock_coordinator_writes_total",
    "penstock_keyvalue_durable_seconds_count",
    "penstock_keyvalue_write_bytes_total",
    "penstock_landing_batches_total",
    "penstock_landing_file_bytes_total",
    "penstock_landing_files_total",
    "penstock_landing_position",
    "penstock_landing_round_seconds_count",
    "penstock_landing_rows_total",
    "penstock_landing_samples_total",
    "penstock_objects_bytes_total",
    "penstock_objects_requests_total",
    "penstock_quiver_outcomes_total",
    "penstock_register_commits_total",
    "penstock_relay_bytes_total",
    "penstock_relay_rows_total",
    "penstock_relay_segment_seconds_count",
    "penstock_relay_segments_total",
    "penstock_timeseries_samples_total",
    "penstock_timeseries_series_created_total",
)

# Counted where files of one hour are merged.
MERGED = (
    "penstock_compaction_bytes_total",
    "penstock_compaction_merge_seconds_count",
    "penstock_compaction_rows_total",
    "penstock_compaction_tasks_total",
)
# Counted by a gateway and its edge for a few good requests and one that cannot be read.
AT_THE_EDGE = (
    "penstock_gateway_request_seconds_count",
    "penstock_gateway_requests_total",
    "penstock_gateway_rows_total",
    "penstock_quiver_ingest_bundles_total",
    "penstock_quiver_ingest_bytes_total",
    "penstock_quiver_segments_finalised_total",
    "penstock_quiver_wal_sync_seconds_count",
)


@pytest.fixture
def observer(monkeypatch: pytest.MonkeyPatch) -> LiveObserver:
    return shared_observer(monkeypatch)


def test_every_stage_of_telemetry_counts_what_it_does(observer: LiveObserver, tmp_path: Path) -> None:
    edge, store = tmp_path / "edge", tmp_path / "store"
    for number in range(2):
        body = "".join(f'level{{n="{each}"}} {number}\n' for each in range(20)).encode()
        run(ingest, "-", "--format", "prometheus", "--quiver", edge, input=body)
        run(relay, "run", edge, "--to", "queue", store / "telemetry", "--until-empty")
        run(telemetry, "run", "--engine", "local", "--store", store)
    run(timeseries, "compact", store, "--yes")
    counted = counted_by(observer)
    assert [name for name in MOVED if name not in counted] == []


def counted_by(observer: LiveObserver) -> set[str]:
    return {sample.name for metric in observer.registry.collect() for sample in metric.samples if sample.value}


def test_a_compaction_counts_what_it_merges(observer: LiveObserver, tmp_path: Path) -> None:
    edge, store, settings = tmp_path / "edge", tmp_path / "store", tmp_path / "penstock.toml"
    settings.write_text("[catalog.compaction]\nhour_files = 2\n")
    for number in range(2):
        # Samples of one hour, whatever the time is now: files of two hours would not be merged.
        body = f"level {number} {1_700_000_000_000 + number}\n".encode()
        run(ingest, "-", "--format", "prometheus", "--quiver", edge, input=body)
        run(relay, "run", edge, "--to", "queue", store / "telemetry", "--until-empty")
        run(telemetry, "run", "--engine", "local", "--store", store)
    run(compact, "--engine", "local", "--store", store, "--config", settings)
    counted = counted_by(observer)
    assert [name for name in MERGED if name not in counted] == []


def test_a_gateway_and_its_edge_count_what_they_take(observer: LiveObserver, tmp_path: Path) -> None:
    points = [{"timeUnixNano": "1700000000000000000", "asDouble": 1.0}]
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "level", "gauge": {"dataPoints": points}}]}]}]}

    async def serve() -> tuple[list[int], set[str]]:
        queue = (tmp_path / "queue").as_uri()
        async with opened_edge(str(tmp_path / "edge"), None, queue, load_settings(None, {}), observer) as edge:
            config = GatewayConfig()
            routes = IngestRoutes(edge.quiver, config, observer=observer)
            app = Gateway(routes.endpoints(), config, observer=observer)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
                answers = [await client.post("/v1/metrics", json=each) for each in (body, body, "neither")]
            await edge.quiver.flush()
            return [answer.status_code for answer in answers], counted_by(observer)

    statuses, counted = asyncio.run(serve())
    assert statuses == [200, 200, 400]
    assert [name for name in AT_THE_EDGE if name not in counted] == []


@pytest.mark.parametrize(
    ("place", "metric"),
    [("--store", "penstock_buffer_upload_bytes_total"), ("--quiver", "penstock_quiver_ingest_bundles_total")],
)
def test_ingest_counts_what_it_sends(observer: LiveObserver, tmp_path: Path, place: str, metric: str) -> None:
    run(ingest, "-", "--format", "prometheus", place, tmp_path / "place", input=b"level 1\n")
    assert metric in counted_by(observer)


def test_an_export_counts_what_it_reads(observer: LiveObserver, tmp_path: Path) -> None:
    run(timeseries, "import", tmp_path, "-", "--format", "openmetrics", input=b"level 1\n# EOF\n")
    before = read_objects(observer)
    run(timeseries, "export", tmp_path, tmp_path / "out.om")
    assert read_objects(observer) > before


def read_objects(observer: LiveObserver) -> float:
    found = (sample for metric in observer.registry.collect() for sample in metric.samples)
    return sum(sample.value for sample in found if sample.name == "penstock_blocks_cache_reads_total")
