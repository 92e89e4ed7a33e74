"""When acknowledged entries are worth a write: by count and share, or by time, and never by count alone."""

from __future__ import annotations

from penstock.buffer import ConsumerConfig, DescriptorDraft, Manifest
from penstock.buffer.consuming.relief import Relief


def manifest_of(count: int, first: int = 0) -> Manifest:
    grown = Manifest.empty().append([DescriptorDraft("x" * 20)] * (first + count))
    return grown.dequeue_through(first - 1)


def test_so_many_acknowledgements_are_enough_only_when_they_are_a_fair_share_of_the_manifest() -> None:
    relief = Relief(ConsumerConfig(dequeue_every_acks=10, dequeue_percent=10))
    assert relief.is_due(manifest_of(100), 9, 10, 0.0)
    assert not relief.is_due(manifest_of(101), 9, 10, 0.0)
    assert relief.is_due(manifest_of(1000), 99, 100, 0.0)
    assert not relief.is_due(manifest_of(10), 8, 9, 0.0), "a large share of few is not enough either"


def test_what_is_done_leaves_after_a_while_however_little_it_is() -> None:
    relief = Relief(ConsumerConfig(dequeue_every_seconds=5.0))
    large = manifest_of(1000)
    assert not relief.is_overdue(1e9), "nothing waits"
    relief.put_off(100.0)
    relief.put_off(104.0)
    assert not relief.is_due(large, 0, 1, 104.9)
    assert relief.is_due(large, 0, 1, 105.0)
    relief.written()
    assert not relief.is_overdue(1e9)


def test_draining_writes_a_few_times_the_manifest_however_long_it_is() -> None:
    """Counted, not timed: entries copied for each that is drained."""
    for count in (1_000, 10_000):
        relief, manifest, unwritten, copied = Relief(ConsumerConfig()), manifest_of(count, first=7), 0, 0
        for sequence in range(7, 7 + count):
            unwritten += 1
            if relief.is_due(manifest, sequence, unwritten, 0.0):
                manifest = manifest.dequeue_through(sequence)
                copied, unwritten = copied + len(manifest), 0
        assert len(manifest) < 100
        assert copied <= 10 * count
