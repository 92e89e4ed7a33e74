"""What telemetry does on its way is on the page of metrics: the relay, the job and its stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click import Command
from click.testing import CliRunner

from penstock.cli.commands.ingest import ingest
from penstock.cli.commands.relay import relay
from penstock.cli.commands.telemetry import telemetry
from penstock.cli.commands.timeseries import timeseries
from penstock.cli.settings.observing import Watching
from penstock.observability import LiveObserver, names

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


@pytest.fixture
def observer(monkeypatch: pytest.MonkeyPatch) -> LiveObserver:
    """One for all commands: each has a page of its own otherwise, which is gone with it."""
    shared = LiveObserver()
    shared.declare(names.METRICS.values())

    @contextmanager
    def opened(_: Watching, **_options: Any) -> Iterator[LiveObserver]:
        yield shared

    monkeypatch.setattr(Watching, "opened", opened)
    return shared


def run(command: Command, *arguments: object, input: bytes | None = None) -> None:
    result = CliRunner().invoke(command, list(map(str, arguments)), input=input, catch_exceptions=False)
    assert result.exit_code == 0, result.output


def test_every_stage_of_telemetry_counts_what_it_does(observer: LiveObserver, tmp_path: Path) -> None:
    edge, store = tmp_path / "edge", tmp_path / "store"
    for number in range(2):
        body = "".join(f'level{{n="{each}"}} {number}\n' for each in range(20)).encode()
        run(ingest, "-", "--format", "prometheus", "--quiver", edge, input=body)
        run(relay, "run", edge, "--to", "queue", store / "telemetry", "--until-empty")
        run(telemetry, "run", "--engine", "local", "--store", store)
    run(timeseries, "compact", store, "--yes")
    counted = {sample.name for metric in observer.registry.collect() for sample in metric.samples if sample.value}
    assert [name for name in MOVED if name not in counted] == []
