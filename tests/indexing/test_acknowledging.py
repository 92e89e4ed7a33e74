"""What the store has is taken off the queue, and nothing else is."""

from __future__ import annotations

from pathlib import Path

from penstock.buffer import ProducerConfig, SyncConsumer, SyncProducer
from penstock.indexing.job.acknowledging import acknowledge
from penstock.objects import StoreSpec


def test_batches_through_the_position_are_acknowledged_and_those_behind_it_wait(tmp_path: Path) -> None:
    spec = StoreSpec(f"file://{tmp_path}")
    assert acknowledge(spec, 5) == 0
    with SyncProducer(spec, ProducerConfig(flush_interval_seconds=0.0)) as producer:
        sequences = [producer.produce([b"an event"]).durable() for _ in range(4)]
    assert acknowledge(spec, -1) == 0
    assert acknowledge(spec, sequences[1]) == 2
    assert acknowledge(spec, sequences[1]) == 0
    with SyncConsumer(spec) as consumer:
        assert [entry.sequence for entry in consumer.next_descriptors(10)] == sequences[2:]
