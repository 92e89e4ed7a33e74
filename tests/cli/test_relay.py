"""`penstock relay run`: real stores, real folders, and a refusal of what cannot be meant."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from tests.quiver.worlds import bundle
from tests.relay.edge import numbers, stamps, taken

from penstock.cli.commands.stores.relay import relay
from penstock.clock import SYSTEM_CLOCK
from penstock.objects import open_store
from penstock.quiver import SyncQuiver


@pytest.fixture
def quiver(tmp_path: Path) -> Path:
    """Two segments that wait, and a third that is only in the log."""
    path = tmp_path / "quiver"
    with SyncQuiver(str(path)) as store:
        for number in range(2):
            store.ingest(bundle(number))
            store.flush()
        store.ingest(bundle(2))
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(relay, ["run", *arguments], env={"PENSTOCK_RELAY_QUEUE_PART_BYTES": "64"})


def queued(url: str) -> list[int]:
    async def read() -> list[int]:
        store = await open_store(url)
        batches = await taken(store, clock=SYSTEM_CLOCK)
        await store.close()
        assert len({stamp.relay for stamp in stamps(batches)}) == 1
        return list(dict.fromkeys(numbers(batches)))

    return asyncio.run(read())


def test_everything_that_waits_goes_to_every_target(quiver: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    files = tmp_path / "files"
    arguments = ["--to", "queue", f"file://{tmp_path}/store", "--to", "parquet", str(files), "--until-empty"]
    answer = run(str(quiver), *arguments)
    assert answer.exit_code == 0, answer.output
    assert answer.output.splitlines() == ["queue: nothing waits", "parquet: nothing waits"]
    assert queued(f"file://{tmp_path}/store") == [0, 1, 2]
    found = pa.concat_tables(pq.read_table(path) for path in sorted(files.glob("*.parquet")))
    assert list(dict.fromkeys(found.column("n").to_pylist())) == [0, 1, 2]
    assert run(str(quiver), *arguments).exit_code == 0
    assert (quiver / "relay" / "queue-000.json").exists()


def test_a_kind_of_target_is_named_once(quiver: Path, tmp_path: Path) -> None:
    answer = run(str(quiver), "--to", "parquet", str(tmp_path / "a"), "--to", "parquet", str(tmp_path / "b"))
    assert answer.exit_code == 2
    assert "each kind of target may be named once" in answer.output


@pytest.mark.parametrize("header", ["nothing", "=value"])
def test_a_header_has_a_name_and_a_value(quiver: Path, header: str) -> None:
    answer = run(str(quiver), "--to", "otlp", "http://127.0.0.1:1", "--header", header)
    assert answer.exit_code == 2


def test_a_store_that_another_process_has_is_refused(quiver: Path, tmp_path: Path) -> None:
    with SyncQuiver(str(quiver)):
        answer = run(str(quiver), "--to", "parquet", str(tmp_path / "files"), "--until-empty")
    assert answer.exit_code != 0
    assert type(answer.exception).__name__ == "Conflict"


@pytest.mark.integration
def test_a_target_that_fails_is_told_though_nobody_asked_for_a_log(quiver: Path, tmp_path: Path) -> None:
    """It is retried for ever: without a word it would look like a relay at work."""
    command = [
        sys.executable,
        "-m",
        "penstock.cli",
        "relay",
        "run",
        str(quiver),
        "--to",
        "parquet",
        str(tmp_path / "no"),
    ]
    (tmp_path / "no").write_text("a file")
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert "relay.stalled" in line


def test_segments_that_a_target_refuses_for_good_are_told_at_the_end(quiver: Path) -> None:
    """The collector is never asked: nothing in these segments is an OTLP request."""
    answer = run(str(quiver), "--until-empty", "--to", "otlp", "http://127.0.0.1:1")
    assert answer.exit_code == 0, answer.output
    assert answer.output.splitlines()[-1] == "otlp: nothing waits, 3 dead letters"


@pytest.mark.integration
def test_a_signal_ends_a_running_relay_in_good_order(quiver: Path, tmp_path: Path) -> None:
    files = tmp_path / "files"
    command = [sys.executable, "-m", "penstock.cli", "relay", "run", str(quiver), "--to", "parquet", str(files)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while len(list(files.glob("*.parquet"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output == "parquet: nothing waits\n"
