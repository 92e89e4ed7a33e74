"""Every error says what, why and remedy, and keeps saying it on the other side of a process."""

import pickle

import pytest

from penstock import errors
from penstock.errors import AtCapacity, DeadlineExceeded, OutcomeUnknown, PenstockError, Unavailable

ALL = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("kind", ALL)
def test_an_error_tells_what_why_and_remedy(kind: type[PenstockError]) -> None:
    error = kind("the thing failed", "it was on fire", "use water")
    assert str(error) == "the thing failed: it was on fire (use water)"
    assert (error.what, error.why, error.remedy) == ("the thing failed", "it was on fire", "use water")


@pytest.mark.parametrize("kind", ALL)
def test_an_error_raised_without_a_remedy_has_the_usual_one_of_its_kind(kind: type[PenstockError]) -> None:
    error = pickle.loads(pickle.dumps(kind("the thing failed", "it was on fire")))
    assert error.remedy == kind.usual_remedy != ""
    assert str(error) == "the thing failed: it was on fire", "so that an error can quote another one"


@pytest.mark.parametrize("kind", ALL)
def test_an_error_survives_pickling_between_processes(kind: type[PenstockError]) -> None:
    copy = pickle.loads(pickle.dumps(kind("what", "why", "remedy")))
    assert type(copy) is kind
    assert str(copy) == "what: why (remedy)"


def test_a_rejected_write_comes_back_inside_the_error() -> None:
    assert pickle.loads(pickle.dumps(AtCapacity("full", rejected=[b"x"]))).rejected == [b"x"]


def test_an_unknown_outcome_is_never_caught_as_a_failure_that_may_be_retried() -> None:
    assert not issubclass(OutcomeUnknown, Unavailable)
    assert issubclass(DeadlineExceeded, Unavailable)


@pytest.mark.parametrize("kind", ALL)
def test_the_tree_at_the_top_of_the_module_names_every_error(kind: type[PenstockError]) -> None:
    assert errors.__doc__ is not None
    assert f" {kind.__name__}" in errors.__doc__.replace("\n", " ")
