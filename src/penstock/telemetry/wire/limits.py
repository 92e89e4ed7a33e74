"""How large, deep and numerous one request may be. Beyond a bound it is refused whole, before anything is stored."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import InvalidInput

__all__ = ["DecodeLimits"]


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Bounds of one telemetry request."""

    # Of a request as it came.
    request_bytes_max: int = 16 << 20
    # Once unpacked, whatever the sender claims.
    unpacked_bytes_max: int = 64 << 20
    # Points, log records, spans, samples or rows.
    rows_max: int = 500_000
    # Columns of a table of your own.
    columns_max: int = 2_000
    # Rows times columns: a row that lacks a column takes its room nevertheless.
    cells_max: int = 20_000_000
    # Attributes or labels of one row, of its resource or of its scope.
    attributes_max: int = 512
    # Of one name or value, once it is text.
    value_bytes_max: int = 1 << 20
    # Arrays and lists within the value of an attribute.
    depth_max: int = 16

    def check_request(self, size: int) -> None:
        _check(size, self.request_bytes_max, "request", "bytes", "request_bytes_max")

    def check_unpacked(self, size: int) -> None:
        _check(size, self.unpacked_bytes_max, "unpacked request", "bytes", "unpacked_bytes_max")

    def check_rows(self, rows: int) -> None:
        _check(rows, self.rows_max, "request", "rows", "rows_max")

    def check_columns(self, columns: int, rows: int) -> None:
        _check(columns, self.columns_max, "table", "columns", "columns_max")
        _check(columns * rows, self.cells_max, "request", "rows times columns", "cells_max")

    def check_attributes(self, count: int) -> None:
        _check(count, self.attributes_max, "row", "attributes", "attributes_max")

    def check_value(self, size: int) -> None:
        _check(size, self.value_bytes_max, "attribute", "bytes", "value_bytes_max")


def _check(found: int, bound: int, what: str, unit: str, setting: str) -> None:
    if found > bound:
        raise InvalidInput(
            f"a {what} has {found} {unit}", f"the bound is {bound}", f"send less at once, or raise {setting}"
        )
