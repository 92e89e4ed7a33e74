"""Remote write over HTTP: which version a request has, and what it is answered.

A request of which anything was refused is a 400, although the rest of it is stored: its sender may not send it again, and
looks at the counts to know what was written.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import Unsupported
from penstock.gateway.http.exchange import HttpAnswer, HttpExchange, json_answer
from penstock.gateway.http.refusals import Refusal
from penstock.telemetry import DecodedRows, RemoteWriteVersion

__all__ = ["remote_write_answer", "remote_write_version"]

_PROTOBUF: Final = "application/x-protobuf"
_VERSIONS: Final = {
    "": RemoteWriteVersion.V1,
    "prometheus.WriteRequest": RemoteWriteVersion.V1,
    "io.prometheus.write.v2.Request": RemoteWriteVersion.V2,
}
# Of one answer: senders log it.
_MESSAGE_CHARACTERS_MAX: Final = 2_000
_HEADER: Final = "x-prometheus-remote-write"


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


def remote_write_answer(found: DecodedRows, version: RemoteWriteVersion) -> HttpAnswer:
    """The first version knows no counts, and its senders would misread them."""
    headers = _written_counts(found.batch) if version is RemoteWriteVersion.V2 else {}
    if not found.rejected:
        return HttpAnswer(status=204, headers=headers)
    what = f"{found.rejected} samples were refused, {found.batch.num_rows} rows were stored"
    refusal = Refusal(400, "InvalidInput", what, found.message[:_MESSAGE_CHARACTERS_MAX])
    return json_answer(refusal.body(), refusal.status, headers)


def _written_counts(batch: pa.RecordBatch) -> dict[str, str]:
    exemplars = pc.sum(pc.list_value_length(batch.column("exemplars"))).as_py() or 0
    counts = {
        "samples": batch.num_rows - batch.column("value").null_count,
        "histograms": batch.num_rows - batch.column("count").null_count,
        "exemplars": exemplars,
    }
    return {f"{_HEADER}-{name}-written": str(count) for name, count in counts.items()}
