"""Remote write over HTTP: which version a request has, and the counts that the second version is answered with."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput, Unsupported
from penstock.gateway.http.exchange import HttpExchange
from penstock.telemetry import DecodedRows, DecodeLimits, RemoteWriteVersion, RowSource, decode_write_request

__all__ = ["decode_message", "remote_write_version", "written_counts"]

_PROTOBUF: Final = "application/x-protobuf"
_VERSIONS: Final = {
    "": RemoteWriteVersion.V1,
    "prometheus.WriteRequest": RemoteWriteVersion.V1,
    "io.prometheus.write.v2.Request": RemoteWriteVersion.V2,
}
_HEADER: Final = "x-prometheus-remote-write"


def decode_message(message: bytes, source: RowSource, version: RemoteWriteVersion, limits: DecodeLimits) -> DecodedRows:
    """The rows of a message. What it holds and is not kept here is a bad request: a 415 would blame its content type."""
    try:
        return decode_write_request(message, source, version, limits)
    except Unsupported as error:
        raise InvalidInput(error.what, error.why, error.remedy) from error


def remote_write_version(exchange: HttpExchange) -> RemoteWriteVersion:
    """By the content type; `Unsupported` for another one, and for bodies that are not packed with snappy."""
    kind, _, parameters = exchange.headers.get("content-type", "").partition(";")
    name = ""
    for parameter in parameters.split(";"):
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "proto":
            name = value.strip().strip('"')
    if kind.strip().lower() != _PROTOBUF or name not in _VERSIONS:
        raise Unsupported(
            f"the content type {exchange.headers.get('content-type', '')[:120]!r} is not supported",
            "",
            f"use {_PROTOBUF}, with proto=prometheus.WriteRequest or proto=io.prometheus.write.v2.Request",
        )
    if exchange.headers.get("content-encoding", "snappy").strip().lower() != "snappy":
        raise Unsupported("the content encoding is not supported", "remote write uses snappy", "send snappy")
    return _VERSIONS[name]


def written_counts(batch: pa.RecordBatch) -> dict[str, str]:
    """The headers of an answer to the second version. The first knows none, and its senders would misread them."""
    exemplars = pc.sum(pc.list_value_length(batch.column("exemplars"))).as_py() or 0
    counts = {
        "samples": batch.num_rows - batch.column("value").null_count,
        "histograms": batch.num_rows - batch.column("count").null_count,
        "exemplars": exemplars,
    }
    return {f"{_HEADER}-{name}-written": str(count) for name, count in counts.items()}
