"""Requests of remote write 1.0 with nothing but labels and samples, as most are: their rows with few calls into Arrow.

The request comes in outline, and its distinct labels are looked at instead of every label of every series. Anything else,
and everything that must be refused, is `Uncommon`, and the decoder of every case decides about it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.telemetry.columns.attributes import check_sizes, sorted_codes
from penstock.telemetry.columns.building import Ints, constant, lists, pc, relist, timestamps
from penstock.telemetry.columns.entries import EntryColumns, distinct_entries, key_ranks
from penstock.telemetry.columns.rows import DecodedRows, RowSource, assembled
from penstock.telemetry.columns.schemas import METRICS, PROMETHEUS
from penstock.telemetry.remote_write.messages import label
from penstock.telemetry.wire.limits import DecodeLimits
from penstock.telemetry.wire.outline import Uncommon, WireOutline, part_columns
from penstock.telemetry.wire.text_pairs import text_pairs

__all__ = ["decoded_labels", "plain_rows"]

_NAME: Final = "__name__"
_LABEL: Final = WireOutline(frozenset())
_MS: Final = 1_000_000
_MS_MAX: Final = (2**63 - 1) // _MS


def decoded_labels(entries: Any, limits: DecodeLimits) -> EntryColumns:
    """Of the bytes of labels."""
    is_plain, names, values = text_pairs(entries, is_nested=False)
    if not is_plain.all():
        found = part_columns(label().DESCRIPTOR, entries, _LABEL)
        names, values = found.field("name"), found.field("value")
    check_sizes(names, limits)
    check_sizes(values, limits)
    return EntryColumns(names, values, np.zeros(len(names), np.int8), key_ranks(names))


def plain_rows(request: pa.RecordBatch, source: RowSource, limits: DecodeLimits) -> DecodedRows:
    """One row a sample."""
    series = pc.list_flatten(request.column("timeseries"))
    limits.check_rows(len(series))
    others = [request.column("metadata"), series.field("exemplars"), series.field("histograms")]
    if any(len(one.values) for one in others):
        raise Uncommon
    samples, sample_offsets = lists(series.field("samples"))
    limits.check_rows(len(samples))
    if not len(samples):
        raise Uncommon
    columns = _label_columns(series.field("labels"), np.diff(sample_offsets), limits)
    columns["time"] = _times(samples.field("timestamp"))
    columns["value"] = samples.field("value")
    columns["type"] = constant("unknown", pa.string(), len(samples))
    columns["convention"] = constant(PROMETHEUS, pa.string(), len(samples))
    return DecodedRows(assembled(METRICS, columns, len(samples), source))


def _label_columns(labels: Any, samples: Ints, limits: DecodeLimits) -> dict[str, Any]:
    """The metric and the labels of each sample; `samples` says how many each series has."""
    entries, offsets = lists(labels)
    limits.check_attributes(int(np.diff(offsets).max(initial=0)))
    distinct, codes = distinct_entries(entries, limits, decoded_labels)
    names, values = distinct.keys, distinct.values
    if any(pc.min(pc.binary_length(texts)).as_py() == 0 for texts in (names, values)):
        raise Uncommon
    codes = sorted_codes(offsets, distinct, codes)
    is_name = np.asarray(pc.equal(names, _NAME))[codes]
    places = np.flatnonzero(is_name)
    if len(places) != len(samples) or (places < offsets[:-1]).any() or (places >= offsets[1:]).any():
        raise Uncommon
    metrics, codes = codes[places], codes[~is_name]
    # Each series has one name: so many entries fewer lie before each of them.
    offsets = offsets - np.arange(len(offsets))
    if (samples != 1).any():
        rows = np.repeat(np.arange(len(samples)), samples)
        entries, offsets = relist(offsets, rows)
        metrics, codes = metrics[rows], codes[entries]
    chosen: Any = pa.array(codes)
    bounds: Any = pa.array(offsets, pa.int32())
    maps: Any = pa.MapArray.from_arrays(bounds, names.take(chosen), values.take(chosen))
    return {"metric": values.take(pa.array(metrics)), "labels": maps}


def _times(milliseconds: Any) -> Any:
    numbers = milliseconds.to_numpy()
    if numbers.max() > _MS_MAX or numbers.min() < -_MS_MAX:
        raise Uncommon
    return timestamps(numbers * _MS)
