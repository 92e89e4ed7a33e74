"""The messages of Prometheus remote write, 1.0 and 2.0, described field by field: no generated code is needed.

Numbers and types are those of the public protocol: `prometheus.WriteRequest` and `io.prometheus.write.v2.Request`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

__all__ = ["label", "write_request_v1", "write_request_v2"]

_Fields = list[tuple[str, int, str]]

# A type is a scalar of protobuf or the name of a message; `*` repeats it, `?` puts it into the oneof named behind it.
_HISTOGRAM: Final[_Fields] = [
    ("count_int", 1, "uint64?count"),
    ("count_float", 2, "double?count"),
    ("sum", 3, "double"),
    ("schema", 4, "sint32"),
    ("zero_threshold", 5, "double"),
    ("zero_count_int", 6, "uint64?zero_count"),
    ("zero_count_float", 7, "double?zero_count"),
    ("negative_spans", 8, "BucketSpan*"),
    ("negative_deltas", 9, "sint64*"),
    ("negative_counts", 10, "double*"),
    ("positive_spans", 11, "BucketSpan*"),
    ("positive_deltas", 12, "sint64*"),
    ("positive_counts", 13, "double*"),
    ("reset_hint", 14, "int32"),
    ("timestamp", 15, "int64"),
    ("custom_values", 16, "double*"),
]
_SPAN: Final[_Fields] = [("offset", 1, "sint32"), ("length", 2, "uint32")]
_V1: Final[dict[str, _Fields]] = {
    "WriteRequest": [("timeseries", 1, "TimeSeries*"), ("metadata", 3, "MetricMetadata*")],
    "MetricMetadata": [
        ("type", 1, "int32"),
        ("metric_family_name", 2, "string"),
        ("help", 4, "string"),
        ("unit", 5, "string"),
    ],
    "Label": [("name", 1, "string"), ("value", 2, "string")],
    "Sample": [("value", 1, "double"), ("timestamp", 2, "int64")],
    "Exemplar": [("labels", 1, "Label*"), ("value", 2, "double"), ("timestamp", 3, "int64")],
    "BucketSpan": _SPAN,
    "Histogram": _HISTOGRAM,
    "TimeSeries": [
        ("labels", 1, "Label*"),
        ("samples", 2, "Sample*"),
        ("exemplars", 3, "Exemplar*"),
        ("histograms", 4, "Histogram*"),
    ],
}
_V2: Final[dict[str, _Fields]] = {
    "Request": [("symbols", 4, "string*"), ("timeseries", 5, "TimeSeries*")],
    "Sample": [("value", 1, "double"), ("timestamp", 2, "int64"), ("start_timestamp", 3, "int64")],
    "Exemplar": [("labels_refs", 1, "uint32*"), ("value", 2, "double"), ("timestamp", 3, "int64")],
    "Metadata": [("type", 1, "int32"), ("help_ref", 3, "uint32"), ("unit_ref", 4, "uint32")],
    "BucketSpan": _SPAN,
    "Histogram": [*_HISTOGRAM, ("start_timestamp", 17, "int64")],
    "TimeSeries": [
        ("labels_refs", 1, "uint32*"),
        ("samples", 2, "Sample*"),
        ("histograms", 3, "Histogram*"),
        ("exemplars", 4, "Exemplar*"),
        ("metadata", 5, "Metadata"),
    ],
}


def write_request_v1() -> Any:
    """The message class `prometheus.WriteRequest`."""
    return _messages("prometheus", "penstock/remote_write_1.proto", "v1")["WriteRequest"]


def label() -> Any:
    """The message class `prometheus.Label`."""
    return _messages("prometheus", "penstock/remote_write_1.proto", "v1")["Label"]


def write_request_v2() -> Any:
    """The message class `io.prometheus.write.v2.Request`."""
    return _messages("io.prometheus.write.v2", "penstock/remote_write_2.proto", "v2")["Request"]


@lru_cache(maxsize=2)
def _messages(package: str, file: str, version: str) -> dict[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    described = descriptor_pb2.FileDescriptorProto(name=file, package=package, syntax="proto3")
    for name, fields in (_V1 if version == "v1" else _V2).items():
        message = described.message_type.add(name=name)
        for field in fields:
            _add_field(message, package, *field)
    # A pool of our own: the program may have another description of the same messages.
    pool = descriptor_pool.DescriptorPool()
    found = pool.Add(described) or pool.FindFileByName(file)
    return {name: message_factory.GetMessageClass(described) for name, described in found.message_types_by_name.items()}


def _add_field(message: Any, package: str, name: str, number: int, kind: str) -> None:
    kind, _, oneof = kind.partition("?")
    repeated, kind = kind.endswith("*"), kind.rstrip("*")
    field = message.field.add(name=name, number=number, label=3 if repeated else 1)
    if kind[0].isupper():
        field.type, field.type_name = field.TYPE_MESSAGE, f".{package}.{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
    if oneof:
        known = [one.name for one in message.oneof_decl]
        if oneof not in known:
            message.oneof_decl.add(name=oneof)
            known.append(oneof)
        field.oneof_index = known.index(oneof)
