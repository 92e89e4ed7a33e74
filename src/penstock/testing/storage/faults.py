"""What can befall a request to a store, how often, and how long it takes: the plan behind `FaultyStore`.

Pure: a plan and an entropy decide a request's fate and its course (when it lands, when the caller
hears); the store then only follows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.errors import InvalidInput
from penstock.testing.entropy import SeededEntropy

__all__ = ["VERBS", "WRITES", "Course", "Fate", "FaultPlan", "Latency"]

WRITES: Final = ("put", "put_if", "delete", "delete_many")
VERBS: Final = ("get", "get_durable", "get_range", "get_ranges", "head", "list", *WRITES)


class Fate(StrEnum):
    """How one request fares. All but the first are fields of `FaultPlan`."""

    SERVED = "served"
    THROTTLED = "throttled"  # refused at the door, and the caller knows
    ERROR_BEFORE = "error_before"  # never left, and the caller knows
    REQUEST_LOST = "request_lost"  # never arrives; the caller waits in vain
    ERROR_AFTER = "error_after"  # lands; the connection breaks before the answer
    REPLY_LOST = "reply_lost"  # lands; the caller waits in vain
    ZOMBIE = "zombie"  # the caller waits in vain; it lands after that
    CRASH_BEFORE = "crash_before"  # never leaves the process, which dies
    CRASH_AFTER = "crash_after"  # lands; the process dies before the answer

    @property
    def definite(self) -> bool:
        """The caller is told that nothing was done, and nothing was."""
        return self in (Fate.THROTTLED, Fate.ERROR_BEFORE)

    @property
    def deadly(self) -> bool:
        return self in (Fate.CRASH_BEFORE, Fate.CRASH_AFTER)


# With their fields' names, since asking a member for its value is slow, and each request asks eight.
_FAULTS: Final = tuple((fate, fate.value) for fate in Fate if fate is not Fate.SERVED)


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds of a round trip: evenly between low and high, but for a share of slow ones."""

    low_seconds: float = 0.0
    high_seconds: float = 0.0
    slow_chance: float = 0.0
    slow_seconds_max: float = 0.0

    def draw(self, entropy: SeededEntropy) -> float:
        if self.slow_chance and entropy.chance(self.slow_chance):
            return entropy.uniform(self.high_seconds, self.slow_seconds_max)
        return entropy.uniform(self.low_seconds, self.high_seconds)


@dataclass(frozen=True, slots=True)
class Course:
    """Seconds from sending until the request lands (None: never) and until the caller hears."""

    lands: float | None
    answers: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """The chance of each fate, per request; what remains to 1 is served. `verbs` limits faults, not latency."""

    throttled: float = 0.0
    error_before: float = 0.0
    request_lost: float = 0.0
    error_after: float = 0.0
    reply_lost: float = 0.0
    zombie: float = 0.0
    crash_before: float = 0.0
    crash_after: float = 0.0
    verbs: frozenset[str] = frozenset(VERBS)
    latency: Latency = Latency()
    latency_by_verb: Mapping[str, Latency] = field(default_factory=dict)
    # A client's usual patience; a zombie lands between that and several times as much.
    timeout_seconds: float = 10.0
    zombie_seconds_max: float = 60.0

    def __post_init__(self) -> None:
        unknown = sorted({*self.verbs, *self.latency_by_verb} - set(VERBS))
        if unknown:
            raise InvalidInput(f"the fault plan names the verbs {unknown}", f"the verbs are {', '.join(VERBS)}")
        total: float = sum(getattr(self, name) for _, name in _FAULTS)
        if total > 1.0:
            raise InvalidInput(
                f"the chances of the fault plan add up to {total:g}", "a request has one fate: at most 1"
            )

    @classmethod
    def none(cls) -> FaultPlan:
        """Every request is served at once."""
        return cls()

    @classmethod
    def harsh(cls) -> FaultPlan:
        """About one request in six goes wrong, in every way but a crash; a few take seconds."""
        return cls(
            throttled=0.03,
            error_before=0.03,
            request_lost=0.02,
            error_after=0.04,
            reply_lost=0.02,
            zombie=0.02,
            latency=Latency(0.002, 0.05, slow_chance=0.02, slow_seconds_max=5.0),
        )

    def fate(self, verb: str, entropy: SeededEntropy) -> Fate:
        drawn = entropy.uniform(0.0, 1.0)
        if verb in self.verbs:
            for fate, name in _FAULTS:
                drawn -= getattr(self, name)
                if drawn < 0.0:
                    return fate
        return Fate.SERVED

    def course(self, verb: str, fate: Fate, entropy: SeededEntropy) -> Course:
        """The request goes out and the answer comes back at their own pace, so answers overtake each other."""
        round_trip = self.latency_by_verb.get(verb, self.latency).draw(entropy)
        out = entropy.uniform(0.0, round_trip)
        if fate in (Fate.SERVED, Fate.ERROR_AFTER, Fate.CRASH_AFTER):
            return Course(out, round_trip)
        if fate.definite or fate is Fate.CRASH_BEFORE:
            return Course(None, round_trip)
        if fate is Fate.REPLY_LOST:
            return Course(out, max(out, self.timeout_seconds))
        if fate is Fate.REQUEST_LOST:
            return Course(None, self.timeout_seconds)
        return Course(entropy.uniform(self.timeout_seconds, self.zombie_seconds_max), self.timeout_seconds)
