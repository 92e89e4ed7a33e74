"""Chunks begin at headings where they can, and tables and code stay whole where they fit."""

from __future__ import annotations

from penstock.documents import Chunker, ChunkingConfig
from penstock.documents.parsers.headings import code_block

CONFIG = ChunkingConfig(target_tokens=120, max_tokens=200, overlap_tokens=0, counter="estimate")


def cores(text: str, config: ChunkingConfig = CONFIG) -> list[str]:
    data = text.encode()
    return [data[chunk.core_start : chunk.end].decode() for chunk in Chunker(config).chunk(data)]


def sentences(about: str, count: int) -> str:
    return " ".join(f"Sentence {number} tells of {about} at some length." for number in range(count))


def test_a_chunk_ends_before_a_heading_and_not_behind_it() -> None:
    sections = [f"## Part {number}\n\n{sentences('otters', 7)}" for number in range(8)]
    found = cores("\n\n".join(sections))
    assert len(found) == 8
    assert all(part.startswith("## Part ") for part in found)


def test_no_heading_stands_alone_at_the_end_of_a_chunk() -> None:
    text = "\n\n".join(f"{sentences('mills', 9)}\n\n# Heading {number}" for number in range(6))
    assert not any(part.rstrip().splitlines()[-1].startswith("# ") for part in cores(text)[:-1])


def test_a_table_that_fits_is_in_one_chunk() -> None:
    table = "\n".join(f"name: row {number} | value: {number * 7} | unit: metres" for number in range(12))
    for before in range(4, 12):
        text = f"{sentences('rivers', before)}\n\n{table}\n\n{sentences('lakes', 12)}"
        assert any(table in part for part in cores(text)), before


def test_code_that_fits_is_in_one_chunk_with_its_empty_lines() -> None:
    code = code_block(
        "def swim(otter):\n    water = find()\n\n    if not water:\n        return None\n\n    return water + 1"
    )
    assert "\n\n" not in code
    for before in range(3, 12):
        text = f"{sentences('rivers', before)}\n\n{code}\n\n{sentences('lakes', 12)}"
        assert any(code in part for part in cores(text)), before


def test_a_table_that_is_too_large_is_cut_between_rows() -> None:
    table = "\n".join(f"name: row {number} | value: {number * 7} | unit: metres" for number in range(200))
    found = cores(f"{sentences('rivers', 3)}\n\n{table}")
    assert len(found) > 10
    assert all(part.endswith(("metres\n", "metres")) for part in found[1:])
    assert "".join(found) == f"{sentences('rivers', 3)}\n\n{table}"


def test_long_code_is_cut_at_its_empty_lines() -> None:
    part = "first = second(third)\nfourth = fifth(sixth)\n"
    found = cores(code_block((part + "\n") * 60))
    assert len(found) > 5
    assert all(each.startswith("first") for each in found)


def test_wrapped_prose_is_no_block_and_is_cut_at_a_sentence() -> None:
    prose = sentences("wrapping", 40).replace(" at some ", "\nat some ")
    assert all(part.rstrip().endswith(".") for part in cores(prose))
