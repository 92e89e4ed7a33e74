"""Deliver a quiver's segments to a queue, Parquet files or an OTLP collector, and a queue's batches to the stores."""

from penstock.relay.config import (
    OtlpOutletConfig,
    ParquetOutletConfig,
    QueueOutletConfig,
    RelayConfig,
    RowCompression,
    UnprovedPolicy,
)
from penstock.relay.outlets.otlp_outlet import OtlpOutlet
from penstock.relay.outlets.otlp_payload import otlp_bundle
from penstock.relay.outlets.outlet import Delivered, NotYet, Outlet, RetryLater, SendAnswer, Undeliverable
from penstock.relay.outlets.parquet_outlet import ParquetOutlet
from penstock.relay.outlets.queue_outlet import QueueOutlet
from penstock.relay.outlets.shard_rows import rows_by_shard
from penstock.relay.outlets.sharded_outlet import ShardedOutlet
from penstock.relay.outlets.stamp import RelayMarks, RelayStamp, decode_part
from penstock.relay.relay import Relay
from penstock.relay.sinks.payloads import SamplesPayload, VectorPayload, decode_table, encode_table
from penstock.relay.sinks.queue_consumer import QueueConsumer
from penstock.relay.sinks.rejected import RejectedRecord, RejectedRecords
from penstock.relay.sinks.series_sink import SeriesSink
from penstock.relay.sinks.store_sink import StoreSink
from penstock.relay.sinks.vector_sink import VectorSink

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
