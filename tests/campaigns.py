"""Tests that run under many seeds: `@pytest.mark.simulation(seeds=N)` and `@pytest.mark.chaos(seeds=N)`.

A test with one of these marks that takes `seed` is run N times, each with a seed and, if it takes `tmp_path`, a
folder of its own. `--seed S` replays one seed, `--seeds N` sets the count; both need a path on the command line, as in
`.venv/bin/python -m pytest tests/simulation --seeds 100`. PENSTOCK_SEEDS=N sets the count of a whole run.

PENSTOCK_QUICK=1 (`make quick`) keeps proofs short while coding: few seeds, few examples of a property, and of a test
marked `@pytest.mark.cases(quick=N)` the first N of its parameter sets. `make test` runs all of each.

PENSTOCK_CHAOS_MINUTES=M (`make chaos`) runs random seeds instead for M minutes: every campaign gets its share of the
time, by the `weight` of its mark, and the counts are printed at the end.
"""

from __future__ import annotations

import inspect
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings

from penstock.testing.simulation.campaign import Budget, CampaignTally, run_campaign, seeds_of

MINUTES: Final = float(os.environ.get("PENSTOCK_CHAOS_MINUTES") or 0)
IS_QUICK: Final = bool(os.environ.get("PENSTOCK_QUICK"))
_QUICK_SEEDS: Final = 4
_QUICK_EXAMPLES: Final = 20
# A test may try harder in a long run: a larger file, more power cuts.
IS_LONG: Final = MINUTES > 0

_BUDGET: Final = pytest.StashKey[Budget]()
_TALLIES: Final = pytest.StashKey[dict[str, CampaignTally]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("campaigns")
    group.addoption("--seed", type=int, help="replay this one seed")
    group.addoption("--seeds", type=int, help="run so many seeds instead of each test's own count")


def examples(count: int) -> int:
    """How many examples of a property to try: the property's own count, or a few in a quick run."""
    return min(count, _QUICK_EXAMPLES) if IS_QUICK else count


# Machines are noisy: how long an example takes never fails a test.
settings.register_profile("penstock", deadline=None, max_examples=examples(100))
settings.load_profile("penstock")


@pytest.fixture
def seed() -> int:
    """Stands in for the seed until the campaign gives each run its own."""
    return -1


def _campaign_mark(item: pytest.Item) -> pytest.Mark | None:
    marks = (item.get_closest_marker(name) for name in ("simulation", "chaos"))
    return next((mark for mark in marks if mark and "seeds" in mark.kwargs), None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a long run, seeds that take milliseconds go first: rounds of killed processes overrun their shares.

    In a quick run, parameter sets beyond those that a test wants in it are left out.
    """
    if IS_LONG:
        items.sort(key=lambda item: item.get_closest_marker("chaos") is not None)
    if IS_QUICK:
        kept = set(_first_cases(items))
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def _first_cases(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    seen: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("cases")
        name = item.nodeid.partition("[")[0]
        seen[name] += 1
        if mark is None or seen[name] <= mark.kwargs["quick"]:
            yield item


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[_TALLIES] = {}
    weights = {
        item.nodeid: float(mark.kwargs.get("weight", 1)) for item in session.items if (mark := _campaign_mark(item))
    }
    if IS_LONG and weights:
        session.config.stash[_BUDGET] = Budget(60 * MINUTES, weights)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    mark = _campaign_mark(pyfuncitem)
    if mark is None:
        return None
    config, budget = pyfuncitem.config, pyfuncitem.config.stash.get(_BUDGET, None)
    tally = run_campaign(
        partial(_trial, pyfuncitem),
        _seeds(config, mark.kwargs["seeds"], is_endless=budget is not None),
        partial(_replay, pyfuncitem),
        seconds=budget.share(pyfuncitem.nodeid) if budget else None,
    )
    config.stash[_TALLIES][pyfuncitem.nodeid] = tally
    return True


def _trial(item: pytest.Function, seed: int) -> object:
    parameters = inspect.signature(item.obj).parameters
    arguments: dict[str, Any] = {name: item.funcargs[name] for name in parameters if name != "seed"}
    if "tmp_path" not in arguments:
        return item.obj(**arguments, seed=seed)
    folder = Path(arguments["tmp_path"]) / f"seed-{seed}"
    folder.mkdir()
    result = item.obj(**{**arguments, "tmp_path": folder}, seed=seed)
    # A long campaign would fill the disk; what a failed seed leaves is kept.
    shutil.rmtree(folder)
    return result


def _seeds(config: pytest.Config, count: int, *, is_endless: bool) -> Any:
    # Unknown to pytest when this file is found only during collection; then nobody can have given them.
    only, instead = config.getoption("seed", None), config.getoption("seeds", None)
    from_environment = os.environ.get("PENSTOCK_SEEDS")
    if instead is None and from_environment:
        instead = int(from_environment)
    if instead is None and IS_QUICK:
        instead = min(count, _QUICK_SEEDS)
    return seeds_of(count, only=only, instead=instead, endless_from=random.randrange(1 << 40) if is_endless else None)


def _replay(item: pytest.Function, seed: int) -> str:
    return f".venv/bin/python -m pytest '{item.nodeid}' --seed {seed}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    tallies = config.stash.get(_TALLIES, {})
    if not IS_LONG or not tallies:
        return
    terminalreporter.section(f"campaigns that passed, of {MINUTES:g} minutes")
    for nodeid, tally in tallies.items():
        terminalreporter.line(f"{tally.runs:>8,} from seed {tally.first_seed:<14} {tally.seconds:7.1f} s  {nodeid}")
