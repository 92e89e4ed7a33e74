"""A command ends in good order when it is asked to, and at once when it is asked twice."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from penstock.cli.running import Stop, checkpoint_of


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_calls_the_end_on_a_thread_and_the_second_interrupts(number: int, code: int) -> None:
    ended = threading.Event()
    before = signal.getsignal(number)
    with Stop() as stop:
        stop.calls(ended.set)
        assert (stop.requested, stop.exit_code) == (False, 0)
        os.kill(os.getpid(), number)
        assert ended.wait(60)
        assert (stop.requested, stop.exit_code) == (True, code)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before


def test_a_signal_before_there_is_anything_to_end_ends_it_when_it_comes() -> None:
    ended: list[str] = []
    with Stop() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        stop.calls(lambda: ended.append("at once"))
    assert ended == ["at once"]


def test_a_checkpoint_lies_in_its_directory_store_and_is_one_of_its_own_for_every_other(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert checkpoint_of("file:///data/my%25store") == "/data/my%store/checkpoint"
    first, second = checkpoint_of("s3://bucket/a"), checkpoint_of("s3://bucket/b")
    assert first != second
    assert first.startswith(str(tmp_path))
