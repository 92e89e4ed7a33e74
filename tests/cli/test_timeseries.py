"""`penstock timeseries`, on a real store: files in, answers and files out."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from penstock.buffer import Producer
from penstock.cli.commands.stores.timeseries import TIMESERIES_PATH
from penstock.cli.main import penstock
from penstock.objects import open_store
from penstock.relay import SamplesPayload, VectorPayload, encode_table
from penstock.timeseries import MetricMetadata, SampleBatch, TimeSeriesStore

TEXT = """# TYPE requests counter
# HELP requests Requests served.
requests_total{code="200"} 0 0
requests_total{code="200"} 60 60
requests_total{code="500"} 0 0
requests_total{code="500"} 6 60
# EOF
"""
PERIOD = ["--start", "0", "--end", "120"]


def ask(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(penstock, ["timeseries", *arguments], prog_name="penstock")
    assert result.exit_code == code, result.output + result.stderr
    return result


@pytest.fixture
def store(tmp_path: Path) -> str:
    file = tmp_path / "metrics.om"
    file.write_text(TEXT)
    place = str(tmp_path / "data")
    assert "4 samples" in ask("import", place, str(file)).output
    return place


def test_a_query_is_answered_as_a_table_and_as_json(store: str) -> None:
    shown = ask("query", store, "sum by (code) (increase(requests_total[2m]))", "--time", "90").output
    assert shown.splitlines()[0].split() == ["series", "value"]
    assert '{code="200"}' in shown
    answer = json.loads(ask("query", store, "sum(requests_total)", "--time", "90", "--json").output)
    assert answer["data"]["result"][0]["value"] == [90.0, "66"]
    assert ask("query", store, "1 + 1").output == "2\n"


def test_warnings_go_to_standard_error(store: str) -> None:
    assert "quantile value should be between 0 and 1" in ask("query", store, "quantile(2, up)").stderr


def test_a_range_is_summed_up_by_series(store: str) -> None:
    lines = ask("range", store, "requests_total", *PERIOD, "--step", "60s").output.splitlines()
    assert lines[0].split() == ["series", "samples", "first", "min", "max", "last"]
    assert lines[1].split()[1:] == ["3", "0", "0", "60", "60"]
    answer = json.loads(ask("range", store, "requests_total", *PERIOD, "--step", "1m", "--json").output)
    assert answer["data"]["resultType"] == "matrix"


def test_series_labels_and_cardinality_are_listed(store: str) -> None:
    assert ask("series", store, *PERIOD).output.splitlines() == [
        'requests_total{code="200"}',
        'requests_total{code="500"}',
    ]
    assert ask("series", store, "--match", '{code="500"}', *PERIOD, "--json").output.count("\n") == 1
    assert ask("labels", store, *PERIOD).output.split() == ["__name__", "code"]
    assert ask("labels", store, "code", *PERIOD).output.split() == ["200", "500"]
    told = json.loads(ask("stats", store, "--json").output)
    assert (told["tenant"], told["samples"], told["metrics"]) == ("default", 4, {"requests_total": 2})
    assert told["label_values"] == {"code": 2, "__name__": 1}
    assert "default: 4 samples in 1 hours" in ask("stats", store).output


def test_a_sound_store_is_called_so(store: str) -> None:
    assert ask("verify", store).output == "default: sound (4 samples, 1 hours read)\n"


@pytest.mark.parametrize("ending", ["om", "parquet", "arrow"])
def test_what_is_exported_can_be_imported(store: str, tmp_path: Path, ending: str) -> None:
    file, other = str(tmp_path / f"out.{ending}"), str(tmp_path / "other")
    assert "4 samples of 2 series" in ask("export", store, file, *PERIOD).stderr
    assert "4 samples" in ask("import", other, file).output
    assert ask("query", other, "requests_total", "--time", "90").output == (
        ask("query", store, "requests_total", "--time", "90").output
    )


HOSTILE = [
    {"__name__": "plain", "le": "+Inf", "quote": 'a"b\\n', "line": "one\ntwo", "return": "a\rb\r\n"},
    {"__name__": "plain", "separators": "\x0b\x0c\x1c\x85\u2028\u2029", "space": " edge ", "hash": "# EOF"},
    {"__name__": "größe.in %", "näme": "{}=,", "": ""},
    {"__name__": "1 # x", "exemplar": ' 1 # {trace_id="a"} 2'},
]
ODD_VALUES = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3, 2.0**53 + 2]
ODD_TIMES = [-(2**53), -1_001, -1, 0, 1, 1_700_000_000_001, 2**53 - 1, 2**53]


@pytest.mark.parametrize("ending", ["om", "parquet", "arrow", "-"])
def test_whatever_a_store_can_hold_is_exported_and_imported_bit_by_bit(tmp_path: Path, ending: str) -> None:
    async def fill() -> None:
        async with await TimeSeriesStore.open((tmp_path / "a").as_uri(), TIMESERIES_PATH) as store:
            series = [(labels, ODD_TIMES, ODD_VALUES) for labels in HOSTILE]
            await store.write(
                SampleBatch.of_series(series, {"plain": MetricMetadata("gauge", 'ä "help"\n\\', "seconds")})
            )

    async def held(name: str) -> list[Any]:
        async with await TimeSeriesStore.open_reader((tmp_path / name).as_uri(), TIMESERIES_PATH) as reader:
            columns, about = await reader.select_columns([]), await reader.metadata()
        return [columns.labels, columns.timestamps.tolist(), columns.values.view(np.uint64).tolist(), about]

    asyncio.run(fill())
    file = "-" if ending == "-" else str(tmp_path / f"out.{ending}")
    every = ["--start", str(-(2**53) // 1000 - 1), "--end", str(2**53 // 1000 + 1)]
    exported = ask("export", str(tmp_path / "a"), file, *every).stdout_bytes
    result = CliRunner().invoke(penstock, ["timeseries", "import", str(tmp_path / "b"), file], input=exported)
    assert result.exit_code == 0, result.output + result.stderr
    found = asyncio.run(held("b"))
    assert found == asyncio.run(held("a"))
    assert (len(found[0]), list(found[3])) == (len(HOSTILE), ["plain"])


def test_a_table_whose_words_about_metrics_are_damaged_is_refused_by_name(tmp_path: Path) -> None:
    labels = pa.array([[("__name__", "a")]], pa.map_(pa.string(), pa.string()))
    table = pa.table({"labels": labels, "timestamp_ms": [1], "value": [1.0]})
    table = table.replace_schema_metadata({b"penstock.metrics": b"{"})
    pq.write_table(table, tmp_path / "bad.parquet")
    result = CliRunner().invoke(penstock, ["timeseries", "import", str(tmp_path / "b"), str(tmp_path / "bad.parquet")])
    assert (result.exit_code, "metadata that cannot be read" in result.stderr) == (1, True)


def test_text_is_exported_to_standard_output(store: str) -> None:
    assert ask("export", store, "-", *PERIOD).stdout == TEXT


def test_hours_are_folded(store: str) -> None:
    assert ask("compact", store, "--yes").output == "default: folded\n"
    assert "66" in ask("query", store, "sum(requests_total)", "--time", "90").output


def test_nothing_of_an_import_is_written_if_one_of_its_files_is_wrong(tmp_path: Path) -> None:
    good, wrong, cut = tmp_path / "good.om", tmp_path / "wrong.om", tmp_path / "cut.parquet"
    good.write_text("up 1 1\n# EOF\n")
    # The fault stands behind the first batch that a reader hands on.
    wrong.write_text("".join(f"up {number} {number}\n" for number in range(100_001)) + "up one\n# EOF\n")
    cut.write_bytes(b"PAR1")
    long = tmp_path / "long.om"
    long.write_text(f'up{{a="{"x" * 5000}"}} 1 1\n# EOF\n')
    place = tmp_path / "place"
    far = tmp_path / "far.om"
    far.write_text("up 1 99999999999999999999\n# EOF\n")
    faults = (
        (wrong, "wrong.om: line 100002"),
        (cut, "cut.parquet"),
        (long, "label_value_bytes_max"),
        (far, "far.om: timestamps_ms up to 9999"),
    )
    for file, fault in faults:
        assert fault in ask("import", str(place), str(good), str(file), code=1).stderr
        assert not place.exists()


def test_exemplars_are_left_out_by_name(tmp_path: Path) -> None:
    file = tmp_path / "some.om"
    file.write_text('a_total 1 1 # {trace_id="x"} 0.5\nb 2 1\n# EOF\n')
    answer = ask("import", str(tmp_path / "place"), str(file)).output
    assert "2 samples (1 exemplars left out" in answer


def test_what_cannot_be_done_is_said_with_a_reason(store: str, tmp_path: Path) -> None:
    assert "parse error" in ask("query", store, "rate(", code=1).stderr
    assert "no time series" in ask("query", str(tmp_path / "nothing"), "up", code=1).stderr
    assert not (tmp_path / "nothing").exists()
    wrong = tmp_path / "wrong.om"
    wrong.write_text("up one\n")
    assert "line 1" in ask("import", store, str(wrong), code=1).stderr
    unknown = tmp_path / "some.xyz"
    unknown.write_text("")
    assert "--format" in ask("import", store, str(unknown), code=1).stderr
    assert "selector" in ask("series", store, "--match", "rate(up[5m])", *PERIOD, code=1).stderr
    assert "not a time" in ask("query", store, "up", "--time", "later", code=2).stderr


def produce(folder: str, payload: bytes, records: list[bytes]) -> None:
    async def work() -> None:
        queue = await open_store(f"file://{folder}")
        async with Producer(queue) as producer:
            await producer.produce(records, payload)
        await queue.close()

    asyncio.run(work())


def test_a_queue_is_consumed_once(store: str, tmp_path: Path) -> None:
    labels = pa.array([[("__name__", "up")]], pa.map_(pa.string(), pa.string()))
    table = pa.table({"labels": labels, "timestamp_ms": pa.array([60_000], pa.int64()), "value": [1.0]})
    queue = str(tmp_path / "queue")
    produce(queue, SamplesPayload().encode(), [encode_table(table), b"none"])
    consumed = ask("consume", store, "--queue", queue)
    assert consumed.stdout == "stored through sequence 0\n"
    assert "1 records were set aside" in consumed.stderr
    again = ask("consume", store, "--queue", queue)
    assert (again.stdout, again.stderr) == ("stored through sequence 0\n", "")
    assert "up" in ask("query", store, "up", "--time", "90").output


def test_vectors_of_a_queue_are_consumed(tmp_path: Path) -> None:
    queue, store = str(tmp_path / "queue"), str(tmp_path / "vectors")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0], pa.float32()), 2)
    rows = pa.table({"id": ["a"], "vector": vectors})
    produce(queue, VectorPayload(tenant="t", index="i", model="m").encode(), [encode_table(rows)])
    result = CliRunner().invoke(penstock, ["vector", "consume", store, "--queue", queue], prog_name="penstock")
    assert (result.exit_code, result.stdout) == (0, "stored through sequence 0\n"), result.output
    got = CliRunner().invoke(penstock, ["vector", "get", store, "t/i/m", "a", "--json"], prog_name="penstock")
    assert json.loads(got.stdout)["id"] == "a"


def test_a_store_that_is_whole_needs_no_repair_and_a_position_that_is_known_is_not_restated(store: str) -> None:
    assert "Nothing is damaged" in ask("repair", store, "--yes").output
    assert "is now 7" in ask("repair", store, "--yes", "--position", "queue=7").output
    assert ask("repair", store, "--yes", "--position", "queue=8", code=1).exception is not None
    assert ask("repair", store, "--yes", "--position", "queue", code=2).exit_code == 2
