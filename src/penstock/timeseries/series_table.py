"""A table of series: their labels in columns, sorted and checked, and what follows from them alone.

A label without a value is the same as no label. A name that a series has twice, a series without `__name__`, and text
that is no UTF-8 are refused with the series named. Fingerprints are computed once a table, so whoever writes samples of
the same series again and again keeps the table and spares that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.timeseries.arrays import Bools, Column, Cut, Indices, buffer_of, bytes_column, compute, taken
from penstock.timeseries.fingerprints import Fingerprints, fingerprints_of
from penstock.timeseries.payloads import labels_of_payload
from penstock.timeseries.promql.labels import METRIC_NAME, Labels, text

__all__ = ["SeriesTable"]

_LENGTH_BYTES: Final = 4
_EMPTY: Final = bytes_column((), pa.string())
# How much of a series a message shows.
_NAMED_CHARACTERS: Final = 200


class SeriesTable:
    """Series by their labels. Never changed once it is made."""

    def __init__(self, offsets: Indices, names: Column, values: Column) -> None:
        """Labels one after the other, those of series i from `offsets[i]` on; use `of` for anything else."""
        self.offsets = offsets
        self.names = names
        self.values = values
        self._check()

    @classmethod
    def of(cls, labels: Any) -> SeriesTable:
        """Series given as mappings, as an Arrow column of maps, or as an Arrow table with a column for each label."""
        if isinstance(labels, SeriesTable):
            return labels
        if isinstance(labels, pa.Table | pa.RecordBatch):
            return cls(*_from_columns(labels))
        if isinstance(labels, pa.ChunkedArray):
            labels = labels.combine_chunks()
        if isinstance(labels, pa.Array):
            return cls(*_from_maps(labels))
        if isinstance(labels, Mapping):
            labels = [labels]
        return cls(*_from_mappings(labels))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def payloads(self) -> Column:
        """Each series as the bytes that are hashed and stored: length, name, length, value, and so on."""
        joined = compute.binary_join_element_wise(
            _lengths(self.names),
            self.names.cast(pa.binary()),
            _lengths(self.values),
            self.values.cast(pa.binary()),
            b"",
        )
        bounds = np.frombuffer(joined.buffers()[1], np.int32, len(joined) + 1, 4 * joined.offset)[self.offsets]
        return pa.BinaryArray.from_buffers(pa.binary(), len(self), [None, buffer_of(bounds), joined.buffers()[2]])

    @cached_property
    def fingerprints(self) -> Fingerprints:
        return fingerprints_of(self.payloads)

    @cached_property
    def size_bytes(self) -> int:
        return int(self.offsets.nbytes + 2 * (self.names.nbytes + self.values.nbytes) + 16 * len(self))

    @cached_property
    def label_counts(self) -> Indices:
        return np.diff(self.offsets)

    def series_of(self, labels: Indices) -> Indices:
        """The series to which each of these labels belongs."""
        return np.searchsorted(self.offsets, labels, side="right") - 1

    def labels(self, row: int) -> Labels:
        return labels_of_payload(self.payloads[row].as_py())

    def name(self, row: int) -> str:
        """A series as messages show it."""
        first, end = int(self.offsets[row]), int(self.offsets[row + 1])
        pairs = zip(self.names[first:end].to_pylist(), self.values[first:end].to_pylist(), strict=True)
        shown = text(tuple(pairs))
        return shown if len(shown) <= _NAMED_CHARACTERS else shown[:_NAMED_CHARACTERS] + "…"

    def take(self, rows: Cut) -> SeriesTable:
        """Some of the series, in the order given."""
        chosen = np.arange(len(self))[rows]
        counts = self.label_counts[chosen]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1] - self.offsets[:-1][chosen], counts)
        cut = SeriesTable.__new__(SeriesTable)
        cut.offsets = offsets
        cut.names, cut.values = taken(self.names, places), taken(self.values, places)
        if "fingerprints" in self.__dict__:
            cut.__dict__["fingerprints"] = self.fingerprints.take(chosen)
        return cut

    @classmethod
    def concatenate(cls, parts: Sequence[SeriesTable]) -> SeriesTable:
        if len(parts) == 1:
            return parts[0]
        counts = np.concatenate([np.zeros(0, np.int64), *(part.label_counts for part in parts)])
        whole = cls.__new__(cls)
        whole.offsets = np.concatenate([[0], np.cumsum(counts)])
        whole.names = pa.concat_arrays([_EMPTY, *(part.names for part in parts)])
        whole.values = pa.concat_arrays([_EMPTY, *(part.values for part in parts)])
        whole.__dict__["fingerprints"] = Fingerprints.concatenate([part.fingerprints for part in parts])
        return whole

    def _check(self) -> None:
        if len(self.names):
            nameless = np.flatnonzero(_flags(compute.equal(self.names, "")))
            if len(nameless):
                row = int(self.series_of(nameless)[0])
                raise InvalidInput(f"series {self.name(row)} has a label without a name", "every label has a name")
        self._sort()
        if len(self.names) > 1:
            twice = _flags(compute.equal(self.names[1:], self.names[:-1])) & self._within()
            if twice.any():
                at = int(np.flatnonzero(twice)[0])
                row = int(self.series_of(np.array([at]))[0])
                raise InvalidInput(f"series {self.name(row)} has the label {self.names[at].as_py()!r} twice")
        named = np.zeros(len(self), np.bool_)
        named[self.series_of(np.flatnonzero(_flags(compute.equal(self.names, METRIC_NAME))))] = True
        if not named.all():
            row = int(np.flatnonzero(~named)[0])
            raise InvalidInput(f"series {self.name(row)} has no {METRIC_NAME}", "every series belongs to a metric")

    def _sort(self) -> None:
        """Put the labels of each series in the order of their names, unless they are."""
        if len(self.names) < 2 or not (_flags(compute.greater(self.names[:-1], self.names[1:])) & self._within()).any():
            return
        series = np.repeat(np.arange(len(self)), self.label_counts)
        keys = pa.table({"series": series, "name": self.names})
        order = compute.sort_indices(keys, [("series", "ascending"), ("name", "ascending")])
        self.names, self.values = self.names.take(order), self.values.take(order)

    def _within(self) -> Bools:
        """For every label but the first, whether the one before belongs to the same series."""
        same = np.ones(len(self.names), np.bool_)
        # A series without labels begins where the next one does.
        same[self.offsets[:-1][self.offsets[:-1] < len(self.names)]] = False
        return same[1:]


def _lengths(texts: Column) -> Column:
    sizes = np.ascontiguousarray(compute.binary_length(texts).to_numpy(zero_copy_only=False), "<u4")
    return pa.Array.from_buffers(pa.binary(_LENGTH_BYTES), len(sizes), [None, buffer_of(sizes)]).cast(pa.binary())


def _flags(column: Column) -> Bools:
    flags: Bools = column.to_numpy(zero_copy_only=False).astype(np.bool_)
    return flags


_Flat = tuple[Indices, Column, Column]


def _from_mappings(rows: Iterable[Mapping[str, str]]) -> _Flat:
    names: list[str] = []
    values: list[str] = []
    offsets = [0]
    if not isinstance(rows, Iterable):
        raise InvalidInput(f"series {rows!r:.80}", "they are a sequence of mappings, or an Arrow column or table")
    for row in rows:
        try:
            for name, value in row.items():
                if value != "":
                    names.append(name)
                    values.append(value)
        except (AttributeError, TypeError, ValueError) as error:
            raise InvalidInput(f"series {row!r:.80}", "labels are a mapping of names to values") from error
        offsets.append(len(names))
    try:
        columns = [bytes_column([*map(str.encode, texts)], pa.string()) for texts in (names, values)]
    except (TypeError, UnicodeEncodeError) as error:
        raise _no_text(names, values) from error
    return np.array(offsets), columns[0], columns[1]


def _no_text(names: Sequence[object], values: Sequence[object]) -> InvalidInput:
    for name, value in zip(names, values, strict=True):
        try:
            str.encode(name), str.encode(value)  # type: ignore[arg-type] # what is looked for is no text
        except (TypeError, UnicodeEncodeError):
            break
    return InvalidInput(f"label {name!r:.60} = {value!r:.60}", "names and values are texts of UTF-8")


def _from_maps(column: Column) -> _Flat:
    if not pa.types.is_map(column.type):
        raise InvalidInput(f"a labels column of {column.type}", "it must be of map<string, string>")
    if column.null_count:
        raise InvalidInput("a labels column with nulls", "every series has labels")
    starts = np.asarray(column.offsets)
    keys, items = (_text(part[starts[0] : starts[-1]]) for part in (column.keys, column.items))
    if keys.null_count:
        raise InvalidInput("a labels column with a null name", "every label has a name")
    return _without_empty(starts.astype(np.int64) - starts[0], keys, items)


def _from_columns(table: pa.Table | pa.RecordBatch) -> _Flat:
    rows = table.num_rows
    if len(set(table.column_names)) < len(table.column_names):
        raise InvalidInput("a table of labels has two columns with the same name", "label names must be unique")
    columns = {name: _text(table.column(name)) for name in table.column_names}
    # Label names side by side are sorted once, here: columns in their order make rows in theirs.
    known = sorted(columns)
    order = np.arange(len(known) * rows).reshape(len(known), rows).T.reshape(-1)
    names = taken(bytes_column([*map(str.encode, known)], pa.string()), np.tile(np.arange(len(known)), rows))
    values = pa.concat_arrays([_EMPTY, *(columns[name] for name in known)])
    return _without_empty(np.arange(rows + 1) * len(known), names, taken(values, order))


def _without_empty(offsets: Indices, names: Column, values: Column) -> _Flat:
    filled = _flags(compute.fill_null(compute.not_equal(values, ""), False))
    if filled.all():
        return offsets, names, values
    kept = np.concatenate([[0], np.cumsum(filled)])
    return kept[offsets], names.filter(filled), values.filter(filled)


def _text(column: Column) -> Column:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    try:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        cast = column.cast(pa.string())
        cast.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInput(f"labels of {column.type}", f"names and values are texts of UTF-8: {error}") from error
    return cast
