"""OTLP as JSON, turned into the protobuf that it stands for.

OTLP's JSON is protobuf's, with one exception: identities of traces and spans are hexadecimal, not base 64. Members
that are not known are passed over, as OTLP demands of receivers.
"""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from typing import Any, Final

import msgspec

from penstock.errors import InvalidInput
from penstock.undecodable import UNDECODABLE

__all__ = ["protobuf_of_json"]

# Protobuf's own bound on messages within messages.
_DEPTH_MAX: Final = 100
_ID_NAMES: Final = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")
# Members below which identities may lie; the values of attributes are none of them.
_NESTED: Final = (
    *("resourceMetrics", "scopeMetrics", "metrics", "gauge", "sum", "histogram", "exponentialHistogram", "dataPoints"),
    *("exemplars", "resourceLogs", "scopeLogs", "logRecords", "resourceSpans", "scopeSpans", "spans", "links"),
    *("resource_metrics", "scope_metrics", "exponential_histogram", "data_points", "resource_logs", "scope_logs"),
    *("log_records", "resource_spans", "scope_spans"),
)


def protobuf_of_json(message: Any, body: bytes, what: str) -> bytes:
    """The request as protobuf; `InvalidInput` for JSON that is none of its kind."""
    from google.protobuf import json_format

    try:
        decoded = msgspec.json.decode(body)
    except UNDECODABLE as error:
        raise InvalidInput(f"the {what} is not JSON", str(error)) from error
    if not isinstance(decoded, dict):
        raise InvalidInput(f"the {what} is not a JSON object", f"it is {type(decoded).__name__}")
    found = message()
    try:
        _check_shapes(decoded, message.DESCRIPTOR)
        _with_binary_ids(decoded)
        json_format.ParseDict(decoded, found, ignore_unknown_fields=True, max_recursion_depth=_DEPTH_MAX)
    except (json_format.Error, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"the {what} is not OTLP/JSON", str(error)[:200]) from error
    encoded: bytes = found.SerializeToString()
    return encoded


def _check_shapes(node: dict[str, Any], descriptor: Any) -> None:
    """`ValueError` for a text or a number in the place of a message.

    protobuf's library goes through its letters as if they were names of fields, finds none that it knows, and passes
    over them: a log whose body is a plain text would lose it in silence.
    """
    for name, field in _messages_in(descriptor).items():
        value = node.get(name)
        if value is None:
            continue
        for one in value if field.is_repeated and isinstance(value, list) else [value]:
            if isinstance(one, dict):
                _check_shapes(one, field.message_type)
            elif one is not None:
                raise ValueError(f"{name!r} must be an object, but is {type(one).__name__}")


@lru_cache(maxsize=256)
def _messages_in(descriptor: Any) -> dict[str, Any]:
    """The fields of a message that are messages themselves, by both of their names."""
    fields = [one for one in descriptor.fields if one.message_type is not None]
    return {one.name: one for one in fields} | {one.json_name: one for one in fields}


def _with_binary_ids(node: Any) -> None:
    """Hexadecimal identities become base 64, which is what protobuf's JSON has."""
    if isinstance(node, list):
        for one in node:
            _with_binary_ids(one)
    elif isinstance(node, dict):
        for name in _ID_NAMES:
            if isinstance(text := node.get(name), str):
                node[name] = base64.b64encode(_unhexed(text)).decode()
        for name in _NESTED:
            if name in node:
                _with_binary_ids(node[name])


def _unhexed(text: str) -> bytes:
    try:
        return binascii.unhexlify(text)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"identity {text[:40]!r} is not hexadecimal") from error
