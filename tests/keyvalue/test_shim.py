"""The faster copy is used only when it is provably the same copy."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slatedb import uniffi

from penstock.keyvalue import shim

binding: Any = sys.modules[uniffi.DbBuilder.__module__]


def lowered(value: Any) -> bytes:
    return shim._lowered(shim._faster(binding), value)


def test_the_installed_release_is_one_the_shim_knows() -> None:
    assert shim.install() == shim.Shim(installed=True)
    assert binding._UniffiFfiConverterBytes.lower.__module__ == shim.__name__


def test_an_unknown_release_keeps_the_shipped_copy() -> None:
    verdict = shim.decide("0.18.0", binding)
    assert not verdict.installed
    assert "0.18.0" in verdict.reason


def test_a_binding_whose_classes_were_renamed_keeps_the_shipped_copy() -> None:
    verdict = shim.decide("0.17.0", SimpleNamespace())
    assert not verdict.installed
    assert "_UniffiFfiConverterBytes" in verdict.reason


def test_a_binding_that_lays_out_its_buffers_differently_keeps_the_shipped_copy() -> None:
    class TruncatedBytes:
        @staticmethod
        def lower(value: bytes) -> Any:
            buffer = shim._faster(binding)(value)
            buffer.len = min(buffer.len, 100)
            return buffer

    changed = SimpleNamespace(_UniffiFfiConverterBytes=TruncatedBytes, _UniffiRustBuffer=binding._UniffiRustBuffer)
    verdict = shim.decide("0.17.0", changed)
    assert not verdict.installed
    assert "2 samples differ" in verdict.reason


@given(st.binary(max_size=2000))
def test_a_buffer_holds_the_length_and_then_the_bytes(value: bytes) -> None:
    assert lowered(value) == len(value).to_bytes(4, "big") + value


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_bytes_like_value_is_copied_whole(kind: Any) -> None:
    value = bytes(range(256)) * 1024
    assert lowered(kind(value)) == (1 << 18).to_bytes(4, "big") + value
