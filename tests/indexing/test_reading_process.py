"""A process that reads beside the job: replaced when it ends, ended with the job, and told secrets over its pipe alone."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.documents import ChunkingConfig, Progress, UploadNotification
from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.errors import Closed, Unavailable
from penstock.indexing.job import indexer
from penstock.indexing.planning.plan import RoundLimits
from penstock.indexing.stages import local
from penstock.indexing.stages.embedding import Embedding
from penstock.indexing.stages.local import LocalStages, LocalStagesBeside
from penstock.indexing.stages.reading import Reading
from penstock.indexing.stages.reading_process import ReadingProcess
from penstock.indexing.stages.readings import Piece, ReadRequest
from penstock.testing.shelf import IndexShelf, prose

pytestmark = pytest.mark.processes

TEXT = b"Otters swim in rivers. Herons stand in ponds.\n\n" * 40
SECRET = "sk-not-for-everybody"


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    return Reading(ChunkingConfig(), Embedding(api_key=SECRET), places=(f"file://{tmp_path}",))


@pytest.fixture
def process(reading: Reading) -> Iterator[ReadingProcess]:
    made = ReadingProcess(reading)
    yield made
    made.stop()


def nothing_given_up() -> None:
    """Nobody gives this call up."""


def request_of(folder: Path, text: bytes = TEXT) -> ReadRequest:
    (folder / "note.txt").write_bytes(text)
    upload = UploadNotification(
        tenant_id="acme",
        index_id="handbook",
        model=EMBEDDED_MODEL,
        bucket=f"file://{folder}",
        key="note.txt",
        size_bytes=len(text),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return ReadRequest(
        upload=upload,
        progress=Progress(),
        first_cell=0,
        cells=8,
        chunking=ChunkingConfig(),
        bytes_left=len(text),
    )


def texts(pieces: list[Piece]) -> list[str]:
    return [piece.text for _, piece in pieces if hasattr(piece, "text")]


def test_a_process_that_was_killed_is_replaced_and_reads_alike(process: ReadingProcess, tmp_path: Path) -> None:
    request = request_of(tmp_path)
    before = process.read([request], nothing_given_up)
    assert texts(before)
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert process.read([request], nothing_given_up) == before
    assert process.pid not in (None, first)


def test_a_process_that_ends_whenever_it_is_asked_is_an_error(
    process: ReadingProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.indexing.stages.reading_process._BOOT", "raise SystemExit")
    with pytest.raises(Unavailable, match="could not be read beside"):
        process.read([request_of(tmp_path)], nothing_given_up)


def test_a_call_that_was_given_up_starts_no_process(process: ReadingProcess, tmp_path: Path) -> None:
    def given_up() -> None:
        raise Closed("given up", "", "")

    with pytest.raises(Closed):
        process.read([request_of(tmp_path)], given_up)
    assert process.pid is None


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="only Linux shows a process's arguments so")
def test_keys_are_told_over_the_pipe_and_not_in_the_arguments(process: ReadingProcess, tmp_path: Path) -> None:
    process.read([request_of(tmp_path)], nothing_given_up)
    for shown in ("cmdline", "environ"):
        assert SECRET.encode() not in Path(f"/proc/{process.pid}/{shown}").read_bytes()


@pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="the end of somebody else's process can be waited for on Linux"
)
def test_the_process_ends_with_whoever_started_it(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from tests.indexing.test_reading_process import nothing_given_up, request_of
from penstock.indexing.stages.reading import Reading
from penstock.indexing.stages.reading_process import ReadingProcess
folder = Path({str(tmp_path)!r})
process = ReadingProcess(Reading(places=(f"file://{{folder}}",)))
assert process.read([request_of(folder)], nothing_given_up)
print(process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    starter = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=120, check=False)
    assert starter.returncode == -signal.SIGKILL
    with suppress(ProcessLookupError):
        # Readable once the process has ended.
        descriptor = os.pidfd_open(int(starter.stdout))
        ready, _, _ = select.select([descriptor], [], [], 60)
        os.close(descriptor)
        assert ready


def test_a_little_is_read_without_a_process_and_a_lot_with_one(
    reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_cores", lambda: 2)
    reading = replace(reading, embedding=Embedding())
    beside = LocalStagesBeside(reading, Embedding())
    try:
        request = request_of(tmp_path)
        expected = LocalStages(reading, Embedding()).read([request])
        assert beside.read([request]) == expected
        assert beside._process.pid is None
        monkeypatch.setattr(local, "_PROCESS_BYTES_MIN", len(TEXT))
        assert beside.read([request]) == expected
        assert beside._process.pid is not None
    finally:
        beside.close()
    assert beside._process.pid is None


def test_what_no_process_can_be_told_is_read_without_one(
    reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_cores", lambda: 2)
    monkeypatch.setattr(local, "_PROCESS_BYTES_MIN", 0)
    untold = replace(reading, options={"retry_hook": lambda: None})
    beside, request = LocalStagesBeside(untold, Embedding()), request_of(tmp_path)
    assert beside.read([request]) == LocalStages(reading, Embedding()).read([request])
    assert beside._process.pid is None


def test_one_core_is_left_to_the_job(reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_cores", lambda: 1)
    monkeypatch.setattr(local, "_PROCESS_BYTES_MIN", 0)
    beside = LocalStagesBeside(reading, Embedding())
    assert beside.read([request_of(tmp_path)])
    assert beside._process.pid is None


def test_a_job_whose_reading_process_is_killed_again_and_again_stores_what_an_undisturbed_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_cores", lambda: 2)
    monkeypatch.setattr(local, "_PROCESS_BYTES_MIN", 0)
    monkeypatch.setattr(indexer, "AHEAD_BYTES_MIN", 1)
    limits = RoundLimits(documents_max=4)
    killed: list[int | None] = []
    stored: list[list[tuple[str, int, str]]] = []
    read = ReadingProcess.read

    def killed_first(process: ReadingProcess, asked: Sequence[ReadRequest], check: Callable[[], None]) -> list[Piece]:
        """Every second time: it is found dead and replaced, as if it had been killed since it was asked last."""
        if process.pid is not None and len(killed) % 2 == 0:
            os.kill(process.pid, signal.SIGKILL)
        killed.append(process.pid)
        return read(process, asked, check)

    for name, reader in (("disturbed", killed_first), ("undisturbed", read)):
        monkeypatch.setattr(ReadingProcess, "read", reader)
        (tmp_path / name / "documents").mkdir(parents=True)
        shelf = IndexShelf(None, tmp_path / name)
        events = [shelf.write(f"{number}.txt", prose(f"otters and herons {number}", 20)) for number in range(24)]
        assert shelf.run(*events, rounds=limits).documents == 24
        stored.append(sorted((attributes["key"], attributes["start"], text) for attributes, text in shelf.passages()))
    assert stored[0] == stored[1]
    assert len(killed) > 2
