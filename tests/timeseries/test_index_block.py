"""Blocks of the inverted index: merging puts rows of one label together, and changes nothing else."""

from __future__ import annotations

import random

import pyroaring

from penstock.timeseries.format.index_block import IndexBlock
from penstock.timeseries.format.keys import label_key

# The second pair joins to the text of the third.
LABELS = [("a", "1"), ("a", "2"), ("ab", "c"), ("a", "bc"), ("b", ""), ("ü", "ü")]


def block(rows: list[tuple[str, str, list[int]]]) -> IndexBlock:
    return IndexBlock.of(
        [label_key(7, name, value) for name, value, _ in rows],
        [name for name, _, _ in rows],
        [value for _, value, _ in rows],
        [pyroaring.BitMap(ids).serialize() for _, _, ids in rows],
    )


def rows_of(index: IndexBlock) -> list[tuple[int, str, str, list[int]]]:
    bitmaps = (list(pyroaring.BitMap.deserialize(body)) for body in index.bitmaps.to_pylist())
    return list(zip(index.keys.tolist(), index.names.to_pylist(), index.values.to_pylist(), bitmaps, strict=True))


def test_merging_joins_rows_of_one_label_where_it_comes_first() -> None:
    chance = random.Random(1)
    for _ in range(200):
        parts = [
            [(*chance.choice(LABELS), chance.sample(range(200_000), chance.randint(1, 5))) for _ in range(size)]
            for size in (chance.randint(0, 6), chance.randint(0, 6), chance.randint(0, 3))
        ]
        expected: dict[tuple[str, str], set[int]] = {}
        for name, value, ids in (row for part in parts for row in part):
            expected.setdefault((name, value), set()).update(ids)
        assert rows_of(IndexBlock.merge([block(part) for part in parts])) == [
            (label_key(7, name, value), name, value, sorted(ids)) for (name, value), ids in expected.items()
        ]


def test_merging_nothing_but_new_labels_keeps_all_rows() -> None:
    parts = [block([("a", str(number), [number])]) for number in range(5)]
    assert [row[2] for row in rows_of(IndexBlock.merge(parts))] == ["0", "1", "2", "3", "4"]
