"""Hand batches over through object storage: many producers, one manifest, one fenced consumer, exactly once."""

from penstock.buffer.batch import Compression, Records, decode_batch, encode_batch
from penstock.buffer.collector import Collector, GarbageReport
from penstock.buffer.config import CollectorConfig, ConsumerConfig, DeadLetterPolicy, ProducerConfig, RunnerConfig
from penstock.buffer.consumer import Consumer
from penstock.buffer.dead_letter import DeadLetter, DeadLetters
from penstock.buffer.fetch import ConsumedBatch, FetchHandle
from penstock.buffer.handle import InputHandle
from penstock.buffer.inspection import queued_now, read_batches, read_manifest
from penstock.buffer.lag import Lag, lag_of
from penstock.buffer.location import key_of
from penstock.buffer.manifest import Descriptor, DescriptorDraft, Manifest, MetadataRange
from penstock.buffer.once import OnceProducer, OnceReceipt, Unproved
from penstock.buffer.producer import Producer
from penstock.buffer.replay import Replayed, Replayer
from penstock.buffer.routing import Routing, ShardKey, ShardLayout, shard_config, shard_path
from penstock.buffer.routing_register import RoutingWatch, change_routing, read_routing
from penstock.buffer.runner import Runner, Sink
from penstock.buffer.sync import SyncConsumer, SyncProducer
from penstock.buffer.watermark import Watermark

__all__ = [
    "Collector",
    "CollectorConfig",
    "Compression",
    "ConsumedBatch",
    "Consumer",
    "ConsumerConfig",
    "DeadLetter",
    "DeadLetterPolicy",
    "DeadLetters",
    "Descriptor",
    "DescriptorDraft",
    "FetchHandle",
    "GarbageReport",
    "InputHandle",
    "Lag",
    "Manifest",
    "MetadataRange",
    "OnceProducer",
    "OnceReceipt",
    "Producer",
    "ProducerConfig",
    "Records",
    "Replayed",
    "Replayer",
    "Routing",
    "RoutingWatch",
    "Runner",
    "RunnerConfig",
    "ShardKey",
    "ShardLayout",
    "Sink",
    "SyncConsumer",
    "SyncProducer",
    "Unproved",
    "Watermark",
    "change_routing",
    "decode_batch",
    "encode_batch",
    "key_of",
    "lag_of",
    "queued_now",
    "read_batches",
    "read_manifest",
    "read_routing",
    "shard_config",
    "shard_path",
]
