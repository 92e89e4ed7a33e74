"""Both stages in this process, one document and one request after the other: nothing to start, and open to a debugger.

Parsers run in their own processes with limits, as they do elsewhere; requests to an endpoint go out side by side. What
comes of it is what the Spark engine makes of it, on one core.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from penstock.documents import BatchRequest
from penstock.errors import Unavailable
from penstock.indexing.stages.embedding import Embedding, embed_requests
from penstock.indexing.stages.port import EmbeddingReply, given_up
from penstock.indexing.stages.reading import Reading, read_documents
from penstock.indexing.stages.reading_process import ReadingProcess
from penstock.indexing.stages.readings import DocumentReading, Piece, ReadRequest, gathered
from penstock.observability import SILENT, Observer

__all__ = ["LocalStages", "LocalStagesBeside"]

# A process takes as long to start as this much takes to read.
_PROCESS_BYTES_MIN: Final = 2 << 20


class LocalStages:
    """The `Stages` in this process, on one core."""

    def __init__(self, reading: Reading, embedding: Embedding, *, observer: Observer = SILENT) -> None:
        self._reading, self._embedding = reading, embedding
        self._observer = observer
        self._call = _Call()

    @property
    def answers_beside(self) -> bool:
        # Parsers are processes of their own.
        return True

    def read(self, asked: Sequence[ReadRequest]) -> list[DocumentReading]:
        with self._call.entered():
            return gathered(self._pieces(asked), asked)

    def embed(
        self, requests: Mapping[int, BatchRequest], *, brisk: bool = False, trials: frozenset[str] = frozenset()
    ) -> EmbeddingReply:
        embedding = self._embedding.brisk(trials) if brisk else self._embedding
        with self._call.entered():
            return EmbeddingReply.of(asyncio.run(self._embedded(embedding, requests)))

    def cancel(self) -> None:
        self._call.cancel()

    def close(self) -> None:
        """Nothing is held that others do not share."""

    def _pieces(self, asked: Sequence[ReadRequest]) -> Iterator[Piece]:
        for piece in read_documents(self._reading, list(enumerate(asked)), observer=self._observer):
            self._call.check()
            yield piece

    async def _embedded(self, embedding: Embedding, requests: Mapping[int, BatchRequest]) -> pa.Table:
        with self._call.interruptible():
            return await embed_requests(embedding, 1, requests, observer=self._observer)


class LocalStagesBeside(LocalStages):
    """The same for what is read while a round is written: it is read in a process of its own, on another core."""

    def __init__(self, reading: Reading, embedding: Embedding, *, observer: Observer = SILENT) -> None:
        super().__init__(reading, embedding, observer=observer)
        self._process = ReadingProcess(reading, observer=observer)
        # Whether a process reads here at all.
        self._serves = _cores() > 1

    def read(self, asked: Sequence[ReadRequest]) -> list[DocumentReading]:
        if not self._is_worth_a_process(asked):
            return super().read(asked)
        try:
            with self._call.entered():
                return gathered(self._process.read(asked, self._call.check), asked)
        except Unavailable:
            # Settings that cannot be told to it, or a machine that ends it: the next try would fail alike.
            self._serves = False
        return super().read(asked)

    def cancel(self) -> None:
        super().cancel()
        if self._call.given_up:
            self._process.stop()

    def close(self) -> None:
        self._process.stop()

    def _is_worth_a_process(self, asked: Sequence[ReadRequest]) -> bool:
        started = self._process.pid is not None
        return self._serves and (started or sum(request.bytes_left for request in asked) >= _PROCESS_BYTES_MIN)


def _cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Call:
    """The call that is under way, which another thread may give up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entered = self._given_up = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[object] | None = None

    @property
    def given_up(self) -> bool:
        """Whether a call is under way that another thread has given up."""
        return self._given_up

    @contextmanager
    def entered(self) -> Iterator[None]:
        with self._lock:
            self._entered, self._given_up = True, False
        try:
            yield
        except asyncio.CancelledError:
            self.check()
            raise
        finally:
            with self._lock:
                self._entered = self._given_up = False

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """While the calling task waits for others: it is cancelled with the call."""
        with self._lock:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._loop = self._task = None

    def check(self) -> None:
        if self._given_up:
            raise given_up()

    def cancel(self) -> None:
        with self._lock:
            self._given_up = self._entered
            if self._loop is not None and self._task is not None:
                self._loop.call_soon_threadsafe(self._task.cancel)
