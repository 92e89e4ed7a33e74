"""Reading in a process of its own: fetching, waiting for parsers and cutting texts take no time of the interpreter that writes.

It runs what a thread of the job would run, and is trusted like one: documents are parsed in confined processes, as they
are everywhere, and these are its own. It ends with the job, however that ends, and when nobody asks it for a while. One
that has ended is replaced and asked again: what is read once more is read alike.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from penstock.errors import PenstockError, Unavailable
from penstock.indexing.stages.reading import Reading, read_documents
from penstock.indexing.stages.readings import Piece, ReadRequest
from penstock.indexing.stages.wire import decode_requests, encode_requests, pack_pieces, pieces_of
from penstock.observability import SILENT, Observer, Tally, recount

__all__ = ["ReadingProcess", "main"]

# Without a request for so long, the process ends: a job that follows waits for hours.
_IDLE_SECONDS: Final = 30.0
# How often a request is sent: the first process may have ended while nobody looked.
_TRIES_MAX: Final = 2
# Told what to import from where; the current directory may hold anybody's files.
_BOOT: Final = """
import sys
sys.path[:] = sys.argv[2:]
from penstock.indexing.stages.reading_process import main
main(int(sys.argv[1]))
"""


class _Start(msgspec.Struct, frozen=True):
    """What a process is started with, over its pipe: settings hold keys, which no command line may show."""

    reading: Reading
    observed: bool


class _Done(msgspec.Struct, frozen=True):
    """The end of an answer: what was counted, and what was raised."""

    figures: bytes | None = None
    error: PenstockError | RuntimeError | None = None


class ReadingProcess:
    """One process, started when it is first asked. One call at a time; `stop` from any thread."""

    def __init__(self, reading: Reading, *, observer: Observer = SILENT) -> None:
        self._start = _Start(reading, observer is not SILENT)
        self._observer = observer
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None

    @property
    def pid(self) -> int | None:
        """The process that runs, if one does."""
        running = self._running
        return running[0].pid if running is not None and running[0].poll() is None else None

    def read(self, asked: Sequence[ReadRequest], check: Callable[[], None]) -> list[Piece]:
        """What is read of each request. `check` raises when the call was given up; a process that ends is replaced."""
        request = encode_requests(list(enumerate(asked)))
        for _ in range(_TRIES_MAX):
            check()
            try:
                return list(self._answer(request, check))
            except (EOFError, OSError):
                self.stop()
        check()
        raise Unavailable("documents could not be read beside the job", "the process that reads them ended twice")

    def stop(self) -> None:
        """End the process; whoever waits for its answer is told."""
        running, self._running = self._running, None
        if running is not None:
            # The pipe is closed by whoever drops it last, and so never while it is read from.
            process, _ = running
            process.kill()
            process.wait()

    def _answer(self, request: pa.RecordBatch, check: Callable[[], None]) -> Iterator[Piece]:
        connection = self._connected()
        connection.send(request)
        pieces: list[Piece] = []
        while not isinstance(message := connection.recv(), _Done):
            check()
            pieces += pieces_of(pa.Table.from_batches([message]))
        if message.figures is not None:
            recount(message.figures, self._observer)
        if message.error is not None:
            raise message.error
        yield from pieces

    def _connected(self) -> Connection:
        if self._running is not None and self.pid is not None:
            return self._running[1]
        self.stop()
        start = _pickled(self._start)
        ours, theirs = Pipe()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOT, str(theirs.fileno()), *_import_path()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # A key that stops the job is for the job, which ends this in good order.
                start_new_session=True,
            )
        self._running = process, ours
        ours.send_bytes(start)
        return ours


def _pickled(start: _Start) -> bytes:
    try:
        return pickle.dumps(start)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise Unavailable("documents cannot be read beside the job", f"its settings do not pickle: {error}") from error


def main(descriptor: int) -> None:
    """The process itself."""
    connection = Connection(descriptor)
    start: _Start = connection.recv()
    tally = Tally() if start.observed else None
    requests: queue.SimpleQueue[pa.RecordBatch] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, requests), daemon=True).start()
    with suppress(queue.Empty):
        while True:
            _serve(connection, requests.get(timeout=_IDLE_SECONDS), start.reading, tally)


def _receive(connection: Connection, requests: queue.SimpleQueue[pa.RecordBatch]) -> None:
    """Take requests, also while one is answered: so that the end of the job is met at once, and ends this."""
    try:
        while True:
            requests.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)


def _serve(connection: Connection, request: pa.RecordBatch, reading: Reading, tally: Tally | None) -> None:
    error: PenstockError | RuntimeError | None = None
    try:
        asked = decode_requests(request, ReadRequest)
        for batch in pack_pieces(read_documents(reading, asked, observer=tally or SILENT)):
            connection.send(batch)
    except PenstockError as raised:
        error = raised
    except Exception as raised:  # noqa: BLE001 - whoever asked is told, whatever it was
        error = RuntimeError(f"{type(raised).__name__}: {raised}")
    connection.send(_Done(tally.taken() if tally else None, error))


def _import_path() -> list[str]:
    source = str(Path(__file__).parents[3])
    return [source, *(entry for entry in dict.fromkeys(sys.path) if Path(entry).is_absolute() and entry != source)]
