"""How large, deep and numerous one request may be. Beyond a bound it is refused whole, before anything is stored."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import InvalidInput

__all__ = ["DecodeLimits"]


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Limits of one telemetry request. A request over a limit is refused as a whole, before anything is stored."""

    # Maximum size of a request as sent, in bytes.
    request_bytes_max: int = 16 << 20
    # Maximum size of a request once unpacked, in bytes.
    unpacked_bytes_max: int = 64 << 20
    # Maximum points, log records, spans, samples or rows of one request.
    rows_max: int = 500_000
    # Maximum columns of a table of your own, including nested names.
    columns_max: int = 2_000
    # Maximum rows times columns. A row without a value in a column takes space all the same.
    cells_max: int = 20_000_000
    # Maximum attributes or labels of one row, of its resource or of its scope.
    attributes_max: int = 512
    # Maximum size of one name or value, in bytes of text.
    value_bytes_max: int = 1 << 20
    # Maximum nesting of arrays and lists in the value of an attribute.
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
