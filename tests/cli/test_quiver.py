"""`penstock quiver`: what an operator sees of a store at the edge, and what the three that write do."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from tests.quiver.worlds import bundle

from penstock.cli.commands.stores.quiver import quiver
from penstock.errors import Conflict, InvalidInput, NotFound
from penstock.quiver import Bundle, SubscriberConfig, SyncQuiver


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Three segments of one bundle: one acknowledged, one a dead letter; and a bundle that is only in the log."""
    path = str(tmp_path / "store")
    opened = SyncQuiver(path)
    opened.register("s", SubscriberConfig(attempts_max=1))
    opened.register("other")
    for number in range(3):
        opened.ingest(bundle(number))
        opened.flush()
    for end in ("ack", "nack"):
        delivery = opened.next("s", 1.0)
        assert delivery is not None
        getattr(delivery, end)()
    opened.close()
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(quiver, arguments, catch_exceptions=True)


def lines(*arguments: str) -> list[dict]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def test_status_tells_how_far_each_subscriber_is(store: str) -> None:
    (found,) = lines("status", store)
    assert found["segments"] == 3
    assert found["subscribers"]["s"] == {"active": True, "mark": 2, "gaps": 0, "waiting": 1, "dead_letters": 1}
    assert found["subscribers"]["other"]["waiting"] == 3
    assert "s: through segment 2, 1 waiting" in run("status", store).output


def test_inspect_lists_segments_and_who_waits(store: str) -> None:
    found = lines("inspect", store)
    assert [(each["segment_seq"], each["waits_for"]) for each in found] == [
        (1, ["other"]),
        (2, ["other"]),
        (3, ["other", "s"]),
    ]
    assert "logs" in run("inspect", store).output


def test_verify_and_repair(store: str) -> None:
    assert run("verify", store).exit_code == 0
    victim = next(Path(store).rglob(f"{2:020d}-0.arrow"))
    body = bytearray(victim.read_bytes())
    body[100] ^= 1
    victim.write_bytes(body)
    found = run("verify", store)
    assert found.exit_code == 1
    assert "segments/2" in found.output
    assert lines("repair", store)[0]["lost_segments"] == [2]
    assert "sound" in run("verify", store).output


def test_replay_delivers_dead_letters_again(store: str) -> None:
    assert lines("replay", store, "s")[0]["segments"] == [2]
    (found,) = lines("status", store)
    assert found["subscribers"]["s"]["waiting"] == 2
    assert lines("replay", store, "s", "--from", "1")[0]["segments"] == [1, 2, 3]
    assert isinstance(run("replay", store, "nobody").exception, NotFound)


def test_drain_copies_and_acknowledges(store: str, tmp_path: Path) -> None:
    (found,) = lines("drain", store, "other", "--into", str(tmp_path / "out"))
    assert len(found["files"]) == 3
    tables = [pa.ipc.open_file(file).read_all() for file in found["files"]]
    assert [table.column("n")[0].as_py() for table in tables] == [0, 1, 2]
    assert lines("status", store)[0]["subscribers"]["other"]["waiting"] == 0
    assert isinstance(run("drain", store, "nobody", "--into", str(tmp_path)).exception, NotFound)


def test_query_answers_over_segments_and_the_log_beside_a_running_writer(store: str) -> None:
    with SyncQuiver(store) as writer:
        writer.ingest(bundle(7))
        found = lines("query", store, "SELECT n, count(*) AS rows FROM logs GROUP BY n ORDER BY n")
        assert found == [{"n": number, "rows": 4} for number in (0, 1, 2, 7)]
        assert "7" in run("query", store, "SELECT max(n) FROM logs").output
        assert isinstance(run("query", store, "SELECT nope").exception, InvalidInput)
        assert isinstance(run("query", store, "SELECT * FROM read_csv('/etc/passwd')").exception, InvalidInput)
        assert isinstance(run("repair", store).exception, Conflict)


def test_a_slot_whose_schemas_fit_into_no_table_has_a_numbered_table_each(store: str) -> None:
    with SyncQuiver(store) as writer:
        writer.ingest(Bundle({"logs": pa.record_batch({"n": ["a word"]})}))
        assert lines("query", store, "SELECT count(*) AS rows FROM logs_1") == [{"rows": 12}]
        assert lines("query", store, "SELECT n FROM logs_2") == [{"n": "a word"}]


def test_a_folder_without_a_store_says_so(tmp_path: Path) -> None:
    assert isinstance(run("status", str(tmp_path)).exception, NotFound)
    assert run("status", str(tmp_path / "none")).exit_code == 2


