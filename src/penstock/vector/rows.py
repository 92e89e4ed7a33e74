"""Rows as callers give them, checked: an Arrow table of `id`, `vector`, and perhaps `text` and `attributes`.

A row may have no vector if it has a text: its words find it. Either every row is fit to be stored, or `InvalidInput`
names the first that is not and nothing is taken: neither vector nor text, wrong dimensions, NaN and infinity, numbers
whose squares overflow, a zero vector under cosine, an id twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.vector.arrays import Array, Bools, Column, Floats, compute
from penstock.vector.attributes import AttributeType, Scalar, attribute_columns, attribute_type, describe, scalar_type
from penstock.vector.format.metric import MAGNITUDE_MAX, DistanceMetric, all_between, squared_lengths

__all__ = [
    "ID_BYTES_MAX",
    "Rows",
    "check_ids",
    "check_vectors",
    "prepared_queries",
    "read_rows",
    "read_updates",
    "shared_values",
    "text_array",
]

# External ids are hashed for lookup and stored once: a longer one is a text in disguise.
ID_BYTES_MAX: Final = 1024
# So few are measured before Arrow's kernels would be loaded.
_FEW_IDS: Final = 64
_COLUMNS: Final = ("id", "vector", "text", "attributes")
_ARROW: Final = (pa.Array, pa.ChunkedArray)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that are fit to be stored."""

    names: Column
    # Those of the rows that have one, in their order.
    vectors: Floats
    texts: Column | None
    attributes: Mapping[str, Column]
    # Which rows have a vector; None if all do.
    placed: Bools | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def placed_mask(self) -> Bools:
        """Which rows have a vector."""
        return np.ones(len(self), np.bool_) if self.placed is None else self.placed

    def part(self, first: int, last: int) -> Rows:
        """The rows between two places."""
        length = last - first
        vectors, placed = self.vectors[first:last], None
        if self.placed is not None:
            start, placed = int(self.placed[:first].sum()), self.placed[first:last]
            vectors = self.vectors[start : start + int(placed.sum())]
        return Rows(
            self.names.slice(first, length),
            vectors,
            None if self.texts is None else self.texts.slice(first, length),
            {name: values.slice(first, length) for name, values in self.attributes.items()},
            placed,
        )

    def attribute_types(self) -> dict[str, AttributeType]:
        found = {name: attribute_type(values.type) for name, values in self.attributes.items()}
        return {name: kind for name, kind in found.items() if kind is not None}

    @property
    def size_bytes(self) -> int:
        columns = [self.names, *self.attributes.values()]
        if self.texts is not None:
            columns.append(self.texts)
        return int(self.vectors.nbytes + sum(column.nbytes for column in columns))


def read_rows(
    table: pa.Table | pa.RecordBatch, dimensions: int, metric: DistanceMetric, known: Mapping[str, AttributeType]
) -> Rows:
    """The rows of a table, or `InvalidInput`."""
    if not isinstance(table, pa.Table | pa.RecordBatch):
        raise InvalidInput(f"rows are a {type(table).__name__}", "rows are an Arrow table or record batch")
    unknown = [name for name in table.column_names if name not in _COLUMNS]
    if unknown or len(set(table.column_names)) != len(table.column_names):
        raise InvalidInput(
            f"columns {', '.join(unknown or table.column_names)}",
            f"rows have the columns {', '.join(_COLUMNS)}, each once",
            "put other values into the struct column `attributes`",
        )
    names = check_ids(_column(table, "id"))
    _check_unique(names)
    texts = _texts(table)
    vectors, placed = _vectors(_array(_column(table, "vector")), names, texts, dimensions, metric)
    return Rows(names, vectors, texts, _attributes(table, known), placed)


def read_updates(
    table: pa.Table | pa.RecordBatch, known: Mapping[str, AttributeType]
) -> tuple[Column, dict[str, Column]]:
    """The ids and the attributes of an update, one value a row; null takes a value away."""
    if sorted(getattr(table, "column_names", ())) != ["attributes", "id"]:
        raise InvalidInput("an update cannot be read", "it is an Arrow table of the columns id and attributes")
    names = check_ids(_column(table, "id"))
    _check_unique(names)
    return names, {**_cleared(_array(table.column("attributes"))), **_attributes(table, known)}


