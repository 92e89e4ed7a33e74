"""The two changes of the manifest, and what each can prove of itself when its answer was lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.buffer.format.manifest import DescriptorDraft, Manifest
from penstock.buffer.queue import Dequeue, Enqueue, GrownTooOld, ManifestFormat
from penstock.errors import AtCapacity

START = Manifest.empty().append([DescriptorDraft("old0"), DescriptorDraft("old1")])


def enqueue(*locations: str, too_old: bool = False, bytes_max: int = 10_000) -> Enqueue:
    return Enqueue(
        [DescriptorDraft(location) for location in locations], bytes_max=bytes_max, too_old=lambda _: too_old
    )


def test_an_enqueue_takes_the_next_sequences() -> None:
    change = enqueue("a", "b")
    assert [(entry.sequence, entry.location) for entry in change(START)][2:] == [(2, "a"), (3, "b")]
    assert change.first == 2


def test_an_enqueue_that_is_in_the_queue_has_landed() -> None:
    change = enqueue("a", "b")
    after = change(START)
    for later in (after, after.with_fence(9), after.append([DescriptorDraft("other")]), after.dequeue_through(2)):
        assert change.landed(later) is True
        assert not change.unproved


def test_an_enqueue_whose_place_is_free_or_taken_by_another_has_not_landed() -> None:
    change = enqueue("a", "b")
    change(START)
    free = [START.with_fence(9), START.dequeue_through(1), START.append([DescriptorDraft("one too few")])]
    for later in (
        *free,
        START.append([DescriptorDraft("x"), DescriptorDraft("y")]),
        START.append([DescriptorDraft("x"), DescriptorDraft("y"), DescriptorDraft("z")]),
    ):
        assert change.landed(later) is False
        assert not change.unproved


def test_an_enqueue_that_left_the_queue_whole_cannot_be_told_from_one_that_never_entered() -> None:
    change = enqueue("a", "b")
    landed = change(START).dequeue_through(3)
    never = START.append([DescriptorDraft("x"), DescriptorDraft("y")]).dequeue_through(3)
    assert landed.body == never.body
    assert change.landed(landed) is None
    assert change.unproved


@given(st.integers(0, 4), st.integers(1, 4), st.lists(st.sampled_from("adf"), max_size=8), st.booleans(), st.data())
def test_a_verdict_is_never_wrong(before: int, size: int, later: list[str], lands: bool, data: st.DataObject) -> None:
    """Whatever others do to the queue afterwards: append, dequeue or take the fence."""
    manifest = Manifest.empty().append([DescriptorDraft(f"old{i}") for i in range(before)])
    change = enqueue(*(f"mine{i}" for i in range(size)))
    after = change(manifest)
    manifest = after if lands else manifest
    for move in later:
        if move == "a":
            manifest = manifest.append([DescriptorDraft("theirs")] * data.draw(st.integers(1, 3)))
        elif move == "d":
            manifest = manifest.dequeue_through(data.draw(st.integers(0, max(0, manifest.next_sequence - 1))))
        else:
            manifest = manifest.with_fence(manifest.fence + 1)
    if later or lands:
        assert change.landed(manifest) in (lands, None)


def test_the_age_is_asked_at_every_attempt() -> None:
    ages = iter([False, True])
    change = Enqueue([DescriptorDraft("a")], bytes_max=10_000, too_old=lambda _: next(ages))
    change(START)
    with pytest.raises(GrownTooOld):
        change(START)


def test_a_full_queue_refuses() -> None:
    with pytest.raises(AtCapacity):
        enqueue("a", bytes_max=len(START.body))(START)


@given(st.integers(0, 8), st.integers(0, 8))
def test_a_dequeue_shows_for_ever(through: int, more: int) -> None:
    manifest = Manifest.empty().append([DescriptorDraft("x")] * 6)
    change = Dequeue(through)
    if through < 6:
        assert change.landed(manifest) is False
        assert change.landed(change(manifest).append([DescriptorDraft("y")] * more)) is True


def test_a_fence_counts_on_leaves_the_sentinel_out_and_wraps_to_zero() -> None:
    form = ManifestFormat()
    assert [form.next_fence(fence) for fence in (0, 1, 2**64 - 3)] == [1, 2, 2**64 - 2]
    assert form.next_fence(2**64 - 2) == 0
    assert form.next_fence(2**64 - 1) == 0


def test_a_missing_manifest_is_an_empty_queue() -> None:
    assert len(ManifestFormat().empty()) == 0
    assert ManifestFormat().empty().next_sequence == 0
