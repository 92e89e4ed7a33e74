"""Positions of sources: numbers that are checked when they are given, and damage that stops nobody else."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from tests.blocks.meters import FORMAT

from penstock.blocks import check_position, is_stored, position_operation, read_positions
from penstock.blocks.format.keys import position_key
from penstock.errors import Corrupt, InvalidInput
from penstock.keyvalue import MemoryKeyValue, MemoryVolume


@pytest.mark.parametrize("position", [0, 1, (1 << 63) - 1, np.int64(7), np.uint8(7)])
def test_a_whole_number_from_zero_on_is_a_position(position: Any) -> None:
    assert check_position("queue", position) == int(position)
    assert type(check_position("queue", position)) is int


@pytest.mark.parametrize("position", [-1, 1 << 63, 1.0, True, "1", np.float64(1)])
def test_anything_else_is_refused_with_the_sources_name(position: Any) -> None:
    with pytest.raises(InvalidInput, match="queue"):
        check_position("queue", position)


def test_a_source_and_its_position_are_given_together_or_not_at_all() -> None:
    assert check_position(None, None) is None
    for source, position in (("queue", None), (None, 1)):
        with pytest.raises(InvalidInput, match="both, or neither"):
            check_position(source, position)
    with pytest.raises(InvalidInput):
        check_position("", 1)


def test_a_position_is_stored_when_its_source_has_reached_it() -> None:
    assert [is_stored({"queue": 5}, "queue", position) for position in (4, 5, 6)] == [True, True, False]
    assert not is_stored({"queue": 5}, "other", 0)
    assert not is_stored({"queue": 5}, None, None)


def test_a_damaged_position_is_named_with_its_remedy_and_the_others_are_read() -> None:
    async def work() -> None:
        volume = MemoryVolume()
        volume.land("keyvalue", [position_operation(FORMAT, "queue", 1 << 40), (position_key("lost"), b"damaged")])
        found = await read_positions(MemoryKeyValue(volume), FORMAT)
        assert found.of("queue") == 1 << 40
        assert found.of("never seen") is None
        with pytest.raises(Corrupt, match="penstock meters repair --position lost=NUMBER"):
            found.of("lost")

    asyncio.run(work())


def test_a_source_can_begin_anew() -> None:
    assert position_operation(FORMAT, "queue", None) == (position_key("queue"), None)
