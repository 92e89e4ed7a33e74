"""Work is spread so that no worker has much more than another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.indexing.stages.spread import parts_of, spread


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


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 100))
def test_parts_are_in_order_within_their_bound_and_no_more_of_them_than_needed(sizes: list[int], most: int) -> None:
    parts = parts_of(list(range(len(sizes))), sizes, most)
    assert [item for part in parts for item in part] == list(range(len(sizes)))
    totals = [sum(sizes[item] for item in part) for part in parts]
    assert all(total <= most or len(part) == 1 for total, part in zip(totals, parts, strict=True))
    assert all(total + sizes[after[0]] > most for total, after in zip(totals, parts[1:], strict=False))
