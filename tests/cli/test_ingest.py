"""`penstock ingest` and `penstock telemetry run --engine local`: files in, data files and series out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from tests.landing.world import config_at, table_rows
from tests.telemetry.samples import first_write, packed, second_write, some_logs, some_spans

from penstock.cli.commands.ingest import ingest
from penstock.cli.commands.relay import relay
from penstock.cli.commands.telemetry import telemetry
from penstock.telemetry import encode_arrow

GOLDEN = Path(__file__).parent.parent / "formats" / "golden" / "telemetry"
SERIES = [({"__name__": "up", "job": "a"}, [(1_763_000_000_000, 1.0)])]


def sent(*arguments: str, input: bytes | None = None) -> Result:
    return CliRunner().invoke(ingest, list(arguments), input=input, catch_exceptions=False)


def landed(store: Path, *arguments: str) -> dict[str, int]:
    result = CliRunner().invoke(
        telemetry, ["run", "--engine", "local", "--json", "--store", str(store), *arguments], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    found: dict[str, int] = json.loads(result.output.splitlines()[-1])
    return found


def test_every_format_goes_in_and_lands(tmp_path: Path) -> None:
    store = tmp_path / "store"
    files = {
        "a.prom": b'up{job="a"} 1\n',
        "b.om": b"# TYPE up gauge\nup 1\n# EOF\n",
        "c.rw": packed(first_write(SERIES)),
        "d.rw2": packed(second_write(SERIES)),
        "e.bin": some_logs().SerializeToString(),
        "f.json": b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}',
        "g.bin": some_spans().SerializeToString(),
        "h.arrow": encode_arrow(pa.table({"n": [1, 2]})),
        "i.ndjson": b'{"n":3}\n{"n":4}\n',
    }
    for name, body in files.items():
        (tmp_path / name).write_bytes(body)
    pq.write_table(pa.table({"n": [5]}), tmp_path / "j.parquet")
    options = {
        "c.rw": ["--format", "remote-write"],
        "d.rw2": ["--format", "remote-write-2"],
        "e.bin": ["--format", "otlp-logs"],
        "f.json": ["--format", "otlp-logs"],
        "g.bin": ["--format", "otlp-traces"],
        **{name: ["--table", "orders"] for name in ("h.arrow", "i.ndjson", "j.parquet")},
    }
    for name in [*files, "j.parquet"]:
        result = sent(str(tmp_path / name), "--store", str(store), "--tenant", "acme", *options.get(name, []))
        assert result.exit_code == 0, result.output
        assert "durable" in result.output
    assert landed(store, "--no-series")["rows"] == 4 + 3 + 1 + 1 + 5
    config = config_at(store / "telemetry")
    orders = asyncio.run(table_rows(config, table="orders", tenant="acme"))
    assert sorted(row["n"] for row in orders) == [1, 2, 3, 4, 5]


def test_standard_input_and_a_format_that_nobody_can_guess(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    assert sent("-", "--format", "prometheus", "--store", store, input=b"up 1\n").exit_code == 0
    with pytest.raises(ValueError, match="give --format"):
        sent("-", "--store", store, input=b"up 1\n")
    with pytest.raises(ValueError, match="--table"):
        sent("-", "--format", "ndjson", "--store", store, input=b'{"n":1}\n')
    with pytest.raises(ValueError, match="cannot be read"):
        sent("-", "--format", "ndjson", "--table", "t", "--store", store, input=b"{")
    assert sent("-", "--store", store, "--quiver", store).exit_code == 2


def test_rows_that_were_rejected_are_told_and_the_others_kept(tmp_path: Path) -> None:
    request = some_spans()
    request.resource_spans[0].scope_spans[0].spans.add(name="no identity")
    (tmp_path / "x").write_bytes(request.SerializeToString())
    result = sent(str(tmp_path / "x"), "--format", "otlp-traces", "--store", str(tmp_path / "store"))
    assert result.exit_code == 1
    assert "1 rows of traces are durable" in result.output
    assert "1 were rejected" in result.output


def test_the_way_over_a_store_at_the_edge(tmp_path: Path) -> None:
    """ingest into a quiver, relay into the queue, land."""
    quiver, store = tmp_path / "quiver", tmp_path / "store"
    metrics = str(GOLDEN / "otlp-metrics-sdk.bin")
    assert sent(metrics, "--format", "otlp-metrics", "--quiver", str(quiver)).exit_code == 0
    relayed = CliRunner().invoke(
        relay, ["run", str(quiver), "--to", "queue", str(store / "telemetry"), "--until-empty"], catch_exceptions=False
    )
    assert relayed.exit_code == 0, relayed.output
    done = landed(store)
    assert done["rows"] == 6
    assert done["samples"] > 6
    assert done["refused"] == {"exponential histogram": 1}
    assert landed(store)["batches"] == 0
