"""Parsing in a process of its own, with limits on memory, processor time, time on the clock and depth.

A document that is too much for its parser costs one process and gets a clear outcome: `AtCapacity` for a limit,
`InvalidInput` for a document that is broken, `Unsupported` for one there is no way to read. The next document gets a
fresh process. Plain text is not parsed, and needs none. Loading a parser takes longer than most documents: whoever
parses a few now and a few later takes a `lasting_sandbox`.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Final

import msgspec

from penstock import errors
from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits, check_size, sniff
from penstock.documents.parsers.text import parse_text
from penstock.documents.parsers.worker import Answer, Request
from penstock.errors import AtCapacity, InvalidInput

__all__ = ["Sandbox", "lasting_sandbox"]

# Parsers leak; a process is cheap beside the documents it parsed.
_DOCUMENTS_PER_PROCESS: Final = 200


class Sandbox:
    """Parses one document at a time. Not for several threads at once; close it, or use it as a context manager."""

    def __init__(self, limits: ParserLimits | None = None) -> None:
        self.limits = limits or ParserLimits()
        self._process: _Process | None = None

    def parse(self, data: bytes, *, name: str = "", content_type: str | None = None) -> ParsedDocument:
        """The text of a document, whatever its format; `name` and `content_type` are hints."""
        check_size(f"document {name[:120]!r}", len(data), self.limits.document_bytes)
        found = sniff(data, name=name, content_type=content_type)
        if found is Format.TEXT:
            return parse_text(data)
        process = self._running()
        try:
            return process.parse(Request(found, self.limits, data))
        finally:
            if not process.usable:
                self.close()

    @property
    def broken(self) -> bool:
        """Whether its process ended of itself since its last document."""
        return self._process is not None and self._process.ended

    def close(self) -> None:
        if self._process:
            self._process.stop()
            self._process = None

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _running(self) -> _Process:
        if self._process is None:
            self._process = _Process()
        return self._process


@contextmanager
def lasting_sandbox(limits: ParserLimits) -> Iterator[Sandbox]:
    """A sandbox whose process stays when it is given back, for the next who takes one here with the same limits.

    One is kept, until this process ends: its parser sees its pipe closed then, and ends too.
    """
    sandbox = _kept_for(limits) or Sandbox(limits)
    try:
        yield sandbox
    except BaseException:
        sandbox.close()
        raise
    _release()
    _kept.append((os.getpid(), sandbox))


# At most one, and whose: a forked process must not talk to its parent's parser.
_kept: Final[list[tuple[int, Sandbox]]] = []


def _kept_for(limits: ParserLimits) -> Sandbox | None:
    try:
        # Taken out in one step: two threads never get the same one.
        owner, sandbox = _kept.pop()
    except IndexError:
        return None
    if owner == os.getpid() and sandbox.limits == limits and not sandbox.broken:
        return sandbox
    _kept.append((owner, sandbox))
    return None


def _release() -> None:
    """End the one that is kept."""
    while _kept:
        owner, sandbox = _kept.pop()
        if owner == os.getpid():
            sandbox.close()


atexit.register(_release)


class _Process:
    """One worker and its two pipes."""

    def __init__(self) -> None:
        request_read, request_write = os.pipe()
        answer_read, answer_write = os.pipe()
        command = [sys.executable, "-m", "penstock.documents.parsers.worker", str(request_read), str(answer_write)]
        self._process = subprocess.Popen(
            command, pass_fds=(request_read, answer_write), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(request_read)
        os.close(answer_write)
        self._requests = Connection(request_write, readable=False, writable=True)
        self._answers = Connection(answer_read, readable=True, writable=False)
        self._parsed = 0
        self.usable = True

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def parse(self, request: Request) -> ParsedDocument:
        # Until its answer is here the process is not to be trusted with another document.
        self.usable = False
        try:
            self._requests.send_bytes(msgspec.msgpack.encode(request))
            if not self._answers.poll(request.limits.wall_seconds):
                raise AtCapacity(
                    f"a {request.format} document took too long to parse",
                    f"more than {request.limits.wall_seconds:g} s",
                    "raise wall_seconds if it is meant to be so large",
                )
            answer = msgspec.msgpack.decode(self._answers.recv_bytes(), type=Answer)
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise self._death(request) from error
        self._parsed += 1
        self.usable = self._parsed < _DOCUMENTS_PER_PROCESS
        if answer.document is None:
            kind: Any = getattr(errors, answer.error)
            raise kind(*answer.parts)
        return answer.document

    def stop(self) -> None:
        self._requests.close()
        self._answers.close()
        self._process.kill()
        self._process.wait()

    def _death(self, request: Request) -> AtCapacity | InvalidInput:
        """What the way a parser ended says about its document."""
        code = self._process.wait()
        if code == -signal.SIGXCPU:
            return AtCapacity(
                f"a {request.format} document needs too much processor time",
                f"more than {request.limits.cpu_seconds} s",
                "raise cpu_seconds if it is meant to be so large",
            )
        if code in (-signal.SIGKILL, -signal.SIGABRT):
            return AtCapacity(f"a {request.format} document needs too much memory", f"its parser ended with {code}")
        return InvalidInput(f"a {request.format} document broke its parser", f"the process ended with code {code}")
