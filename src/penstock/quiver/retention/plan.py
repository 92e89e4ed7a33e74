"""What goes, and in which order. Pure.

1. **Age**: whatever came in longer ago than `max_retain_after_ingestion_hours`, processed or not.
2. **Caps** of size and of number: processed segments, then dead letters, oldest first; then, with `drop_oldest`,
   unprocessed segments, oldest first.
3. **Steady state**: processed segments beyond `steady_state_headroom`, oldest first.

A segment that somebody is reading is passed over, whatever the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.quiver.config import RetentionConfig, SizeCapPolicy

__all__ = ["RetentionPlan", "SegmentStanding", "plan_retention"]


@dataclass(frozen=True, slots=True)
class SegmentStanding:
    """A segment as retention sees it."""

    segment_seq: int
    bytes: int
    ingested_ms: int
    is_processed: bool = False
    is_rejected: bool = False
    is_read: bool = False


_Rule: TypeAlias = Callable[[SegmentStanding], bool]


@dataclass(slots=True)
class RetentionPlan:
    """Numbers of segments to remove, by why."""

    expired: list[int] = field(default_factory=list)
    processed: list[int] = field(default_factory=list)
    # Processed ones that went because of a cap, though the headroom had room for them.
    evicted: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    # Bytes by which the cap is still passed, with nothing left that may go.
    bytes_over: int = 0

    @property
    def segment_seqs(self) -> list[int]:
        return sorted([*self.expired, *self.processed, *self.evicted, *self.rejected, *self.dropped])


def plan_retention(
    segments: Sequence[SegmentStanding],
    config: RetentionConfig,
    *,
    now_ms: int,
    bytes_over: int,
    segments_over: int = 0,
) -> RetentionPlan:
    """`bytes_over`: by how much the cap would be passed; below or at zero, it is not. `segments_over`: to come."""
    plan = RetentionPlan()
    left = sorted((one for one in segments if not one.is_read), key=lambda one: one.segment_seq)
    busy = len(segments) - len(left)
    left, over = _expire(plan, left, now_ms - config.max_retain_ms, bytes_over)
    headroom = config.steady_state_headroom
    kept_processed = sum(one.bytes for one in left if one.is_processed)
    count_over = 0
    if config.segment_count_cap is not None:
        count_over = len(left) + busy + segments_over - config.segment_count_cap
    for rule, target in _stages(plan, config):
        for one in [one for one in left if rule(one)]:
            is_over_cap = over > 0 or count_over > 0
            if one.is_processed and kept_processed > headroom:
                plan.processed.append(one.segment_seq)
            elif is_over_cap:
                target.append(one.segment_seq)
            else:
                continue
            kept_processed -= one.bytes if one.is_processed else 0
            over -= one.bytes
            count_over -= 1
    plan.bytes_over = max(0, over)
    return plan


def _expire(
    plan: RetentionPlan, segments: list[SegmentStanding], before_ms: int, over: int
) -> tuple[list[SegmentStanding], int]:
    left = []
    for one in segments:
        if one.ingested_ms < before_ms:
            plan.expired.append(one.segment_seq)
            over -= one.bytes
        else:
            left.append(one)
    return left, over


def _stages(plan: RetentionPlan, config: RetentionConfig) -> list[tuple[_Rule, list[int]]]:
    stages: list[tuple[_Rule, list[int]]] = [
        (lambda one: one.is_processed, plan.evicted),
        (lambda one: one.is_rejected and not one.is_processed, plan.rejected),
    ]
    if config.size_cap_policy is SizeCapPolicy.DROP_OLDEST:
        stages.append((lambda one: not one.is_processed and not one.is_rejected, plan.dropped))
    return stages
