"""Signals as Arrow: schemas of metrics, logs and traces, decoders and encoders, series, and the layout of data files."""

from penstock.telemetry.arrow.json_lines import decode_json_lines
from penstock.telemetry.arrow.stream import conform, decode_arrow, encode_arrow, read_arrow, with_tenant
from penstock.telemetry.columns.coded_maps import coded_maps, plain_maps
from penstock.telemetry.columns.rows import DecodedRows, RowSource
from penstock.telemetry.columns.schemas import (
    LOGS,
    METRICS,
    TABLES,
    TRACES,
    ValueKind,
    query_schema,
    schema_of,
    signal_of,
)
from penstock.telemetry.columns.storable import rows_with_repeated_keys, same_but_for_case, unstorable
from penstock.telemetry.columns.views import plain_views
from penstock.telemetry.data_files import (
    ColumnBounds,
    DataFileConfig,
    EncodedFile,
    FilePlace,
    Partition,
    encode_files,
    partitioned,
    unified,
)
from penstock.telemetry.openmetrics import decode_openmetrics, decode_prometheus_text
from penstock.telemetry.otlp.decode import decode_otlp, decode_otlp_json, decode_otlp_together
from penstock.telemetry.otlp.encode import encode_otlp
from penstock.telemetry.payload import decode_records, encode_records, narrowed, whole_table
from penstock.telemetry.remote_write.decode import RemoteWriteVersion, decode_remote_write, decode_write_requests
from penstock.telemetry.series.conversion import DeltaPolicy, ExponentialPolicy, SeriesConfig, SeriesSamples, series_of
from penstock.telemetry.series.descriptions import MetricDescription, descriptions_of
from penstock.telemetry.series.prometheus_names import label_name, metric_name
from penstock.telemetry.wire.compression import ENCODINGS, decompressed, unpack
from penstock.telemetry.wire.exposition import (
    ExpositionBatch,
    ExpositionExemplar,
    MetricFamily,
    family_of,
    read_exposition,
)
from penstock.telemetry.wire.limits import DecodeLimits

__all__ = [
    "ENCODINGS",
    "LOGS",
    "METRICS",
    "TABLES",
    "TRACES",
    "ColumnBounds",
    "DataFileConfig",
    "DecodeLimits",
    "DecodedRows",
    "DeltaPolicy",
    "EncodedFile",
    "ExponentialPolicy",
    "ExpositionBatch",
    "ExpositionExemplar",
    "FilePlace",
    "MetricDescription",
    "MetricFamily",
    "Partition",
    "RemoteWriteVersion",
    "RowSource",
    "SeriesConfig",
    "SeriesSamples",
    "ValueKind",
    "coded_maps",
    "conform",
    "decode_arrow",
    "decode_json_lines",
    "decode_openmetrics",
    "decode_otlp",
    "decode_otlp_json",
    "decode_otlp_together",
    "decode_prometheus_text",
    "decode_records",
    "decode_remote_write",
    "decode_write_requests",
    "decompressed",
    "descriptions_of",
    "encode_arrow",
    "encode_files",
    "encode_otlp",
    "encode_records",
    "family_of",
    "label_name",
    "metric_name",
    "narrowed",
    "partitioned",
    "plain_maps",
    "plain_views",
    "query_schema",
    "read_arrow",
    "read_exposition",
    "rows_with_repeated_keys",
    "same_but_for_case",
    "schema_of",
    "series_of",
    "signal_of",
    "unified",
    "unpack",
    "unstorable",
    "whole_table",
    "with_tenant",
]
