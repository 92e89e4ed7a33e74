"""Simulation tests: `@pytest.mark.simulation(seeds=N)` on a test that takes `seed` runs it under N seeds.

`--seed S` replays one seed, `--seeds N` sets the count; both need a path on the command line, as in
`.venv/bin/python -m pytest tests/simulation --seeds 100`. PENSTOCK_SEEDS=N sets the count of a whole run,
PENSTOCK_CAMPAIGN=long raises all counts and begins at a random seed.
"""

from __future__ import annotations

import inspect
import os
import random
from functools import partial

import pytest

from penstock.testing.campaign import run_campaign, seeds_of


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--seed", type=int, help="replay this one seed")
    group.addoption("--seeds", type=int, help="run so many seeds instead of each test's own count")


@pytest.fixture
def seed() -> int:
    """Stands in for the seed until the campaign gives each run its own."""
    return -1


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    mark = pyfuncitem.get_closest_marker("simulation")
    parameters = inspect.signature(pyfuncitem.obj).parameters
    if mark is None or "seed" not in parameters:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in parameters if name != "seed"}

    def trial(seed: int) -> object:
        return pyfuncitem.obj(**arguments, seed=seed)

    run_campaign(trial, _seeds(pyfuncitem.config, mark.kwargs["seeds"]), partial(_replay, pyfuncitem))
    return True


def _seeds(config: pytest.Config, count: int) -> range:
    # Unknown to pytest when this file is found only during collection; then nobody can have given them.
    only, instead = config.getoption("seed", None), config.getoption("seeds", None)
    from_environment = os.environ.get("PENSTOCK_SEEDS")
    if instead is None and from_environment:
        instead = int(from_environment)
    is_long = os.environ.get("PENSTOCK_CAMPAIGN") == "long"
    return seeds_of(count, only=only, instead=instead, long_from=random.randrange(1 << 40) if is_long else None)


def _replay(item: pytest.Function, seed: int) -> str:
    return f".venv/bin/python -m pytest '{item.nodeid}' --seed {seed}"
