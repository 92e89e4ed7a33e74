"""`penstock ingest` and `penstock telemetry run --engine local`: files in, data files and series out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click import Command
from click.testing import CliRunner, Result
from tests.landing.world import config_at, table_rows
from tests.telemetry.samples import first_write, packed, second_write, some_logs, some_spans

from penstock.cli.commands.stores.relay import relay
from penstock.cli.commands.stores.timeseries import timeseries
from penstock.cli.commands.telemetry.ingest import ingest
from penstock.cli.commands.telemetry.sql import sql
from penstock.cli.commands.telemetry.telemetry import telemetry
from penstock.errors import InvalidInput
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
    with pytest.raises(ValueError, match="line 1"):
        sent("-", "--format", "ndjson", "--table", "t", "--store", store, input=b"{")
    assert sent("-", "--store", store, "--quiver", store).exit_code == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--table", ""], "no name"),
        (["--table", "t" * 1025], "too long"),
        (["--table", "t", "--tenant", "t" * 1025], "too long"),
        (["--table", "\udcff"], "not UTF-8"),
        (["--table", "t", "--tenant", "\udcff"], "not UTF-8"),
    ],
)
def test_a_name_that_no_table_can_have_is_refused_before_anything_is_sent(
    tmp_path: Path, words: list[str], why: str
) -> None:
    """Rows of a table without a name stopped the telemetry job, with everybody's rows behind them."""
    store = tmp_path / "store"
    with pytest.raises(InvalidInput, match=why):
        sent("-", "--format", "ndjson", "--store", str(store), *words, input=b'{"n":1}\n')
    assert not store.exists()


