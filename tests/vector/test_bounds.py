"""Numbers that callers give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.errors import InvalidInput
from penstock.vector.bounds import whole_number


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_a_whole_number_of_any_integer_type_is_pythons_own(value: Any) -> None:
    found = whole_number("k", value, 1, 5, "from 1 to 5")
    assert (found, type(found)) == (3, int)


@pytest.mark.parametrize("value", [2.0, "2", None, True, np.float32(2), np.bool_(True), [2]])
def test_what_is_no_whole_number_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"k = .*not a whole number: from 1 to 5"):
        whole_number("k", value, 1, 5, "from 1 to 5")


@pytest.mark.parametrize("value", [0, 6, -(1 << 70)])
def test_a_number_out_of_bounds_is_refused_with_the_bounds(value: int) -> None:
    with pytest.raises(InvalidInput, match=f"k = {value}: from 1 to 5"):
        whole_number("k", value, 1, 5, "from 1 to 5")
