"""Keeps processes running: one that ends is started again, later each time it fails, and its state can be looked at.

Each child is asked to end with SIGTERM, and killed when it takes too long. It ends with its parent, however that ends
(`end_with_parent`), so that a supervisor that was killed leaves nobody behind.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.observability import SILENT, Observer, names

__all__ = ["SUPERVISED", "ChildProcess", "ChildSpec", "ChildStatus", "Supervisor", "end_with_parent", "restart_delay"]

# Set for children, which then end with their parent.
SUPERVISED: Final = "PENSTOCK_SUPERVISED"
_DELAY_SECONDS_MIN: Final = 1.0
_DELAY_SECONDS_MAX: Final = 60.0
# A child that ran this long was well: its next failure counts as the first.
_WELL_SECONDS: Final = 60.0
_END_SECONDS_MAX: Final = 30.0
_LINES_KEPT: Final = 20
_LINE_BYTES_MAX: Final = 64 * 1024
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A process to keep running: its name for people, and its command line."""

    name: str
    command: tuple[str, ...]
    # Variables of the environment besides ours.
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ChildStatus:
    """What is known of a child now. `last_lines` are those that it wrote last."""

    name: str
    # `starting`, `running`, `waiting` until it is started again, or `ended`.
    state: str = "starting"
    pid: int | None = None
    restarts: int = 0
    # Ends in a row, each of them soon after its start.
    failures: int = 0
    since_ms: int = 0
    last_exit: int | None = None
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES_KEPT))

    @property
    def last_error(self) -> str:
        """The line that tells why it ended: remedies and tracebacks are indented below theirs."""
        return next((line for line in reversed(self.last_lines) if line and not line[0].isspace()), "")

    def is_failing(self, now_ms: int) -> bool:
        """Whether it ended and has not run for long since: one that dies at once for ever runs most of the time."""
        is_well = self.state == "running" and now_ms - self.since_ms >= _WELL_SECONDS * 1000
        return self.failures > 0 and not is_well

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger keeps the process from running. Where that cannot be known, it does not."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return self.pid is not None and stat.rpartition(")")[2].split()[0] in ("T", "t")


class ChildProcess(Protocol):
    """What is needed of `asyncio.subprocess.Process`."""

    @property
    def pid(self) -> int: ...

    @property
    def stderr(self) -> asyncio.StreamReader | None: ...

    async def wait(self) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


async def launched(spec: ChildSpec) -> ChildProcess:
    """A real process: output to ours, errors to us, no input."""
    return await asyncio.create_subprocess_exec(
        *spec.command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **spec.environment, SUPERVISED: "1"},
        limit=_LINE_BYTES_MAX,
        start_new_session=True,
    )


def restart_delay(failures: int) -> float:
    """Seconds until a child is started again that has failed this often in a row."""
    return min(_DELAY_SECONDS_MAX, _DELAY_SECONDS_MIN * 2.0 ** min(failures - 1, 10))


class Supervisor:
    """Runs until it is stopped. `statuses` may be read at any time."""

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        *,
        launch: Callable[[ChildSpec], object] = launched,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
        line_shown: Callable[[str, str], str | None] = lambda _name, text: text,
    ) -> None:
        self._specs, self._launch, self._clock, self._observer = list(specs), launch, clock, observer
        # What the terminal shows of a child's line, by its name; None for nothing.
        self._line_shown = line_shown
        self.statuses = [ChildStatus(spec.name) for spec in specs]
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Keep all children running until `stop`, then end them."""
        async with asyncio.TaskGroup() as group:
            for spec, status in zip(self._specs, self.statuses, strict=True):
                group.create_task(self._keep(spec, status))

    def stop(self) -> None:
        self._stopping.set()

    async def _keep(self, spec: ChildSpec, status: ChildStatus) -> None:
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            status.last_exit = await self._once(spec, status)
            if self._stopping.is_set():
                break
            status.failures = 1 if self._clock.monotonic() - began >= _WELL_SECONDS else status.failures + 1
            status.restarts += 1
            self._observer.count(names.SERVE_RESTARTS, job=spec.name)
            self._observer.event(names.SERVE_JOB_ENDED, job=spec.name, code=status.last_exit, line=status.last_error)
            self._enter(status, "waiting")
            await self._pause(restart_delay(status.failures))
        self._enter(status, "ended")

    async def _once(self, spec: ChildSpec, status: ChildStatus) -> int:
        """Start a child and wait for its end, which comes soon once we are stopping."""
        try:
            child: ChildProcess = await self._launch(spec)  # type: ignore[misc]
        except OSError as error:
            status.last_lines.append(f"it cannot be started: {error.strerror}")
            return -1
        self._enter(status, "running", child.pid)
        reading = asyncio.ensure_future(self._keep_lines(child.stderr, status))
        ended, stopping = asyncio.ensure_future(child.wait()), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                child.terminate()
                await asyncio.wait((ended,), timeout=_END_SECONDS_MAX)
            if not ended.done():
                child.kill()
            code = await ended
            await asyncio.wait((reading,), timeout=1.0)
            return code
        finally:
            for task in (stopping, reading, ended):
                task.cancel()
            if not ended.done():
                child.kill()

    async def _pause(self, seconds: float) -> None:
        sleeping = asyncio.ensure_future(self._clock.sleep(seconds))
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((sleeping, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in (sleeping, stopping):
            task.cancel()

    async def _keep_lines(self, stream: asyncio.StreamReader | None, status: ChildStatus) -> None:
        """Pass a child's lines on, and keep the last ones that the terminal shows."""
        while stream is not None:
            try:
                line = await stream.readline()
            except ValueError:
                # Longer than the limit: what is left of it comes as a line of its own.
                continue
            if not line:
                return
            text = self._line_shown(status.name, line.decode(errors="replace").rstrip())
            if text is not None:
                status.last_lines.append(text[:500])
                sys.stderr.write(f"[{status.name}] {text}\n")

    def _enter(self, status: ChildStatus, state: str, pid: int | None = None) -> None:
        status.state, status.pid, status.since_ms = state, pid, self._clock.now_ms()
        self._observer.gauge(names.SERVE_RUNNING, 1.0 if state == "running" else 0.0, job=status.name)


def end_with_parent(environment: dict[str, str] | os._Environ[str]) -> None:
    """Ask the kernel to end this process with its parent, if it is a supervisor's child. Linux only."""
    if environment.get(SUPERVISED) != "1" or sys.platform != "linux":
        return
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent or parent == 1:
        # It ended before we asked.
        os.kill(os.getpid(), signal.SIGTERM)
