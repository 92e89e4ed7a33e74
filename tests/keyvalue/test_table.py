"""A shared table never changes; blocks hold about what was asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.keyvalue.table import Table, blocks


def everything(table: Table) -> list[tuple[bytes, bytes]]:
    return list(table.entries(b"", None, reverse=False))


def test_a_shared_table_is_unchanged_by_what_follows() -> None:
    table = Table().changed([(b"a", b"1")])
    kept = table.share()
    later = table.changed([(b"a", b"2"), (b"b", b"2")])
    assert everything(kept) == [(b"a", b"1")]
    assert everything(later) == [(b"a", b"2"), (b"b", b"2")]


def test_a_table_that_nobody_shares_is_not_copied() -> None:
    table = Table()
    assert table.changed([(b"a", b"1")]) is table


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=2), st.none() | st.binary(max_size=2)), max_size=40))
def test_any_operations_leave_the_keys_sorted(operations: list[tuple[bytes, bytes | None]]) -> None:
    model: dict[bytes, bytes] = {}
    for key, value in operations:
        model.pop(key, None) if value is None else model.update({key: value})
    assert everything(Table().changed(operations)) == sorted(model.items())


@given(st.lists(st.binary(max_size=30)), st.integers(1, 50))
def test_blocks_lose_nothing_and_are_full_but_for_the_last(values: list[bytes], size: int) -> None:
    entries = [(b"k", value) for value in values]
    made = list(blocks(entries, size))
    assert [entry for block in made for entry in block] == entries
    assert all(sum(1 + len(value) for _, value in block) >= size for block in made[:-1])
