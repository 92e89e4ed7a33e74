"""Payload envelopes: the first bytes of a batch's metadata, which say what its records are.

Every envelope opens with the byte 1, its version. Telemetry and Arrow have four bytes, vectors have three; what
follows belongs to the sender. Another version or an unknown code is refused, never guessed.
Format page: docs/format/buffer.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, TypeVar

from penstock.errors import InvalidInput, Unsupported

__all__ = ["ArrowEnvelope", "Signal", "TelemetryEnvelope", "VectorEnvelope", "VectorOperation"]

_Code = TypeVar("_Code", bound=IntEnum)

_VERSION: Final = 1
# The only encodings released so far: OTLP protobuf and Arrow streams for telemetry, the first layout of vectors.
_OTLP_PROTOBUF: Final = 1
_ARROW_STREAMS: Final = 2
# Rows of several signals, or of none: tables of any schema.
_NO_SIGNAL: Final = 0
_VECTOR_LAYOUT: Final = 1


class Signal(IntEnum):
    """The kind of telemetry that records carry."""

    METRICS = 1
    LOGS = 2
    TRACES = 3


class VectorOperation(IntEnum):
    """What a record does to the vector store."""

    UPSERT = 1
    DELETE = 2


@dataclass(frozen=True, slots=True)
class TelemetryEnvelope:
    """Records are OTLP protobuf requests of one signal."""

    signal: Signal

    def encode(self) -> bytes:
        return bytes((_VERSION, self.signal, _OTLP_PROTOBUF, 0))

    @classmethod
    def decode(cls, payload: bytes) -> TelemetryEnvelope:
        _check_opening(payload, size=4, kind="telemetry")
        _check_code(payload[2], _OTLP_PROTOBUF, "telemetry encoding")
        _check_code(payload[3], 0, "telemetry reserved byte")
        return cls(_member(Signal, payload[1], "telemetry signal"))


@dataclass(frozen=True, slots=True)
class ArrowEnvelope:
    """Records are Arrow IPC streams: rows of one signal, or of any table where there is none."""

    SIZE: ClassVar[int] = 4

    signal: Signal | None = None

    def encode(self) -> bytes:
        return bytes((_VERSION, _NO_SIGNAL if self.signal is None else self.signal, _ARROW_STREAMS, 0))

    @classmethod
    def decode(cls, payload: bytes) -> ArrowEnvelope:
        _check_opening(payload, size=cls.SIZE, kind="Arrow")
        _check_code(payload[2], _ARROW_STREAMS, "Arrow encoding")
        _check_code(payload[3], 0, "Arrow reserved byte")
        return cls(None if payload[1] == _NO_SIGNAL else _member(Signal, payload[1], "Arrow signal"))


@dataclass(frozen=True, slots=True)
class VectorEnvelope:
    """Records are vectors to upsert, or identities to delete."""

    operation: VectorOperation

    def encode(self) -> bytes:
        return bytes((_VERSION, self.operation, _VECTOR_LAYOUT))

    @classmethod
    def decode(cls, payload: bytes) -> VectorEnvelope:
        _check_opening(payload, size=3, kind="vector")
        _check_code(payload[2], _VECTOR_LAYOUT, "vector layout")
        return cls(_member(VectorOperation, payload[1], "vector operation"))


def _check_opening(payload: bytes, *, size: int, kind: str) -> None:
    if len(payload) < size:
        raise InvalidInput(f"{kind} envelope {payload.hex()!r} is too short", f"it needs {size} bytes")
    _check_code(payload[0], _VERSION, f"{kind} envelope version")


def _check_code(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise Unsupported(f"{what} {found} cannot be read", f"this release knows {expected}", "upgrade the reader")


def _member(codes: type[_Code], value: int, what: str) -> _Code:
    try:
        return codes(value)
    except ValueError as error:
        known = ", ".join(f"{code.value} {code.name.lower()}" for code in codes)
        raise Unsupported(
            f"{what} {value} cannot be read", f"this release knows {known}", "upgrade the reader"
        ) from error
