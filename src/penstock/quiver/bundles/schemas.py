"""Schemas as bytes, and what follows from them: kept for as long as they are used. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import xxhash

from penstock.errors import InvalidInput

__all__ = ["KnownSchema", "known_schema", "read_schema", "stream_of"]


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A schema as bytes, and what follows from it."""

    body: bytes
    # The same for equal fields, whatever their metadata.
    fingerprint: str
    # Whether a batch needs dictionaries beside itself, at any depth.
    has_dictionaries: bool


def known_schema(schema: pa.Schema) -> KnownSchema:
    """By its bytes: they are cheaper to make and to compare than a schema is to hash."""
    try:
        known = _known_schema(schema.serialize().to_pybytes())
    except (pa.ArrowException, OSError) as error:
        # Arrow writes types of any depth, and reads back none below its own bound.
        raise InvalidInput("a schema cannot be stored", f"Arrow does not read it back: {error}", "nest less") from error
    if known.has_dictionaries:
        # Of the schema itself: its bytes do not tell a dictionary of dictionaries from a plain one.
        for one in schema:
            _check_readable(one.name, one.type)
    return known


@lru_cache(maxsize=1024)
def _known_schema(body: bytes) -> KnownSchema:
    schema = read_schema(body)
    fingerprint = xxhash.xxh3_64_hexdigest(schema.remove_metadata().serialize())
    return KnownSchema(body, fingerprint, any(_is_dictionary(one.type) for one in schema))


@lru_cache(maxsize=1024)
def stream_of(slot: str, body: bytes) -> tuple[str, bytes]:
    """A slot and a schema: nearly always one object for equal ones, so that many are compared at once."""
    return slot, body


@lru_cache(maxsize=256)
def read_schema(body: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(body))


def _check_readable(column: str, kind: pa.DataType) -> None:
    """Arrow writes a dictionary whose values have dictionaries, and does not read it back."""
    if isinstance(kind, pa.BaseExtensionType):
        _check_readable(column, kind.storage_type)
    elif pa.types.is_dictionary(kind):
        if _is_dictionary(kind.value_type):
            raise InvalidInput(
                f"column {column!r} has a dictionary of dictionaries",
                "Arrow cannot read one back",
                "decode the inner one",
            )
        _check_readable(column, kind.value_type)
    else:
        for at in range(kind.num_fields):
            _check_readable(column, kind.field(at).type)


def _is_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return _is_dictionary(kind.storage_type)
    return any(_is_dictionary(kind.field(at).type) for at in range(kind.num_fields))