def shared_values(values: Mapping[str, Scalar | None], known: Mapping[str, AttributeType]) -> dict[str, Column]:
    """Attributes that rows share, each as a column of one value; None takes a value away."""
    columns: list[Column] = []
    for name, value in values.items():
        kind = AttributeType.STRING if value is None else scalar_type(value)
        if kind is None:
            raise InvalidInput(f"attribute {name!r:.60} is {describe(value)}", f"types are {', '.join(AttributeType)}")
        columns.append(pa.array([value], kind.arrow))
    if not columns:
        return {}
    struct = pa.StructArray.from_arrays(columns, names=list(values))
    return {**_cleared(struct), **attribute_columns(struct, known)}


def _cleared(column: Column) -> dict[str, Column]:
    """Attributes of a struct that have no value in any row: they are taken away, whatever type they have by then."""
    fields = zip(column.type, column.flatten(), strict=True) if pa.types.is_struct(column.type) else ()
    empty = [field.name for field, values in fields if values.null_count == len(values)]
    return {name: pa.array([None] * len(column), pa.null()) for name in empty}


def check_ids(column: Column) -> Column:
    """External ids: text, none missing, empty or overlong."""
    values = _array(column)
    values = _strings(values, "ids", "an id is a string")
    lengths = _byte_lengths(values)
    if values.null_count or (lengths == 0).any():
        place = int(np.flatnonzero(lengths == 0)[0])
        raise InvalidInput(f"the id of row {place} is missing", "every row needs an id of at least one character")
    if (lengths > ID_BYTES_MAX).any():
        place = int(np.argmax(lengths))
        raise InvalidInput(f"id {values[place].as_py()[:40]!r}…", f"an id has at most {ID_BYTES_MAX} bytes")
    return values


def _byte_lengths(values: Column) -> Array:
    if len(values) > _FEW_IDS:
        return np.asarray(compute.binary_length(values).fill_null(0))
    sizes = (value.as_buffer() for value in values)
    return np.array([0 if size is None else size.size for size in sizes], np.int64)


def text_array(what: str, texts: Iterable[str]) -> Column:
    """Texts that a caller gives as Python values."""
    if isinstance(texts, str):
        raise InvalidInput(f"{what} = {texts[:40]!r}", "a list is needed, but one text was given", "put it into a list")
    if isinstance(texts, pa.Array | pa.ChunkedArray):
        return _strings(_array(texts), what, "each must be text")
    if not isinstance(texts, Iterable):
        raise InvalidInput(f"{what} = {texts!r:.60}", "a list of texts is needed")
    listed = list(texts)
    try:
        return pa.array(listed, pa.string())
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise InvalidInput(f"{what} = {listed!r:.60}", f"each must be valid UTF-8 text: {error}") from error


def check_vectors(column: Column, names: Column, dimensions: int, metric: DistanceMetric) -> Floats:
    """The vectors of rows as an array of four-byte floats."""
    vectors = _matrix(_array(column), names, dimensions)
    _check_numbers(vectors, metric, lambda bad: f"the vector of {_name(names, bad)}")
    return vectors


def prepared_queries(vectors: object, dimensions: int, metric: DistanceMetric) -> Floats:
    """Query vectors, one or many, checked as those of rows are, as they are compared."""
    if isinstance(vectors, _ARROW):
        names = pa.array([f"query {place}" for place in range(len(vectors))])
        return metric.prepare(check_vectors(vectors, names, dimensions, metric))
    try:
        queries = _floats(vectors)
    except (TypeError, ValueError) as error:
        raise InvalidInput("the query vectors are not a matrix of numbers", str(error)) from error
    if queries.ndim != 2 or queries.shape[1] != dimensions:
        raise InvalidInput(f"query vectors of shape {queries.shape}", f"the collection has {dimensions} dimensions")
    squares = _check_numbers(queries, metric, lambda bad: f"query vector {int(np.argmax(bad))}")
    return metric.prepare(queries, squares)


def _floats(vectors: object) -> Floats:
    """One vector or many as a matrix of four-byte floats."""
    if isinstance(vectors, np.ndarray) and vectors.dtype == np.float32:
        queries: Floats = np.ascontiguousarray(vectors)
    else:
        # What does not fit becomes infinite, and is refused as such.
        with np.errstate(over="ignore"):
            queries = np.ascontiguousarray(vectors, np.float32)
    return queries[None] if queries.ndim == 1 else queries


