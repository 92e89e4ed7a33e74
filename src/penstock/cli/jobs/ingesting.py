"""Reads telemetry of a person's file, and sends it to a queue or to a store at the edge."""

from __future__ import annotations

import asyncio
import io
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.sharding import configured_routing
from penstock.cli.settings.telemetry_place import telemetry_url
from penstock.cli.settings.wiring import Wiring
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import InvalidInput
from penstock.observability import Observer
from penstock.records import Signal
from penstock.relay import rows_by_shard
from penstock.telemetry import (
    DecodedRows,
    DecodeLimits,
    RemoteWriteVersion,
    RowSource,
    conform,
    decode_arrow,
    decode_json_lines,
    decode_openmetrics,
    decode_otlp,
    decode_otlp_json,
    decode_prometheus_text,
    decode_remote_write,
    encode_records,
    signal_of,
    with_tenant,
)

__all__ = ["read_rows", "send_to_queue", "send_to_quiver"]

_ENDINGS: Final = {
    ".prom": "prometheus",
    ".om": "openmetrics",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".parquet": "parquet",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
}
# Rows of one batch in the queue, so that none is too large for those who read it.
_ROWS_MAX: Final = 100_000
# At the beginning and at the end of Arrow's file format; the stream format has nothing of the kind.
_ARROW_FILE: Final = b"ARROW1"
# Of a table's or tenant's name, as the telemetry job takes it.
_NAME_BYTES_MAX: Final = 1024
# Rows of a Parquet file that are unpacked between two looks at their size.
_PARQUET_ROWS: Final = 1024


def read_rows(
    file: str, body: bytes, form: str, table: str | None, tenant: str, settings: Settings
) -> tuple[str, DecodedRows]:
    """The name of the table, and its rows."""
    _check_names(table, tenant)
    form = _form(file) if form == "auto" else form
    limits = settings.of(DecodeLimits)
    source = RowSource(tenant, SYSTEM_CLOCK.now_ms() * 1_000_000)
    if form.startswith("otlp-"):
        signal = Signal[form.removeprefix("otlp-").upper()]
        decode = decode_otlp_json if body.lstrip()[:1] == b"{" else decode_otlp
        return signal.name.lower(), decode(signal, body, source, limits)
    if form in ("openmetrics", "prometheus"):
        read = decode_openmetrics if form == "openmetrics" else decode_prometheus_text
        return "metrics", read(body, source, limits)
    if form.startswith("remote-write"):
        version = RemoteWriteVersion.V2 if form.endswith("-2") else RemoteWriteVersion.V1
        return "metrics", decode_remote_write(body, source, version, limits)
    if table is None:
        raise InvalidInput(f"{file} has rows without a table", f"{form} does not name one", "give --table NAME")
    return table, _tabular(form, body, table, source, limits)


def _check_names(table: str | None, tenant: str) -> None:
    """What the telemetry job would put aside is refused here."""
    for what, name in (("table", table), ("tenant", tenant)):
        try:
            size = len((name or "").encode())
        except UnicodeEncodeError as error:
            raise InvalidInput(f"the name of the {what} cannot be used", "it is not UTF-8") from error
        if size > _NAME_BYTES_MAX:
            raise InvalidInput(f"the name of the {what} is too long", f"it has more than {_NAME_BYTES_MAX:,} bytes")
    if table == "":
        raise InvalidInput("the table has no name", "its rows could not be queried", "give --table NAME")


def _tabular(form: str, body: bytes, table: str, source: RowSource, limits: DecodeLimits) -> DecodedRows:
    signal = signal_of(table)
    if form == "arrow":
        return decode_arrow(_stream_of(body), source, signal, limits)
    limits.check_request(len(body))
    if form == "ndjson":
        return decode_json_lines(body, source, signal, limits)
    try:
        rows: Any = _parquet(body, limits)
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"the {form} cannot be read", str(error)[:200]) from error
    limits.check_columns(rows.num_columns, rows.num_rows)
    batches = rows.combine_chunks().to_batches()
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)
    if signal is not None:
        return DecodedRows(conform(batch, signal, source))
    tagged = with_tenant(pa.Table.from_batches([batch]), source.tenant).combine_chunks().to_batches()
    return DecodedRows(tagged[0] if tagged else batch)


def _stream_of(body: bytes) -> bytes:
    """An Arrow file holds a stream between its first eight bytes and its footer."""
    if not body.startswith(_ARROW_FILE):
        return body
    if not body.endswith(_ARROW_FILE):
        raise InvalidInput("the Arrow file has no end", "its end marker is missing", "was it cut off?")
    return body[8:]


def _parquet(body: bytes, limits: DecodeLimits) -> pa.Table:
    """Bounded as it grows: a few bytes of a repeated value can stand for gigabytes of rows."""
    with pq.ParquetFile(io.BytesIO(body)) as file:
        limits.check_rows(file.metadata.num_rows)
        batches, size = [], 0
        for batch in file.iter_batches(batch_size=_PARQUET_ROWS):
            size += batch.nbytes
            limits.check_unpacked(size)
            batches.append(batch)
        return pa.Table.from_batches(batches, file.schema_arrow)


def send_to_queue(store: str, name: str, batch: pa.RecordBatch, settings: Settings, observer: Observer) -> None:
    """Durable when this returns."""
    url = telemetry_url(store)
    layout = asyncio.run(configured_routing(url, settings)).layout
    for shard, tables in rows_by_shard({name: [pa.Table.from_batches([batch])]}, layout).items():
        with Wiring(settings, observer).producer(url, shard) as producer:
            handles = []
            for table in tables[name]:
                for start in range(0, max(table.num_rows, 1), _ROWS_MAX):
                    records, envelope = encode_records({name: table.slice(start, _ROWS_MAX)})
                    handles.append(producer.produce(records, envelope))
            for handle in handles:
                handle.durable()


def send_to_quiver(path: str, name: str, batch: pa.RecordBatch, observer: Observer) -> None:
    """Durable when this returns."""
    from penstock.quiver import Bundle, SyncQuiver

    signal = signal_of(name)
    with SyncQuiver(path, observer=observer) as quiver:
        quiver.ingest(Bundle({name: batch}, signal="" if signal is None else signal.name.lower()))
        quiver.flush()


def _form(file: str) -> str:
    ending = next((one for one in _ENDINGS if file.endswith(one)), None)
    if ending is None:
        raise InvalidInput(f"the format of {file} is not known", "its name does not show it", "give --format")
    return _ENDINGS[ending]
