"""What functions and aggregations take and give, as Prometheus' documentation lists them."""

from __future__ import annotations

import dataclasses

from penstock.timeseries.promql.syntax.tree import ValueType

__all__ = ["AGGREGATIONS", "EXPERIMENTAL_AGGREGATIONS", "SIGNATURES", "UNSUPPORTED", "FunctionSignature"]


@dataclasses.dataclass(frozen=True)
class FunctionSignature:
    """Types of arguments and of the result. `optional` counts trailing arguments that may be left out; the last type
    may repeat `repeats` times more, or without end if that is -1."""

    arguments: tuple[ValueType, ...]
    result: ValueType = ValueType.VECTOR
    optional: int = 0
    repeats: int = 0
    experimental: bool = False

    @property
    def count_min(self) -> int:
        return len(self.arguments) - self.optional

    @property
    def count_max(self) -> int | None:
        return None if self.repeats < 0 else len(self.arguments) + self.repeats

    def type_of(self, index: int) -> ValueType:
        return self.arguments[min(index, len(self.arguments) - 1)]


_SCALAR, _STRING, _VECTOR, _MATRIX = ValueType.SCALAR, ValueType.STRING, ValueType.VECTOR, ValueType.MATRIX

_ELEMENTWISE = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "deg",
    "exp",
    "floor",
    "ln",
    "log10",
    "log2",
    "rad",
    "sgn",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "timestamp",
]
_OTHER_VECTOR = [
    "absent",
    "histogram_avg",
    "histogram_count",
    "histogram_stddev",
    "histogram_stdvar",
    "histogram_sum",
    "sort",
    "sort_desc",
]
_DATES = ["day_of_month", "day_of_week", "day_of_year", "days_in_month", "hour", "minute", "month", "year"]
_RANGE = [
    "absent_over_time",
    "avg_over_time",
    "changes",
    "count_over_time",
    "delta",
    "deriv",
    "first_over_time",
    "idelta",
    "increase",
    "irate",
    "last_over_time",
    "max_over_time",
    "min_over_time",
    "present_over_time",
    "rate",
    "resets",
    "stddev_over_time",
    "stdvar_over_time",
    "sum_over_time",
]
_EXPERIMENTAL_RANGE = [
    "mad_over_time",
    "ts_of_first_over_time",
    "ts_of_last_over_time",
    "ts_of_max_over_time",
    "ts_of_min_over_time",
]

SIGNATURES: dict[str, FunctionSignature] = {
    **dict.fromkeys([*_ELEMENTWISE, *_OTHER_VECTOR], FunctionSignature((_VECTOR,))),
    **dict.fromkeys(_DATES, FunctionSignature((_VECTOR,), optional=1)),
    **dict.fromkeys(_RANGE, FunctionSignature((_MATRIX,))),
    **dict.fromkeys(_EXPERIMENTAL_RANGE, FunctionSignature((_MATRIX,), experimental=True)),
    "clamp": FunctionSignature((_VECTOR, _SCALAR, _SCALAR)),
    "clamp_max": FunctionSignature((_VECTOR, _SCALAR)),
    "clamp_min": FunctionSignature((_VECTOR, _SCALAR)),
    "double_exponential_smoothing": FunctionSignature((_MATRIX, _SCALAR, _SCALAR), experimental=True),
    "end": FunctionSignature((), _SCALAR, experimental=True),
    "histogram_fraction": FunctionSignature((_SCALAR, _SCALAR, _VECTOR)),
    "histogram_quantile": FunctionSignature((_SCALAR, _VECTOR)),
    "histogram_quantiles": FunctionSignature((_VECTOR, _STRING, _SCALAR), repeats=9, experimental=True),
    "info": FunctionSignature((_VECTOR, _VECTOR), optional=1, experimental=True),
    "label_join": FunctionSignature((_VECTOR, _STRING, _STRING, _STRING), optional=1, repeats=-1),
    "label_replace": FunctionSignature((_VECTOR, _STRING, _STRING, _STRING, _STRING)),
    "max_of": FunctionSignature((_SCALAR, _SCALAR), _SCALAR, experimental=True),
    "min_of": FunctionSignature((_SCALAR, _SCALAR), _SCALAR, experimental=True),
    "pi": FunctionSignature((), _SCALAR),
    "predict_linear": FunctionSignature((_MATRIX, _SCALAR)),
    "quantile_over_time": FunctionSignature((_SCALAR, _MATRIX)),
    "range": FunctionSignature((), _SCALAR, experimental=True),
    "round": FunctionSignature((_VECTOR, _SCALAR), optional=1),
    "scalar": FunctionSignature((_VECTOR,), _SCALAR),
    "sort_by_label": FunctionSignature((_VECTOR, _STRING), optional=1, repeats=-1, experimental=True),
    "sort_by_label_desc": FunctionSignature((_VECTOR, _STRING), optional=1, repeats=-1, experimental=True),
    "start": FunctionSignature((), _SCALAR, experimental=True),
    "start_timestamp": FunctionSignature((_VECTOR,), experimental=True),
    "step": FunctionSignature((), _SCALAR, experimental=True),
    "time": FunctionSignature((), _SCALAR),
    "vector": FunctionSignature((_SCALAR,)),
}

# Known to the parser, and refused by name: what they need is not stored.
UNSUPPORTED = {
    "start_timestamp": "it needs start timestamps of samples",
}

# By the type of their parameter.
AGGREGATIONS: dict[str, ValueType | None] = {
    **dict.fromkeys(["avg", "count", "group", "max", "min", "stddev", "stdvar", "sum"], None),
    **dict.fromkeys(["bottomk", "limitk", "limit_ratio", "quantile", "topk"], _SCALAR),
    "count_values": _STRING,
}
EXPERIMENTAL_AGGREGATIONS = frozenset({"limitk", "limit_ratio"})
