"""Own metadata as attributes of rows: which values can be filtered on, and what changes when only they change. Pure.

All of a document's metadata lies in one attribute as JSON, which a search shows. Beside it each text, number and truth
value is an attribute of its own, `meta.` and its name. An attribute keeps the type of its first value: a value of
another type is converted where nothing is lost, and else is shown and cannot be filtered on, like all names beyond
`OWN_ATTRIBUTES_MAX` of a collection. Documents come in their order, so that a repeated round decides alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from penstock.documents import Metadata, doc_id_of, merged_metadata
from penstock.indexing.planning.backlog import Share
from penstock.indexing.registry.entries import DocumentEntry
from penstock.indexing.stages.readings import DocumentReading
from penstock.vector import AttributeType, Scalar

__all__ = ["METADATA", "OWN_PREFIX", "MetadataUpdate", "OwnAttributes", "RowMetadata", "as_said", "metadata_updates"]

# The attribute with all of it, and what the names of single ones begin with.
METADATA: Final = "metadata"
OWN_PREFIX: Final = "meta."
# Of one collection: the store takes 64 attributes, and some of them are the job's.
OWN_ATTRIBUTES_MAX: Final = 40
_TYPES: Final = {
    bool: AttributeType.BOOL,
    int: AttributeType.INTEGER,
    float: AttributeType.FLOAT,
    str: AttributeType.STRING,
}
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


@dataclass(frozen=True, slots=True)
class RowMetadata:
    """What the rows of one document have of its metadata."""

    # By attribute.
    values: Mapping[str, Scalar] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetadataUpdate:
    """Other metadata for all rows of a version of a document, which is None for the current one."""

    document: str
    version: str | None
    # Attributes that are no longer said are None.
    values: Mapping[str, Scalar | None]


def as_said(share: Share, reading: DocumentReading) -> Share:
    """A document of which its object's writer said something: as if its notification had, which has the last word."""
    if reading.said is None or reading.void:
        return share
    entry, pending = share.entry, share.pending
    said = msgspec.json.decode(reading.said, type=dict[str, Any])
    told, _ = merged_metadata(said, pending.upload.metadata)
    upload = msgspec.structs.replace(pending.upload, metadata=told or None)
    # A later event of the same version that says nothing keeps what was said.
    last = upload if entry.upload is not None and doc_id_of(entry.upload) == pending.doc_id else entry.upload
    entry = msgspec.structs.replace(entry, upload=last, pending=msgspec.structs.replace(pending, upload=upload))
    return replace(share, entry=entry)


class OwnAttributes:
    """The attributes of one collection, and those that documents of this round bring."""

    def __init__(self, known: Mapping[str, AttributeType]) -> None:
        self._types = {name: kind for name, kind in known.items() if name.startswith(OWN_PREFIX)}

    def of(self, told: Mapping[str, Any] | None, sidecar: Mapping[str, Any] | None) -> RowMetadata:
        """What a document's rows have, whose notification and whose side-car say this."""
        merged, warnings = merged_metadata(told, sidecar)
        if not merged:
            return RowMetadata(warnings=warnings)
        values: dict[str, Scalar] = {METADATA: _ENCODER.encode(merged).decode()}
        told_warnings = list(warnings)
        for name, value in merged.items():
            converted, why = self._column(OWN_PREFIX + name, value)
            if converted is not None:
                values[OWN_PREFIX + name] = converted
            elif why:
                told_warnings.append(f"metadata {name[:40]!r} is shown and cannot be filtered on: {why}")
        return RowMetadata(values, tuple(told_warnings))

    def _column(self, name: str, value: Any) -> tuple[Scalar | None, str]:
        found = _TYPES.get(type(value))
        if found is None:
            return None, ""
        known = self._types.get(name)
        if known is None and len(self._types) >= OWN_ATTRIBUTES_MAX:
            return None, f"the index has {OWN_ATTRIBUTES_MAX} other names"
        known = self._types.setdefault(name, found)
        converted = _converted(value, found, known)
        return converted, "" if converted is not None else f"it is {found}, and was {known} before"


def _converted(value: Any, found: AttributeType, known: AttributeType) -> Scalar | None:
    """A value in the type that its attribute has; None where that would change it."""
    if found is known:
        return value  # type: ignore[no-any-return]
    if known is AttributeType.STRING:
        return _ENCODER.encode(value).decode()
    if known is AttributeType.FLOAT and found is AttributeType.INTEGER and float(value) == value:
        return float(value)
    if known is AttributeType.INTEGER and found is AttributeType.FLOAT and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    return None


def metadata_updates(
    subject: DocumentEntry, sidecar: Metadata | None, said: Set[str], own: OwnAttributes
) -> Iterator[MetadataUpdate]:
    """What changes for the rows of a document whose side-car says this, and of which these names were said before."""
    if subject.current is not None:
        values = _replacing({*said, *(subject.metadata or {})}, own.of(subject.metadata, sidecar))
        yield MetadataUpdate(subject.object_key, None, values)
    pending = subject.pending
    if pending is not None and pending.progress.next_seq:
        told = pending.upload.metadata
        values = _replacing({*said, *(told or {})}, own.of(told, sidecar))
        yield MetadataUpdate(subject.object_key, pending.version, values)


def _replacing(said: Iterable[str], row: RowMetadata) -> dict[str, Scalar | None]:
    gone: dict[str, Scalar | None] = {METADATA: None, **dict.fromkeys(f"{OWN_PREFIX}{name}" for name in sorted(said))}
    return {**gone, **row.values}
