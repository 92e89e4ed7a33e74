"""The other side of a SQL process: reads questions from one pipe and writes answers to another, one at a time.

It bounds itself before the first question: no file of it grows, no core is written, and memory beyond what a query may
hold is refused by the kernel. Whatever a query does, it ends this process and nothing else.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import pyarrow as pa

from penstock.errors import AtCapacity, PenstockError
from penstock.gateway.query.sql_frames import (
    LENGTHS,
    SqlQuestion,
    SqlReply,
    checked_lengths,
    encode_frame,
    read_header,
    reply,
)
from penstock.lake import SqlAnswer, SqlConfig

__all__ = ["OVER_MEMORY", "SqlAnswering", "answer_questions", "bound_process"]

# The exit code of a process that ended itself because of what its query holds.
OVER_MEMORY: Final = 75

# Notes of pins are the largest that a query writes; nothing is spilled.
_FILE_BYTES_MAX: Final = 4 << 20
# For stacks of threads and what allocators keep, beside what the configuration allows a query.
_SLACK_BYTES: Final = 2 << 30


class SqlAnswering(Protocol):
    """What answers: an engine over one catalog."""

    async def query(
        self,
        sql: str,
        *,
        tenant: str | None = None,
        as_of: int | dict[str, int] | None = None,
        rows_max: int | None = None,
        seconds_max: float | None = None,
    ) -> SqlAnswer: ...


async def answer_questions(
    engine: SqlAnswering,
    questions: BinaryIO,
    answers: BinaryIO,
    layers: Sequence[tuple[str, str]] = (),
) -> None:
    """Answer questions until they end. A first reply without rows says that the process is ready and how it is confined."""
    _send(answers, encode_frame(SqlReply(layers=list(layers))))
    while (question := await asyncio.to_thread(_next_question, questions)) is not None:
        _send(answers, reply(await _outcome(engine, question)))


def _send(answers: BinaryIO, frame: Sequence[bytes | pa.Buffer]) -> None:
    for part in frame:
        answers.write(part)
    answers.flush()


async def _outcome(engine: SqlAnswering, asked: SqlQuestion) -> SqlAnswer | PenstockError:
    try:
        return await engine.query(
            asked.sql,
            tenant=asked.tenant,
            as_of=asked.as_of,
            rows_max=asked.rows_max,
            seconds_max=asked.seconds_max,
        )
    except PenstockError as error:
        return error
    except MemoryError:
        return AtCapacity(
            "the query needs too much memory", "its process has a bound", "narrow it, or raise memory_bytes"
        )


def _next_question(questions: BinaryIO) -> SqlQuestion | None:
    lengths = questions.read(LENGTHS.size)
    if len(lengths) < LENGTHS.size:
        return None
    head, body = checked_lengths(lengths, 0)
    data = questions.read(head)
    return read_header(data, SqlQuestion) if len(data) == head and not body else None


def bound_process(config: SqlConfig, sizes: BinaryIO | None = None) -> None:
    """Bound this process for the rest of its life, from what it holds now.

    `sizes` is `/proc/self/statm`, opened by a process that may no longer open it.
    """
    text = sizes.read() if sizes else Path("/proc/self/statm").read_bytes()
    held = int(text.split()[0]) * resource.getpagesize()
    # An answer is held twice: as rows, and as the bytes that are sent.
    _lower(resource.RLIMIT_AS, held + 3 * config.memory_bytes + _SLACK_BYTES)
    _lower(resource.RLIMIT_FSIZE, _FILE_BYTES_MAX)
    _lower(resource.RLIMIT_CORE, 0)


def _lower(limit: int, value: int) -> None:
    hard = resource.getrlimit(limit)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))
