"""Numbers as Prometheus writes them: the shortest digits that mean the same value."""

from __future__ import annotations

import math
from decimal import Decimal

__all__ = ["general_text", "go_text", "open_metrics_text", "plain_text"]

# Outside of these, JSON has an exponent.
_PLAIN_MIN, _PLAIN_MAX = 1e-6, 1e21
_GO_PLAIN_MIN, _GO_PLAIN_MAX = 1e-4, 1e6


def plain_text(value: float) -> str:
    """Without an exponent, however long."""
    if not math.isfinite(value):
        return _special(value)
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def go_text(value: float) -> str:
    """As Go prints a number in a message: from a million on, and below a ten thousandth, with an exponent."""
    size = abs(value)
    if not math.isfinite(value) or size == 0 or _GO_PLAIN_MIN <= size < _GO_PLAIN_MAX:
        return plain_text(value)
    digits, _, exponent = format(Decimal(repr(value)).normalize(), "e").partition("e")
    return f"{digits}e{exponent[0]}{exponent[1:].zfill(2)}"


def general_text(value: float) -> str:
    """With an exponent where the number would be long, as in JSON."""
    text = repr(value)
    if "e" not in text and "n" not in text:
        # Most numbers: Python writes the same digits.
        return text.removesuffix(".0")
    size = abs(value)
    if not math.isfinite(value) or size == 0 or _PLAIN_MIN <= size < _PLAIN_MAX:
        return plain_text(value)
    digits, _, exponent = format(Decimal(text).normalize(), "e").partition("e")
    return f"{digits}e{exponent}"


def open_metrics_text(value: float) -> str:
    """As OpenMetrics writes quantiles: whole numbers have a decimal, and zero has no sign."""
    text = go_text(value or 0.0)
    return f"{text}.0" if text.lstrip("-").isdecimal() else text


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"
