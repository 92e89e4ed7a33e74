"""Hand batches over through object storage: many producers, one manifest, one fenced consumer, exactly once."""

from penstock.buffer.batch import Compression, Records, decode_batch, encode_batch
from penstock.buffer.collector import Collection, Collector
from penstock.buffer.config import CollectorConfig, ConsumerConfig, DeadLetterPolicy, ProducerConfig, RunnerConfig
from penstock.buffer.consumer import Consumer
from penstock.buffer.dead_letter import DeadLetter, DeadLetters
from penstock.buffer.fetch import ConsumedBatch, FetchHandle
from penstock.buffer.handle import WriteHandle
from penstock.buffer.lag import Lag
from penstock.buffer.manifest import Descriptor, Draft, Manifest, MetadataRange
from penstock.buffer.producer import Producer
from penstock.buffer.replay import Replayed, Replayer
from penstock.buffer.runner import Runner, Sink
from penstock.buffer.sync import SyncConsumer, SyncProducer
from penstock.buffer.watermark import Watermark

__all__ = [
    "Collection",
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
    "Draft",
    "FetchHandle",
    "Lag",
    "Manifest",
    "MetadataRange",
    "Producer",
    "ProducerConfig",
    "Records",
    "Replayed",
    "Replayer",
    "Runner",
    "RunnerConfig",
    "Sink",
    "SyncConsumer",
    "SyncProducer",
    "Watermark",
    "WriteHandle",
    "decode_batch",
    "encode_batch",
]
