from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from penstock.coordinator import CoordinatorConfig
from penstock.errors import InvalidInput


@pytest.mark.parametrize("name", [field.name for field in fields(CoordinatorConfig)])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_every_bound_is_more_than_zero(name: str, value: float) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(InvalidInput, match=f"^{name} = "):
        CoordinatorConfig(**settings)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ("max_pending_bytes", "max_buffered_bytes"),
        ("max_pending_writes", "max_buffered_writes"),
        ("retry_pause_seconds", "retry_pause_seconds_max"),
    ],
)
def test_a_bound_that_could_never_be_reached_is_refused(lower: str, upper: str) -> None:
    settings: dict[str, Any] = {lower: 11, upper: 10}
    with pytest.raises(InvalidInput, match=f"{lower} = 11: it is over {upper} = 10"):
        CoordinatorConfig(**settings)
    CoordinatorConfig(**{**settings, upper: 11})
