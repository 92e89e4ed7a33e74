"""A change is taken whole or not at all, and its source never skips one that was refused."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from penstock.blocks import ChangeReceipt, ChangeRefusals
from penstock.errors import AtCapacity, Corrupt, PenstockError


@dataclass(frozen=True)
class Change:
    part: str
    source: str | None = None
    position: int | None = None
    receipt: ChangeReceipt = field(default_factory=ChangeReceipt, compare=False)


class Refusals(ChangeRefusals[Change]):
    def __init__(self, *unknown: str) -> None:
        super().__init__({name: Corrupt(f"the position of {name} cannot be read") for name in unknown})
        self.damaged: set[str] = set()

    def damage(self, change: Change) -> PenstockError | None:
        return Corrupt(f"{change.part} is damaged", "", "repair it") if change.part in self.damaged else None


def test_a_change_of_a_damaged_part_is_refused_and_of_another_part_is_not() -> None:
    refusals = Refusals()
    refusals.damaged.add("a")
    assert str(refusals.judge(Change("a"))).startswith("a is damaged")
    assert refusals.judge(Change("b")) is None


def test_a_source_stays_at_its_first_refused_change_until_that_one_is_taken() -> None:
    refusals = Refusals()
    refusals.damaged.add("a")
    assert refusals.judge(Change("a", "log", 5)) is not None
    later = refusals.judge(Change("b", "log", 6))
    assert later is not None
    assert (later.what, later.remedy) == ("the change of 'log' at 6 is refused", "write that one first")
    assert refusals.judge(Change("b", "other", 6)) is None
    refusals.damaged.clear()
    assert refusals.judge(Change("b", "log", 6)) is not None
    assert refusals.judge(Change("a", "log", 5)) is None
    assert refusals.judge(Change("b", "log", 6)) is None


def test_a_source_that_comes_back_to_an_earlier_place_stays_there() -> None:
    refusals = Refusals()
    refusals.damaged.add("a")
    assert refusals.judge(Change("a", "log", 5)) is not None
    assert refusals.judge(Change("a", "log", 3)) is not None
    refusals.damaged.clear()
    assert refusals.judge(Change("b", "log", 4)) is not None


def test_a_source_whose_position_cannot_be_read_is_refused_and_named() -> None:
    refusals = Refusals("log")
    assert "changes of 'log' are refused" in str(refusals.judge(Change("b", "log", 1)))
    assert refusals.judge(Change("b")) is None
    with pytest.raises(Corrupt, match="the position of log cannot be read"):
        refusals.check_position("log")
    refusals.check_position("other")


def test_a_refusal_after_acceptance_is_reported_once() -> None:
    refusals = Refusals()
    first, second = ChangeReceipt(), ChangeReceipt()
    refusals.settle(first, AtCapacity("too many names", "", "use fewer"))
    refusals.settle(second, Corrupt("a is damaged"))
    with pytest.raises(AtCapacity, match="2 accepted writes were refused") as raised:
        refusals.report()
    assert raised.value.remedy == "use fewer"
    refusals.report()


def test_whoever_waited_for_a_change_was_told_and_the_next_flush_does_not_repeat_it() -> None:
    refusals, receipt = Refusals(), ChangeReceipt()
    refusals.settle(receipt, Corrupt("a is damaged", "a bit flipped", "repair it"))
    with pytest.raises(Corrupt, match="a bit flipped"):
        receipt.check()
    refusals.report()


def test_a_change_that_a_repeated_flush_takes_is_no_longer_refused() -> None:
    refusals, receipt = Refusals(), ChangeReceipt()
    refusals.settle(receipt, Corrupt("a is damaged"))
    refusals.settle(receipt, None)
    receipt.check()
    refusals.report()
