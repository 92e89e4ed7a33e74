"""What the headers of an Arrow stream say before anything is unpacked: its size, and columns that hold nothing.

Each packed buffer begins with the size it claims. Arrow allocates what is claimed, so a stream of a few bytes could
ask for terabytes. The headers are flatbuffers; of those, only the few fields on the way to the buffers are read.
Format: the Arrow columnar format, section Message.fbs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

from penstock.errors import InvalidInput

__all__ = ["empty_columns", "unpacked_size"]

_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_NOT_PACKED = -1


def unpacked_size(stream: bytes) -> int:
    """Bytes of all buffers of a stream, by their claims; `InvalidInput` for headers that cannot be."""
    try:
        return sum(_message_size(message) for message in _messages(stream))
    except (struct.error, IndexError, pa.ArrowException, OSError) as error:
        raise InvalidInput("the Arrow stream cannot be read", str(error)[:200]) from error


def empty_columns(stream: bytes, schema: pa.Schema) -> set[int]:
    """Columns whose headers say that they are null in every row. For streams whose headers are to be believed."""
    places, node = [], 0
    for field in schema:
        places.append(node)
        node += _nodes(field.type)
    empty = {place for place, field in enumerate(schema) if field.nullable}
    for message in _messages(stream):
        batch = _batch(message)
        if batch is None:
            continue
        nodes = list(batch.pairs(1))
        if len(nodes) != node:
            raise InvalidInput("the Arrow stream has a batch that does not fit its schema")
        empty = {place for place in empty if nodes[places[place]][0] == nodes[places[place]][1]}
    return empty


def _nodes(kind: pa.DataType) -> int:
    """How many entries the header of a batch has for a column: one for each array that it is made of."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if isinstance(kind, pa.DictionaryType):
        return 1
    return 1 + sum(_nodes(kind.field(number).type) for number in range(kind.num_fields))


def _batch(message: pa.ipc.Message) -> _Table | None:
    """The header of a record batch; None for a message of another kind."""
    header = memoryview(message.metadata).cast("B")
    table = _Table(header, struct.unpack_from("<I", header, 0)[0])
    return table.table(2) if table.byte(1) == _RECORD_BATCH else None


def _messages(stream: bytes) -> Iterator[pa.ipc.Message]:
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(stream))
    while True:
        try:
            yield reader.read_next_message()
        except (StopIteration, EOFError):
            return


def _message_size(message: pa.ipc.Message) -> int:
    body = message.body
    if body is None or body.size == 0:
        return 0
    header = memoryview(message.metadata).cast("B")
    table = _Table(header, struct.unpack_from("<I", header, 0)[0])
    kind = table.byte(1)
    batch = table.table(2)
    if kind == _DICTIONARY_BATCH and batch is not None:
        batch = batch.table(1)
    elif kind != _RECORD_BATCH:
        return body.size
    if batch is None or batch.offset_of(3) is None:
        # Not packed: what is there is all there is.
        return body.size
    return sum(_buffer_size(body, offset, length) for offset, length in batch.pairs(2))


def _buffer_size(body: pa.Buffer, offset: int, length: int) -> int:
    if length == 0:
        return 0
    if offset < 0 or length < 8 or offset + length > body.size:
        raise InvalidInput("the Arrow stream has a buffer beyond its end")
    (claimed,) = struct.unpack_from("<q", memoryview(body).cast("B"), offset)
    if claimed < _NOT_PACKED:
        raise InvalidInput(f"the Arrow stream has a buffer of {claimed} bytes")
    return length if claimed == _NOT_PACKED else claimed


class _Table:
    """One table of a flatbuffer: fields by their number."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - struct.unpack_from("<i", data, at)[0]
        if not 0 <= self._fields < len(data):
            raise InvalidInput("the Arrow stream has an invalid header")
        (self._size,) = struct.unpack_from("<H", data, self._fields)

    def offset_of(self, field: int) -> int | None:
        place = 4 + 2 * field
        if place + 2 > self._size:
            return None
        (offset,) = struct.unpack_from("<H", self._data, self._fields + place)
        return self._at + offset if offset else None

    def byte(self, field: int) -> int:
        offset = self.offset_of(field)
        return 0 if offset is None else self._data[offset]

    def table(self, field: int) -> _Table | None:
        offset = self.offset_of(field)
        return None if offset is None else _Table(self._data, offset + struct.unpack_from("<I", self._data, offset)[0])

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of pairs of 64-bit numbers."""
        offset = self.offset_of(field)
        if offset is None:
            return
        start = offset + struct.unpack_from("<I", self._data, offset)[0]
        (count,) = struct.unpack_from("<I", self._data, start)
        if start + 4 + 16 * count > len(self._data):
            raise InvalidInput("the Arrow stream has a header that is cut off")
        yield from struct.iter_unpack("<qq", self._data[start + 4 : start + 4 + 16 * count])
