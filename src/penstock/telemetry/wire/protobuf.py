"""Protobuf straight into nested Arrow columns: the only module that imports `ptars`.

Two decoders share the work. upb, the protobuf project's own, judges: what it refuses is refused, and a request in
which fields are repeated, mixed up or unknown is put into order by it. `ptars` then turns the bytes into columns, many
times faster than Python can walk them. Where `ptars` is missing or refuses what upb takes, the walk in Python answers
instead, with the same columns; the tests hold one against the other.

A message within a message of its own kind comes as undecoded bytes: `attributes` reads those, within a depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidInput

__all__ = ["arrow_schema", "canonical", "handler_of", "has_ptars", "parse", "to_arrow", "walked"]


def parse(message: Any, body: bytes, what: str) -> Any:
    """An instance of `message`; `InvalidInput` for bytes that are none. `what` names them."""
    from google.protobuf.message import DecodeError

    found = message()
    try:
        found.ParseFromString(body)
    except (DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the {what} is not a valid protobuf message", str(error) or type(error).__name__) from error
    return found


def to_arrow(message: Any, bodies: Sequence[bytes], what: str, parsed: Sequence[Any] | None = None) -> pa.RecordBatch:
    """Messages as rows of `arrow_schema(message.DESCRIPTOR)`; `InvalidInput` if any of them is malformed.

    `parsed` are the messages of the bodies, for a caller that has them.
    """
    handler = handler_of(message.DESCRIPTOR)
    found = parsed or [parse(message, body, what) for body in bodies]
    if handler is None:
        return walked(*found)
    # Another size than in canonical form: fields are repeated or out of the ordinary, and decoders may differ on them.
    whole = [body if one.ByteSize() == len(body) else canonical(one) for one, body in zip(found, bodies, strict=True)]
    try:
        return _decoded(handler, whole)
    except ValueError:
        # Fields of a known number and another type are unknown fields to upb, and an error to ptars.
        try:
            return _decoded(handler, [canonical(one) for one in found])
        except ValueError:
            return walked(*found)


def has_ptars() -> bool:
    """Whether the fast decoder is installed."""
    try:
        import ptars  # noqa: F401
    except ImportError:
        return False
    return True


def _decoded(handler: Any, bodies: Sequence[bytes]) -> pa.RecordBatch:
    batch: pa.RecordBatch = handler.list_to_record_batch(list(bodies))
    return batch


def canonical(found: Any) -> bytes:
    """A message with each field once and in order, and without unknown ones, which it loses."""
    found.DiscardUnknownFields()
    body: bytes = found.SerializeToString(deterministic=True)
    return body


@lru_cache(maxsize=32)
def handler_of(descriptor: Any) -> Any:
    """The fast decoder of a message; None where it is not installed."""
    if not has_ptars():
        return None
    import ptars

    return ptars.HandlerPool([descriptor.file]).get_for_message(descriptor)


# The walk ----------------------------------------------------------------------------------------------------


def walked(*found: Any) -> pa.RecordBatch:
    """The same rows by a walk in Python: the fallback, and the oracle of the tests."""
    descriptor = found[0].DESCRIPTOR
    return pa.RecordBatch.from_pylist([_row(one, (descriptor.full_name,)) for one in found], arrow_schema(descriptor))


@lru_cache(maxsize=16)
def arrow_schema(descriptor: Any) -> pa.Schema:
    """The columns of a message."""
    return pa.schema(_fields(descriptor, (descriptor.full_name,)))


def _fields(descriptor: Any, above: tuple[str, ...]) -> list[Any]:
    found = []
    # In the order of their numbers, as the fast decoder has them.
    for field in sorted(descriptor.fields, key=lambda one: one.number):
        kind = _type(field, above)
        if _is_repeated(field):
            kind = pa.list_(pa.field("item", kind, nullable=False))
        found.append(pa.field(field.name, kind, nullable=not _is_repeated(field) and field.has_presence))
    return found


def _type(field: Any, above: tuple[str, ...]) -> pa.DataType:
    if field.message_type is not None:
        name = field.message_type.full_name
        return pa.binary() if name in above else pa.struct(_fields(field.message_type, (*above, name)))
    return _scalar_types()[field.type]


@lru_cache(maxsize=1)
def _scalar_types() -> dict[int, pa.DataType]:
    from google.protobuf.descriptor import FieldDescriptor as Kind

    return {
        Kind.TYPE_DOUBLE: pa.float64(),
        Kind.TYPE_FLOAT: pa.float32(),
        Kind.TYPE_INT64: pa.int64(),
        Kind.TYPE_UINT64: pa.uint64(),
        Kind.TYPE_INT32: pa.int32(),
        Kind.TYPE_FIXED64: pa.uint64(),
        Kind.TYPE_FIXED32: pa.uint32(),
        Kind.TYPE_BOOL: pa.bool_(),
        Kind.TYPE_STRING: pa.string(),
        Kind.TYPE_BYTES: pa.binary(),
        Kind.TYPE_UINT32: pa.uint32(),
        Kind.TYPE_ENUM: pa.int32(),
        Kind.TYPE_SFIXED32: pa.int32(),
        Kind.TYPE_SFIXED64: pa.int64(),
        Kind.TYPE_SINT32: pa.int32(),
        Kind.TYPE_SINT64: pa.int64(),
    }


def _row(message: Any, above: tuple[str, ...]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if _is_repeated(field):
            row[field.name] = [_value(field, one, above) for one in getattr(message, field.name)]
        elif field.has_presence and not message.HasField(field.name):
            row[field.name] = None
        else:
            row[field.name] = _value(field, getattr(message, field.name), above)
    return row


def _value(field: Any, value: Any, above: tuple[str, ...]) -> Any:
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    return value.SerializeToString(deterministic=True) if name in above else _row(value, (*above, name))


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)
