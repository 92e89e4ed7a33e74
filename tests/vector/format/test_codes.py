"""Codes: what they lose is bounded, and the bound holds for every score."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.vector.format.codes import RELATIVE_ERROR, code_bytes, decode, encode, uncertainty
from penstock.vector.format.metric import DistanceMetric


def drawn(seed: int, rows: int = 400, dimensions: int = 24, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((rows, dimensions)) * scale).astype(np.float32)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e12])
def test_no_component_is_off_by_more_than_the_stated_share(scale: float) -> None:
    vectors = drawn(1, scale=scale)
    codes = encode(vectors)
    assert codes.shape == (400, code_bytes(24))
    assert (np.abs(decode(codes) - vectors) <= RELATIVE_ERROR * np.abs(vectors)).all()


def test_a_code_of_a_code_is_the_same() -> None:
    codes = encode(drawn(2))
    assert (encode(decode(codes)) == codes).all()


def test_codes_are_the_upper_halves_of_floats_rounded() -> None:
    bits = drawn(3, 4, 8).view(np.uint32)
    assert (encode(bits.view(np.float32)).view("<u2") == (bits + 0x8000) >> 16).all()


def scores(metric: DistanceMetric, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Of every query with every row."""
    if metric is DistanceMetric.L2:
        return -((queries[:, None, :] - rows[None, :, :]) ** 2).sum(axis=2)
    return queries @ rows.T


@pytest.mark.cases(quick=7)
@pytest.mark.parametrize("metric", list(DistanceMetric))
@pytest.mark.parametrize("scale", [0.01, 1.0, 300.0])
def test_a_true_score_is_never_beyond_the_codes_score_and_its_uncertainty(metric: DistanceMetric, scale: float) -> None:
    rows = metric.prepare(drawn(4, 3000, scale=scale))
    queries = metric.prepare(np.concatenate([drawn(5, 5, scale=scale), rows[:5]]))
    true, coded = scores(metric, queries, rows), scores(metric, queries, decode(encode(rows)))
    norm_max = float(np.linalg.norm(rows, axis=1).max())
    norms = np.linalg.norm(queries, axis=1)
    for column in range(0, 3000, 7):
        highest = coded[:, column] + uncertainty(metric, norms, norm_max, coded[:, column])
        assert (true[:, column] <= highest).all()


def test_no_rows_have_no_codes() -> None:
    assert encode(drawn(6, 0)).shape == (0, 48)
    assert decode(np.empty((0, 48), np.uint8)).shape == (0, 24)
