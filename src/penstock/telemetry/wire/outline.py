"""Messages in outline: in columns, but for parts that stay the bytes they are until somebody needs them.

Parts that most requests lack cost nothing then; and of entries of attributes and labels, which senders repeat in every
row, only the distinct ones are decoded (`columns.entries`). What comes this way needs no second decoder as a judge: the
fewest bytes that the columns take are the bytes that came, so nothing was skipped and nothing can be read in two ways.
Anything else is `Uncommon`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.telemetry.wire.encoded_sizes import fewest_bytes, text_lengths
from penstock.telemetry.wire.protobuf import handler_of

__all__ = ["Uncommon", "WireOutline", "outlined", "part_columns"]


class Uncommon(Exception):
    """The request holds what only the decoder of every case knows."""


@dataclass(frozen=True, slots=True)
class WireOutline:
    """Which fields are left as bytes: those named in `left` that are messages. Whoever reads the columns decodes them
    all, with `part_columns`. Other fields of the type `entry` are not known: nobody would look at what they hold."""

    left: frozenset[str]
    entry: str = ""


def outlined(descriptor: Any, bodies: Sequence[bytes], outline: WireOutline) -> pa.RecordBatch:
    """Messages as rows."""
    described = _described(descriptor, outline)
    return _vouched(described, lambda handler: handler.list_to_record_batch(list(bodies)), [len(one) for one in bodies])


def part_columns(descriptor: Any, parts: Any, outline: WireOutline) -> Any:
    """Parts of one type that were left as bytes, none of them null, as structs."""
    described = _described(descriptor, outline)
    found = _vouched(described, lambda handler: handler.array_to_record_batch(parts), text_lengths(parts))
    return pa.StructArray.from_arrays(found.columns, fields=list(found.schema))


def _vouched(descriptor: Any, decode: Callable[[Any], pa.RecordBatch], sizes: Any) -> pa.RecordBatch:
    handler = handler_of(descriptor)
    if handler is None:
        raise Uncommon
    try:
        batch = decode(handler)
    except ValueError:
        raise Uncommon from None
    fewest = fewest_bytes(descriptor, batch)
    if fewest is None or not np.array_equal(fewest, sizes):
        raise Uncommon
    return batch


@lru_cache(maxsize=32)
def _described(descriptor: Any, outline: WireOutline) -> Any:
    """The same message, described anew with bytes in the place of what is left."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    file = descriptor_pb2.FileDescriptorProto(name="penstock/outline.proto", package="outline", syntax="proto3")
    waiting, known = [descriptor], {descriptor.full_name}
    while waiting:
        of = waiting.pop()
        own = descriptor_pb2.DescriptorProto()
        of.CopyToProto(own)
        described = file.message_type.add(name=_flat(of), oneof_decl=own.oneof_decl)
        for one in own.field:
            within = of.fields_by_name[one.name].message_type
            is_left = within is not None and one.name in outline.left
            if within is not None and within.full_name == outline.entry and not is_left:
                continue
            field = described.field.add()
            field.CopyFrom(one)
            field.ClearField("type_name")
            if is_left:
                field.type = field.TYPE_BYTES
            elif within is not None:
                field.type_name = f".outline.{_flat(within)}"
                waiting += [within] if within.full_name not in known else []
                known.add(within.full_name)
            elif field.type == field.TYPE_ENUM:
                # Written as the number that it is.
                field.type = field.TYPE_INT32
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindMessageTypeByName(f"outline.{_flat(descriptor)}")


def _flat(descriptor: Any) -> str:
    name: str = descriptor.full_name
    return name.replace(".", "_")
