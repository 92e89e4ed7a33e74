"""A queue on object storage: many producers, one manifest, one fenced consumer, exactly once."""

from penstock.buffer.collector import Collector, GarbageReport
from penstock.buffer.config import CollectorConfig, ConsumerConfig, DeadLetterPolicy, ProducerConfig, RunnerConfig
from penstock.buffer.consuming.consumer import Consumer
from penstock.buffer.consuming.dead_letter import DeadLetter, DeadLetters
from penstock.buffer.consuming.fetch import ConsumedBatch, FetchHandle
from penstock.buffer.consuming.lag import Lag, lag_of
from penstock.buffer.consuming.runner import Runner, Sink
from penstock.buffer.consuming.watermark import Watermark
from penstock.buffer.format.batch import Compression, Records, decode_batch, encode_batch
from penstock.buffer.format.manifest import Descriptor, DescriptorDraft, Manifest, MetadataRange
from penstock.buffer.inspection import queued_now, read_batches, read_manifest
from penstock.buffer.location import key_of
from penstock.buffer.producing.handle import InputHandle
from penstock.buffer.producing.once import OnceProducer, OnceReceipt, Unproved
from penstock.buffer.producing.producer import Producer
from penstock.buffer.producing.restarting import RestartingProducer
from penstock.buffer.replay import Replayed, Replayer
from penstock.buffer.routing import Routing, ShardKey, ShardLayout, shard_config, shard_path
from penstock.buffer.routing_register import RoutingWatch, change_routing, read_routing
from penstock.buffer.sync import SyncConsumer, SyncProducer

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
    "RestartingProducer",
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
