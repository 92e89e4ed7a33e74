"""The labels of series, put together in bulk: attributes in the form of Prometheus, and what a resource says.

Names that become equal when odd characters are replaced have their values joined by a semicolon, as the public
mapping of OTLP says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.telemetry.columns.attributes import AttributeColumns, in_order
from penstock.telemetry.columns.building import Ints, pc, places, to_ints
from penstock.telemetry.columns.label_sets import distinct
from penstock.telemetry.series.prometheus_names import label_name

__all__ = ["LabelEntries", "job_of", "target_info"]


class LabelEntries:
    """Labels of many series, gathered name by name, and put in order at the end."""

    def __init__(self, series: int) -> None:
        self._series = series
        self._owners: list[Ints] = []
        self._keys: list[Any] = []
        self._values: list[Any] = []

    def add_attributes(self, labels: AttributeColumns, is_otlp: npt.NDArray[np.bool_]) -> None:
        """Names of OTLP lose what Prometheus does not allow; values of names that become equal are joined."""
        owners = np.repeat(np.arange(self._series), np.diff(labels.offsets))
        keys = labels.keys
        if len(keys) and is_otlp.any():
            encoded = pc.dictionary_encode(keys)
            plain = pa.array([label_name(name) for name in encoded.dictionary.to_pylist()], pa.string())
            keys = pc.if_else(pa.array(is_otlp[owners]), plain.take(encoded.indices), keys)
        # A label without a value is a label that is not there.
        kept = np.asarray(pc.fill_null(pc.not_equal(labels.values, ""), False)) if len(keys) else np.zeros(0, np.bool_)
        owners, keys, values = owners[kept], keys.filter(pa.array(kept)), labels.values.filter(pa.array(kept))
        owners, keys, values = _joined_values(owners, keys, values)
        self._owners.append(owners)
        self._keys.append(keys)
        self._values.append(values)

    def add(self, name: str, values: list[str | None]) -> None:
        owners = np.array([number for number, value in enumerate(values) if value], np.int64)
        self._owners.append(owners)
        self._keys.append(pa.repeat(name, len(owners)))
        self._values.append(pa.array([value for value in values if value], pa.string()))

    def maps(self) -> Any:
        owners = np.concatenate(self._owners)
        order = np.argsort(owners, kind="stable")
        keys, values = (
            pa.concat_arrays(self._keys).take(places(order)),
            pa.concat_arrays(self._values).take(places(order)),
        )
        offsets = np.zeros(self._series + 1, np.int64)
        np.cumsum(np.bincount(owners, minlength=self._series), out=offsets[1:])
        return in_order(offsets, keys, values, np.zeros(len(keys), np.int8)).map()


def _joined_values(owners: Ints, keys: Any, values: Any) -> tuple[Ints, Any, Any]:
    """`a.b` and `a_b` of one series: their values, joined by a semicolon."""
    if not len(keys):
        return owners, keys, values
    numbers, first = distinct(owners, to_ints(pc.dictionary_encode(keys).indices))
    if len(first) == len(owners):
        return owners, keys, values
    texts: dict[int, list[str]] = {}
    for number, text in zip(numbers, values.to_pylist(), strict=True):
        texts.setdefault(int(number), []).append(text)
    joined = pa.array([";".join(texts[int(numbers[row])]) for row in first], pa.string())
    return owners[first], keys.take(places(first)), joined


def job_of(resource: Mapping[str, str]) -> str | None:
    """The label `job`: the service's namespace and name."""
    name, namespace = resource.get("service.name"), resource.get("service.namespace")
    return f"{namespace}/{name}" if name and namespace else name


def target_info(resource: Mapping[str, str]) -> list[tuple[str, str]] | None:
    """The labels of `target_info`; None for a resource that is nobody's, or says nothing more."""
    job, instance = job_of(resource), resource.get("service.instance.id")
    own = ("service.name", "service.namespace", "service.instance.id")
    rest = {label_name(name): value for name, value in resource.items() if name not in own and value}
    if not rest or not (job or instance):
        return None
    named = {"job": job, "instance": instance, "__name__": "target_info"}
    return sorted((rest | {name: value for name, value in named.items() if value}).items())
