"""Prometheus remote write 1.0 and 2.0 as rows of metrics: one sample, histogram or lone exemplar a row.

A request that is malformed is refused whole. In one that is sound, series whose labels are not what the protocol demands
(`__name__` there, names unique and not empty, values not empty) are refused one by one, and so are histograms and times
that cannot be kept: the others are taken, and the first of each fault is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.telemetry.columns.attributes import AttributeColumns, coded_columns, string_map
from penstock.telemetry.columns.building import (
    Ints,
    constant,
    field,
    lists,
    opened,
    pc,
    places,
    taken,
    to_ints,
    to_lists,
)
from penstock.telemetry.columns.entries import distinct_entries
from penstock.telemetry.columns.few_rows import Uncommon, is_short
from penstock.telemetry.columns.rows import DecodedRows, RowSource, accepted, assembled, together
from penstock.telemetry.columns.schemas import METRICS, NANOSECONDS, PROMETHEUS
from penstock.telemetry.remote_write.messages import write_request_v1, write_request_v2
from penstock.telemetry.remote_write.native_histograms import native_rows
from penstock.telemetry.remote_write.plain_series import decoded_labels, plain_rows
from penstock.telemetry.remote_write.short_requests import short_write_rows
from penstock.telemetry.wire.compression import unpack_snappy
from penstock.telemetry.wire.limits import DecodeLimits
from penstock.telemetry.wire.outline import WireOutline, outlined
from penstock.telemetry.wire.protobuf import canonical, parse, to_arrow

__all__ = ["RemoteWriteVersion", "decode_remote_write", "decode_write_requests"]

_LIMITS: Final = DecodeLimits()
_MS: Final = 1_000_000
_MS_MAX: Final = (2**63 - 1) // _MS
_TYPES: Final = ("unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset")
_NAME: Final = "__name__"
# In the second version labels are references, and nothing is left.
_OUTLINE: Final = WireOutline(frozenset({"labels"}))
_LATE: Final = "samples have a time beyond the year 2262"
_NO_ROWS: Final = DecodedRows(pa.RecordBatch.from_pylist([], METRICS))

_Mask: TypeAlias = npt.NDArray[np.bool_]


class RemoteWriteVersion(Enum):
    """Which message a request holds; the content type says so."""

    V1 = "prometheus.WriteRequest"
    V2 = "io.prometheus.write.v2.Request"


def decode_remote_write(
    body: bytes, source: RowSource, version: RemoteWriteVersion = RemoteWriteVersion.V1, limits: DecodeLimits = _LIMITS
) -> DecodedRows:
    """A request as it comes over HTTP, packed with snappy."""
    limits.check_request(len(body))
    return decode_write_requests([unpack_snappy(body, limits)], source, version, limits)


def decode_write_requests(
    unpacked: Sequence[bytes], source: RowSource, version: RemoteWriteVersion, limits: DecodeLimits = _LIMITS
) -> DecodedRows:
    """The messages of requests, unpacked. Of the second version it must be one: its texts are numbered in each."""
    is_first = version is RemoteWriteVersion.V1
    assert is_first or len(unpacked) == 1, "references of several requests cannot be told apart"
    message, rows = (write_request_v1(), _first_rows) if is_first else (write_request_v2(), _second_rows)
    what = f"remote write {'1.0' if is_first else '2.0'} request"
    try:
        if is_first and is_short(unpacked, limits):
            with suppress(Uncommon):
                return short_write_rows([parse(message, one, what) for one in unpacked], source, limits)
        with suppress(Uncommon):
            return rows(outlined(message.DESCRIPTOR, unpacked, _OUTLINE), source, limits)
        parsed = [parse(message, one, what) for one in unpacked]
        with suppress(Uncommon):
            # Once it is put into order, most of what was out of the ordinary no longer is.
            ordered = [canonical(one) for one in parsed]
            return rows(outlined(message.DESCRIPTOR, ordered, _OUTLINE), source, limits)
        return rows(to_arrow(message, unpacked, what, parsed), source, limits)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise InvalidInput("the remote write request cannot be kept", str(error)[:200]) from error


def _first_rows(request: pa.RecordBatch, source: RowSource, limits: DecodeLimits) -> DecodedRows:
    series = pc.list_flatten(request.column("timeseries"))
    is_outline = pa.types.is_binary(series.type.field("labels").type.value_type)
    if is_outline:
        with suppress(Uncommon):
            return plain_rows(request, source, limits)
    found = _first_version(request, limits)
    if is_outline and found.faults.reasons and len(series.field("exemplars").values):
        # Of series that are refused nobody decodes the exemplars, and their labels may be malformed.
        raise Uncommon
    return found.decoded(source, limits)


def _second_rows(request: pa.RecordBatch, source: RowSource, limits: DecodeLimits) -> DecodedRows:
    return _second_version(request, limits).decoded(source, limits)


class _SeriesFaults:
    """Series that are refused, by what is wrong with them."""

    def __init__(self) -> None:
        self.rows = 0
        self.reasons: list[str] = []

    def refuse(self, series: Any, bad: _Mask, reason: str) -> Any:
        """The other series; `reason` tells of the first bad one."""
        count = int(np.count_nonzero(bad))
        if not count:
            return series
        self.reasons.append(reason if count == 1 else f"{reason}, and {count - 1} more like it")
        lengths = [to_ints(pc.list_value_length(field(series, name))) for name in ("samples", "histograms")]
        # One that has no sample has exemplars, which are a row as well.
        self.rows += int(np.maximum(sum(lengths), 1)[bad].sum())
        return series.filter(pa.array(~bad))


class _Series:
    """Series of a request, with their labels resolved."""

    def __init__(self, series: Any, labels: AttributeColumns, about: dict[str, Any], faults: _SeriesFaults) -> None:
        self.series = series
        self.names, self.labels = _split_names(labels)
        # Type, unit and description of each series, where the request says.
        self.about = about
        self.faults = faults

    def decoded(self, source: RowSource, limits: DecodeLimits) -> DecodedRows:
        parts = [self._samples(source, limits), self._histograms(source), self._lone_exemplars(source)]
        limits.check_rows(sum(part.batch.num_rows for part in parts))
        parts.append(DecodedRows(_NO_ROWS.batch, self.faults.rows, self.faults.reasons))
        return together(METRICS, parts)

    def columns(self, rows: Ints) -> dict[str, Any]:
        labels = self.labels.taken(rows)
        return {
            "metric": taken(self.names, rows),
            "convention": pa.repeat(PROMETHEUS, len(rows)),
            "labels": labels.map(),
            **{name: taken(values, rows) for name, values in self.about.items()},
        }

    def _samples(self, source: RowSource, limits: DecodeLimits) -> DecodedRows:
        samples, series = opened(field(self.series, "samples"))
        limits.check_rows(len(samples))
        columns = self.columns(series)
        columns["time"], late = _times(field(samples, "timestamp"))
        columns["value"] = field(samples, "value")
        if samples.type.get_field_index("start_timestamp") >= 0:
            columns["start_time"], late_start = _times(field(samples, "start_timestamp"), zero_is_null=True)
            late = late | late_start
        columns["exemplars"] = self._exemplars(series, _firsts(series))
        return accepted(assembled(METRICS, columns, len(samples), source), [(late, _LATE)])

    def _histograms(self, source: RowSource) -> DecodedRows:
        histograms, series = opened(field(self.series, "histograms"))
        if not len(series):
            return _NO_ROWS
        native = native_rows(histograms, self.names.take(places(series)))
        columns = self.columns(series) | native.columns
        columns["time"], late = _times(field(histograms, "timestamp"))
        has_samples = to_ints(pc.list_value_length(field(self.series, "samples")))[series] > 0
        columns["exemplars"] = self._exemplars(series, _firsts(series) & ~has_samples)
        found = accepted(assembled(METRICS, columns, len(series), source), [(native.refused, ""), (late, _LATE)])
        reasons = [*native.reasons, *(reason for reason in found.reasons if reason.endswith(_LATE))]
        return DecodedRows(found.batch, found.rejected, reasons)

    def _lone_exemplars(self, source: RowSource) -> DecodedRows:
        """Prometheus sends exemplars as series of their own: a row without a value carries them."""
        exemplars = field(self.series, "exemplars")
        empty = np.ones(len(self.series), np.bool_)
        for name in ("samples", "histograms"):
            empty &= to_ints(pc.list_value_length(field(self.series, name))) == 0
        series = np.flatnonzero(empty & (to_ints(pc.list_value_length(exemplars)) > 0))
        if not len(series):
            return _NO_ROWS
        columns = self.columns(series)
        columns["exemplars"] = self._exemplars(series, np.ones(len(series), np.bool_))
        items, offsets = lists(exemplars.take(places(series)))
        times, late = _times(field(items, "timestamp"))
        columns["time"] = times.take(places(offsets[:-1]))
        return accepted(assembled(METRICS, columns, len(series), source), [(late[offsets[:-1]], _LATE)])

    def _exemplars(self, series: Ints, wanted: Any) -> Any:
        exemplars = field(self.series, "exemplars")
        kind = METRICS.field("exemplars").type
        if not int(pc.sum(pc.list_value_length(exemplars)).as_py() or 0):
            return pa.nulls(len(series), kind)
        found = exemplars.take(places(series, mask=~np.asarray(wanted)))
        items, offsets = lists(found)
        labels = self.exemplar_labels(items)
        nothing = pa.nulls(len(items), pa.string())
        trace, span = (_picked(labels, name) for name in ("trace_id", "span_id"))
        columns = {
            "time": _times(field(items, "timestamp"))[0],
            "value": field(items, "value"),
            "int_value": pa.nulls(len(items), pa.int64()),
            "trace_id": trace if trace is not None else nothing,
            "span_id": span if span is not None else nothing,
            "attributes": labels.map(),
            "attribute_types": pa.nulls(len(items), pa.list_(pa.int8())),
        }
        return to_lists(pa.StructArray.from_arrays(list(columns.values()), list(columns)), offsets)

    def exemplar_labels(self, items: Any) -> AttributeColumns:
        raise NotImplementedError


class _FirstSeries(_Series):
    def __init__(
        self, series: Any, labels: AttributeColumns, about: dict[str, Any], faults: _SeriesFaults, limits: DecodeLimits
    ) -> None:
        super().__init__(series, labels, about, faults)
        self._limits = limits

    def exemplar_labels(self, items: Any) -> AttributeColumns:
        return _label_pairs(field(items, "labels"), self._limits)


class _SecondSeries(_Series):
    def __init__(
        self,
        series: Any,
        labels: AttributeColumns,
        about: dict[str, Any],
        faults: _SeriesFaults,
        symbols: Any,
        limits: DecodeLimits,
    ) -> None:
        super().__init__(series, labels, about, faults)
        self._symbols = symbols
        self._limits = limits

    def exemplar_labels(self, items: Any) -> AttributeColumns:
        return _label_references(field(items, "labels_refs"), self._symbols, self._limits)


def _first_version(request: pa.RecordBatch, limits: DecodeLimits) -> _Series:
    series = pc.list_flatten(request.column("timeseries"))
    limits.check_rows(len(series))
    faults = _SeriesFaults()

    def labels_of(series: Any) -> tuple[AttributeColumns, Ints]:
        return _label_pairs(field(series, "labels"), limits), lists(field(series, "labels"))[1]

    series, labels = _checked(series, labels_of, faults)
    found = _FirstSeries(series, labels, {}, faults, limits)
    found.about = _families(found.names, pc.list_flatten(request.column("metadata")))
    return found


def _second_version(request: pa.RecordBatch, limits: DecodeLimits) -> _Series:
    symbols = pc.list_flatten(request.column("symbols"))
    series = pc.list_flatten(request.column("timeseries"))
    limits.check_rows(len(series))
    if len(series) and (len(symbols) == 0 or symbols[0].as_py() != ""):
        raise InvalidInput("the symbols of a remote write 2.0 request are wrong", "the first must be empty")
    faults = _SeriesFaults()
    series = _with_sound_references(series, len(symbols), faults)

    def labels_of(series: Any) -> tuple[AttributeColumns, Ints]:
        references = field(series, "labels_refs")
        return _label_references(references, symbols, limits), lists(references)[1] // 2

    series, labels = _checked(series, labels_of, faults)
    metadata = field(series, "metadata")
    about = {
        "type": _named_types(pc.fill_null(field(metadata, "type"), 0)),
        "unit": _symbol(field(metadata, "unit_ref"), symbols),
        "description": _symbol(field(metadata, "help_ref"), symbols),
    }
    return _SecondSeries(series, labels, about, faults, symbols, limits)


def _with_sound_references(series: Any, symbols: int, faults: _SeriesFaults) -> Any:
    """Series whose labels are pairs of references to symbols that are there."""
    references, offsets = lists(field(series, "labels_refs"))
    odd = np.diff(offsets) % 2 != 0
    series = faults.refuse(series, odd, "a series has a label name without a value")
    references, offsets = lists(field(series, "labels_refs"))
    numbers = to_ints(references)
    rows = np.repeat(np.arange(len(series)), np.diff(offsets))
    wrong = numbers >= symbols
    bad = np.bincount(rows[wrong], minlength=len(series)) > 0
    largest = int(numbers[wrong].max()) if wrong.any() else 0
    return faults.refuse(series, bad, f"a series has label reference {largest}, and there are {symbols} symbols")


def _label_pairs(array: Any, limits: DecodeLimits) -> AttributeColumns:
    entries, offsets = lists(array)
    if pa.types.is_binary(entries.type):
        limits.check_attributes(int(np.diff(offsets).max(initial=0)))
        return coded_columns(offsets, *distinct_entries(entries, limits, decoded_labels))
    return string_map(offsets, field(entries, "name"), field(entries, "value"), limits)


def _label_references(array: Any, symbols: Any, limits: DecodeLimits) -> AttributeColumns:
    references, offsets = lists(array)
    numbers = to_ints(references)
    if np.any(np.diff(offsets) % 2) or (len(numbers) and numbers.max() >= len(symbols)):
        raise InvalidInput("labels refer to symbols that do not exist", f"there are {len(symbols)} symbols")
    return string_map(offsets // 2, taken(symbols, numbers[0::2]), taken(symbols, numbers[1::2]), limits)


def _symbol(references: Any, symbols: Any) -> Any:
    """Reference 0 is the empty text: none."""
    if len(references) == 0:
        return pa.nulls(0, pa.string())
    numbers = to_ints(pc.fill_null(references, 0))
    if numbers.max() >= len(symbols):
        raise InvalidInput(f"metadata reference {numbers.max()} is wrong", f"there are {len(symbols)} symbols")
    return symbols.take(places(numbers, mask=numbers == 0))


def _checked(series: Any, labels_of: _LabelReader, faults: _SeriesFaults) -> tuple[Any, AttributeColumns]:
    """Series that have their labels once each, all named, none empty, and a name among them; and those labels."""
    labels, given = labels_of(series)
    rows = np.repeat(np.arange(len(series)), np.diff(labels.offsets))
    names = rows[np.asarray(pc.equal(labels.keys, _NAME))] if len(rows) else rows
    checks = [
        (np.diff(labels.offsets) != np.diff(given), "has a label twice"),
        (_any_of(rows, pc.equal(labels.keys, ""), len(series)), "has a label without a name"),
        (_any_of(rows, pc.equal(labels.values, ""), len(series)), "has a label without a value"),
        (np.bincount(names, minlength=len(series)) == 0, f"has no name: the label {_NAME} is missing"),
    ]
    refused = np.zeros(len(series), np.bool_)
    for bad, what in checks:
        new = bad & ~refused
        if new.any():
            faults.refuse(series, new, f"series {_named(labels, int(np.flatnonzero(new)[0]))} {what}")
        refused |= bad
    if not refused.any():
        return series, labels
    sound = series.filter(pa.array(~refused))
    return sound, labels_of(sound)[0]


_LabelReader: TypeAlias = Callable[[Any], tuple[AttributeColumns, Ints]]


def _any_of(rows: Ints, is_bad: Any, count: int) -> _Mask:
    """Rows in which one entry is bad."""
    return np.bincount(rows[np.asarray(is_bad)], minlength=count) > 0 if len(rows) else np.zeros(count, np.bool_)


def _firsts(series: Ints) -> _Mask:
    """The first row of each series; rows of one lie together."""
    return np.append(True, series[1:] != series[:-1])[: len(series)]


def _split_names(labels: AttributeColumns) -> tuple[Any, AttributeColumns]:
    """The metric of each series, and the other labels."""
    is_name = np.asarray(pc.equal(labels.keys, _NAME)) if len(labels.keys) else np.zeros(0, np.bool_)
    rest = np.flatnonzero(~is_name)
    # Each series has one name: so many entries fewer lie before each of them.
    offsets = labels.offsets - np.arange(len(labels.offsets))
    names = labels.values.filter(pa.array(is_name))
    return names, AttributeColumns(offsets, taken(labels.keys, rest), taken(labels.values, rest), labels.kinds[rest])


def _named(labels: AttributeColumns, row: int) -> str:
    first, last = int(labels.offsets[row]), int(labels.offsets[row + 1])
    pairs = zip(labels.keys[first:last].to_pylist(), labels.values[first:last].to_pylist(), strict=True)
    return "{" + ", ".join(f'{name}="{value}"' for name, value in pairs)[:200] + "}"


def _families(names: Any, metadata: Any) -> dict[str, Any]:
    """Type, unit and help of each series, where its family is in the same request."""
    known = {one["metric_family_name"]: one for one in metadata.to_pylist()}
    if not known:
        return {"type": constant("unknown", pa.string(), len(names))}
    encoded = pc.dictionary_encode(names)
    families = [known.get(name) or {} for name in encoded.dictionary.to_pylist()]
    codes = to_ints(encoded.indices)
    kinds = [_type_name(one.get("type", 0)) for one in families]
    return {
        "type": taken(pa.array(kinds, pa.string()), codes),
        "unit": taken(pa.array([one.get("unit") or None for one in families], pa.string()), codes),
        "description": taken(pa.array([one.get("help") or None for one in families], pa.string()), codes),
    }


def _type_name(number: int) -> str:
    return _TYPES[number] if 0 <= number < len(_TYPES) else _TYPES[0]


def _named_types(numbers: Any) -> Any:
    codes = to_ints(numbers)
    return taken(pa.array(_TYPES), np.where((codes >= 0) & (codes < len(_TYPES)), codes, 0))


def _times(milliseconds: Any, *, zero_is_null: bool = False) -> tuple[Any, _Mask]:
    """Times of rows, and which of them no row can hold."""
    numbers = to_ints(milliseconds)
    # Not by its absolute value: the least number has none.
    late = (numbers > _MS_MAX) | (numbers < -_MS_MAX)
    known = np.where(late, 0, numbers) if late.any() else numbers
    return pa.array(known * _MS, mask=numbers == 0 if zero_is_null else None).cast(NANOSECONDS), late


def _picked(labels: AttributeColumns, name: str) -> Any:
    """The value of one label in each row; None where no row has it."""
    found = np.flatnonzero(np.asarray(pc.equal(labels.keys, name))) if len(labels.keys) else np.zeros(0, np.int64)
    if not len(found):
        return None
    rows = np.searchsorted(labels.offsets, found, side="right") - 1
    entries = np.full(len(labels.offsets) - 1, -1)
    entries[rows] = found
    return labels.values.take(places(entries, mask=entries < 0))
