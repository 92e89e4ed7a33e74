from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from penstock.errors import InvalidInput
from penstock.testing.campaign import LONG_FACTOR, run_campaign, seeds_of

HARNESS = Path(__file__).parent.parent / "simulation" / "conftest.py"

FAILING = """
import pytest

@pytest.mark.simulation(seeds=50)
def test_that_fails_under_seed_31(seed, tmp_path):
    assert tmp_path.is_dir()
    assert seed != 31
"""


def test_the_usual_seeds_are_the_first_ones_so_that_every_run_is_the_same() -> None:
    assert seeds_of(2000) == range(2000)


def test_a_single_seed_is_replayed_whatever_else_is_asked() -> None:
    assert list(seeds_of(2000, only=77, instead=5, long_from=3)) == [77]


def test_another_count_may_be_asked_for() -> None:
    assert seeds_of(2000, instead=10) == range(10)


def test_a_long_campaign_runs_more_seeds_from_a_place_of_its_own() -> None:
    assert seeds_of(10, long_from=5000) == range(5000, 5000 + 10 * LONG_FACTOR)
    assert seeds_of(10, long_from=5000, instead=3) == range(5000, 5003)


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


def _pytest(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    # Plugins of the environment take seconds to load, and none is needed here.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


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
