"""The bounds of a query: what it may read, hold and take, and the defaults of Prometheus where it has some."""

from __future__ import annotations

import dataclasses

from penstock.errors import InvalidInput

__all__ = ["EngineConfig"]

# Parsing uses six Python frames per level of nesting and evaluation fewer; the interpreter has a thousand, and the
# caller needs some.
_DEPTH_CEILING = 100


@dataclasses.dataclass(frozen=True)
class EngineConfig:
    """PromQL settings that Prometheus makes configurable, and the limits of one query."""

    # How far an instant selector looks back for a series' newest sample, in milliseconds.
    lookback_ms: int = 300_000
    # Default step of a subquery, in milliseconds.
    subquery_step_ms: int = 60_000
    # Whether to enable Prometheus' experimental functions, aggregations and syntax.
    experimental: bool = False
    # Maximum steps of a range query.
    steps_max: int = 11_000
    # Maximum series of any part of a query.
    series_max: int = 1_000_000
    # Maximum samples that a selector loads, and maximum cells (series × steps) of any part of a query.
    samples_max: int = 50_000_000
    # Maximum nesting of an expression; at most 100.
    depth_max: int = 80
    # Maximum length of an expression, in bytes.
    expression_bytes_max: int = 65_536
    # Time limit of one query, in seconds, checked between its parts.
    timeout_seconds: float = 120.0

    def __post_init__(self) -> None:
        for field in ("lookback_ms", "subquery_step_ms", "steps_max", "series_max", "samples_max", "depth_max"):
            if getattr(self, field) < 1:
                raise InvalidInput(f"EngineConfig.{field} is {getattr(self, field)}", "it must be at least 1")
        if self.depth_max > _DEPTH_CEILING:
            raise InvalidInput(
                f"EngineConfig.depth_max is {self.depth_max}", f"the interpreter's stack holds at most {_DEPTH_CEILING}"
            )
        if self.expression_bytes_max < 1 or not self.timeout_seconds > 0:
            raise InvalidInput("EngineConfig has a limit that rejects every query", "bounds must be positive")