def _check_numbers(vectors: Floats, metric: DistanceMetric, named: Callable[[Bools], str]) -> Floats:
    """Refuse what cannot be compared; returns the squares of the lengths."""
    # One pass settles the usual case: a sum of squares within bounds has no component that is beyond them.
    squares = squared_lengths(vectors)
    if all_between(squares, 0, MAGNITUDE_MAX**2):
        return squares
    peak = np.abs(vectors).max(axis=1, initial=0)
    for bad, why in (
        (~np.isfinite(peak), "it holds NaN or infinity"),
        (peak > MAGNITUDE_MAX, f"a component is beyond ±{MAGNITUDE_MAX:g}"),
        ((peak == 0) & (metric is DistanceMetric.COSINE), "it is all zero, and cosine compares directions"),
    ):
        if bad.any():
            raise InvalidInput(named(bad), why)
    return squares


def _vectors(
    column: Column, names: Column, texts: Column | None, dimensions: int, metric: DistanceMetric
) -> tuple[Floats, Bools | None]:
    """The vectors of rows that have one, and which rows those are; None if all."""
    if not column.null_count:
        return check_vectors(column, names, dimensions, metric), None
    placed: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    told = np.zeros(len(names), np.bool_) if texts is None else texts.is_valid().to_numpy(zero_copy_only=False)
    if not (placed | told).all():
        why = "it is missing, and there is no text to find the row by"
        raise InvalidInput(f"the vector of {_name(names, ~(placed | told))}", why, "give the row a vector or a text")
    if pa.types.is_null(column.type):
        return np.empty((0, dimensions), np.float32), placed
    there = pa.array(placed)
    return check_vectors(column.filter(there), names.filter(there), dimensions, metric), placed


def _matrix(values: Column, names: Column, dimensions: int) -> Floats:
    kind = values.type
    if not (pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise InvalidInput(f"vectors are {kind}", "a vector is a list of floats")
    if not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise InvalidInput(f"vectors are lists of {kind.value_type}", "a vector is a list of floats")
    lengths = compute.list_value_length(values).fill_null(-1).to_numpy(zero_copy_only=False)
    if (lengths != dimensions).any():
        wrong = lengths != dimensions
        found = int(lengths[np.argmax(wrong)])
        why = "it is missing" if found < 0 else f"it has {found} dimensions, and the collection {dimensions}"
        raise InvalidInput(f"the vector of {_name(names, wrong)}", why)
    flat = values.flatten()
    if flat.null_count:
        missing = flat.is_null().to_numpy(zero_copy_only=False).reshape(-1, dimensions).any(axis=1)
        raise InvalidInput(f"the vector of {_name(names, missing)}", "a component is missing")
    # What does not fit becomes infinite, and is refused as such.
    with np.errstate(over="ignore"):
        floats: Floats = np.ascontiguousarray(flat.to_numpy(zero_copy_only=False), np.float32)
    return floats.reshape(-1, dimensions)


def _check_unique(names: Column) -> None:
    if compute.count_distinct(names).as_py() == len(names):
        return
    counts = compute.value_counts(names)
    twice = counts.filter(compute.greater(compute.struct_field(counts, "counts"), 1))[0]["values"].as_py()
    raise InvalidInput(f"id {twice!r} occurs twice in one call", "ids must be unique")


def _texts(table: pa.Table | pa.RecordBatch) -> Column | None:
    if "text" not in table.column_names:
        return None
    texts = _array(table.column("text"))
    if pa.types.is_null(texts.type) or texts.null_count == len(texts):
        return None
    return _strings(texts, "texts", "a text is a string")


def _attributes(table: pa.Table | pa.RecordBatch, known: Mapping[str, AttributeType]) -> dict[str, Column]:
    if "attributes" not in table.column_names:
        return {}
    column = _array(table.column("attributes"))
    if pa.types.is_null(column.type):
        return {}
    if not pa.types.is_struct(column.type):
        raise InvalidInput(f"attributes are {column.type}", "they are a struct of named fields")
    return attribute_columns(column, known)


def _strings(values: Column, what: str, why: str) -> Column:
    # Asking is cheaper than a cast that does nothing, and most calls have few rows.
    if pa.types.is_string(values.type):
        return values
    if attribute_type(values.type) is not AttributeType.STRING:
        raise InvalidInput(f"{what} are {values.type}", why)
    return values.cast(pa.string())


def _column(table: pa.Table | pa.RecordBatch, name: str) -> Column:
    if name not in table.column_names:
        raise InvalidInput(
            f"the table has no column {name!r}",
            "rows have an id and a vector, which is null in a row that only has a text",
        )
    return table.column(name)


def _array(column: Column) -> Column:
    if not isinstance(column, pa.ChunkedArray):
        return column
    # The usual table has one chunk, which need not be copied.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _name(names: Column, bad: Bools) -> str:
    return repr(names[int(np.argmax(bad))].as_py())
