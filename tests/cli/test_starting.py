"""Spark is started beside the main thread, and nobody who asks for the end waits for it."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from penstock.cli.running.starting import started
from penstock.cli.running.stop import Stop
from penstock.errors import Closed


def test_what_the_start_gives_or_raises_is_passed_on_and_ctrl_c_stays_the_commands_own() -> None:
    def install() -> str:
        assert threading.current_thread() is not threading.main_thread()
        return "session"

    def fail() -> str:
        raise OSError("no Java")

    with Stop() as stop:
        assert started(install, stop, lambda: False) == "session"
        with pytest.raises(OSError, match="no Java"):
            started(fail, stop, lambda: False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_start_that_is_under_way_is_given_up_when_somebody_asks_for_the_end(number: int) -> None:
    given_up, order = threading.Event(), list[str]()

    def start() -> None:
        os.kill(os.getpid(), number)
        given_up.wait(60)
        order.append("failed")
        raise ConnectionResetError("Java is gone")

    def give_up() -> bool:
        given_up.set()
        return True

    with Stop() as stop, pytest.raises(Closed, match="interrupted"):
        started(start, stop, give_up)
    assert order == ["failed"]


def test_a_signal_before_the_start_is_honoured_too() -> None:
    with Stop() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Closed):
            started(lambda: None, stop, lambda: False)