def test_an_arrow_file_is_read_like_a_stream_and_one_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    store, sink = str(tmp_path / "store"), pa.BufferOutputStream()
    table = pa.table({"n": [1, 2], "text": pa.array(["a", "b"]).dictionary_encode()})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    result = sent("-", "--format", "arrow", "--table", "t", "--store", store, input=body)
    assert "2 rows of t are durable" in result.output
    for size in (8, len(body) // 2, len(body) - 1):
        with pytest.raises(InvalidInput, match=r"cut off|cannot be read"):
            sent("-", "--format", "arrow", "--table", "t", "--store", store, input=body[:size])


def test_a_pipe_that_breaks_within_a_line_leaves_nothing_behind(tmp_path: Path) -> None:
    """Half of a number is a number."""
    store = tmp_path / "store"
    with pytest.raises(InvalidInput, match="cut off"):
        sent("-", "--format", "prometheus", "--store", str(store), input=b"up 1\nrequests_total 123")
    assert not store.exists()


def test_lines_of_json_land_as_rows_of_signals(tmp_path: Path) -> None:
    store = tmp_path / "store"
    for second in (b"00", b"01.25"):
        line = b'{"time": "2026-11-16T20:00:%sZ", "body": "hi", "attributes": {"a": "1"}}\n' % second
        result = sent("-", "--format", "ndjson", "--table", "logs", "--store", str(store), input=line)
        assert "1 rows of logs" in result.output
        sent("-", "--format", "ndjson", "--table", "mine", "--store", str(store), input=line)
    told = landed(store, "--no-series")
    assert (told["rows"], told["quarantined"]) == (4, 0)


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


def asked(command: Command, *arguments: str) -> Any:
    result = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_shards_are_put_in_force_by_the_configuration_and_every_question_finds_its_rows(tmp_path: Path) -> None:
    store, settings = tmp_path / "store", tmp_path / "penstock.toml"
    tenants = ["t0", "t1", "t2", "t3"]

    def sample(value: int, tenant: str, *options: str) -> None:
        line = f"up {value} {1_763_000_000_000 + value * 1000}\n".encode()
        place = ["--format", "prometheus", "--store", str(store), "--tenant", tenant, *options]
        assert sent("-", *place, input=line).exit_code == 0

    def total(tenant: str) -> str:
        question = [str(store), "sum(sum_over_time(up[1h]))", "--time", "1763000100", "--tenant", tenant]
        found: str = asked(timeseries, "query", *question)["data"]["result"][0]["value"][1]
        return found

    sample(1, "t0")
    assert landed(store)["rows"] == 1
    settings.write_text("[sharding]\nshards = 3\n")
    for tenant in tenants:
        sample(2, tenant, "--config", str(settings))
    told = asked(telemetry, "shards", "--store", str(store))
    assert (told["version"], told["layout"]) == (1, {"shards": 3, "by": "tenant"})
    assert sum(one["waiting"] for one in told["shards"]) == 4
    assert {one["state"] for one in told["shards"]} == {"open"}
    # One process works on some shards, another one on the rest.
    assert landed(store, "--shard", "0")["rows"] + landed(store, "--shard", "1", "--shard", "2")["rows"] == 4
    assert [total(tenant) for tenant in tenants] == ["3", "2", "2", "2"]
    settings.write_text("[sharding]\nshards = 1\n")
    sample(4, "t1", "--config", str(settings))
    assert landed(store)["rows"] == 1
    assert [total(tenant) for tenant in tenants] == ["3", "6", "2", "2"]
    told = asked(telemetry, "shards", "--store", str(store))
    assert [one["state"] for one in told["shards"]] == ["open", "drained", "drained"]
    rows = asked(sql, "SELECT tenant, sum(value) FROM metrics GROUP BY 1 ORDER BY 1", "--store", str(store))["rows"]
    assert rows == [["t0", 3.0], ["t1", 6.0], ["t2", 2.0], ["t3", 2.0]]
    shown = CliRunner().invoke(telemetry, ["shards", "--store", str(store)], catch_exceptions=False)
    assert "version 2: 1 shards by tenant" in shown.output
    with pytest.raises(ValueError, match="there is no shard 7"):
        landed(store, "--shard", "7")


def test_a_relay_sends_rows_to_the_shards_of_their_tenants(tmp_path: Path) -> None:
    quiver, store, settings = tmp_path / "quiver", tmp_path / "store", tmp_path / "penstock.toml"
    settings.write_text("[sharding]\nshards = 4\n")
    asked(telemetry, "shards", "--store", str(store), "--config", str(settings))
    for tenant in ("t0", "t1", "t2", "t3", "t4"):
        place = ["--format", "prometheus", "--quiver", str(quiver), "--tenant", tenant]
        assert sent("-", *place, input=b"up 1\n").exit_code == 0
    relayed = CliRunner().invoke(
        relay, ["run", str(quiver), "--to", "queue", str(store / "telemetry"), "--until-empty"], catch_exceptions=False
    )
    assert relayed.exit_code == 0, relayed.output
    told = asked(telemetry, "shards", "--store", str(store))
    assert sum(one["waiting"] > 0 for one in told["shards"]) > 1
    assert landed(store)["rows"] == 5


def test_a_small_parquet_file_of_very_many_bytes_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    many = tmp_path / "many.parquet"
    pq.write_table(pa.table({"n": pa.repeat(1, 3_000_000)}), many)
    assert many.stat().st_size < 100_000
    with pytest.raises(ValueError, match="rows_max"):
        sent(str(many), "--table", "t", "--store", store)
    wide = tmp_path / "wide.parquet"
    # 400,000 rows of a kilobyte, as one entry of a dictionary.
    texts = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), 400_000), pa.array(["x" * 1000]))
    pq.write_table(pa.table({"text": texts}), wide, store_schema=False)
    assert wide.stat().st_size < 100_000
    with pytest.raises(ValueError, match="unpacked_bytes_max"):
        sent(str(wide), "--table", "t", "--store", store)


@pytest.mark.parametrize("form", ["arrow", "ndjson", "parquet"])
def test_a_table_with_more_columns_than_configured_is_refused_in_every_format(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DECODING_COLUMNS_MAX", "2")
    file, table = tmp_path / "file", pa.table({"a": [1], "b": [2], "c": [3]})
    if form == "parquet":
        pq.write_table(table, file)
    else:
        file.write_bytes(encode_arrow(table) if form == "arrow" else b'{"a":1,"b":2,"c":3}\n')
    with pytest.raises(InvalidInput, match="has 3 columns") as refused:
        sent(str(file), "--format", form, "--table", "orders", "--store", str(tmp_path / "store"))
    assert "raise columns_max" in refused.value.remedy
    assert not (tmp_path / "store").exists()
