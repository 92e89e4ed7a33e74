"""Knobs: the page's defaults, and refusal of values that stall or lose data."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from penstock.buffer import CollectorConfig, Compression, ConsumerConfig, DeadLetterPolicy, ProducerConfig
from penstock.errors import InvalidInput
from penstock.ids import ulid

MIB = 1024 * 1024


def test_the_defaults_are_those_of_the_format_page() -> None:
    producer, consumer, collector = ProducerConfig(), ConsumerConfig(), CollectorConfig()
    for config in (producer, consumer, collector):
        assert (config.data_path_prefix, config.manifest_path) == ("ingest", "ingest/manifest")
    assert producer.flush_interval_seconds == 0.1
    assert producer.flush_size_bytes == 64 * MIB
    assert producer.max_buffered_inputs == 1000
    assert producer.compression is Compression.NONE
    assert (producer.max_in_flight_batches, producer.max_in_flight_bytes) == (64, 256 * MIB)
    assert (producer.upload_attempts, producer.backoff_seconds_min, producer.backoff_seconds_max) == (6, 0.1, 10.0)
    assert consumer.dequeue_every_acks == 100
    assert consumer.dead_letter is DeadLetterPolicy.HALT
    assert (collector.interval_seconds, collector.grace_seconds) == (300.0, 600.0)
    assert consumer.collector == collector
    assert producer.collector_grace_seconds == collector.grace_seconds


@pytest.mark.parametrize("config", [ProducerConfig(), ConsumerConfig(), CollectorConfig()])
def test_no_bound_may_be_zero_or_negative(config: Any) -> None:
    numbers = [one.name for one in fields(config) if isinstance(getattr(config, one.name), int | float)]
    for name in set(numbers) - {"flush_interval_seconds", "compression", "collect"}:
        for wrong in (0, -1):
            with pytest.raises(InvalidInput, match=name):
                replace(config, **{name: wrong})


@pytest.mark.parametrize("config", [ProducerConfig(), ConsumerConfig(), CollectorConfig()])
def test_no_duration_may_be_endless(config: Any) -> None:
    """Arithmetic on an endless grace fails long after it was configured; `collect=False` says it better."""
    for name in [one.name for one in fields(config) if "_seconds" in one.name]:
        for wrong in (float("inf"), float("nan")):
            with pytest.raises(InvalidInput, match=name):
                replace(config, **{name: wrong})


def test_an_interval_of_zero_flushes_at_once_and_a_negative_one_is_refused() -> None:
    ProducerConfig(flush_interval_seconds=0)
    with pytest.raises(InvalidInput, match="flush_interval_seconds"):
        ProducerConfig(flush_interval_seconds=-0.1)


@pytest.mark.parametrize("kind", [ProducerConfig, ConsumerConfig, CollectorConfig])
@pytest.mark.parametrize("path", ["", "/ingest", "a/../b", "a//b"])
def test_a_path_no_store_can_hold_is_refused(kind: Any, path: str) -> None:
    with pytest.raises(InvalidInput):
        kind(data_path_prefix=path)
    with pytest.raises(InvalidInput):
        kind(manifest_path=path)


def test_a_deadline_that_could_outlast_the_collectors_grace_is_refused() -> None:
    with pytest.raises(InvalidInput, match="quarter"):
        ProducerConfig(collector_grace_seconds=60.0, manifest_deadline_seconds=16.0)
    ProducerConfig(collector_grace_seconds=60.0, manifest_deadline_seconds=15.0)


@pytest.mark.parametrize("config", [ProducerConfig(), ConsumerConfig(), CollectorConfig()])
def test_what_is_counted_is_a_whole_number_and_a_duration_any_number(config: Any) -> None:
    numbers = [one.name for one in fields(config) if type(getattr(config, one.name)) in (int, float)]
    for name in numbers:
        for wrong in ("1", None, True, *(() if "_seconds" in name else (1.5, float("inf")))):
            with pytest.raises(InvalidInput, match=name):
                replace(config, **{name: wrong})
        if "_seconds" in name:
            with pytest.raises(InvalidInput, match=name):
                replace(config, **{name: float("nan")})


def test_a_policy_written_as_text_is_that_policy_and_an_unknown_one_is_refused() -> None:
    """Else "halt" would not be HALT, and the consumer would set batches aside."""
    wordy: Any = {"halt": DeadLetterPolicy.HALT, "set-aside": DeadLetterPolicy.SET_ASIDE}
    for text, policy in wordy.items():
        assert ConsumerConfig(dead_letter=text).dead_letter is policy
    number: Any = 1
    assert ProducerConfig(compression=number).compression is Compression.ZSTD
    unknown: Any = "skip"
    with pytest.raises(InvalidInput, match=r"DeadLetterPolicy\.HALT, DeadLetterPolicy\.SET_ASIDE"):
        ConsumerConfig(dead_letter=unknown)
    with pytest.raises(InvalidInput, match=r"Compression\.NONE, Compression\.ZSTD"):
        ProducerConfig(compression=unknown)


def test_a_manifest_that_a_collector_would_take_for_a_batch_is_refused() -> None:
    for kind in (ProducerConfig, ConsumerConfig, CollectorConfig):
        with pytest.raises(InvalidInput, match="a collector would delete it"):
            kind(manifest_path=f"ingest/{ulid(0)}.batch")
