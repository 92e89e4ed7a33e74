"""Where the rows of an OTLP request come from: resources, and the scopes within them. The same for all signals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.telemetry.columns.attributes import AttributeColumns, attribute_columns
from penstock.telemetry.columns.building import Ints, field, opened, pc
from penstock.telemetry.columns.rows import text_of_rows
from penstock.telemetry.wire.limits import DecodeLimits

__all__ = ["OtlpItems", "open_request"]


@dataclass(frozen=True, slots=True)
class OtlpItems:
    """Metrics, log records or spans of a request, and which resource and scope each is of."""

    items: Any
    resource_of: Ints
    scope_of: Ints
    resources: AttributeColumns
    scope_names: Any
    scope_versions: Any
    scopes: AttributeColumns

    def columns(self, rows: Ints) -> dict[str, Any]:
        """The columns of the source, for rows that belong to the items with these numbers."""
        resources = self.resources.taken(self.resource_of[rows])
        scope_rows = self.scope_of[rows]
        scopes = self.scopes.taken(scope_rows)
        return {
            "resource": resources.map(),
            "resource_types": resources.types(),
            "scope": text_of_rows(self.scope_names, scope_rows),
            "scope_version": text_of_rows(self.scope_versions, scope_rows),
            "scope_attributes": scopes.map(),
            "scope_attribute_types": scopes.types(),
        }


def open_request(batch: pa.RecordBatch, resources: str, scopes: str, items: str, limits: DecodeLimits) -> OtlpItems:
    """A request of any signal; the three names are those of its nested lists."""
    found_resources = pc.list_flatten(batch.column(resources))
    found_scopes, scope_resource = opened(field(found_resources, scopes))
    found_items, item_scope = opened(field(found_scopes, items))
    limits.check_rows(len(found_items))
    return OtlpItems(
        found_items,
        scope_resource[item_scope],
        item_scope,
        attribute_columns(field(found_resources, "resource", "attributes"), limits),
        field(found_scopes, "scope", "name"),
        field(found_scopes, "scope", "version"),
        attribute_columns(field(found_scopes, "scope", "attributes"), limits),
    )
