"""Lag: what is queued and not acknowledged, and since when."""

from __future__ import annotations

from penstock.buffer.consuming.lag import Lag, lag_of
from penstock.buffer.format.manifest import DescriptorDraft, Manifest, MetadataRange
from penstock.buffer.location import batch_location
from penstock.ids import ulid
from penstock.testing import SeededEntropy

QUEUE = Manifest.empty().append([DescriptorDraft(f"b{i}", [MetadataRange(0, 1000 * i)]) for i in range(4)])


def test_it_counts_from_the_oldest_batch_that_is_not_acknowledged() -> None:
    assert lag_of(QUEUE, None, 10_000) == Lag(4, 10.0)
    assert lag_of(QUEUE, 1, 10_000) == Lag(2, 8.0)


def test_an_acknowledged_queue_has_no_lag() -> None:
    assert lag_of(QUEUE, 3, 10_000) == Lag(0, 0.0)
    assert lag_of(Manifest.empty(), None, 10_000) == Lag(0, 0.0)


def test_a_producer_whose_clock_runs_ahead_counts_as_no_lag() -> None:
    assert lag_of(QUEUE, 2, 0) == Lag(1, 0.0)


def test_a_batch_without_metadata_is_as_old_as_its_name() -> None:
    name = batch_location("ingest", ulid(5000, SeededEntropy(1)))
    assert lag_of(Manifest.empty().append([DescriptorDraft(name)]), None, 9000) == Lag(1, 4.0)
    assert lag_of(Manifest.empty().append([DescriptorDraft("other")]), None, 9000) == Lag(1, 0.0)
