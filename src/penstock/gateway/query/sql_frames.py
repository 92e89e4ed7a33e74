"""What the gateway and its SQL processes say to each other over pipes: a question, and the rows or the error of it; and
what a process asks of the catalog meanwhile.

A frame is two lengths (u32, big endian), a header in MessagePack, and a body. The body of an answer is an Arrow IPC
stream, that of a loan bytes of a file or the files of a plan; everything else has none. Lengths are checked before anything is read, and an error is one of the house's own.
"""

from __future__ import annotations

import struct
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa

from penstock import errors
from penstock.errors import Corrupt, PenstockError
from penstock.lake import SqlAnswer
from penstock.undecodable import UNDECODABLE

__all__ = [
    "LENGTHS",
    "LoanAnswer",
    "LoanRequest",
    "SqlQuestion",
    "SqlReply",
    "checked_lengths",
    "encode_frame",
    "error_of",
    "named_error",
    "read_answer",
    "read_header",
    "reply",
]

T = TypeVar("T")

LENGTHS: Final = struct.Struct(">II")
_HEADER_BYTES_MAX: Final = 16 << 20
_BODY_BYTES_MAX: Final = (1 << 32) - 1


class SqlQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One query of one tenant, with its bounds."""

    sql: str
    tenant: str
    as_of: int | dict[str, int] | None = None
    rows_max: int | None = None
    seconds_max: float


class SqlReply(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a question. `error` is the name of a class of `penstock.errors`; empty when it was answered."""

    error: str = ""
    what: str = ""
    why: str = ""
    remedy: str = ""
    is_cut: bool = False
    position: dict[str, int] = {}
    files: int = 0
    plan_seconds: float = 0.0
    seconds: float = 0.0
    # Of the first reply: what confines the process, and why a part of that is missing.
    layers: list[tuple[str, str]] = []


class LoanRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a process asks of the catalog while it answers a question: `hold`, `plan`, `read`, `pin` or `unpin`."""

    number: int
    verb: str
    # Of a state to hold; None is the present.
    as_of: int | dict[str, int] | None = None
    # Times of a plan, or bytes of an object.
    start: int | None = None
    end: int | None = None
    table: str = ""
    # Of an object to read, or a pin to end.
    key: str = ""
    seconds: float = 0.0


class LoanAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it."""

    number: int
    error: str = ""
    what: str = ""
    why: str = ""
    remedy: str = ""
    position: dict[str, int] = {}
    text: str = ""


def named_error(error: PenstockError) -> dict[str, Any]:
    """An error as it travels: by the nearest class of `penstock.errors`."""
    kind = next(one.__name__ for one in type(error).__mro__ if getattr(errors, one.__name__, None) is one)
    return {"error": kind, "what": error.what, "why": error.why, "remedy": error.remedy}


def error_of(name: str, what: str, why: str, remedy: str) -> PenstockError:
    """The error that travelled."""
    kind = getattr(errors, name, PenstockError)
    known = isinstance(kind, type) and issubclass(kind, PenstockError)
    return (kind if known else PenstockError)(what, why, remedy)


def encode_frame(header: msgspec.Struct, body: bytes | pa.Buffer = b"") -> list[bytes | pa.Buffer]:
    """The parts of a frame, in their order."""
    head = msgspec.msgpack.encode(header)
    size = len(body) if isinstance(body, bytes) else body.size
    return [LENGTHS.pack(len(head), size), head, body]


def checked_lengths(data: bytes, body_bytes_max: int = _BODY_BYTES_MAX) -> tuple[int, int]:
    """The lengths of header and body."""
    head, body = LENGTHS.unpack(data)
    if head > _HEADER_BYTES_MAX or body > body_bytes_max:
        raise Corrupt("a frame of a SQL process is too large", f"it announces {head:,} and {body:,} bytes")
    return head, body


def read_header(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except UNDECODABLE as error:
        raise Corrupt("a frame of a SQL process cannot be read", str(error)) from error


def reply(outcome: SqlAnswer | PenstockError) -> list[bytes | pa.Buffer]:
    """An answer or an error as a frame."""
    if isinstance(outcome, PenstockError):
        return encode_frame(SqlReply(**named_error(outcome)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, outcome.table.schema) as writer:
        writer.write_table(outcome.table)
    header = SqlReply(
        is_cut=outcome.is_cut,
        position=outcome.position,
        files=outcome.files,
        plan_seconds=outcome.plan_seconds,
        seconds=outcome.seconds,
    )
    return encode_frame(header, sink.getvalue())


def read_answer(header: SqlReply, body: bytes) -> SqlAnswer:
    """The answer of a reply; its error is raised."""
    if header.error:
        raise error_of(header.error, header.what, header.why, header.remedy)
    return SqlAnswer(
        table=pa.ipc.open_stream(pa.py_buffer(body)).read_all(),
        is_cut=header.is_cut,
        position=header.position,
        files=header.files,
        plan_seconds=header.plan_seconds,
        seconds=header.seconds,
    )
