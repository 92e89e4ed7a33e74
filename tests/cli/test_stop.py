"""A command ends in good order when it is asked to, and at once when it is asked twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from penstock.cli.running.stop import Stop


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_calls_the_end_on_a_thread(number: int, code: int) -> None:
    ended = threading.Event()
    before = signal.getsignal(number)
    with Stop() as stop:
        stop.calls(ended.set)
        assert (stop.requested, stop.exit_code) == (False, 0)
        os.kill(os.getpid(), number)
        assert ended.wait(60)
        assert (stop.requested, stop.exit_code) == (True, code)
    assert signal.getsignal(number) == before


SIGNALLED = """
import os, signal
from penstock.cli.running.stop import Stop
from penstock.testing import ManualClock

clock = ManualClock()
with Stop(clock=clock):
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    print("one request", flush=True)
    clock.advance(2)
    os.kill(os.getpid(), signal.SIGTERM)
    print("two requests", flush=True)
"""


def test_a_second_request_ends_the_process_at_once_without_a_word_and_a_signal_sent_twice_is_one() -> None:
    """Supervisors send to a process and to its group."""
    ended = subprocess.run([sys.executable, "-c", SIGNALLED], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "one request\n", "")


def test_an_end_that_fails_because_spark_is_gone_already_is_no_error() -> None:
    def end() -> None:
        raise ConnectionRefusedError("Spark got the signal too")

    failed: list[object] = []
    hook, threading.excepthook = threading.excepthook, failed.append
    try:
        with Stop() as stop:
            stop.calls(end)
            os.kill(os.getpid(), signal.SIGTERM)
            for thread in threading.enumerate():
                if thread.name == "penstock-stop":
                    thread.join(60)
    finally:
        threading.excepthook = hook
    assert not failed


def test_a_signal_before_there_is_anything_to_end_ends_it_when_it_comes() -> None:
    ended: list[str] = []
    with Stop() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        stop.calls(lambda: ended.append("at once"))
    assert ended == ["at once"]


def test_whoever_asks_is_answered_before_anything_is_ended_and_once() -> None:
    seen: list[str] = []
    ended = threading.Event()

    def end() -> None:
        seen.append("ended")
        ended.set()

    with Stop(lambda: seen.append("answered")) as stop:
        stop.calls(end)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert ended.wait(60)
    assert seen == ["answered", "ended"]


def test_what_is_printed_at_the_end_follows_the_answer_though_the_answer_comes_late() -> None:
    seen: list[str] = []
    main_is_there = threading.Event()

    def answer() -> None:
        assert main_is_there.wait(60)
        seen.append("answered")

    with Stop(answer) as stop:
        stop.await_answer()  # nobody has asked: there is nothing to wait for
        os.kill(os.getpid(), signal.SIGINT)
        # What the main thread was waiting for may end before the answer is out.
        main_is_there.set()
        stop.await_answer()
        seen.append("ended")
    assert seen == ["answered", "ended"]