def test_repair_takes_the_stores_own_settings(store: str, tmp_path: Path) -> None:
    config = tmp_path / "quiver.yaml"
    config.write_text("segment:\n  target_size: 8MB\n")
    assert lines("repair", store, "--config", str(config))[0]["lost_segments"] == []
    config.write_text("segments: 1")
    assert isinstance(run("repair", store, "--config", str(config)).exception, InvalidInput)
    assert isinstance(run("repair", store, "--instance", "5").exception, NotFound)


@pytest.fixture
def odd(tmp_path: Path) -> str:
    """Slots whose names look alike in a file's name or to DuckDB, and types that DuckDB does not read."""
    path = str(tmp_path / "odd")
    opened = SyncQuiver(path)
    opened.register("s")
    for number, slot in enumerate(("a/b", "a_b", "logs", "LOGS", "../up", "x" * 400, "\x00")):
        opened.ingest(bundle(number, slot=slot))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1.0], pa.float16()), pa.array([7]), pa.array([8])], names=["half", "n", "n"]
    )
    opened.ingest(Bundle({"types": batch}))
    opened.ingest(Bundle({"half": batch.select(["half"])}))
    opened.close()
    return path


def test_no_slot_is_drained_over_another_or_out_of_the_folder(odd: str, tmp_path: Path) -> None:
    (found,) = lines("drain", odd, "s", "--into", str(tmp_path / "out"))
    assert len(set(found["files"])) == 9
    read = [pa.ipc.open_file(name).read_all() for name in found["files"]]
    assert sorted(table.column("n")[0].as_py() for table in read if "n" in table.column_names[:1]) == list(range(7))
    assert {Path(name).parent for name in found["files"]} == {tmp_path / "out"}


def test_slots_that_differ_in_case_are_tables_of_their_own(odd: str) -> None:
    assert lines("query", odd, "SELECT min(n) AS n FROM logs") == [{"n": 3}]
    assert lines("query", odd, "SELECT min(n) AS n FROM logs_2") == [{"n": 2}]


def test_a_column_that_duckdb_cannot_read_spoils_no_query(odd: str) -> None:
    assert lines("query", odd, "SELECT * FROM types") == [{"n": 7, "n_2": 8}]
    assert lines("query", odd, "SELECT count(*) AS c FROM half") == [{"c": 1}]


@pytest.mark.parametrize("sql", ["", " ", ";", "/* nothing */", "SELECT", "SELECT 1 FROM nowhere", "SELECT 'x'::INT"])
def test_a_query_that_asks_for_nothing_or_cannot_be_answered_is_refused(store: str, sql: str) -> None:
    result = run("query", store, sql)
    assert isinstance(result.exception, InvalidInput), result.output


@pytest.mark.parametrize("settings", [b"\xff\xfe\x00", b"a: \xff", b"- 1", b"nope: 1"])
def test_settings_that_are_no_yaml_in_utf8_are_refused(store: str, tmp_path: Path, settings: bytes) -> None:
    file = tmp_path / "settings.yaml"
    file.write_bytes(settings)
    assert isinstance(run("repair", store, "--config", str(file)).exception, InvalidInput)


def test_every_cell_is_json(store: str) -> None:
    sql = "SELECT 'nan'::DOUBLE AS none, -'inf'::DOUBLE AS low, '\\xFF'::BLOB AS bytes, INTERVAL 1 DAY AS day, 1 AS a, 2 AS a"
    assert lines("query", store, sql) == [{"none": None, "low": None, "bytes": "/w==", "day": "P1D", "a": 1, "a_2": 2}]


def test_what_is_stored_does_not_command_the_terminal(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    hostile = "\x1b]0;title\x07"
    with SyncQuiver(path) as opened:
        opened.ingest(Bundle({f"logs{hostile}": pa.record_batch({"body": [hostile], hostile: [1]})}))
        opened.flush()
    for arguments in (("inspect", path), ("query", path, f'SELECT * FROM "logs{hostile}"')):
        result = CliRunner().invoke(quiver, arguments, color=True)
        assert result.exit_code == 0, result.output
        assert "\x1b" not in result.output
        assert "\x07" not in result.output


def test_a_long_answer_is_printed_as_it_comes(store: str) -> None:
    found = lines("query", store, "SELECT range AS n FROM range(25000)")
    assert [each["n"] for each in found] == list(range(25000))
