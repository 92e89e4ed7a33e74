"""The faster copy is used only when it is provably the same copy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from slatedb.uniffi._slatedb_uniffi import slatedb as binding

from penstock.keyvalue import shim

Builder: Any = binding._UniffiRustBufferBuilder


def built(write: Any, value: Any) -> bytes:
    builder = Builder()
    try:
        write(builder, value)
        return bytes(builder.rbuf.data[: builder.rbuf.len])
    finally:
        builder.discard()


def test_the_installed_release_is_one_the_shim_knows() -> None:
    assert shim.install() == shim.Shim(installed=True)


def test_an_unknown_release_keeps_the_shipped_copy() -> None:
    verdict = shim.decide("0.18.0", binding)
    assert not verdict.installed
    assert "0.18.0" in verdict.reason


def test_a_binding_whose_buffers_changed_keeps_the_shipped_copy() -> None:
    """A release that renamed its classes fails the self-test, and nothing raises."""
    verdict = shim.decide("0.17.0", SimpleNamespace())
    assert not verdict.installed
    assert "_UniffiRustBufferBuilder" in verdict.reason


def test_a_binding_that_writes_other_bytes_keeps_the_shipped_copy() -> None:
    class LittleEndianBuilder(Builder):  # type: ignore[misc]
        def _pack_into(self, size: int, format: str, value: Any) -> None:
            super()._pack_into(size, format.replace(">", "<"), value)

    verdict = shim.decide("0.17.0", SimpleNamespace(_UniffiRustBufferBuilder=LittleEndianBuilder))
    assert not verdict.installed
    assert "differ" in verdict.reason


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_bytes_like_value_is_copied_whole(kind: Any) -> None:
    value = bytes(range(256)) * 40
    assert built(shim._write, kind(value)) == value


def test_a_buffer_that_grows_many_times_keeps_what_it_had() -> None:
    builder = Builder()
    try:
        for index in range(300):
            shim._write(builder, bytes([index % 256]) * index)
        expected = b"".join(bytes([index % 256]) * index for index in range(300))
        assert builder.rbuf.data[: builder.rbuf.len] == expected
    finally:
        builder.discard()
