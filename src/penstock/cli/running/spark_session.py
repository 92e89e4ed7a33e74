"""A Spark session for a command: started with its class archive, quiet, and ended in good order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from shutil import rmtree
from typing import Any

from penstock.cli.running.job import OWN_FOLDER, QUIET, Stop, close_quietly, errors_into, log_of, warm_start
from penstock.cli.running.starting import started
from penstock.cli.terminal.extras import require_spark
from penstock.errors import Closed, Unavailable

__all__ = ["opened_session"]


@contextmanager
def opened_session(master: str, url: str, stop: Stop) -> Iterator[Any]:
    """A session on `master`; what Spark's processes print goes to a log in the store, or to one of its own."""
    require_spark()
    from penstock.pipelines import abandon_session, end_java, open_session

    warm, log = warm_start(master), log_of(url)

    def start() -> Any:
        return warm.open(
            lambda options: open_session(master, settings=QUIET, java_options=options), lambda: stop.requested
        )

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
            f"Spark does not start on {master}",
            why[0] if why else type(error).__name__,
            f"read {log}, or run `penstock doctor`",
        ) from error
    stop.listen()
    try:
        yield spark
    finally:
        with errors_into(log):
            close_quietly(spark.stop, stop)
            if stop.requested:
                warm.abandon()
            else:
                warm.finish(lambda seconds: end_java(seconds, lambda: stop.requested))
    if log.parent.name.startswith(OWN_FOLDER):
        rmtree(log.parent, ignore_errors=True)
