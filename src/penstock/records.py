"""Payload envelopes: the first bytes of a batch's metadata, which say what its records are.

Every envelope opens with the byte 1, its version. Telemetry has four bytes, vectors have three; what
follows belongs to the sender. Another version or an unknown code is refused, never guessed.
Format page: docs/format/buffer.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

from penstock.errors import InvalidInput, Unsupported

__all__ = ["Signal", "TelemetryEnvelope", "VectorEnvelope", "VectorOperation"]

_Code = TypeVar("_Code", bound=IntEnum)

_VERSION: Final = 1
# The only encodings released so far: OTLP protobuf for telemetry, the first layout of vectors.
_OTLP_PROTOBUF: Final = 1
_VECTOR_LAYOUT: Final = 1


class Signal(IntEnum):
    METRICS = 1
    LOGS = 2
    TRACES = 3


class VectorOperation(IntEnum):
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
