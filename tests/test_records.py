"""Envelopes say what records are; what this release does not know is refused, never guessed."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidInput, Unsupported
from penstock.records import Signal, TelemetryEnvelope, VectorEnvelope, VectorOperation


def test_what_follows_an_envelope_belongs_to_the_sender() -> None:
    assert TelemetryEnvelope.decode(bytes((1, 2, 1, 0)) + b"tenant").signal is Signal.LOGS
    assert VectorEnvelope.decode(bytes((1, 2, 1)) + b"collection").operation is VectorOperation.DELETE


@pytest.mark.parametrize("payload", [b"", b"\x01", bytes((1, 1, 1))])
def test_a_telemetry_envelope_cut_short_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidInput, match="4 bytes"):
        TelemetryEnvelope.decode(payload)


@pytest.mark.parametrize(
    "payload", [bytes((2, 1, 1, 0)), bytes((1, 0, 1, 0)), bytes((1, 4, 1, 0)), bytes((1, 1, 2, 0)), bytes((1, 1, 1, 9))]
)
def test_an_unknown_code_in_a_telemetry_envelope_is_refused(payload: bytes) -> None:
    with pytest.raises(Unsupported):
        TelemetryEnvelope.decode(payload)


@pytest.mark.parametrize("payload", [bytes((2, 1, 1)), bytes((1, 3, 1)), bytes((1, 1, 2))])
def test_an_unknown_code_in_a_vector_envelope_is_refused(payload: bytes) -> None:
    with pytest.raises(Unsupported):
        VectorEnvelope.decode(payload)
