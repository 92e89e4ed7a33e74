"""The server that takes counts from Java: quiet about the end of Java, and about nothing else."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from pyspark.accumulators import AccumulatorUnixServer, UpdateRequestHandler

from penstock.pipelines.spark.accumulators import expect_end_of_java

# A count of one update, which does not follow.
CUT_SHORT = b"\0\0\0\1"
# One update of four bytes that are no pickle.
NO_PICKLE = b"\0\0\0\1\0\0\0\4oops"


@pytest.mark.parametrize("sent", [b"", CUT_SHORT], ids=["closed", "cut short"])
def test_the_end_of_java_leaves_no_traceback(sent: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(sent, tmp_path)
    assert capsys.readouterr().err == ""


def test_any_other_error_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(NO_PICKLE, tmp_path)
    assert "UnpicklingError" in capsys.readouterr().err


def test_a_session_is_opened_with_it(spark: Any) -> None:
    assert "handle_error" in vars(spark.sparkContext._accumulatorServer)


def answer(sent: bytes, folder: Path) -> None:
    """One connection, closed by its client behind what it sent."""
    with AccumulatorUnixServer(str(folder / "s"), UpdateRequestHandler) as server:
        expect_end_of_java(server)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(folder / "s"))
            client.sendall(sent)
        server.handle_request()
