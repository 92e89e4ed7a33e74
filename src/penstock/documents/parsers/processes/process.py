"""One parser process, as its parent sees it: started with nothing, asked once a document, killed with all it started.

It gets an empty environment, two pipes and no other descriptor, a session of its own, and the root directory to stand
in. It confines itself before it reads its first request, which `worker` does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from penstock.documents.parsers.formats import OverBudget, ParsedDocument, UnstructuredCode
from penstock.documents.parsers.isolation.confinement import Layer
from penstock.documents.parsers.processes.exchange import Exchange
from penstock.documents.parsers.processes.messages import (
    ANSWER_BYTES_BESIDE_TEXT,
    ParserSetup,
    Request,
    hello_in,
    outcome_in,
)
from penstock.errors import AtCapacity, DeadlineExceeded, InvalidInput, PenstockError

__all__ = ["WORKER", "ParserProcess"]

# Parsers leak, and a process takes as long to start as some fifty pages take to parse. Every so many documents, and after
# a large one, it ends if it holds a quarter of the memory that a document may take: the next one must find the most of
# it. Where that cannot be told it ends after so many documents, and after the second number in any case.
_DOCUMENTS_PER_LOOK: Final = 200
_DOCUMENTS_PER_PROCESS: Final = 2_000
_MEMORY_PART_MAX: Final = 0.25
_LARGE_BYTES: Final = 1 << 20
# A machine with more to do than processors gives a parser a part of one.
_WALL_PER_CPU: Final = 4.0
# The room's package loads numpy for its chunker, which no parser needs: its place is held by an empty one.
_BOOT: Final = """
import sys, types
sys.path[:] = sys.argv[2:]
room = types.ModuleType("penstock.documents")
room.__path__ = [sys.argv[2] + "/penstock/documents"]
sys.modules[room.__name__] = room
"""
WORKER: Final = "from penstock.documents.parsers.processes import worker; worker.main()"


class ParserProcess:
    """One worker and its two pipes. Stop it, whatever happened."""

    def __init__(self, setup: ParserSetup, program: str = WORKER) -> None:
        self._limits = setup.limits
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT + program, msgspec.json.encode(setup).decode(), *_import_path()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            close_fds=True,
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._exchange = Exchange(self._process.stdin.fileno(), self._process.stdout.fileno())
        self._parsed = 0
        self._layers: tuple[Layer, ...] | None = None
        self.usable = True

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it ended of itself. It is not waited for yet: its number still names its session."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    @property
    def layers(self) -> tuple[Layer, ...]:
        """What confines it, as it told with its first answer."""
        return self._layers or ()

    def parse(self, request: Request) -> ParsedDocument:
        # Until its answer is here the process is not to be trusted with another document.
        self.usable = False
        outcome, cpu_seconds = outcome_in(self._answer(request), self._limits)
        self._parsed += 1
        # Its hard limit is twice a document's: the next one must find all of its own.
        fresh = cpu_seconds < self._limits.cpu_seconds and not self._is_worn(len(request.data))
        self.usable = fresh and self._exchange.quiet
        if isinstance(outcome, PenstockError):
            raise outcome
        return outcome

    def _is_worn(self, size: int) -> bool:
        """Whether it has parsed enough, for what it holds after a document of so many bytes."""
        due = self._parsed % _DOCUMENTS_PER_LOOK == 0
        if not due and size < _LARGE_BYTES:
            return False
        held = resident_bytes(self.pid)
        if held is None:
            return due
        return held >= _MEMORY_PART_MAX * self._limits.memory_bytes or self._parsed >= _DOCUMENTS_PER_PROCESS

    def stop(self) -> None:
        """End it and whatever it started in its session; once is enough, and after that its number is anybody's."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
        self._process.wait()

    def _answer(self, request: Request) -> bytes:
        limits = self._limits
        seconds = limits.wall_seconds
        if request.budget_seconds is not None:
            seconds = min(seconds, _WALL_PER_CPU * request.budget_seconds)
        try:
            messages = self._exchange.send_and_receive(
                msgspec.msgpack.encode(request),
                seconds=seconds,
                bytes_max=limits.text_bytes + ANSWER_BYTES_BESIDE_TEXT,
                messages=1 if self._layers is not None else 2,
            )
        except EOFError as error:
            raise self._death(request) from error
        except DeadlineExceeded as error:
            if seconds < limits.wall_seconds:
                raise _over_budget(request) from error
            raise AtCapacity(
                f"a {request.format} document took too long to parse",
                f"more than {limits.wall_seconds:g} s",
                "raise wall_seconds if it really is that large",
            ) from error
        if self._layers is None:
            self._layers = hello_in(messages.pop(0)).layers
        return messages[0]

    def _death(self, request: Request) -> AtCapacity | InvalidInput:
        """What the way a parser ended says about its document."""
        # One that only closed its pipe is ended; the code of one that was ending already stays what it is.
        self.stop()
        code = self._process.returncode
        if request.finds_definitions:
            return UnstructuredCode(
                "the definitions in a piece of code cannot be found", f"its parser ended with {code}"
            )
        if code == -signal.SIGXCPU and request.budget_seconds is not None:
            return _over_budget(request)
        if code == -signal.SIGXCPU:
            return AtCapacity(
                f"a {request.format} document needs too much processor time",
                f"more than {self._limits.cpu_seconds} s",
                "raise cpu_seconds if it really is that large",
            )
        if code in (-signal.SIGKILL, -signal.SIGABRT):
            return AtCapacity(f"a {request.format} document needs too much memory", f"its parser ended with {code}")
        return InvalidInput(f"a {request.format} document crashed its parser", f"the process ended with code {code}")


def resident_bytes(pid: int) -> int | None:
    """The memory that a process holds; None where the machine does not tell. What it says itself is not to be trusted."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _over_budget(request: Request) -> OverBudget:
    return OverBudget(
        f"a {request.format} document needs more processor time than others wait for",
        f"more than {request.budget_seconds} s",
        "it is parsed apart",
    )


def _import_path() -> list[str]:
    """Where this process finds its modules, without the current directory: it may hold anybody's files."""
    source = str(Path(__file__).parents[4])
    return [source, *(entry for entry in dict.fromkeys(sys.path) if Path(entry).is_absolute() and entry != source)]
