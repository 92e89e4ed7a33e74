"""What vacuum may delete, decided inside a conditional write: tombstones past the grace that no pin holds.

Vacuum takes three steps: `condemn` raises `purged_seq`, from when on no reader can pin or plan what is about
to go; then the files are deleted; then `bury` forgets their tombstones. A vacuum that dies in between leaves
tombstones that the next one finds condemned already.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from penstock.catalog.change.lookup import check_open
from penstock.catalog.format.head import CatalogHead, Dropped, HeadState, Tombstone
from penstock.catalog.format.segment import SegmentEntry

__all__ = ["Condemned", "bury", "condemn", "condemned_of"]


@dataclass(frozen=True, slots=True)
class Condemned:
    """What a head no longer needs."""

    tombstones: tuple[Tombstone, ...] = ()
    graves: tuple[SegmentEntry, ...] = ()
    dropped: tuple[Dropped, ...] = ()

    @property
    def seq(self) -> int:
        """The last removal among files; segments that were only rewritten take no history with them."""
        seqs = [one.removed_seq for one in self.tombstones]
        seqs += [entry.removed_seq_max for entry in self.graves]
        seqs += [one.removed_seq for one in self.dropped if one.has_files]
        return max(seqs, default=0)

    def __bool__(self) -> bool:
        return bool(self.tombstones or self.graves or self.dropped)


def condemned_of(head: CatalogHead, now_ms: int, grace_ms: int) -> Condemned:
    """Removed longer ago than the grace, and before every sequence that a reader has pinned."""
    horizon = min((pin.seq for pin in head.pins.values() if pin.expires_ms > now_ms), default=head.seq)
    before_ms = now_ms - grace_ms

    def is_past(removed_seq: int, at_ms: int) -> bool:
        return removed_seq <= horizon and at_ms <= before_ms

    return Condemned(
        tuple(one for one in head.tombstones if is_past(one.removed_seq, one.at_ms)),
        tuple(entry for entry in head.graves if is_past(entry.removed_seq_max, entry.removed_ms_max)),
        tuple(
            one
            for one in head.dropped
            if (is_past(one.removed_seq, one.at_ms) if one.has_files else one.at_ms <= before_ms)
        ),
    )


def condemn(head: CatalogHead, now_ms: int, grace_ms: int) -> CatalogHead:
    """End the history up to what is about to be deleted."""
    _check_settled(head)
    seq = condemned_of(head, now_ms, grace_ms).seq
    return head if seq <= head.purged_seq else replace(head, purged_seq=seq, is_draft=True)


def _check_settled(head: CatalogHead) -> None:
    """A shard that was split is swept too; one that is being split is not."""
    if head.state is not HeadState.MOVED:
        check_open(head)


def bury(head: CatalogHead, paths: Collection[tuple[str, int]], keys: Collection[str]) -> CatalogHead:
    """Forget tombstones, by path and sequence of removal, and segments, by key, whose objects are deleted."""
    _check_settled(head)
    after = replace(
        head,
        tombstones=tuple(one for one in head.tombstones if (one.file.path, one.removed_seq) not in paths),
        graves=tuple(entry for entry in head.graves if entry.key not in keys),
        dropped=tuple(one for one in head.dropped if one.entry.key not in keys),
        is_draft=True,
    )
    same = len(after.tombstones) == len(head.tombstones) and len(after.graves) == len(head.graves)
    return head if same and len(after.dropped) == len(head.dropped) else after
