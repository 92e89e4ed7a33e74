"""Runs the indexing job for a command: a Spark session around it, and an end in good order on Ctrl-C and SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import FrameType, TracebackType
from typing import Any, Final, Self

from penstock.cli.running.starting import started
from penstock.cli.running.warm_start import (
    RECORD,
    SWITCH,
    WarmStart,
    archive_folder,
    has_fixed_folder,
    java_shim_directory,
)
from penstock.cli.settings.wiring import UNWIRED, Wiring
from penstock.cli.terminal.extras import require_spark
from penstock.cli.terminal.progress import ProgressView
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents import ChunkingConfig
from penstock.errors import Closed, Unavailable
from penstock.indexing import Embedding, IndexingConfig, IndexingJob, Reading
from penstock.objects import parse_url

__all__ = [
    "ENDING",
    "OWN_FOLDER",
    "QUIET",
    "JobPlan",
    "StageEngine",
    "Stop",
    "close_quietly",
    "errors_into",
    "log_of",
    "opened_job",
    "warm_start",
]

# The answer to the first signal, for a person.
ENDING: Final = "ending: what is under way is finished or left to the next run; ask again to end at once"
QUIET: Final = {"spark.log.level": "OFF"}
_STDERR: Final = 2
# Hidden: whoever indexes the folder that it lies in does not list it.
OWN_FOLDER: Final = ".penstock-"
_SHOW_CURSOR: Final = "\x1b[?25h"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# Supervisors signal a process and then its group, which it is of: that is one request.
_SAME_REQUEST_SECONDS: Final = 1.0
# A terminal takes a line at once; one that is held up (Ctrl-S) does not hold up the end.
_ANSWER_SECONDS_MAX: Final = 1.0


class StageEngine(StrEnum):
    """What runs the heavy stages of a job."""

    SPARK = "spark"
    LOCAL = "local"


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
    engine: StageEngine = StageEngine.SPARK
    wiring: Wiring = UNWIRED

    @property
    def config(self) -> IndexingConfig:
        return self.wiring.job(
            self.url,
            embedding=self.embedding,
            reading=self.reading,
            chunking=self.chunking,
            chunking_by_index=self.chunking_by_index,
        )


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
        self._answered = threading.Event()
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

    def await_answer(self) -> None:
        """Let the answer to a request be printed before what follows from it."""
        if self.requested:
            self._answered.wait(_ANSWER_SECONDS_MAX)

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
        self._answered.set()
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
    """A job on an engine of its own, which `stop` ends; `Closed` when it does so before there is one."""
    with _local(plan, view, stop) if plan.engine is StageEngine.LOCAL else _on_spark(plan, view, stop) as job:
        view.working()
        try:
            yield job
        finally:
            close_quietly(job.close, stop)
            stop.calls(lambda: None)


@contextmanager
def _local(plan: JobPlan, view: ProgressView, stop: Stop) -> Iterator[IndexingJob]:
    from penstock.indexing import LocalIndexingJob

    job = LocalIndexingJob(plan.config, progress=view.show, observer=plan.wiring.observer)
    stop.calls(job.interrupt)
    yield job


@contextmanager
def _on_spark(plan: JobPlan, view: ProgressView, stop: Stop) -> Iterator[IndexingJob]:
    require_spark()
    from penstock.pipelines import SparkIndexingJob, abandon_session, end_java, open_session

    warm = warm_start(plan.master)

    def start() -> Any:
        return warm.open(
            lambda options: open_session(plan.master, settings=QUIET, java_options=options), lambda: stop.requested
        )

    log = log_of(plan.url)
    try:
        with errors_into(log):
            spark = started(start, stop, abandon_session)
    except Closed:
        warm.abandon()
        raise
    except Exception as error:
        warm.abandon()
        why = str(error).strip().splitlines()
        raise Unavailable(
            f"Spark does not start on {plan.master}",
            why[0] if why else type(error).__name__,
            f"read {log}, or run `penstock doctor`",
        ) from error
    stop.listen()
    with ExitStack() as quiet:
        try:
            job = SparkIndexingJob(spark, plan.config, progress=view.show, observer=plan.wiring.observer)
            stop.calls(lambda: _interrupt(job, log, quiet))
            yield job
        finally:
            close_quietly(spark.stop, stop)
            if stop.requested or sys.exception():
                warm.abandon()
        if not stop.requested:
            quiet.enter_context(errors_into(log))
            warm.finish(lambda seconds: end_java(seconds, lambda: stop.requested))
    if log.parent.name.startswith(OWN_FOLDER):
        # Kept where an error has named it.
        rmtree(log.parent, ignore_errors=True)


def warm_start(master: str) -> WarmStart:
    from penstock.pipelines import class_archive, prepare_environment

    java = prepare_environment(os.environ, java_shim_directory())
    folder = archive_folder(os.environ)
    archive = class_archive(java, folder, master) if folder else None
    return WarmStart(archive, record=os.environ.get(SWITCH) == RECORD, train=not has_fixed_folder(os.environ))


def _interrupt(job: IndexingJob, log: Path, quiet: ExitStack) -> None:
    """From here to the end Spark's processes may die of the same signal: what they say to that is for the log."""
    quiet.enter_context(errors_into(log))
    job.interrupt()


def close_quietly(close: Callable[[], None], stop: Stop) -> None:
    """What was asked to end may be gone already; what is durable is so without it."""
    try:
        close()
    except Exception:
        if not stop.requested:
            raise


@contextmanager
def errors_into(log: Path) -> Iterator[None]:
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
        return Path(mkdtemp(prefix=OWN_FOLDER)) / "spark.log"
    log = Path(place.place) / "checkpoint.log"
    log.unlink(missing_ok=True)
    return log
