from __future__ import annotations

from collections import Counter

import pytest

from penstock.errors import InvalidInput
from penstock.testing import Fate, FaultPlan, Latency, SeededEntropy

FAULTS = [fate for fate in Fate if fate is not Fate.SERVED]


def test_a_plan_of_none_serves_everything_at_once() -> None:
    plan, entropy = FaultPlan.none(), SeededEntropy(1)
    assert all(plan.fate("put_if", entropy) is Fate.SERVED for _ in range(100))
    course = plan.course("put_if", Fate.SERVED, entropy)
    assert (course.lands, course.answers) == (0.0, 0.0)


@pytest.mark.parametrize("fate", FAULTS)
def test_each_fate_comes_as_often_as_its_field_says(fate: Fate) -> None:
    plan, entropy = FaultPlan(**{fate.value: 0.25}), SeededEntropy(1)  # type: ignore[arg-type]
    drawn = Counter(plan.fate("get", entropy) for _ in range(2000))
    assert set(drawn) == {fate, Fate.SERVED}
    assert 400 < drawn[fate] < 600


def test_the_harsh_plan_knows_every_fault_of_a_network() -> None:
    plan, entropy = FaultPlan.harsh(), SeededEntropy(1)
    drawn = {plan.fate("put_if", entropy) for _ in range(3000)}
    assert drawn == set(Fate) - {Fate.CRASH_BEFORE, Fate.CRASH_AFTER}


def test_faults_may_be_limited_to_some_verbs() -> None:
    plan, entropy = FaultPlan(error_after=1.0, verbs=frozenset({"put_if"})), SeededEntropy(1)
    assert plan.fate("get", entropy) is Fate.SERVED
    assert plan.fate("put_if", entropy) is Fate.ERROR_AFTER


def test_each_verb_has_its_own_latency() -> None:
    plan = FaultPlan(latency=Latency(1, 2), latency_by_verb={"put": Latency(10, 20)})
    entropy = SeededEntropy(1)
    for verb, low, high in [("get", 1, 2), ("put", 10, 20)]:
        courses = [plan.course(verb, Fate.SERVED, entropy) for _ in range(100)]
        assert all(low <= course.answers <= high for course in courses)
        assert all(course.lands is not None and 0 <= course.lands <= course.answers for course in courses)


def test_a_slow_share_of_requests_takes_far_longer() -> None:
    latency, entropy = Latency(0.01, 0.02, slow_chance=0.1, slow_seconds_max=9.0), SeededEntropy(1)
    drawn = [latency.draw(entropy) for _ in range(1000)]
    assert 50 < sum(seconds > 0.02 for seconds in drawn) < 150
    assert 5.0 < max(drawn) <= 9.0


@pytest.mark.parametrize("fate", FAULTS)
def test_a_fate_decides_whether_and_when_a_request_lands(fate: Fate) -> None:
    plan, entropy = FaultPlan(latency=Latency(1, 2), timeout_seconds=10, zombie_seconds_max=60), SeededEntropy(1)
    never = {Fate.THROTTLED, Fate.ERROR_BEFORE, Fate.REQUEST_LOST, Fate.CRASH_BEFORE}
    waits_in_vain = {Fate.REQUEST_LOST, Fate.REPLY_LOST, Fate.ZOMBIE}
    for _ in range(100):
        course = plan.course("put_if", fate, entropy)
        assert (course.lands is None) == (fate in never)
        assert course.answers == 10 if fate in waits_in_vain else course.answers <= 2
        if course.lands is not None:
            assert (course.lands > course.answers) == (fate is Fate.ZOMBIE)
            assert course.lands <= 60


def test_chances_beyond_one_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"add up to 1\.2"):
        FaultPlan(zombie=0.6, throttled=0.6)


def test_a_verb_that_no_store_has_is_refused() -> None:
    with pytest.raises(InvalidInput, match="overwrite"):
        FaultPlan(verbs=frozenset({"overwrite"}))
