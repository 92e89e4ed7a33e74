from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.testing import SeededEntropy


def _draws(entropy: SeededEntropy) -> list[object]:
    return [
        entropy.token(16),
        entropy.uniform(2, 3),
        entropy.chance(0.5),
        entropy.below(1000),
        entropy.choice("abcdef"),
    ]


@pytest.mark.parametrize("seed", [0, 1, "a seed in words"])
def test_one_seed_gives_the_same_draws_again(seed: int | str) -> None:
    assert _draws(SeededEntropy(seed)) == _draws(SeededEntropy(seed))


def test_other_seeds_give_other_tokens() -> None:
    assert len({SeededEntropy(seed).token(16) for seed in range(1000)}) == 1000


def test_the_draws_of_a_seed_never_change_so_that_an_old_failing_seed_still_replays() -> None:
    assert SeededEntropy(7).token(8).hex() == "155062b6f0e53b90"


def test_a_fork_depends_on_the_seed_and_its_name_but_not_on_what_was_drawn_before() -> None:
    fresh, used = SeededEntropy(3), SeededEntropy(3)
    used.token(100)
    assert _draws(fresh.fork("disk")) == _draws(used.fork("disk"))
    assert fresh.fork("disk").token(8) != fresh.fork("store").token(8)


@pytest.mark.parametrize(
    ("draw", "low", "high"),
    [(lambda e: e.uniform(-1.5, 2.5), -1.5, 2.5), (lambda e: e.below(3), 0, 2)],
)
def test_draws_stay_inside_their_bounds(draw: Callable[[SeededEntropy], float], low: float, high: float) -> None:
    entropy = SeededEntropy(1)
    drawn = [draw(entropy) for _ in range(1000)]
    assert low <= min(drawn) < low + (high - low) / 10 + 0.01
    assert high >= max(drawn) > high - (high - low) / 10 - 0.01


def test_chance_comes_true_as_often_as_it_says() -> None:
    entropy = SeededEntropy(1)
    assert 200 < sum(entropy.chance(0.25) for _ in range(1000)) < 300
    assert not any(entropy.chance(0.0) for _ in range(100))
    assert all(entropy.chance(1.0) for _ in range(100))
