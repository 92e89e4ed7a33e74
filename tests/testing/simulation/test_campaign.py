from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import count, islice
from pathlib import Path

import pytest

from penstock.errors import InvalidInput
from penstock.testing import ManualClock
from penstock.testing.simulation.campaign import Budget, CampaignTally, run_campaign, seeds_of

HARNESS = Path(__file__).parents[2] / "campaigns.py"

FAILING = """
import pytest

@pytest.mark.simulation(seeds=50)
def test_that_fails_under_seed_31(seed, tmp_path):
    assert tmp_path.is_dir()
    assert seed != 31
"""


TWO_CAMPAIGNS = """
import pytest

@pytest.mark.simulation(seeds=1)
def test_one(seed):
    pass

@pytest.mark.chaos(seeds=1, weight=3)
def test_other(seed, tmp_path):
    (tmp_path / "file").touch(exist_ok=False)
"""


def test_the_usual_seeds_are_the_first_ones_so_that_every_run_is_the_same() -> None:
    assert seeds_of(2000) == range(2000)


def test_a_single_seed_is_replayed_whatever_else_is_asked() -> None:
    assert list(seeds_of(2000, only=77, instead=5, endless_from=3)) == [77]


def test_another_count_may_be_asked_for() -> None:
    assert seeds_of(2000, instead=10) == range(10)


def test_a_campaign_bounded_by_time_runs_from_its_first_seed_without_end() -> None:
    assert list(islice(seeds_of(2, endless_from=5000), 4)) == [5000, 5001, 5002, 5003]


def test_a_campaign_ends_once_its_time_is_up_and_tells_what_it_ran() -> None:
    clock = ManualClock()

    def trial(seed: int) -> None:
        clock.advance(2.0)

    assert run_campaign(trial, count(7), str, seconds=5.0, clock=clock) == CampaignTally(3, 7, 6.0)


def test_a_campaign_whose_time_is_up_before_it_begins_still_runs_one_seed() -> None:
    assert run_campaign(lambda _: None, count(), str, seconds=0.0, clock=ManualClock()).runs == 1


def test_campaigns_share_a_budget_by_weight_and_what_one_leaves_over_goes_to_the_rest() -> None:
    clock = ManualClock()
    budget = Budget(100.0, {"a": 1, "b": 3, "c": 1}, clock)
    assert budget.share("a") == 20.0
    clock.advance(4.0)
    assert budget.share("b") == 72.0
    clock.advance(80.0)
    assert budget.share("c") == 16.0


def test_a_budget_that_is_used_up_gives_nothing_more() -> None:
    clock = ManualClock()
    budget = Budget(10.0, {"a": 1, "b": 1}, clock)
    clock.advance(11.0)
    assert budget.share("a") == 0.0


def test_a_budget_of_no_time_is_refused() -> None:
    with pytest.raises(InvalidInput, match="budget of 0 s"):
        Budget(0.0, {"a": 1})


def test_a_campaign_of_no_seeds_is_refused_instead_of_passing() -> None:
    with pytest.raises(InvalidInput, match="without having run"):
        seeds_of(10, instead=0)


def test_the_first_failing_seed_is_raised_with_the_command_that_replays_it() -> None:
    tried: list[int] = []

    def trial(seed: int) -> None:
        tried.append(seed)
        assert seed < 5

    with pytest.raises(AssertionError) as failure:
        run_campaign(trial, range(100), lambda seed: f"replay --seed {seed}")
    assert tried == [0, 1, 2, 3, 4, 5]
    assert failure.value.__notes__ == ["seed 5 failed, the 6. of this run; replay it with\n    replay --seed 5"]


def test_a_trial_that_cannot_be_repeated_fails() -> None:
    numbers = count()
    with pytest.raises(AssertionError, match="not repeatable: 0 at first, then 1"):
        run_campaign(lambda _: next(numbers), range(3), str)


def _pytest(folder: Path, *arguments: str, minutes: str = "", quick: str = "") -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    # Plugins of the environment take seconds to load, and none is needed here.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    environment["PENSTOCK_CHAOS_MINUTES"] = minutes
    environment["PENSTOCK_QUICK"] = quick
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


@pytest.mark.processes
def test_a_failing_simulation_prints_its_seed_and_the_printed_command_replays_it(tmp_path: Path) -> None:
    shutil.copy(HARNESS, tmp_path / "conftest.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = simulation: many seeds\n")
    (tmp_path / "test_failing.py").write_text(FAILING)
    printed = _pytest(tmp_path, "test_failing.py")
    command = re.search(r"-m pytest (.*--seed 31)", printed)
    assert "seed 31 failed, the 32. of this run" in printed
    assert command
    assert "seed 31 failed, the 1. of this run" in _pytest(tmp_path, *shlex.split(command.group(1)))
    assert "1 passed" in _pytest(tmp_path, "test_failing.py", "--seeds", "31")


@pytest.mark.processes
def test_a_long_run_gives_every_campaign_a_share_of_the_minutes_and_prints_the_counts(tmp_path: Path) -> None:
    shutil.copy(HARNESS, tmp_path / "conftest.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  simulation: seeds\n  chaos: kills\n")
    (tmp_path / "test_two.py").write_text(TWO_CAMPAIGNS)
    printed = _pytest(tmp_path, "test_two.py", minutes="0.02")
    assert "2 passed" in printed
    counts = re.findall(r"^ *([\d,]+) from seed \d+ +([\d.]+) s  test_two.py::(\w+)$", printed, re.MULTILINE)
    assert [name for _, _, name in counts] == ["test_one", "test_other"]
    assert all(int(runs.replace(",", "")) > 1 for runs, _, _ in counts), printed


MANY_CASES = """
import pytest

@pytest.mark.cases(quick=2)
@pytest.mark.parametrize("case", range(5))
def test_cases(case): pass

@pytest.mark.parametrize("case", range(3))
def test_others(case): pass

@pytest.mark.simulation(seeds=40)
def test_seeds(seed): assert seed < 4
"""


@pytest.mark.processes
def test_a_quick_run_tries_the_first_cases_and_few_seeds_and_any_other_all(tmp_path: Path) -> None:
    shutil.copy(HARNESS, tmp_path / "conftest.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  simulation: seeds\n  cases: of a quick run\n")
    (tmp_path / "test_many.py").write_text(MANY_CASES)
    assert "6 passed, 3 deselected" in _pytest(tmp_path, "test_many.py", quick="1")
    printed = _pytest(tmp_path, "test_many.py")
    assert "8 passed" in printed
    assert "seed 4 failed" in printed
