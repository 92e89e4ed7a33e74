"""The synchronous door: the same promises, blocking."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.buffer import ConsumerConfig, ProducerConfig, SyncConsumer, SyncProducer
from penstock.errors import Closed, Fenced, InvalidInput, Unsupported


def test_a_script_produces_and_consumes_without_a_loop(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    with SyncProducer(url, ProducerConfig(max_buffered_inputs=1)) as producer:
        handles = [producer.produce([b"%d" % number], b"m") for number in range(4)]
        assert [handle.durable() for handle in handles] == [0, 1, 2, 3]
    with SyncConsumer(url) as consumer:
        assert consumer.lag().batches == 4
        batch = consumer.next_batch()
        assert batch is not None
        assert bytes(batch.records[0]) == b"0"
        consumer.ack(batch.sequence)
        descriptors = consumer.next_descriptors(5)
        assert [bytes(consumer.fetch(one).records[0]) for one in descriptors] == [b"1", b"2", b"3"]
        consumer.ack_through(2)
        consumer.flush()
    with SyncConsumer(url, last_acked=2) as consumer:
        batch = consumer.next_batch()
        assert batch is not None
        assert batch.sequence == 3
        assert consumer.next_batch() is None


def test_closing_flushes(tmp_path: Path) -> None:
    with SyncProducer(f"file://{tmp_path}", ProducerConfig(flush_interval_seconds=3600.0)) as producer:
        handle = producer.produce([b"x"])
        producer.flush()
        assert handle.durable() == 0
        producer.produce([b"y"])
    with SyncConsumer(f"file://{tmp_path}", ConsumerConfig(collect=False)) as consumer:
        assert consumer.lag().batches == 2


def test_threads_may_share_a_door(tmp_path: Path) -> None:
    sequences: list[int] = []
    with SyncProducer(f"file://{tmp_path}", ProducerConfig(flush_interval_seconds=0.01)) as producer:

        def work() -> None:
            sequences.extend(producer.produce([b"x"]).durable() for _ in range(5))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(sequences) == 20


def test_a_closed_door_says_so_and_leaves_no_thread_behind(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    producer = SyncProducer(f"file://{tmp_path}")
    producer.close()
    producer.close()
    with pytest.raises(Closed):
        producer.produce([b"x"])
    assert set(threading.enumerate()) <= before


def test_errors_come_through_as_they_are(tmp_path: Path) -> None:
    with pytest.raises((InvalidInput, Unsupported)):
        SyncProducer("nonsense")
    url = f"file://{tmp_path}"
    with SyncConsumer(url) as zombie, SyncConsumer(url), pytest.raises(Fenced):
        zombie.next_batch()
