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
    """Semantics that Prometheus makes configurable, and the bounds of one query."""

    lookback_ms: int = 300_000
    subquery_step_ms: int = 60_000
    experimental: bool = False
    steps_max: int = 11_000
    series_max: int = 1_000_000
    samples_max: int = 50_000_000
    depth_max: int = 80
    expression_bytes_max: int = 65_536
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
