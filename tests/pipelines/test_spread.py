"""Work is spread so that no worker has much more than another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.pipelines.spread import spread


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50), st.integers(1, 8))
def test_every_item_goes_to_one_worker_none_is_idle_and_loads_differ_by_one_item_at_most(
    sizes: list[int], workers: int
) -> None:
    parts = spread(list(range(len(sizes))), sizes, workers)
    assert sorted(item for part in parts for item in part) == list(range(len(sizes)))
    assert len(parts) == min(workers, len(sizes))
    assert all(parts)
    loads = [sum(max(1, sizes[item]) for item in part) for part in parts]
    assert max(loads) - min(loads) <= max(1, *sizes)
