"""The two-byte codes that lists are scanned in: each component as the upper half of its float (bfloat16).

Chosen because it needs no training and has no range: data may drift for years and codes stay as true as on
the first day, and a list is split by moving codes, without the vectors. A scan reads half the bytes of full
floats and returns candidates; exact distances come from the stored vectors.
"""

from __future__ import annotations

from typing import Final

import faiss
import numpy as np

from penstock.vector.arrays import Bytes, Floats
from penstock.vector.format.metric import DistanceMetric

__all__ = ["QUANTIZER_TYPE", "RELATIVE_ERROR", "code_bytes", "decode", "encode", "uncertainty"]

QUANTIZER_TYPE: Final = faiss.ScalarQuantizer.QT_bf16
# Eight significant bits, rounded to the nearest: half a unit in the last place.
RELATIVE_ERROR: Final = 2.0**-8
# Rounding of the sums in the kernel itself, relative to the largest possible sum.
_KERNEL_ERROR: Final = 1e-5


def code_bytes(dimensions: int) -> int:
    return 2 * dimensions


def encode(vectors: Floats) -> Bytes:
    """Codes of prepared vectors, a row each."""
    if not len(vectors):
        return np.empty((0, code_bytes(vectors.shape[1])), np.uint8)
    codes: Bytes = _quantizer(vectors.shape[1]).compute_codes(np.ascontiguousarray(vectors, np.float32))
    return codes


def decode(codes: Bytes) -> Floats:
    """The vectors that codes stand for."""
    if not len(codes):
        return np.empty((0, codes.shape[1] // 2), np.float32)
    vectors: Floats = _quantizer(codes.shape[1] // 2).decode(np.ascontiguousarray(codes))
    return vectors


def uncertainty(metric: DistanceMetric, query_norms: Floats, norm_max: float, scores: Floats) -> Floats:
    """By how much at most a row's true score may be over the one its code gives, for scores of a scan.

    Under dot the error of a code is turned by the query: |q · (x - c)| <= |q| |x| e. Under L2 distances
    differ by at most |x - c| <= |x| e, and scores are their squares.
    """
    if metric is not DistanceMetric.L2:
        bound: Floats = query_norms * norm_max * (RELATIVE_ERROR + _KERNEL_ERROR)
        return bound
    distance = np.sqrt(np.maximum(-scores, 0))
    nearest = np.maximum(distance - norm_max * RELATIVE_ERROR, 0)
    widest = query_norms + norm_max
    raised: Floats = -(nearest**2) - scores + widest**2 * _KERNEL_ERROR
    return raised


def _quantizer(dimensions: int) -> faiss.ScalarQuantizer:
    return faiss.ScalarQuantizer(dimensions, QUANTIZER_TYPE)
