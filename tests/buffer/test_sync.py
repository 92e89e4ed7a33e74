"""The synchronous door: the same promises, blocking."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
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


def answers_of_a_child(calls: list[Callable[[], object]]) -> list[str]:
    """What each call comes to in a real fork of this process; a child that hangs is ended by its alarm."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        answers = []
        for call in calls:
            try:
                answers.append(f"returned {call()!r}")
            except BaseException as error:  # noqa: BLE001  the parent judges it
                answers.append(f"{type(error).__name__}: {error}")
        os.write(writing, "\n".join(answers).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answers = pipe.read().splitlines()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended by signal {status}: it hung"
    return answers


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_door_refuses_a_forked_process_and_goes_on_in_its_own(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    with SyncProducer(url) as producer, SyncConsumer(url) as consumer:
        handle = producer.produce([b"before"])
        answers = answers_of_a_child(
            [
                lambda: producer.produce([b"x"]),
                handle.durable,
                producer.flush,
                producer.close,
                consumer.next_batch,
                consumer.lag,
                lambda: consumer.ack(0),
                consumer.close,
            ]
        )
        assert len(answers) == 8
        for answer in answers:
            assert answer.startswith(
                "Unsupported: the door penstock-buffer cannot be used here: this process was forked"
            )
        assert handle.durable() == 0
        batch = consumer.next_batch()
        assert batch is not None
        consumer.ack(batch.sequence)


def test_errors_come_through_as_they_are(tmp_path: Path) -> None:
    with pytest.raises((InvalidInput, Unsupported)):
        SyncProducer("nonsense")
    url = f"file://{tmp_path}"
    with SyncConsumer(url) as zombie, SyncConsumer(url), pytest.raises(Fenced):
        zombie.next_batch()


def test_a_door_that_cannot_be_opened_leaves_no_thread_behind(tmp_path: Path) -> None:
    with SyncProducer(tmp_path.as_uri()) as producer:
        producer.produce([b"record"]).durable()
    before = set(threading.enumerate())
    # The folder of data belongs to the queue above.
    with pytest.raises(InvalidInput, match="another queue"):
        SyncConsumer(tmp_path.as_uri(), ConsumerConfig(manifest_path="ingest/other"))
    assert set(threading.enumerate()) <= before
