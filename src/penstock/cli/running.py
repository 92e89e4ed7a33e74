"""Runs the indexing job for a command: a Spark session around it, and an end in good order on Ctrl-C and SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from penstock.cli.doctor import java_shim_directory
from penstock.cli.progress import ProgressView
from penstock.cli.starting import started
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents import ChunkingConfig
from penstock.errors import Closed, Unavailable
from penstock.objects.url import parse_url
from penstock.pipelines.embedding import Embedding
from penstock.pipelines.reading import Reading

if TYPE_CHECKING:
    from penstock.pipelines.indexing import IndexingJob

__all__ = ["ENDING", "JobPlan", "Stop", "log_of", "opened_job"]

# The answer to the first signal, for a person.
ENDING: Final = "ending: what is under way is finished or left to the next run; ask again to end at once"
_QUIET: Final = {"spark.log.level": "OFF"}
_STDERR: Final = 2
# Hidden: whoever indexes the folder that it lies in does not list it.
_OWN_FOLDER: Final = ".penstock-"
_SHOW_CURSOR: Final = "\x1b[?25h"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# Supervisors signal a process and then its group, which it is of: that is one request.
_SAME_REQUEST_SECONDS: Final = 1.0


@dataclass(frozen=True)
class JobPlan:
    """What a job is started with."""

    url: str
    master: str = "local[*]"
    embedding: Embedding = field(default_factory=Embedding)
    reading: Reading = field(default_factory=Reading)
    # Of the index that the command is about, if that is still to be made, by tenant and index.
    chunking_by_index: Mapping[tuple[str, str], ChunkingConfig] = field(default_factory=dict)
    chunking: ChunkingConfig = field(default_factory=ChunkingConfig)


class Stop:
    """Whether somebody wants the command to end. The first signal ends it in good order, a second one at once.

    `answer` is called at the first one, before anything is ended: whoever asks sees that it was heard.
    """

    def __init__(self, answer: Callable[[], None] = lambda: None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.signal: int | None = None
        self._answer = answer
        self._clock = clock
        self._asked_at = 0.0
        self._end: Callable[[], None] = lambda: None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def requested(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """Of a command that was not done yet, as shells count it."""
        return 0 if self.signal is None else 128 + self.signal

    def listen(self) -> None:
        """Also after whatever puts in handlers of its own."""
        for number in _SIGNALS:
            signal.signal(number, self._handle)

    def calls(self, end: Callable[[], None]) -> None:
        """What ends the work; called at once if somebody has asked before."""
        self._end = end
        if self.requested:
            end()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        now = self._clock.monotonic()
        if self.requested:
            if now - self._asked_at >= _SAME_REQUEST_SECONDS:
                self._leave(number)
            return
        self.signal, self._asked_at = number, now
        # A thread of its own: the main one may be in the middle of a call to Spark.
        threading.Thread(target=self._ended, name="penstock-stop", daemon=True).start()

    def _ended(self) -> None:
        # Whoever reads may be gone: it ends all the same.
        with suppress(Exception):
            self._answer()
        # Spark may have got the same signal, and no longer answer: then there is nothing left to end.
        with suppress(Exception):
            self._end()

    @staticmethod
    def _leave(number: int) -> None:
        """At once: unwinding would wait for Spark, and print at length that it did not answer."""
        with suppress(Exception):
            # A bar may have hidden the cursor.
            sys.stdout.write(_SHOW_CURSOR if sys.stdout.isatty() else "")
            sys.stdout.flush()
        os._exit(128 + number)


@contextmanager
def opened_job(plan: JobPlan, view: ProgressView, stop: Stop) -> Iterator[IndexingJob]:
    """A job on a session of its own, which `stop` ends; `Closed` when it does so before there is one."""
    from penstock.pipelines.indexing import IndexingConfig, IndexingJob
    from penstock.pipelines.session import abandon_session, open_session, prepare_environment

    prepare_environment(os.environ, java_shim_directory())
    log = log_of(plan.url)
    try:
        with _errors_into(log):
            spark = started(lambda: open_session(plan.master, settings=_QUIET), stop, abandon_session)
    except Closed:
        raise
    except Exception as error:
        why = str(error).strip().splitlines()
        raise Unavailable(
            f"Spark does not start on {plan.master}",
            why[0] if why else type(error).__name__,
            f"read {log}, or run `penstock doctor`",
        ) from error
    stop.listen()
    with ExitStack() as quiet:
        try:
            config = IndexingConfig(
                plan.url,
                embedding=plan.embedding,
                reading=plan.reading,
                chunking=plan.chunking,
                chunking_by_index=plan.chunking_by_index,
            )
            job = IndexingJob(spark, config, progress=view.show)
            stop.calls(lambda: _interrupt(job, log, quiet))
            view.working()
            try:
                yield job
            finally:
                _close(job.close, stop)
        finally:
            stop.calls(lambda: None)
            _close(spark.stop, stop)
    if log.parent.name.startswith(_OWN_FOLDER):
        # Kept where an error has named it.
        rmtree(log.parent, ignore_errors=True)


def _interrupt(job: IndexingJob, log: Path, quiet: ExitStack) -> None:
    """From here to the end Spark's processes may die of the same signal: what they say to that is for the log."""
    quiet.enter_context(_errors_into(log))
    job.interrupt()


def _close(close: Callable[[], None], stop: Stop) -> None:
    """What was asked to end may be gone already; what is durable is so without it."""
    try:
        close()
    except Exception:
        if not stop.requested:
            raise


@contextmanager
def _errors_into(log: Path) -> Iterator[None]:
    """Processes that are started meanwhile print their errors there: Spark's own words are not for a terminal."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    log.touch(mode=0o600)
    sys.stderr.flush()
    saved = os.dup(_STDERR)
    with log.open("ab") as opened:
        os.dup2(opened.fileno(), _STDERR)
    try:
        yield
    finally:
        os.dup2(saved, _STDERR)
        os.close(saved)


def log_of(url: str) -> Path:
    """A new file for what Spark's processes print: in the store when that is a directory, else in one of its own."""
    place = parse_url(url)
    if place.scheme != "file":
        return Path(mkdtemp(prefix=_OWN_FOLDER)) / "spark.log"
    log = Path(place.place) / "checkpoint.log"
    log.unlink(missing_ok=True)
    return log
