"""A Spark session for a command: started with its class archive, quiet, and ended in good order.

What Spark's processes print goes to a log in the store if that is a directory, else to a temporary one. The temporary
log is removed at the end, unless an error has named it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final

from penstock.cli.running.starting import started
from penstock.cli.running.stop import Stop, close_quietly
from penstock.cli.running.warm_start import (
    RECORD,
    SWITCH,
    WarmStart,
    archive_folder,
    has_fixed_folder,
    java_shim_directory,
)
from penstock.cli.terminal.extras import require_spark
from penstock.errors import Closed, Unavailable
from penstock.objects import parse_url

__all__ = ["SparkRun", "log_of", "opened_session"]

_QUIET: Final = {"spark.log.level": "OFF"}
_STDERR: Final = 2
# Hidden, so that indexing the folder that it lies in does not list it.
_OWN_FOLDER: Final = ".penstock-"


class SparkRun:
    """A session that runs, and the log of its processes."""

    def __init__(self, session: Any, log: Path) -> None:
        self.session = session
        self._log = log
        self._lock = threading.Lock()
        self._redirected = ExitStack()
        self._is_quiet = False

    def hush(self) -> None:
        """Send what processes print from here to the end to the log: they may die of the signal that ends the command.

        May be called from the thread that hears the signal.
        """
        with self._lock:
            if not self._is_quiet:
                self._is_quiet = True
                self._redirected.enter_context(_errors_into(self._log))

    def close(self) -> None:
        """Print errors to the terminal again. A signal that arrives later changes nothing."""
        with self._lock:
            self._is_quiet = True
            self._redirected.close()


@contextmanager
def opened_session(master: str, url: str, stop: Stop) -> Iterator[SparkRun]:
    """A session on `master`. `Closed` if `stop` is requested before it has started."""
    require_spark()
    from penstock.pipelines import end_java

    warm, log = _warm_start(master), log_of(url)
    run = SparkRun(_started(master, warm, log, stop), log)
    stop.listen()
    try:
        yield run
    finally:
        run.hush()
        try:
            close_quietly(run.session.stop, stop)
            if stop.requested or sys.exception():
                warm.abandon()
            else:
                warm.finish(lambda seconds: end_java(seconds, lambda: stop.requested))
        finally:
            run.close()
    if log.parent.name.startswith(_OWN_FOLDER):
        rmtree(log.parent, ignore_errors=True)


def _started(master: str, warm: WarmStart, log: Path, stop: Stop) -> Any:
    from penstock.pipelines import abandon_session, open_session

    def start() -> Any:
        return warm.open(
            lambda options: open_session(master, settings=_QUIET, java_options=options), lambda: stop.requested
        )

    try:
        with _errors_into(log):
            return started(start, stop, abandon_session)
    except Closed:
        warm.abandon()
        raise
    except Exception as error:
        warm.abandon()
        why = str(error).strip().splitlines()
        raise Unavailable(
            f"Spark does not start on {master}",
            why[0] if why else type(error).__name__,
            f"read {log}, or run `penstock doctor`",
        ) from error


def _warm_start(master: str) -> WarmStart:
    from penstock.pipelines import class_archive, prepare_environment

    java = prepare_environment(os.environ, java_shim_directory())
    folder = archive_folder(os.environ)
    archive = class_archive(java, folder, master) if folder else None
    return WarmStart(archive, record=os.environ.get(SWITCH) == RECORD, train=not has_fixed_folder(os.environ))


@contextmanager
def _errors_into(log: Path) -> Iterator[None]:
    """Processes started meanwhile print their errors to `log`: Spark's own messages are not for a terminal."""
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
    """A new file for what Spark's processes print: in the store if that is a directory, else in a temporary folder."""
    place = parse_url(url)
    if place.scheme != "file":
        return Path(mkdtemp(prefix=_OWN_FOLDER)) / "spark.log"
    log = Path(place.place) / "checkpoint.log"
    log.unlink(missing_ok=True)
    return log
