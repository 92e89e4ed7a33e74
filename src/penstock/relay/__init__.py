"""Bring a quiver's segments to a queue, Parquet files or an OTLP collector, and a queue's batches into the stores."""

from penstock.relay.config import (
    OtlpOutletConfig,
    ParquetOutletConfig,
    QueueOutletConfig,
    RelayConfig,
    RowCompression,
    UnprovedPolicy,
)
from penstock.relay.otlp_outlet import OtlpOutlet
from penstock.relay.otlp_payload import otlp_bundle
from penstock.relay.outlet import Delivered, NotYet, Outlet, RetryLater, SendAnswer, Undeliverable
from penstock.relay.parquet_outlet import ParquetOutlet
from penstock.relay.payloads import SamplesPayload, VectorPayload, decode_table, encode_table
from penstock.relay.queue_consumer import QueueConsumer
from penstock.relay.queue_outlet import QueueOutlet
from penstock.relay.rejected import RejectedRecord, RejectedRecords
from penstock.relay.relay import Relay
from penstock.relay.series_sink import SeriesSink
from penstock.relay.shard_rows import rows_by_shard
from penstock.relay.sharded_outlet import ShardedOutlet
from penstock.relay.sinks import StoreSink
from penstock.relay.stamp import RelayMarks, RelayStamp, decode_part
from penstock.relay.vector_sink import VectorSink

__all__ = [
    "Delivered",
    "NotYet",
    "OtlpOutlet",
    "OtlpOutletConfig",
    "Outlet",
    "ParquetOutlet",
    "ParquetOutletConfig",
    "QueueConsumer",
    "QueueOutlet",
    "QueueOutletConfig",
    "RejectedRecord",
    "RejectedRecords",
    "Relay",
    "RelayConfig",
    "RelayMarks",
    "RelayStamp",
    "RetryLater",
    "RowCompression",
    "SamplesPayload",
    "SendAnswer",
    "SeriesSink",
    "ShardedOutlet",
    "StoreSink",
    "Undeliverable",
    "UnprovedPolicy",
    "VectorPayload",
    "VectorSink",
    "decode_part",
    "decode_table",
    "encode_table",
    "otlp_bundle",
    "rows_by_shard",
]
