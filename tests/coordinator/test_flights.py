from __future__ import annotations

from tests.coordinator.stores import Upserts

from penstock.coordinator import Epochs
from penstock.coordinator.actions import Reason
from penstock.coordinator.flights import Flight, Flights, Phase


def _flights(*phases: Phase) -> Flights[Upserts]:
    flights: Flights[Upserts] = Flights()
    for number, phase in enumerate(phases, start=1):
        flights.add(Flight(Epochs(number, number), Upserts(), 1, Reason.SIZE, 0.0, phase))
    return flights


def _phases(flights: Flights[Upserts]) -> list[Phase]:
    return [flight.phase for flight in flights]


def test_what_is_durable_leaves_only_when_everything_before_it_is() -> None:
    flights = _flights(Phase.LANDED, Phase.LANDED, Phase.RUNNING)
    first, second, _ = flights
    assert flights.settle(second) == []
    assert flights.settle(first) == [first, second]
    assert _phases(flights) == [Phase.RUNNING]


def test_a_failure_makes_everything_on_top_of_it_due_again() -> None:
    flights = _flights(Phase.LANDED, Phase.LANDED, Phase.SETTLED, Phase.LANDED, Phase.RUNNING)
    _, failed, _, dropped, running = flights
    assert flights.rewind(failed) == [dropped.epochs]
    assert _phases(flights) == [Phase.LANDED, Phase.DUE, Phase.DUE, Phase.DUE, Phase.RUNNING]
    running.land()
    assert running.phase is Phase.DUE


def test_a_repeat_waits_until_everything_before_it_is_durable() -> None:
    flights = _flights(Phase.LANDED, Phase.DUE, Phase.DUE)
    first, second, _ = flights
    assert flights.repeating
    assert flights.due is None
    flights.settle(first)
    assert flights.due is second
    second.start()  # type: ignore[attr-defined]
    assert second.epochs.attempt == 2  # type: ignore[attr-defined]
    assert flights.running
    assert flights.due is None


def test_only_an_attempt_under_way_is_carried() -> None:
    flights = _flights(Phase.DUE, Phase.RUNNING, Phase.LANDED, Phase.SETTLED)
    carried = [flights.carried(flight.epochs) is flight for flight in flights]
    assert carried == [False, True, True, False]
    assert flights.carried(Epochs(2, 2, attempt=9)) is None
